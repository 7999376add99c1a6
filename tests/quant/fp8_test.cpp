#include "quant/fp8.h"

#include <gtest/gtest.h>

#include <cmath>

namespace vesta::quant {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

double e4m3_value(int b) {
    const int e = (b >> 3) & 15, m = b & 7;
    const double a = e == 0 ? m * std::pow(2.0, -9) : (1.0 + m / 8.0) * std::pow(2.0, e - 7);
    return b & 0x80 ? -a : a;
}

TEST(E4m3, All256CodesDecodeByDefinitionAndComeBack) {
    for (int b = 0; b < 256; ++b) {
        const auto code = static_cast<uint8_t>(b);
        const float x = e4m3_to_f32(code);
        ASSERT_EQ(std::bit_cast<uint32_t>(kE4m3Value[static_cast<size_t>(b)]), std::bit_cast<uint32_t>(x));
        if ((b & 0x7f) == 0x7f)
            ASSERT_TRUE(std::isnan(x));
        else
            ASSERT_EQ(static_cast<double>(x), e4m3_value(b));
        ASSERT_EQ(std::signbit(x), b >= 0x80);
        ASSERT_EQ(f32_to_e4m3(x), b);
    }
    EXPECT_EQ(e4m3_to_f32(0x7e), kE4m3Max);
}

TEST(E4m3, MidpointsGoToEvenAndTheirNeighboursToTheNearerSide) {
    for (int b = 0; b < 0x7e; ++b) {
        const auto middle = static_cast<float>((e4m3_value(b) + e4m3_value(b + 1)) / 2);
        ASSERT_EQ(f32_to_e4m3(middle), b & 1 ? b + 1 : b);
        ASSERT_EQ(f32_to_e4m3(-middle), 0x80 | (b & 1 ? b + 1 : b));
        ASSERT_EQ(f32_to_e4m3(std::nextafter(middle, 0.0f)), b);
        ASSERT_EQ(f32_to_e4m3(std::nextafter(middle, kInf)), b + 1);
    }
}

TEST(E4m3, SaturatesAndKeepsNan) {
    EXPECT_EQ(f32_to_e4m3(449.0f), 0x7e);
    EXPECT_EQ(f32_to_e4m3(-kInf), 0xfe);
    EXPECT_EQ(f32_to_e4m3(std::nanf("")), 0x7f);
    EXPECT_EQ(f32_to_e4m3(1e-45f), 0);
}

TEST(E2m1, TiesGoToTheEvenCode) {
    const struct {
        float x, y;
    } ties[] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2}, {2.5f, 2}, {3.5f, 4}, {5, 4}};
    for (const auto& t : ties) {
        EXPECT_EQ(e2m1_to_f32(f32_to_e2m1(t.x)), t.y);
        EXPECT_EQ(e2m1_to_f32(f32_to_e2m1(-t.x)), -t.y);
    }
    EXPECT_EQ(e2m1_to_f32(f32_to_e2m1(100.0f)), 6.0f);
    EXPECT_EQ(f32_to_e2m1(-0.1f), 8) << "the sign of a zero is kept";
}

TEST(E2m1, EveryOtherValueGoesToTheNearest) {
    for (float x = -7.0f; x <= 7.0f; x += 1.0f / 64) {
        float nearest = 0.0f;
        for (int code = 0; code < 16; ++code) {
            const float y = e2m1_to_f32(static_cast<uint8_t>(code));
            if (std::fabs(y - x) < std::fabs(nearest - x)) nearest = y;
        }
        EXPECT_EQ(std::fabs(e2m1_to_f32(f32_to_e2m1(x)) - x), std::fabs(nearest - x)) << x;
    }
    for (int code = 0; code < 16; ++code) EXPECT_EQ(f32_to_e2m1(e2m1_to_f32(static_cast<uint8_t>(code))), code);
}

TEST(E8m0, IsAPowerOfTwoAndItsInverseIsExact) {
    for (int e = 0; e < 255; ++e) {
        EXPECT_EQ(static_cast<double>(e8m0_to_f32(static_cast<uint8_t>(e))), std::pow(2.0, e - 127));
        EXPECT_EQ(e8m0_to_f32(static_cast<uint8_t>(e)) * e8m0_inverse(static_cast<uint8_t>(e)), 1.0f);
    }
    EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

// The official rule works on the bits of the f32 quotient: exponent, plus one when the mantissa is not zero.
int official_exponent(float amax, float largest) {
    const uint32_t u = std::bit_cast<uint32_t>(amax / largest);
    return static_cast<int>(u >> 23) + ((u & 0x7fffffu) != 0);
}

TEST(E8m0, TheScaleOfABlockFollowsTheOfficialRule) {
    // Mantissas around the turning points 1.75 (448) and 1.5 (6) and a sweep of the rest, at several exponents.
    for (const uint32_t exponent : {13u, 60u, 114u, 127u, 130u, 200u, 254u}) {
        for (uint32_t m = 0; m < 0x800000u;) {
            const float amax = std::bit_cast<float>(exponent << 23 | m);
            ASSERT_EQ(e8m0_for_e4m3(amax), official_exponent(amax, 448.0f)) << amax;
            ASSERT_EQ(e8m0_for_e2m1(amax), official_exponent(amax, 6.0f)) << amax;
            const bool near_turn = (m > 0x3ffff0u && m < 0x400010u) || (m > 0x5ffff0u && m < 0x600010u);
            m += near_turn ? 1 : 15;
        }
    }
    EXPECT_EQ(e8m0_for_e2m1(0x1p-149f), 0) << "clamped to the smallest scale";
    EXPECT_EQ(e8m0_for_e2m1(std::numeric_limits<float>::max()), 127 + 126);
}

}  // namespace
}  // namespace vesta::quant
