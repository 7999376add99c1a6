// The one table of tensor formats: GGUF type ids, block shapes, and what this build can do with each. Knows bits and
// blocks; knows nothing of files, tensors or hardware. Layouts: docs/formats.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vesta::quant {

// Values are the GGUF (ggml) type ids; they are stored in files and never change.
enum class Type : uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q8_1 = 9,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    q8_k = 15,
    iq2_xxs = 16,
    iq2_xs = 17,
    iq3_xxs = 18,
    iq1_s = 19,
    iq4_nl = 20,
    iq3_s = 21,
    iq2_s = 22,
    iq4_xs = 23,
    i8 = 24,
    i16 = 25,
    i32 = 26,
    i64 = 27,
    f64 = 28,
    iq1_m = 29,
    bf16 = 30,
    tq1_0 = 34,
    tq2_0 = 35,
    mxfp4 = 39,
};

// Both work on whole blocks: n is a multiple of block_elems, src/dst hold n / block_elems blocks and need no alignment.
using DecodeFn = void (*)(const std::byte* src, float* dst, int64_t n);
using EncodeFn = void (*)(const float* src, std::byte* dst, int64_t n);

struct Format {
    Type type;
    const char* name;  // as users write it: "q8_0", "mxfp4"
    int block_elems;
    int block_bytes;
    DecodeFn decode;   // exact scalar definition; nullptr: this build knows the size but not the meaning
    EncodeFn encode;   // scalar reference encoder; nullptr: none here
};

const Format* find_format(uint32_t type_id);      // nullptr for an unknown id
const Format* find_format(const char* name);      // by Format::name, nullptr when unknown
const Format& format(Type type);                  // every enumerator has an entry

// Bytes of n elements. Requires: n % block_elems == 0.
inline int64_t row_bytes(const Format& f, int64_t n) { return n / f.block_elems * f.block_bytes; }
inline int64_t row_bytes(Type type, int64_t n) { return row_bytes(format(type), n); }

}  // namespace vesta::quant
