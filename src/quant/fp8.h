// The small floats of the official checkpoint and of the cache rows: e4m3 (8 bits), e2m1 (4 bits) and the power-of-two
// scale e8m0 they share (OCP microscaling formats). Narrowing rounds to nearest, ties to the even code, and saturates.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace vesta::quant {

constexpr float kE4m3Max = 448.0f;
constexpr float kE2m1Max = 6.0f;
constexpr uint8_t kE4m3Nan = 0x7f;
constexpr uint8_t kE8m0Nan = 255;

// 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinities, 0x7f and 0xff are NaN, subnormal step 2^-9.
constexpr float e4m3_to_f32(uint8_t b) {
    const uint32_t sign = (b & 0x80u) << 24;
    const uint32_t a = b & 0x7fu;
    if (a == kE4m3Nan) return std::bit_cast<float>(sign | 0x7fc00000u);
    if (a >= 8) return std::bit_cast<float>(sign | ((a << 20) + (120u << 23)));  // 120 = 127 - 7
    const float subnormal = static_cast<float>(a) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

constexpr uint8_t f32_to_e4m3(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (u >> 24) & 0x80u;
    const uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return static_cast<uint8_t>(sign | kE4m3Nan);
    if (a >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448
    if (a >= 0x3c800000u) {                                           // 2^-6, the smallest normal
        const uint32_t r = a - (120u << 23);
        return static_cast<uint8_t>(sign | ((r + 0x7ffffu + ((r >> 20) & 1u)) >> 20));
    }
    const uint32_t exponent = a >> 23;
    if (exponent < 117) return static_cast<uint8_t>(sign);  // below 2^-10, half the smallest subnormal
    const uint32_t mantissa = (a & 0x7fffffu) | 0x800000u;  // x = mantissa · 2^(exponent-150); unit of the result 2^-9
    const uint32_t shift = 141 - exponent;                  // 21..24
    const uint32_t q = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    return static_cast<uint8_t>(sign | (q + (rest > half || (rest == half && (q & 1u)))));
}

namespace detail {
constexpr std::array<float, 256> make_e4m3_table() {
    std::array<float, 256> t{};
    for (int b = 0; b < 256; ++b) t[static_cast<size_t>(b)] = e4m3_to_f32(static_cast<uint8_t>(b));
    return t;
}
}  // namespace detail
inline constexpr std::array<float, 256> kE4m3Value = detail::make_e4m3_table();

// 2^(e-127). e = 0 is the subnormal f32 2^-127; 255 is NaN.
constexpr float e8m0_to_f32(uint8_t e) {
    if (e == 0) return std::bit_cast<float>(0x00400000u);
    if (e == kE8m0Nan) return std::numeric_limits<float>::quiet_NaN();
    return std::bit_cast<float>(static_cast<uint32_t>(e) << 23);
}

// Code: bit 3 the sign, then the index of the magnitude.
inline constexpr float kE2m1Value[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
constexpr float e2m1_to_f32(uint8_t code) { return kE2m1Value[code & 15]; }

// Between neighbours the tie goes to the even code, so the comparisons alternate. There is no NaN code: NaN gives 0,
// and the block's scale has to carry it.
constexpr uint8_t f32_to_e2m1(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const float a = std::bit_cast<float>(u & 0x7fffffffu);
    const int magnitude =
        (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return static_cast<uint8_t>(((u >> 28) & 8u) | static_cast<uint32_t>(magnitude));
}

// The e8m0 byte of the smallest power of two s with amax <= largest · s, that is 2^ceil(log2(amax / largest)).
// amax = f · 2^x with f in [1/2, 1); largest_fraction and largest_exponent are the same split of `largest`. Comparing
// fractions is exact for subnormals too, and equals the reference's rule "exponent bits of the f32 quotient, plus one
// if its mantissa is not zero". Requires amax finite and > 0.
inline uint8_t e8m0_ceil(float amax, float largest_fraction, int largest_exponent) {
    int x = 0;
    const float f = std::frexp(amax, &x);
    const int e = x - largest_exponent + (f > largest_fraction ? 1 : 0) + 127;
    return static_cast<uint8_t>(e < 0 ? 0 : e > 254 ? 254 : e);
}
inline uint8_t e8m0_for_e4m3(float amax) { return e8m0_ceil(amax, 0.875f, 9); }  // 448 = 0.875 · 2^9
inline uint8_t e8m0_for_e2m1(float amax) { return e8m0_ceil(amax, 0.75f, 3); }   //   6 = 0.75  · 2^3

// 1 / e8m0_to_f32(e), exact. Requires e < 255.
constexpr float e8m0_inverse(uint8_t e) { return e8m0_to_f32(static_cast<uint8_t>(254 - e)); }

}  // namespace vesta::quant
