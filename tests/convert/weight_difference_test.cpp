// Differences of weights are lossless whatever is predicted, and small when the prediction is good.
#include "support/weight_difference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace vesta::test {
namespace {

using safetensors::DType;

Bytes random_bytes(size_t n, uint32_t seed) {
    std::mt19937 rng(seed);
    Bytes out(n);
    for (std::byte& b : out) b = static_cast<std::byte>(rng());
    return out;
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
    Bytes out(values.size() * sizeof(T));
    std::memcpy(out.data(), values.data(), out.size());
    return out;
}

TEST(WeightDifference, AnyBitsComeBackFromAnyPrediction) {
    for (const DType type :
         {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e8m0, DType::i64, DType::u8})
        for (const Key key : {Key::bits, Key::rank}) {
            const size_t n = 4096 * safetensors::dtype_bytes(type);
            const Bytes original = random_bytes(n, 1), predicted = random_bytes(n, 2);
            EXPECT_EQ(restore(type, difference(type, original, predicted, key), predicted, key), original)
                << safetensors::dtype_name(type);
            EXPECT_EQ(difference(type, original, original, key), Bytes(n)) << safetensors::dtype_name(type);
        }
    // All 256 x 256 pairs of one byte.
    Bytes a, b;
    for (int i = 0; i < 65536; ++i) a.push_back(static_cast<std::byte>(i)), b.push_back(static_cast<std::byte>(i >> 8));
    for (const Key key : {Key::bits, Key::rank})
        EXPECT_EQ(restore(DType::f8_e4m3, difference(DType::f8_e4m3, a, b, key), b, key), a);
}

// +0 and -0 are neighbours in rank, as are the smallest numbers of both signs: 1 is one step above 0, -1 two below.
TEST(WeightDifference, RankCountsTheValuesBetween) {
    const Bytes zero = bytes_of<uint16_t>({0, 0, 0, 0, 0});
    const Bytes near = bytes_of<uint16_t>({0x0000, 0x8000, 0x0001, 0x8001, 0x0002});
    const Bytes stored = difference(DType::bf16, near, zero, Key::rank);
    const Bytes expected = {std::byte{0}, std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},  // low bytes
                            std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}};
    EXPECT_EQ(stored, expected);
}

TEST(WeightDifference, Fp4ComesBackFromAnyPrediction) {
    constexpr size_t kBlocks = 4096;
    Fp4 original{random_bytes(16 * kBlocks, 3), random_bytes(kBlocks, 4)};  // every scale byte, NaN's 255 too
    std::mt19937 rng(5);
    std::vector<float> values(32 * kBlocks);
    for (float& v : values) {
        const auto bits = static_cast<uint32_t>(rng());  // infinities and NaNs among them
        std::memcpy(&v, &bits, 4);
    }
    values[0] = std::numeric_limits<float>::quiet_NaN();
    values[40] = -std::numeric_limits<float>::infinity();
    std::fill(values.begin() + 64, values.begin() + 96, 0.0f);
    const Fp4 back = restore(difference(original, values), values);
    EXPECT_EQ(back.codes, original.codes);
    EXPECT_EQ(back.scales, original.scales);
}

// Values that are exactly the codes' predict them and their scale, if one of each block needs the scale it has.
TEST(WeightDifference, Fp4OfItsOwnValuesIsZero) {
    constexpr double kValue[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    constexpr size_t kBlocks = 64;
    std::mt19937 rng(6);
    Fp4 original{random_bytes(16 * kBlocks, 7), Bytes(kBlocks)};
    std::vector<float> values(32 * kBlocks);
    for (size_t b = 0; b < kBlocks; ++b) {
        const int scale = 100 + static_cast<int>(rng() % 60);
        original.scales[b] = static_cast<std::byte>(scale);
        original.codes[16 * b] = std::byte{0xf7};  // 6 and -6
        for (size_t i = 0; i < 32; ++i) {
            const int code = static_cast<int>(original.codes[16 * b + i / 2]) >> (i % 2 * 4) & 15;
            const double magnitude = std::ldexp(kValue[code & 7], scale - 127);
            values[32 * b + i] = static_cast<float>(code & 8 ? -magnitude : magnitude);
        }
    }
    const Fp4 stored = difference(original, values);
    EXPECT_EQ(stored.codes, Bytes(16 * kBlocks));
    EXPECT_EQ(stored.scales, Bytes(kBlocks));
}

}  // namespace
}  // namespace vesta::test
