// Result<T>: how the outside world (files, requests, limits) says no. Our own mistakes stop at VESTA_CHECK instead.
// A message names the object, what was expected and what was found; it is written for the person at the terminal.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <variant>

namespace vesta {

enum class Code {
    invalid_argument,  // the caller asked for something that makes no sense
    bad_file,          // a file does not hold what its format promises
    unsupported,       // well-formed, but this build cannot do it
    not_found,         // a file, tensor, key or name is missing
    already_exists,    // would overwrite
    io,                // the operating system refused
    no_memory,         // would not fit
    cancelled,         // the user stopped it
    numeric,           // non-finite numbers where finite ones are required
};

const char* code_name(Code code);

struct Error {
    Code code;
    std::string message;
};

// fmt-style formatting: strf("{}: {} heads", name, n_head).
template <class... Args>
std::string strf(fmt::format_string<Args...> format, Args&&... args) {
    return fmt::format(format, std::forward<Args>(args)...);
}

[[noreturn]] void check_failed(const char* file, int line, const char* what, const std::string& message);

template <class T>
class [[nodiscard]] Result {
 public:
    Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
    Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}

    bool ok() const { return v_.index() == 0; }
    explicit operator bool() const { return ok(); }

    // Requires ok().
    T& value() & { return *require(std::get_if<0>(&v_)); }
    const T& value() const& { return *require(std::get_if<0>(&v_)); }
    T&& value() && { return std::move(*require(std::get_if<0>(&v_))); }

    // Requires !ok().
    const Error& error() const& { return std::get<1>(v_); }
    Error&& error() && { return std::get<1>(std::move(v_)); }

 private:
    template <class P>
    P* require(P* p) const {
        if (p == nullptr) check_failed(__FILE__, __LINE__, "Result::value() on an error", std::get<1>(v_).message);
        return p;
    }
    std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
    Result() = default;
    Result(Error error) : failed_(true), error_(std::move(error)) {}
    bool ok() const { return !failed_; }
    explicit operator bool() const { return ok(); }
    const Error& error() const& { return error_; }
    Error&& error() && { return std::move(error_); }

 private:
    bool failed_ = false;
    Error error_{Code::invalid_argument, {}};
};
using Status = Result<void>;

}  // namespace vesta

#define VESTA_CAT2_(a, b) a##b
#define VESTA_CAT_(a, b) VESTA_CAT2_(a, b)

// VESTA_TRY(const uint32_t n, file.u32("key"));  declares n, or returns the error from the enclosing function.
#define VESTA_TRY(declaration, ...)                                           \
    auto VESTA_CAT_(result_, __LINE__) = (__VA_ARGS__);                       \
    if (!VESTA_CAT_(result_, __LINE__).ok()) {                                \
        return std::move(VESTA_CAT_(result_, __LINE__)).error();              \
    }                                                                         \
    declaration = std::move(VESTA_CAT_(result_, __LINE__)).value()

// VESTA_TRY_STATUS(writer.commit());  returns the error of a Status from the enclosing function.
#define VESTA_TRY_STATUS(...)                                                 \
    do {                                                                      \
        auto vesta_status_ = (__VA_ARGS__);                                   \
        if (!vesta_status_.ok()) return std::move(vesta_status_).error();     \
    } while (0)

// A broken promise of our own code: prints where and why, then aborts. Active in every build.
#define VESTA_CHECK(condition)                                                \
    do {                                                                      \
        if (!(condition)) [[unlikely]]                                        \
            ::vesta::check_failed(__FILE__, __LINE__, #condition, {});        \
    } while (0)
