// Looking things up in a parsed file. Everything here trusts the Parser: payloads lie inside the mapping and have the
// length their type says.
#include "gguf/file.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/utf8.h"
#include "gguf/layout.h"

namespace vesta::gguf {
namespace {

template <class T>
T load(const std::byte* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

bool is_unsigned(ValueType t) {
    return t == ValueType::u8 || t == ValueType::u16 || t == ValueType::u32 || t == ValueType::u64;
}
bool is_signed(ValueType t) {
    return t == ValueType::i8 || t == ValueType::i16 || t == ValueType::i32 || t == ValueType::i64;
}
bool is_float(ValueType t) { return t == ValueType::f32 || t == ValueType::f64; }

// Bytes of the value at p, whose type is known: lengths in front of strings and arrays count.
uint64_t stored_bytes(ValueType type, const std::byte* p) {
    if (type == ValueType::string) return sizeof(uint64_t) + load<uint64_t>(p);
    if (type != ValueType::array) return min_value_bytes(type);
    const auto element = static_cast<ValueType>(load<uint32_t>(p));
    const auto count = load<uint64_t>(p + 4);
    uint64_t bytes = 12;
    if (element != ValueType::string && element != ValueType::array) return bytes + count * min_value_bytes(element);
    for (uint64_t i = 0; i < count; ++i) bytes += stored_bytes(element, p + bytes);
    return bytes;
}

// "expected an array of integers, found a string"
std::string describe(const Value& v) {
    if (v.type != ValueType::array) return value_type_name(v.type);
    return strf("an array of {} {}", v.count, value_type_name(v.element_type));
}

// Converts a scalar to T where it fits; says what is wrong otherwise.
template <class T>
Result<T> convert(const Value& v) {
    if constexpr (std::is_floating_point_v<T>) {
        double number = 0;
        if (is_float(v.type))
            number = as_double(v);
        else if (is_unsigned(v.type))
            number = static_cast<double>(as_unsigned(v));
        else if (is_signed(v.type))
            number = static_cast<double>(as_signed(v));
        else
            return Error{Code::bad_file, strf("expected a number, found {}", describe(v))};
        if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<T>::max())))
            return Error{Code::bad_file, strf("{} does not fit in an f32", number)};
        return static_cast<T>(number);
    } else {
        if (is_unsigned(v.type)) {
            const uint64_t number = as_unsigned(v);
            if (std::in_range<T>(number)) return static_cast<T>(number);
            return Error{Code::bad_file, strf("{} is larger than the limit {}", number, std::numeric_limits<T>::max())};
        }
        if (!is_signed(v.type)) return Error{Code::bad_file, strf("expected an integer, found {}", describe(v))};
        const int64_t number = as_signed(v);
        if (std::in_range<T>(number)) return static_cast<T>(number);
        return Error{Code::bad_file, strf("{} is outside {} to {}", number, std::numeric_limits<T>::min(),
                                          std::numeric_limits<T>::max())};
    }
}

Error missing(const File& file, std::string_view key, const char* expected) {
    return Error{Code::not_found,
                 strf("{}: metadata '{}' is missing, expected {}", file.name(), printable(key), expected)};
}

Error wrong(const File& file, std::string_view key, const std::string& what) {
    return Error{Code::bad_file, strf("{}: metadata '{}': {}", file.name(), printable(key), what)};
}

template <class T>
Result<T> scalar(const File& file, std::string_view key, const char* expected) {
    const Value* v = file.find(key);
    if (v == nullptr) return missing(file, key, expected);
    Result<T> value = convert<T>(*v);
    if (!value.ok()) return wrong(file, key, value.error().message);
    return value;
}

template <class T>
Result<std::vector<T>> numbers(const File& file, std::string_view key, uint64_t max_count, const char* expected) {
    const Value* v = file.find(key);
    if (v == nullptr) return missing(file, key, expected);
    if (v->type != ValueType::array) return wrong(file, key, strf("expected {}, found {}", expected, describe(*v)));
    if (v->count > max_count) return wrong(file, key, strf("{} elements, expected at most {}", v->count, max_count));
    std::vector<T> out;
    out.reserve(static_cast<size_t>(v->count));
    for (ArrayWalk walk(*v); walk.next();) {
        Result<T> element = convert<T>(walk.element());
        if (!element.ok()) return wrong(file, key, strf("element {}: {}", out.size(), element.error().message));
        out.push_back(element.value());
    }
    return out;
}

}  // namespace

const char* value_type_name(ValueType type) {
    switch (type) {
        case ValueType::u8:
            return "u8";
        case ValueType::i8:
            return "i8";
        case ValueType::u16:
            return "u16";
        case ValueType::i16:
            return "i16";
        case ValueType::u32:
            return "u32";
        case ValueType::i32:
            return "i32";
        case ValueType::f32:
            return "f32";
        case ValueType::boolean:
            return "bool";
        case ValueType::string:
            return "string";
        case ValueType::array:
            return "array";
        case ValueType::u64:
            return "u64";
        case ValueType::i64:
            return "i64";
        case ValueType::f64:
            return "f64";
    }
    return "unknown";
}

std::string_view StringArray::Iterator::operator*() const {
    return {reinterpret_cast<const char*>(p_ + sizeof(uint64_t)), static_cast<size_t>(load<uint64_t>(p_))};
}

StringArray::Iterator& StringArray::Iterator::operator++() {
    p_ += sizeof(uint64_t) + load<uint64_t>(p_);
    return *this;
}

ArrayWalk::ArrayWalk(const Value& array)
    : type_(array.element_type), left_(array.count), p_(array.payload.data()), element_{type_, type_, 1, {}} {
    VESTA_CHECK(array.type == ValueType::array);
}

bool ArrayWalk::next() {
    if (left_ == 0) return false;
    --left_;
    const auto n_byte = static_cast<size_t>(stored_bytes(type_, p_));
    size_t head = 0;
    if (type_ == ValueType::string) {
        head = sizeof(uint64_t);
    } else if (type_ == ValueType::array) {
        head = sizeof(uint32_t) + sizeof(uint64_t);
        element_.element_type = static_cast<ValueType>(load<uint32_t>(p_));
        element_.count = load<uint64_t>(p_ + sizeof(uint32_t));
    }
    element_.payload = {p_ + head, n_byte - head};
    p_ += n_byte;
    return true;
}

uint64_t as_unsigned(const Value& v) {
    switch (v.type) {
        case ValueType::u8:
        case ValueType::boolean:
            return load<uint8_t>(v.payload.data());
        case ValueType::u16:
            return load<uint16_t>(v.payload.data());
        case ValueType::u32:
            return load<uint32_t>(v.payload.data());
        default:
            VESTA_CHECK(v.type == ValueType::u64);
            return load<uint64_t>(v.payload.data());
    }
}

int64_t as_signed(const Value& v) {
    switch (v.type) {
        case ValueType::i8:
            return load<int8_t>(v.payload.data());
        case ValueType::i16:
            return load<int16_t>(v.payload.data());
        case ValueType::i32:
            return load<int32_t>(v.payload.data());
        default:
            VESTA_CHECK(v.type == ValueType::i64);
            return load<int64_t>(v.payload.data());
    }
}

double as_double(const Value& v) {
    if (v.type == ValueType::f32) return static_cast<double>(load<float>(v.payload.data()));
    VESTA_CHECK(v.type == ValueType::f64);
    return load<double>(v.payload.data());
}

std::string_view as_string(const Value& v) {
    VESTA_CHECK(v.type == ValueType::string);
    return {reinterpret_cast<const char*>(v.payload.data()), v.payload.size()};
}

const Value* File::find(std::string_view key) const {
    const auto it = key_index_.find(key);
    return it == key_index_.end() ? nullptr : &entries_[it->second].value;
}

const TensorInfo* File::find_tensor(std::string_view name) const {
    const auto it = tensor_index_.find(name);
    return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Result<uint32_t> File::u32(std::string_view key) const { return scalar<uint32_t>(*this, key, "an integer"); }
Result<uint64_t> File::u64(std::string_view key) const { return scalar<uint64_t>(*this, key, "an integer"); }
Result<float> File::f32(std::string_view key) const { return scalar<float>(*this, key, "a number"); }

Result<bool> File::boolean(std::string_view key) const {
    const Value* v = find(key);
    if (v == nullptr) return missing(*this, key, "a bool");
    if (v->type != ValueType::boolean) return wrong(*this, key, strf("expected a bool, found {}", describe(*v)));
    return as_unsigned(*v) != 0;
}

Result<std::string_view> File::string(std::string_view key) const {
    const Value* v = find(key);
    if (v == nullptr) return missing(*this, key, "a string");
    if (v->type != ValueType::string) return wrong(*this, key, strf("expected a string, found {}", describe(*v)));
    return as_string(*v);
}

Result<StringArray> File::strings(std::string_view key) const {
    const Value* v = find(key);
    if (v == nullptr) return missing(*this, key, "an array of strings");
    if (v->type != ValueType::array || v->element_type != ValueType::string)
        return wrong(*this, key, strf("expected an array of strings, found {}", describe(*v)));
    return StringArray(*v);
}

Result<std::vector<uint32_t>> File::u32_array(std::string_view key, uint64_t max_count) const {
    return numbers<uint32_t>(*this, key, max_count, "an array of integers");
}
Result<std::vector<int32_t>> File::i32_array(std::string_view key, uint64_t max_count) const {
    return numbers<int32_t>(*this, key, max_count, "an array of integers");
}
Result<std::vector<float>> File::f32_array(std::string_view key, uint64_t max_count) const {
    return numbers<float>(*this, key, max_count, "an array of numbers");
}

}  // namespace vesta::gguf
