#include "quant/format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "quant/block_builder.h"
#include "quant/iq2xxs_grid.h"

namespace vesta::quant {
namespace {

TEST(Formats, SizesOfPublishedTensors) {
    EXPECT_EQ(row_bytes(Type::q8_0, 129280LL * 4096), 562626560);  // DeepSeek V4 Flash, output
    EXPECT_EQ(row_bytes(Type::f16, 129280LL * 4096), 1059061760);
    EXPECT_EQ(row_bytes(Type::iq2_xxs, 256LL * 2048 * 4096), 553648128);
    EXPECT_EQ(row_bytes(Type::q2_k, 256LL * 2048 * 4096), 704643072);
    EXPECT_EQ(row_bytes(Type::q4_k, 3LL * 2048 * 4096), 14155776);
    EXPECT_EQ(row_bytes(Type::mxfp4, 3LL * 2048 * 4096), 13369344);
}

TEST(Formats, EveryEntryIsFoundByIdAndByName) {
    const uint32_t ids[] = {0,  1,  2,  3,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17,
                            18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 34, 35, 39};
    uint32_t found = 0;
    for (uint32_t id = 0; id < 100; ++id) {
        const Format* f = find_format(id);
        if (f == nullptr) continue;
        ASSERT_LT(found, std::size(ids));
        EXPECT_EQ(id, ids[found++]);
        EXPECT_EQ(find_format(f->name), f);
        EXPECT_EQ(&format(f->type), f);
        EXPECT_TRUE(f->decode != nullptr || f->encode == nullptr);
    }
    EXPECT_EQ(found, std::size(ids));
    EXPECT_EQ(find_format("q9_9"), nullptr);
    EXPECT_EQ(find_format(4u), nullptr) << "ids that GGUF has retired";
    EXPECT_EQ(format(Type::i64).decode, nullptr);
}

class BlockFormats : public testing::TestWithParam<Type> {};

TEST_P(BlockFormats, DecodeEqualsTheValuesTheBlockWasBuiltFrom) {
    std::mt19937 rng(7);
    const Format& f = format(GetParam());
    // Three blocks at an odd address: neither blocks nor their fields are aligned in a file.
    for (int round = 0; round < 50; ++round) {
        std::vector<std::byte> bytes(1);
        std::vector<double> expected;
        for (int k = 0; k < 3; ++k) {
            const test::Block b = test::random_block(f.type, rng);
            bytes.insert(bytes.end(), b.bytes.begin(), b.bytes.end());
            expected.insert(expected.end(), b.values.begin(), b.values.end());
        }
        std::vector<float> got(expected.size());
        f.decode(bytes.data() + 1, got.data(), static_cast<int64_t>(got.size()));
        for (size_t i = 0; i < got.size(); ++i)
            ASSERT_EQ(got[i], static_cast<float>(expected[i])) << f.name << " " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(All, BlockFormats,
                         testing::Values(Type::q4_0, Type::q4_1, Type::q5_0, Type::q5_1, Type::q8_0, Type::q2_k,
                                         Type::q3_k, Type::q4_k, Type::q5_k, Type::q6_k, Type::q8_k, Type::iq4_nl,
                                         Type::mxfp4),
                         [](const auto& i) { return std::string(format(i.param).name); });

std::vector<float> decode(Type type, const std::vector<std::byte>& bytes) {
    const Format& f = format(type);
    std::vector<float> y(bytes.size() / static_cast<size_t>(f.block_bytes) * static_cast<size_t>(f.block_elems));
    f.decode(bytes.data(), y.data(), static_cast<int64_t>(y.size()));
    return y;
}

std::vector<std::byte> encode(Type type, const std::vector<float>& x) {
    const Format& f = format(type);
    std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(f, static_cast<int64_t>(x.size()))));
    f.encode(x.data(), bytes.data(), static_cast<int64_t>(x.size()));
    return bytes;
}

std::vector<float> gaussian(size_t n, unsigned seed, float sigma = 1.0f) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0.0f, sigma);
    std::vector<float> x(n);
    for (float& v : x) v = normal(rng);
    return x;
}

TEST(Iq2Xxs, GridHasItsChecksumAndItsThreeMagnitudes) {
    uint32_t crc = ~0u;  // CRC-32, reflected, bit by bit
    for (const uint64_t word : kIq2xxsGrid) {
        for (int j = 0; j < 8; ++j) {
            const uint32_t byte = (word >> (8 * j)) & 255;
            EXPECT_TRUE(byte == 8 || byte == 25 || byte == 43);
            crc ^= byte;
            for (int k = 0; k < 8; ++k) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
        }
    }
    EXPECT_EQ(~crc, 0x9924ff02u);
}

TEST(Iq2Xxs, GroupOfTheSpecification) {
    std::vector<std::byte> block(66);
    const uint8_t head[] = {0x00, 0x3c, 0x00, 0x01, 0x02, 0xff, 0x80, 0xc0, 0x1f, 0x58};  // d = 1, then group 0
    std::memcpy(block.data(), head, sizeof head);
    const std::vector<float> y = decode(Type::iq2_xxs, block);
    const float expected[32] = {11,  11,  11, 11,      11,  11,       11,       11,      -59.125f, 11,      11,
                                11,  11,  11, 11,      -11, -34.375f, -34.375f, -11,     -11,      -11,     -11,
                                -11, -11, 11, 34.375f, 11,  11,       34.375f,  59.125f, -59.125f, -59.125f};
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(y[i], expected[i]) << i;
    for (size_t i = 32; i < 256; ++i)
        EXPECT_EQ(y[i], 1.0f) << "the other groups are all zero bytes: scale 1/8, point 0";
}

TEST(Iq2Xxs, EveryGroupUsesItsOwnScaleSignsAndPoints) {
    std::mt19937 rng(11);
    for (int round = 0; round < 100; ++round) {
        std::vector<std::byte> block(66);
        std::vector<double> expected(256);
        block[1] = std::byte{0x40};  // d = 2
        for (size_t g = 0; g < 8; ++g) {
            const uint32_t s = rng() & 15;
            uint32_t word = s << 28;
            for (size_t l = 0; l < 4; ++l) {
                const uint32_t point = rng() & 255;
                block[2 + 8 * g + l] = static_cast<std::byte>(point);
                int n_negative = 0;
                for (size_t j = 0; j < 8; ++j) {
                    const bool negative = j < 7 ? rng() & 1 : n_negative % 2 == 1;  // the last makes the count even
                    n_negative += negative;
                    if (j < 7 && negative) word |= 1u << (7 * l + j);
                    const double magnitude = static_cast<double>((kIq2xxsGrid[point] >> (8 * j)) & 255);
                    expected[32 * g + 8 * l + j] = (negative ? -2.0 : 2.0) * (2 * s + 1) / 8 * magnitude;
                }
            }
            std::memcpy(block.data() + 2 + 8 * g + 4, &word, 4);
        }
        const std::vector<float> y = decode(Type::iq2_xxs, block);
        for (size_t i = 0; i < 256; ++i) ASSERT_EQ(static_cast<double>(y[i]), expected[i]) << i;
    }
}

TEST(Q8_0, NoCodeOnTheStoredScaleIsNearerAndTheErrorIsHalfAStep) {
    const std::vector<float> x = gaussian(32 * 200, 3, 0.02f);
    const std::vector<std::byte> bytes = encode(Type::q8_0, x);
    const std::vector<float> y = decode(Type::q8_0, bytes);
    for (size_t b = 0; b < x.size() / 32; ++b) {
        float amax = 0.0f;
        for (size_t i = 32 * b; i < 32 * b + 32; ++i) amax = std::max(amax, std::fabs(x[i]));
        for (size_t i = 32 * b; i < 32 * b + 32; ++i) {
            const auto q = static_cast<int8_t>(bytes[34 * b + 2 + i - 32 * b]);
            // Half a step of a scale that f16 may have enlarged by 2^-11; at the clamp, 127 · 2^-11 of a step more.
            EXPECT_LE(std::fabs(y[i] - x[i]), amax / 127.0f * (std::abs(q) == 127 ? 0.57f : 0.501f));
        }
    }
}

TEST(Q8_0, BlocksAtTheEdgeOfF16AreHeldOrReadAsNan) {
    std::vector<float> x(32, 0.0f);
    for (const float v : decode(Type::q8_0, encode(Type::q8_0, x))) EXPECT_EQ(v, 0.0f);
    for (float amax = 1e-7f; amax < 1e-2f; amax *= 1.37f) {  // scales among the subnormals of f16
        x[5] = -amax;
        const float y = decode(Type::q8_0, encode(Type::q8_0, x))[5];
        EXPECT_LE(std::fabs(y + amax), std::max(0x1p-25f, amax / 127)) << amax;
    }
    for (const float bad : {1e8f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
        x[5] = bad;
        EXPECT_TRUE(std::isnan(decode(Type::q8_0, encode(Type::q8_0, x))[6])) << bad;
    }
}

TEST(Q8_K, RoundTripSumsAndSign) {
    const std::vector<float> x = gaussian(256 * 20, 5);
    const std::vector<std::byte> bytes = encode(Type::q8_k, x);
    const std::vector<float> y = decode(Type::q8_k, bytes);
    for (size_t b = 0; b < 20; ++b) {
        float largest = 0.0f;
        for (size_t i = 256 * b; i < 256 * b + 256; ++i)
            if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
        float d;
        std::memcpy(&d, bytes.data() + 292 * b, 4);
        EXPECT_NEAR(d, -largest / 127, std::fabs(largest) * 1e-8f) << "the largest element is -127 steps";
        for (size_t g = 0; g < 16; ++g) {
            int sum = 0;
            for (size_t l = 0; l < 16; ++l) sum += static_cast<int8_t>(bytes[292 * b + 4 + 16 * g + l]);
            int16_t stored;
            std::memcpy(&stored, bytes.data() + 292 * b + 260 + 2 * g, 2);
            EXPECT_EQ(stored, sum);
        }
        for (size_t i = 256 * b; i < 256 * b + 256; ++i) EXPECT_LE(std::fabs(y[i] - x[i]), std::fabs(d) * 0.50001f);
    }
    for (const float v : decode(Type::q8_k, encode(Type::q8_k, std::vector<float>(256, 0.0f)))) EXPECT_EQ(v, 0.0f);
    EXPECT_TRUE(std::isnan(decode(Type::q8_k, encode(Type::q8_k, std::vector<float>(256, std::nanf(""))))[0]));
    EXPECT_EQ(decode(Type::q8_k, encode(Type::q8_k, std::vector<float>(256, 1e-38f)))[0], 0.0f);
}

TEST(Mxfp4, RepackingIsLosslessWhateverScaleTheBlockCameWith) {
    std::mt19937 rng(13);
    for (int e = 0; e <= 252; ++e) {
        for (int largest_code = 0; largest_code < 8; ++largest_code) {
            std::vector<std::byte> block(17);
            block[0] = static_cast<std::byte>(e);
            for (size_t j = 1; j < 17; ++j) {
                const auto code = [&] { return (rng() & 1) << 3 | rng() % static_cast<uint32_t>(largest_code + 1); };
                block[j] = static_cast<std::byte>(code() | code() << 4);
            }
            const std::vector<float> values = decode(Type::mxfp4, block);
            const std::vector<float> again = decode(Type::mxfp4, encode(Type::mxfp4, values));
            for (size_t i = 0; i < 32; ++i)
                ASSERT_EQ(std::bit_cast<uint32_t>(again[i]), std::bit_cast<uint32_t>(values[i]))
                    << e << " " << largest_code;
        }
    }
}

TEST(Mxfp4, ScaleHoldsTheLargestAndCodesAreNearest) {
    const std::vector<float> x = gaussian(32 * 100, 17);
    const std::vector<std::byte> bytes = encode(Type::mxfp4, x);
    const std::vector<float> y = decode(Type::mxfp4, bytes);
    const double magnitude[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (size_t b = 0; b < 100; ++b) {
        double amax = 0.0;
        for (size_t i = 32 * b; i < 32 * b + 32; ++i) amax = std::max(amax, std::fabs(static_cast<double>(x[i])));
        const double s = std::exp2(std::ceil(std::log2(amax / 6)));
        EXPECT_EQ(std::to_integer<int>(bytes[17 * b]), 127 + std::ilogb(s));
        for (size_t i = 32 * b; i < 32 * b + 32; ++i) {
            double best = 1e9;
            for (const double m : magnitude)
                best = std::min(best, std::fabs(std::fabs(static_cast<double>(x[i])) - s * m));
            EXPECT_DOUBLE_EQ(std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i])), best);
        }
    }
    std::vector<float> bad(32, 1.0f);
    bad[31] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isnan(decode(Type::mxfp4, encode(Type::mxfp4, bad))[0]));
}

TEST(Floats, EncodeThenDecodeIsTheRoundedValue) {
    const std::vector<float> x = gaussian(100, 23);
    EXPECT_EQ(decode(Type::f32, encode(Type::f32, x)), x);
    const std::vector<float> half = decode(Type::f16, encode(Type::f16, x)),
                             brain = decode(Type::bf16, encode(Type::bf16, x));
    for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_LE(std::fabs(half[i] - x[i]), std::max(std::fabs(x[i]) * 0x1p-11f, 0x1p-25f));
        EXPECT_LE(std::fabs(brain[i] - x[i]), std::fabs(x[i]) * 0x1p-8f);
    }
}

}  // namespace
}  // namespace vesta::quant
