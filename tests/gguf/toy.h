// A small valid model file made with the Writer, and the places in it where its fields lie, for tests that damage it.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "gguf/writer.h"

namespace vesta::gguf {

using Bytes = std::vector<std::byte>;

template <class T>
void append_raw(Bytes& out, T value) {
    const size_t at = out.size();
    out.resize(at + sizeof value);
    std::memcpy(out.data() + at, &value, sizeof value);
}

// `depth` arrays in each other, the innermost empty: the payload of the outermost and its element type.
inline Value nested_array(Bytes& storage, int depth) {
    storage.clear();
    for (int d = depth - 1; d >= 1; --d) {
        append_raw(storage, static_cast<uint32_t>(d > 1 ? ValueType::array : ValueType::u8));
        append_raw(storage, uint64_t{d > 1 ? 1u : 0u});
    }
    const ValueType element = depth > 1 ? ValueType::array : ValueType::u8;
    return {ValueType::array, element, depth > 1 ? 1u : 0u, storage};
}

struct Toy {
    Bytes bytes;
    uint64_t data_start = 0;
    uint64_t last_end = 0;  // one past the last byte of the last tensor; only padding follows

    // Where things are. Names are unique in the file, so the characters can be searched for.
    size_t find(std::string_view text) const {
        const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        const size_t at = all.find(text);
        VESTA_CHECK(at != all.npos && all.find(text, at + 1) == all.npos);
        return at;
    }
    size_t name_length(std::string_view name) const { return find(name) - 8; }  // of a key or of a tensor's name
    size_t type(std::string_view key) const { return find(key) + key.size(); }
    size_t value(std::string_view key) const { return type(key) + 4; }
    size_t element_type(std::string_view key) const { return value(key); }
    size_t count(std::string_view key) const { return value(key) + 4; }
    size_t elements(std::string_view key) const { return value(key) + 12; }
    size_t n_dim(std::string_view tensor) const { return find(tensor) + tensor.size(); }
    size_t dim(std::string_view tensor, size_t d) const { return n_dim(tensor) + 4 + 8 * d; }
    size_t tensor_type(std::string_view tensor) const { return dim(tensor, get<uint32_t>(n_dim(tensor))); }
    size_t offset(std::string_view tensor) const { return tensor_type(tensor) + 4; }

    template <class T>
    T get(size_t at) const {
        T v;
        std::memcpy(&v, bytes.data() + at, sizeof v);
        return v;
    }
    template <class T>
    void set(size_t at, T v) {
        VESTA_CHECK(at + sizeof v <= bytes.size());
        std::memcpy(bytes.data() + at, &v, sizeof v);
    }
    void insert(size_t at, size_t n, char fill) {
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), n, static_cast<std::byte>(fill));
    }
};

inline Toy make_toy() {
    Writer w;
    Bytes storage;
    w.add_string("general.architecture", "deepseek4");
    w.add_u32("general.alignment", 32);
    w.add_u32("toy.block_count", 2);
    w.add_f32("toy.epsilon", 1e-6f);
    w.add_bool("toy.flag", true);
    w.add_u64("toy.big", uint64_t{1} << 40);
    const double f64 = 0.5;
    w.add_value("toy.double", {ValueType::f64, ValueType::f64, 1, std::as_bytes(std::span(&f64, 1))});
    w.add_strings("toy.tokens", std::vector<std::string>{"<s>", "a", "", "longer token"});
    w.add_f32_array("toy.scores", std::vector<float>{0, 1, 2, 3});
    w.add_i32_array("toy.types", std::vector<int32_t>{3, 1, 1, 1});
    const uint8_t flags[] = {0, 1, 1};
    w.add_value("toy.flags", {ValueType::array, ValueType::boolean, 3, std::as_bytes(std::span(flags))});
    w.add_value("toy.nested", nested_array(storage, 8));

    const std::vector<uint64_t> dims[] = {{5, 3}, {64, 2}, {7, 2, 2}, {33}};
    w.add_tensor("blk.0.norm", quant::Type::f32, dims[0]);
    w.add_tensor("blk.0.proj", quant::Type::q8_0, dims[1]);
    w.add_tensor("blk.0.exps", quant::Type::f16, dims[2]);
    w.add_tensor("output.ids", quant::Type::i32, dims[3]);  // 132 bytes: padding follows

    Toy toy;
    toy.bytes = w.header();
    toy.data_start = toy.bytes.size();
    for (uint64_t i = 0; i < w.data_bytes(); ++i) toy.bytes.push_back(static_cast<std::byte>(i * 7));
    toy.last_end = toy.data_start + toy.get<uint64_t>(toy.offset("output.ids")) + w.tensor_bytes(3);
    return toy;
}

}  // namespace vesta::gguf
