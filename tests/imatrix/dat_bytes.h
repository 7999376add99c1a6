// The .dat format as its specification has it, written and read by code that shares nothing with src/imatrix.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace vesta::test {

struct DatBytes {
    std::string s;
    template <class T>
    DatBytes& raw(T v) {
        s.append(reinterpret_cast<const char*>(&v), sizeof v);
        return *this;
    }
    DatBytes& i32(int32_t v) { return raw(v); }
    DatBytes& text(std::string_view t) {
        s += t;
        return *this;
    }
    DatBytes& entry(std::string_view name, int32_t n_call, const std::vector<float>& values) {
        i32(static_cast<int32_t>(name.size())).text(name).i32(n_call).i32(static_cast<int32_t>(values.size()));
        for (const float v : values) raw(v);
        return *this;
    }
    DatBytes& end(int32_t n_chunk, std::string_view dataset) {
        return i32(n_chunk).i32(static_cast<int32_t>(dataset.size())).text(dataset);
    }
    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(s)); }
};

// What a reader that knows the legacy format and nothing else sees: means by name. It stops after the dataset.
struct PlainDat {
    std::map<std::string, std::vector<float>> mean;
    std::map<std::string, int32_t> n_call;
    int32_t n_chunk = -1;
    std::string dataset;
    size_t n_left = 0;  // bytes it did not look at
};
inline PlainDat read_plainly(std::string_view s) {
    PlainDat d;
    size_t at = 0;
    const auto i32 = [&] {
        int32_t v = 0;
        std::memcpy(&v, s.data() + at, 4);
        at += 4;
        return v;
    };
    const int32_t n_entry = i32();
    for (int32_t i = 0; i < n_entry; ++i) {
        const auto n_name = static_cast<size_t>(i32());
        const std::string name(s.substr(at, n_name));
        at += n_name;
        const int32_t n_call = i32();
        std::vector<float> v(static_cast<size_t>(i32()));
        std::memcpy(v.data(), s.data() + at, v.size() * sizeof(float));
        at += v.size() * sizeof(float);
        if (n_call > 0)
            for (float& x : v) x /= static_cast<float>(n_call);
        d.n_call[name] = n_call;
        d.mean[name] = std::move(v);
    }
    if (at < s.size()) {
        d.n_chunk = i32();
        const auto n = static_cast<size_t>(i32());
        d.dataset = s.substr(at, n);
        at += n;
    }
    d.n_left = s.size() - at;
    return d;
}

}  // namespace vesta::test
