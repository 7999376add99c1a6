#include "quant/kv_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "quant/half.h"

namespace vesta::quant {
namespace {

std::vector<float> gaussian(size_t n, unsigned seed, float sigma) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0.0f, sigma);
    std::vector<float> x(n);
    for (float& v : x) v = normal(rng);
    return x;
}

// Rounds v to `n_mantissa` bits after the leading one, with the last step at 2^min_exponent: any small float, in f64.
double round_to_float(double v, int n_mantissa, int min_exponent) {
    if (v == 0.0) return v;
    const double step = std::ldexp(1.0, std::max(std::ilogb(v) - n_mantissa, min_exponent));
    return std::nearbyint(v / step) * step;  // ties to even multiple of the step, which is the even code
}

// The official rounding of one block in f64: e4m3 (largest 448, step 2^-9) or e2m1 (largest 6, step 1/2).
std::vector<double> simulate(const float* x, int n, double floor, double largest, int n_mantissa, int min_exponent) {
    double amax = floor;
    for (int i = 0; i < n; ++i) amax = std::max(amax, std::fabs(static_cast<double>(x[i])));
    const double s = std::exp2(std::ceil(std::log2(amax / largest)));
    std::vector<double> y(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i)
        y[static_cast<size_t>(i)] =
            s * round_to_float(std::clamp(x[i] / s, -largest, largest), n_mantissa, min_exponent);
    return y;
}
std::vector<double> fp8(const float* x) { return simulate(x, 64, 1e-4f, 448, 3, -9); }
std::vector<double> fp4(const float* x) { return simulate(x, 32, std::ldexp(6.0, -126), 6, 1, -1); }

TEST(Fp8Sim, BlockOfTheSpecification) {
    float x[64];
    for (int i = 0; i < 64; ++i) x[i] = (static_cast<float>(i) - 31.5f) / 10;
    fp8_sim_block64(x);
    EXPECT_EQ(x[0], -3.25f);   // -3.15
    EXPECT_EQ(x[1], -3.0f);    // -3.05
    EXPECT_EQ(x[2], -3.0f);    // -2.95
    EXPECT_EQ(x[3], -2.75f);   // -2.85
    EXPECT_EQ(x[40], 0.875f);  //  0.85
}

TEST(Fp4Sim, BlockOfTheSpecification) {
    float x[32];
    for (int i = 0; i < 32; ++i) x[i] = (static_cast<float>(i) - 15.5f) / 4;
    fp4_sim_block32(x);
    EXPECT_EQ(x[0], -4.0f);  // -3.875
    EXPECT_EQ(x[1], -4.0f);  // -3.625
    EXPECT_EQ(x[2], -3.0f);  // -3.375
    EXPECT_EQ(x[5], -3.0f);  // -2.625
    EXPECT_EQ(x[6], -2.0f);  // -2.375
}

TEST(AttnRow, KnownSizes) {
    EXPECT_EQ(attn_row_bytes(RowFormat::fp8, 512, 64), 584);
    EXPECT_EQ(attn_row_bytes(RowFormat::fp8_exact, 512, 64), 584 + 2 * 64);
    EXPECT_EQ(attn_row_bytes(RowFormat::f16, 512, 64), 1024);
    EXPECT_EQ(attn_row_bytes(RowFormat::f32, 512, 64), 2048);
    EXPECT_EQ(attn_row_bytes(RowFormat::fp8, 128, 64), 64 + 8 + 128);  // the tiny models
    EXPECT_EQ(index_row_bytes(RowFormat::fp8, 128), 68);
    EXPECT_EQ(index_row_bytes(RowFormat::f16, 128), 256);
    EXPECT_EQ(index_row_bytes(RowFormat::f32, 128), 512);
}

TEST(AttnRow, Fp8HoldsExactlyTheOfficialRounding) {
    for (const float sigma : {1e-6f, 0.01f, 1.0f, 300.0f, 1e30f}) {
        const std::vector<float> x = gaussian(512, 3, sigma);
        std::vector<std::byte> bytes(1 + 584 + 1, std::byte{0xee});
        encode_attn_row(RowFormat::fp8, x.data(), 512, 64, bytes.data() + 1);
        EXPECT_EQ(bytes.front(), std::byte{0xee});
        EXPECT_EQ(bytes.back(), std::byte{0xee});
        std::vector<float> y(512);
        decode_attn_row(RowFormat::fp8, bytes.data() + 1, 512, 64, y.data());
        for (size_t b = 0; b < 7; ++b) {
            const std::vector<double> expected = fp8(x.data() + 64 * b);
            float sim[64];
            std::copy_n(x.data() + 64 * b, 64, sim);
            fp8_sim_block64(sim);
            for (size_t i = 0; i < 64; ++i) {
                ASSERT_EQ(static_cast<double>(y[64 * b + i]), expected[i]);
                ASSERT_EQ(std::bit_cast<uint32_t>(sim[i]), std::bit_cast<uint32_t>(y[64 * b + i]));
            }
        }
        double amax = 0;
        for (size_t i = 448; i < 512; ++i) amax = std::max(amax, std::fabs(static_cast<double>(x[i])));
        const double step = std::exp2(std::ceil(std::log2(amax / 32767)));
        for (size_t i = 448; i < 512; ++i)
            ASSERT_EQ(static_cast<double>(y[i]), step * std::nearbyint(static_cast<double>(x[i]) / step)) << i;
    }
}

TEST(AttnRow, Fp8ExactKeepsTheRotaryPart) {
    const std::vector<float> x = gaussian(512, 4, 3.0f);
    std::vector<std::byte> small(584), exact(712);
    std::vector<float> y(512), z(512);
    encode_attn_row(RowFormat::fp8, x.data(), 512, 64, small.data());
    decode_attn_row(RowFormat::fp8, small.data(), 512, 64, y.data());
    encode_attn_row(RowFormat::fp8_exact, x.data(), 512, 64, exact.data());
    decode_attn_row(RowFormat::fp8_exact, exact.data(), 512, 64, z.data());
    for (size_t i = 0; i < 448; ++i) ASSERT_EQ(y[i], z[i]) << i;
    for (size_t i = 448; i < 512; ++i) ASSERT_EQ(z[i], x[i]) << i;
}

TEST(AttnRow, PaddingIsWritten) {
    const std::vector<float> x = gaussian(128, 6, 1.0f);
    for (const RowFormat format : {RowFormat::fp8, RowFormat::fp8_exact}) {
        std::vector<std::byte> a(static_cast<size_t>(attn_row_bytes(format, 128, 64)), std::byte{0xee});
        std::vector<std::byte> b(a.size(), std::byte{0x11});
        encode_attn_row(format, x.data(), 128, 64, a.data());
        encode_attn_row(format, x.data(), 128, 64, b.data());
        EXPECT_EQ(a, b) << "equal rows have equal bytes, whatever was there before";
    }
}

TEST(AttnRow, RoundingTwiceChangesNothing) {
    const std::vector<float> x = gaussian(512, 5, 2.0f);
    std::vector<std::byte> once(584), twice(584);
    std::vector<float> y(512);
    encode_attn_row(RowFormat::fp8, x.data(), 512, 64, once.data());
    decode_attn_row(RowFormat::fp8, once.data(), 512, 64, y.data());
    std::vector<float> z(512);
    encode_attn_row(RowFormat::fp8, y.data(), 512, 64, twice.data());
    decode_attn_row(RowFormat::fp8, twice.data(), 512, 64, z.data());
    EXPECT_EQ(y, z);
}

TEST(AttnRow, PlainFormatsKeepTheRow) {
    const std::vector<float> x = gaussian(512, 7, 1.0f);
    std::vector<std::byte> bytes(2048);
    std::vector<float> y(512);
    encode_attn_row(RowFormat::f32, x.data(), 512, 64, bytes.data());
    decode_attn_row(RowFormat::f32, bytes.data(), 512, 64, y.data());
    EXPECT_EQ(x, y);
    encode_attn_row(RowFormat::f16, x.data(), 512, 64, bytes.data());
    decode_attn_row(RowFormat::f16, bytes.data(), 512, 64, y.data());
    for (size_t i = 0; i < 512; ++i) EXPECT_EQ(y[i], f16_to_f32(f32_to_f16(x[i])));
}

TEST(AttnRow, TinyValuesUseTheFloorOfTheScaleAndZeroStaysZero) {
    std::vector<float> x(128, 0.0f);
    x[3] = 2e-10f;  // below half the smallest step, 2^-22 · 2^-9 / 2: rounds to zero
    x[4] = -3e-8f;
    std::vector<std::byte> bytes(200);
    std::vector<float> y(128);
    encode_attn_row(RowFormat::fp8, x.data(), 128, 64, bytes.data());
    decode_attn_row(RowFormat::fp8, bytes.data(), 128, 64, y.data());
    const std::vector<double> expected = fp8(x.data());
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(static_cast<double>(y[i]), expected[i]);
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_NE(y[4], 0.0f);
}

TEST(Rows, ANonFiniteValueShowsInItsBlockAndOnlyThere) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
        std::vector<float> x(512, 1.0f), y(512);
        x[70] = bad;
        x[500] = bad;
        std::vector<std::byte> bytes(584);
        encode_attn_row(RowFormat::fp8, x.data(), 512, 64, bytes.data());
        decode_attn_row(RowFormat::fp8, bytes.data(), 512, 64, y.data());
        for (size_t i = 0; i < 448; ++i) EXPECT_EQ(std::isnan(y[i]), i / 64 == 1) << i;
        for (size_t i = 448; i < 512; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;

        std::vector<float> row(128, 1.0f), out(128);
        row[9] = bad;
        encode_index_row(RowFormat::fp8, row.data(), 128, bytes.data());
        decode_index_row(RowFormat::fp8, bytes.data(), 128, out.data());
        for (const float v : out) EXPECT_TRUE(std::isnan(v)) << "the transform spreads it over the row";
    }
}

TEST(Hadamard, IsTheSylvesterMatrixOverTheRootOfItsSize) {
    for (const int n : {1, 2, 32, 128}) {
        const std::vector<float> x = gaussian(static_cast<size_t>(n), 9, 1.0f);
        std::vector<float> y = x;
        hadamard_inplace(y.data(), n);
        for (int a = 0; a < n; ++a) {
            double sum = 0.0, size = 0.0;
            for (int b = 0; b < n; ++b) {
                const double v = x[static_cast<size_t>(b)];
                sum += std::popcount(static_cast<unsigned>(a & b)) % 2 ? -v : v;
                size += std::fabs(v);
            }
            // log2(n) additions and one product, each 2^-24 of at most the sum of magnitudes.
            EXPECT_NEAR(y[static_cast<size_t>(a)], sum / std::sqrt(n), 8 * 0x1p-24 * size);
        }
    }
}

TEST(IndexRow, Fp8HoldsTheHadamardTransformRoundedToFp4) {
    for (const float sigma : {1e-20f, 0.05f, 1.0f, 1e10f}) {
        const std::vector<float> x = gaussian(128, 11, sigma);
        std::vector<std::byte> bytes(1 + 68 + 1, std::byte{0xee});
        encode_index_row(RowFormat::fp8, x.data(), 128, bytes.data() + 1);
        EXPECT_EQ(bytes.back(), std::byte{0xee});
        std::vector<float> y(128), transformed = x, query = x;
        decode_index_row(RowFormat::fp8, bytes.data() + 1, 128, y.data());
        hadamard_inplace(transformed.data(), 128);
        round_index_query(query.data(), 128);
        for (size_t b = 0; b < 4; ++b) {
            const std::vector<double> expected = fp4(transformed.data() + 32 * b);
            for (size_t i = 0; i < 32; ++i) {
                ASSERT_EQ(static_cast<double>(y[32 * b + i]), expected[i]);
                ASSERT_EQ(query[32 * b + i], y[32 * b + i]);
            }
        }
    }
}

TEST(IndexRow, PacksEvenElementsInTheLowNibble) {
    // A single 1 at 0 has the constant transform 1/sqrt(128); a 1 at element 1 alternates + and -.
    std::vector<float> x(128, 0.0f);
    x[1] = 1.0f;
    std::vector<std::byte> bytes(68);
    encode_index_row(RowFormat::fp8, x.data(), 128, bytes.data());
    // ±0.0884 = ±5.66 · 2^-6: the largest is scaled into (3, 6], so s = 2^-6 and the code is 7, or 15 when negative.
    for (size_t k = 0; k < 64; ++k) EXPECT_EQ(std::to_integer<int>(bytes[k]), 0xf7);
    for (size_t k = 64; k < 68; ++k) EXPECT_EQ(std::to_integer<int>(bytes[k]), 127 - 6);
}

TEST(IndexRow, PlainFormatsKeepTheRowWithoutTransform) {
    const std::vector<float> x = gaussian(128, 13, 1.0f);
    std::vector<std::byte> bytes(512);
    std::vector<float> y(128);
    encode_index_row(RowFormat::f32, x.data(), 128, bytes.data());
    decode_index_row(RowFormat::f32, bytes.data(), 128, y.data());
    EXPECT_EQ(x, y);
    encode_index_row(RowFormat::f16, x.data(), 128, bytes.data());
    decode_index_row(RowFormat::f16, bytes.data(), 128, y.data());
    for (size_t i = 0; i < 128; ++i) EXPECT_EQ(y[i], f16_to_f32(f32_to_f16(x[i])));
}

}  // namespace
}  // namespace vesta::quant
