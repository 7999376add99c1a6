// The numbers of the GGUF v3 container that reader and writer share, with the limits we hold files to (docs/gguf.md).
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "gguf/file.h"

namespace vesta::gguf {

inline constexpr char kMagic[4] = {'G', 'G', 'U', 'F'};
inline constexpr uint32_t kVersion = 3;
inline constexpr uint64_t kMinFileBytes = 32;
// The shortest records that can be written down, so that a count can be compared with the bytes that are left. An empty
// key counts as possible here: it gets its own message later.
inline constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;                 // key length, type, value
inline constexpr uint64_t kMinTensorRecordBytes = 8 + 4 + 8 + 4 + 8;  // name length, n_dims, one dim, type, offset
inline constexpr uint64_t kMaxNameBytes = 128;                        // keys and tensor names
inline constexpr int kMaxArrayDepth = 8;

inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr uint32_t kDefaultAlignment = 32;
inline constexpr uint32_t kMinAlignment = 8, kMaxAlignment = 65536;
inline constexpr bool valid_alignment(uint32_t a) {
    return std::has_single_bit(a) && a >= kMinAlignment && a <= kMaxAlignment;
}

// Bytes of one value; of the shortest one for strings and arrays.
inline constexpr uint64_t min_value_bytes(ValueType type) {
    switch (type) {
        case ValueType::u8:
        case ValueType::i8:
        case ValueType::boolean:
            return 1;
        case ValueType::u16:
        case ValueType::i16:
            return 2;
        case ValueType::u32:
        case ValueType::i32:
        case ValueType::f32:
            return 4;
        case ValueType::u64:
        case ValueType::i64:
        case ValueType::f64:
            return 8;
        case ValueType::string:
            return 8;
        case ValueType::array:
            return 12;
    }
    return 1;
}

}  // namespace vesta::gguf
