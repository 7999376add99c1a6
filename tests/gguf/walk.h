// Touches every byte a parsed file hands out, so that a sanitizer sees any view that leaves the file.
#pragma once

#include <cstdint>
#include <string>

#include "gguf/file.h"

namespace vesta::gguf {

inline uint64_t touch(std::span<const std::byte> bytes) {
    uint64_t sum = 0;
    for (const std::byte b : bytes) sum = sum * 31 + static_cast<uint64_t>(b);
    return sum;
}

inline uint64_t touch(const Value& v) {
    switch (v.type) {
        case ValueType::u8:
        case ValueType::u16:
        case ValueType::u32:
        case ValueType::u64:
        case ValueType::boolean:
            return as_unsigned(v);
        case ValueType::i8:
        case ValueType::i16:
        case ValueType::i32:
        case ValueType::i64:
            return static_cast<uint64_t>(as_signed(v));
        case ValueType::f32:
        case ValueType::f64:
            return as_double(v) > 0 ? 1 : 2;
        case ValueType::string:
            return touch(std::as_bytes(std::span(as_string(v))));
        case ValueType::array:
            break;
    }
    uint64_t sum = touch(v.payload), n = 0;
    for (ArrayWalk walk(v); walk.next(); ++n) sum += touch(walk.element());
    VESTA_CHECK(n == v.count);
    return sum;
}

// Also calls every typed getter on every key: each must return or refuse, whatever the value is.
inline uint64_t walk_all(const File& f) {
    uint64_t sum = f.alignment() + f.data_start() + f.name().size();
    for (const File::Entry& e : f.metadata()) {
        sum += touch(e.value);
        VESTA_CHECK(f.find(e.key) == &e.value);
        sum += f.u32(e.key).ok() + f.u64(e.key).ok() + f.f32(e.key).ok() + f.boolean(e.key).ok();
        sum += f.u32_array(e.key, 1000).ok() + f.i32_array(e.key, 1000).ok() + f.f32_array(e.key, 1000).ok();
        if (const auto text = f.string(e.key); text.ok()) sum += text.value().size();
        if (const auto list = f.strings(e.key); list.ok())
            for (const std::string_view s : list.value()) sum += touch(std::as_bytes(std::span(s)));
    }
    for (const TensorInfo& t : f.tensors()) {
        const quant::Format& format = quant::format(t.type);
        VESTA_CHECK(f.find_tensor(t.name) == &t);
        VESTA_CHECK(t.bytes.size() ==
                    static_cast<uint64_t>(quant::row_bytes(format, static_cast<int64_t>(t.n_elem()))));
        sum += touch(t.bytes);
    }
    return sum;
}

}  // namespace vesta::gguf
