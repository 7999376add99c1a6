// The decoders and encoders behind the table of format.h; contracts as DecodeFn and EncodeFn there. Other rooms go
// through format(); only the table and the tests name a codec.
//
// In every block format below the products scale · code fit 24 bits, so a decoder rounds at most once (in the
// subtraction of a minimum): these are the values the file means, not an approximation.
//
// Encoders: a block that its format cannot hold (a non-finite value, a scale beyond f16) is written with a NaN scale,
// so that it reads back as NaN and is found, rather than as a plausible number.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace vesta::quant {

static_assert(std::endian::native == std::endian::little, "block formats are little-endian and are read in place");

// Block fields are not aligned (34- and 66-byte blocks).
template <class T>
inline T load(const std::byte* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
template <class T>
inline void store(std::byte* p, T v) {
    std::memcpy(p, &v, sizeof v);
}
inline int load_u8(const std::byte* p) { return std::to_integer<int>(*p); }

// floats.cpp
void decode_f32(const std::byte* src, float* dst, int64_t n);
void decode_f16(const std::byte* src, float* dst, int64_t n);
void decode_bf16(const std::byte* src, float* dst, int64_t n);
void encode_f32(const float* src, std::byte* dst, int64_t n);
void encode_f16(const float* src, std::byte* dst, int64_t n);
void encode_bf16(const float* src, std::byte* dst, int64_t n);

// blocks32.cpp
void decode_q4_0(const std::byte* src, float* dst, int64_t n);
void decode_q4_1(const std::byte* src, float* dst, int64_t n);
void decode_q5_0(const std::byte* src, float* dst, int64_t n);
void decode_q5_1(const std::byte* src, float* dst, int64_t n);
void decode_q8_0(const std::byte* src, float* dst, int64_t n);
void decode_iq4_nl(const std::byte* src, float* dst, int64_t n);
void decode_mxfp4(const std::byte* src, float* dst, int64_t n);
// d = amax/127 rounded to f16; codes are rounded with that stored d, the one the decoder multiplies by.
void encode_q8_0(const float* src, std::byte* dst, int64_t n);
// Scale 2^ceil(log2(amax/6)), codes to nearest. Lossless on values that already are MXFP4, whatever scale they came
// with.
void encode_mxfp4(const float* src, std::byte* dst, int64_t n);

// k_quants.cpp
void decode_q2_k(const std::byte* src, float* dst, int64_t n);
void decode_q3_k(const std::byte* src, float* dst, int64_t n);
void decode_q4_k(const std::byte* src, float* dst, int64_t n);
void decode_q5_k(const std::byte* src, float* dst, int64_t n);
void decode_q6_k(const std::byte* src, float* dst, int64_t n);
void decode_q8_k(const std::byte* src, float* dst, int64_t n);
void encode_q8_k(const float* src, std::byte* dst, int64_t n);

// iq2xxs.cpp
void decode_iq2_xxs(const std::byte* src, float* dst, int64_t n);

}  // namespace vesta::quant
