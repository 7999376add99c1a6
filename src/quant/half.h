// The two 16-bit floats, converted bit by bit: the same result on every machine, and the one the F16C instructions
// give. Narrowing rounds to nearest, ties to even; overflow becomes infinity; a NaN stays a NaN, quiet, with its sign
// and the top of its payload.
#pragma once

#include <bit>
#include <cstdint>

namespace vesta::quant {

// 1 sign, 5 exponent (bias 15), 10 mantissa bits.
constexpr float f16_to_f32(uint16_t h) {
    const uint32_t sign = (h & 0x8000u) << 16;
    const uint32_t a = h & 0x7fffu;
    if (a > 0x7c00u) return std::bit_cast<float>(sign | 0x7fc00000u | (a << 13));
    if (a == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u);
    if (a >= 0x0400u) return std::bit_cast<float>(sign | ((a << 13) + (112u << 23)));  // 112 = 127 - 15
    const float subnormal = static_cast<float>(a) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

constexpr uint16_t f32_to_f16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
    if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520: half way past the largest, 65504
    if (a >= 0x38800000u) {                                              // 2^-14, the smallest normal
        const uint32_t r = a - (112u << 23);
        return static_cast<uint16_t>(sign | ((r + 0xfffu + ((r >> 13) & 1u)) >> 13));
    }
    const uint32_t exponent = a >> 23;
    if (exponent < 102) return static_cast<uint16_t>(sign);  // below 2^-25, half the smallest subnormal
    const uint32_t mantissa = (a & 0x7fffffu) | 0x800000u;  // x = mantissa · 2^(exponent-150); unit of the result 2^-24
    const uint32_t shift = 126 - exponent;                  // 14..24
    const uint32_t q = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    return static_cast<uint16_t>(sign | (q + (rest > half || (rest == half && (q & 1u)))));
}

// The upper half of an f32.
constexpr float bf16_to_f32(uint16_t b) { return std::bit_cast<float>(static_cast<uint32_t>(b) << 16); }

constexpr uint16_t f32_to_bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

}  // namespace vesta::quant
