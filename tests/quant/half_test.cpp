#include "quant/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace vesta::quant {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// The value of an f16 by its definition, in f64.
double f16_value(uint32_t h) {
    const double sign = h & 0x8000 ? -1.0 : 1.0;
    const int e = static_cast<int>(h >> 10) & 31, m = static_cast<int>(h & 1023);
    return sign * (e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25));
}

TEST(F16, All65536ValuesDecodeByDefinitionAndComeBack) {
    for (uint32_t h = 0; h < 65536; ++h) {
        const auto code = static_cast<uint16_t>(h);
        const float x = f16_to_f32(code);
        if ((h & 0x7fff) > 0x7c00) {
            ASSERT_TRUE(std::isnan(x));
            ASSERT_EQ(f32_to_f16(x), h | 0x200) << "a NaN comes back quiet, with its payload";
            continue;
        }
        if ((h & 0x7fff) == 0x7c00)
            ASSERT_EQ(x, h & 0x8000 ? -kInf : kInf);
        else
            ASSERT_EQ(static_cast<double>(x), f16_value(h));
        ASSERT_EQ(std::signbit(x), (h & 0x8000) != 0);
        ASSERT_EQ(f32_to_f16(x), h);
    }
}

TEST(F16, MidpointsGoToEvenAndTheirNeighboursToTheNearerSide) {
    for (uint32_t h = 0; h < 0x7c00; ++h) {  // the last pair is 65504 and the 65536 that becomes infinity
        const double low = f16_value(h), high = f16_value(h + 1);
        const auto middle = static_cast<float>((low + high) / 2);  // one more bit than f16: exact
        for (const float sign : {1.0f, -1.0f}) {
            const uint32_t s = sign < 0 ? 0x8000 : 0;
            ASSERT_EQ(f32_to_f16(sign * middle), s | (h & 1 ? h + 1 : h)) << h;
            ASSERT_EQ(f32_to_f16(sign * std::nextafter(middle, 0.0f)), s | h) << h;
            ASSERT_EQ(f32_to_f16(sign * std::nextafter(middle, kInf)), s | (h + 1)) << h;
        }
    }
}

TEST(F16, ExtremesOfF32) {
    EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7c00);
    EXPECT_EQ(f32_to_f16(-kInf), 0xfc00);
    EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
    EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
    EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0x7f800001u)), 0x7e00)
        << "a payload below f16's bits must not become inf";
}

TEST(Bf16, All65536ValuesAreTheUpperHalfAndComeBack) {
    for (uint32_t h = 0; h < 65536; ++h) {
        const float x = bf16_to_f32(static_cast<uint16_t>(h));
        ASSERT_EQ(bits(x), h << 16);
        ASSERT_EQ(f32_to_bf16(x), (h & 0x7fff) > 0x7f80 ? h | 0x40 : h);
    }
}

TEST(Bf16, MidpointsGoToEven) {
    for (uint32_t h = 0; h < 0x7f80; ++h) {
        ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(h << 16 | 0x8000u)), h & 1 ? h + 1 : h);
        ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(h << 16 | 0x7fffu)), h);
        ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(h << 16 | 0x8001u)), h + 1);
    }
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0xffffffffu)), 0xffff);
}

}  // namespace
}  // namespace vesta::quant
