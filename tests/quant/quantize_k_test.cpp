// The searching encoders: what every format promises (bounds, edges, both instruction sets), and comparisons with
// encoders written here that do the obvious thing or try everything.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "quant/block_builder.h"
#include "quant/half.h"
#include "quant/quantize.h"
#include "quant/quantize_k.h"

namespace vesta::quant {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

const float* pointer(const Floats& w) { return w.empty() ? nullptr : w.data(); }

Bytes quantize(Type type, const Floats& x, int64_t n_row = 1, const Floats& importance = {}) {
    const int64_t n_col = static_cast<int64_t>(x.size()) / n_row;
    Bytes out(static_cast<size_t>(n_row * row_bytes(type, n_col)), std::byte{0xa5});
    quantize_rows(type, x.data(), n_row, n_col, pointer(importance), out.data());
    return out;
}

Floats decode(Type type, const Bytes& bytes) {
    const Format& f = format(type);
    Floats y(bytes.size() / static_cast<size_t>(f.block_bytes) * static_cast<size_t>(f.block_elems));
    f.decode(bytes.data(), y.data(), static_cast<int64_t>(y.size()));
    return y;
}

double error(Type type, const Floats& x, const Bytes& bytes, const Floats& importance = {}) {
    ErrorSum sum;
    add_error(type, x.data(), bytes.data(), 1, static_cast<int64_t>(x.size()), pointer(importance), sum);
    return sum.error;
}

double relative_rms(Type type, const Floats& x, const Floats& importance = {}) {
    ErrorSum sum;
    const Bytes bytes = quantize(type, x, 1, importance);
    add_error(type, x.data(), bytes.data(), 1, static_cast<int64_t>(x.size()), pointer(importance), sum);
    return std::sqrt(sum.error / sum.energy);
}

Floats normal(size_t n, unsigned seed, float sigma = 1.0f) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> d(0.0f, sigma);
    Floats x(n);
    for (float& v : x) v = d(rng);
    return x;
}

// Student's t with 3 degrees of freedom: some values many times the usual.
Floats heavy(size_t n, unsigned seed) {
    std::mt19937 rng(seed);
    std::student_t_distribution<float> d(3.0f);
    Floats x(n);
    for (float& v : x) v = d(rng);
    return x;
}

Floats log_normal(size_t n, unsigned seed, float sigma = 1.0f) {
    Floats w = normal(n, seed, sigma);
    for (float& v : w) v = std::exp(v);
    return w;
}

std::string name_of(const testing::TestParamInfo<Type>& i) { return format(i.param).name; }

const Type kSearched[] = {Type::q8_0, Type::q6_k, Type::q5_k, Type::q4_k, Type::mxfp4, Type::q3_k, Type::q2_k};

class Searched : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(All, Searched, testing::ValuesIn(kSearched), name_of);

TEST(Quantize, ListAndQuestionAgree) {
    size_t found = 0;
    for (uint32_t id = 0; id < 100; ++id) {
        const Format* f = find_format(id);
        if (f == nullptr || !can_quantize(f->type)) continue;
        ++found;
        EXPECT_NE(f->decode, nullptr) << f->name;
    }
    EXPECT_EQ(found, quantizable_types().size());
    double bits = 33;
    for (const Type type : quantizable_types()) {
        EXPECT_TRUE(can_quantize(type));
        const Format& f = format(type);
        EXPECT_LE(8.0 * f.block_bytes / f.block_elems, bits) << f.name << ": most bits first";
        bits = 8.0 * f.block_bytes / f.block_elems;
    }
    for (const Type type : kSearched) EXPECT_TRUE(can_quantize(type)) << format(type).name;
    EXPECT_FALSE(can_quantize(Type::q8_k)) << "activations only";
    EXPECT_FALSE(can_quantize(Type::i32));
    EXPECT_FALSE(can_quantize(Type::q4_0));
}

TEST(Quantize, PlainFloatsAreRoundedAndImportanceChangesNothing) {
    const Floats x = normal(96, 3);
    const Floats w = log_normal(96, 4);
    for (const Type type : {Type::f32, Type::f16, Type::bf16}) {
        const Bytes bytes = quantize(type, x);
        EXPECT_EQ(bytes, quantize(type, x, 1, w));
        const Floats y = decode(type, bytes);
        for (size_t i = 0; i < x.size(); ++i) {
            const float expected = type == Type::f32   ? x[i]
                                   : type == Type::f16 ? f16_to_f32(f32_to_f16(x[i]))
                                                       : bf16_to_f32(f32_to_bf16(x[i]));
            EXPECT_EQ(y[i], expected);
        }
    }
}

// Relative rms error on a Gaussian. With L levels an optimal fixed quantizer of a Gaussian leaves (Lloyd-Max) 0.343 for
// 4, 0.186 for 8, 0.0975 for 16, 0.0500 for 32, 0.0253 for 64 levels; blocks of 16 or 32 with their own scales do
// better than that except where the scales themselves are coarse. The bounds are the measured values plus 2 %.
TEST_P(Searched, ErrorOnAGaussianIsWhatTheFormatAllows) {
    const Floats x = normal(256 * 64, 11, 0.02f);
    const double rms = relative_rms(GetParam(), x);
    double bound = 0;
    switch (GetParam()) {
        case Type::q8_0:
            bound = 0.0054;
            break;
        case Type::q6_k:
            bound = 0.0165;
            break;
        case Type::q5_k:
            bound = 0.0345;
            break;
        case Type::q4_k:
            bound = 0.0700;
            break;
        case Type::mxfp4:
            bound = 0.1160;
            break;
        case Type::q3_k:
            bound = 0.1480;
            break;
        case Type::q2_k:
            bound = 0.2800;
            break;
        default:
            FAIL();
    }
    EXPECT_LT(rms, bound) << format(GetParam()).name;
    RecordProperty("rms", std::to_string(rms));
}

struct Case {
    std::string name;
    Floats values;
};

TEST_P(Searched, EveryInputInRangeStaysFiniteAndNoWorseThanZero) {
    const Type type = GetParam();
    std::vector<Case> blocks;
    blocks.push_back({"normal", normal(512, 1)});
    blocks.push_back({"heavy", heavy(512, 2)});
    blocks.push_back({"zero", Floats(512, 0.0f)});
    blocks.push_back({"minus zero", Floats(512, -0.0f)});
    for (const float c : {1.0f, -1.0f, 0.037f, -0.037f, 1e-3f, 3000.0f, -3000.0f})
        blocks.push_back({"constant " + std::to_string(c), Floats(512, c)});
    for (const float s : {1e-45f, 1e-39f, 1e-30f, 1e-12f, 1e-8f, 1e-7f, 1e-6f, 1e-5f, 1e4f, 3e4f}) {
        blocks.push_back({"normal times " + std::to_string(s), normal(512, 5, s)});
        Floats one(512, 0.0f);
        one[77] = s, one[300] = -s;
        blocks.push_back({"single " + std::to_string(s), one});
    }
    Floats mixed = normal(512, 6);
    for (size_t i = 0; i < 512; i += 3) mixed[i] *= 1e-9f;
    for (size_t i = 0; i < 512; i += 64) mixed[i] *= 1e4f;
    blocks.push_back({"magnitudes apart", mixed});
    Floats positive = normal(512, 7);
    for (float& v : positive) v = 5.0f + 0.1f * v;
    blocks.push_back({"far from zero", positive});
    for (float& v : positive) v = -v;
    blocks.push_back({"far below zero", positive});

    std::vector<Case> weights;
    weights.push_back({"none", Floats{}});
    weights.push_back({"ones", Floats(512, 1.0f)});
    weights.push_back({"log-normal", log_normal(512, 8)});
    weights.push_back({"wide", log_normal(512, 9, 12.0f)});
    weights.push_back({"tiny", log_normal(512, 9, 1.0f)});
    for (float& v : weights.back().values) v *= 1e-38f;
    weights.push_back({"huge", log_normal(512, 9, 1.0f)});
    for (float& v : weights.back().values) v *= 1e36f;
    weights.push_back({"zero", Floats(512, 0.0f)});
    weights.push_back({"one column", Floats(512, 0.0f)});
    weights.back().values[100] = 3.0f;
    weights.push_back({"first half", Floats(512, 0.0f)});
    for (size_t i = 0; i < 256; ++i) weights.back().values[i] = 1.0f;

    for (const auto& [what, x] : blocks)
        for (const auto& [which, w] : weights) {
            const Bytes bytes = quantize(type, x, 1, w);
            const Floats y = decode(type, bytes);
            ErrorSum sum;
            add_error(type, x.data(), bytes.data(), 1, 512, pointer(w), sum);
            ASSERT_LE(sum.error, sum.energy * (1 + 1e-5)) << what << ", importance " << which;
            float amax = 0;
            for (const float v : x) amax = std::max(amax, std::fabs(v));
            for (size_t i = 0; i < x.size(); ++i) {
                ASSERT_TRUE(std::isfinite(y[i])) << what << ", importance " << which << ", " << i;
                // A level may lie beyond the largest value, but never by more than that value (or one f16 step times
                // the largest factors).
                ASSERT_LE(std::fabs(y[i]), 2.0f * amax + 1e-4f) << what << ", importance " << which << ", " << i;
            }
        }
    const Floats zero = decode(type, quantize(type, Floats(512, 0.0f)));
    for (const float v : zero) ASSERT_EQ(v, 0.0f);
}

TEST_P(Searched, WhatTheFormatCannotHoldReadsAsNanAndOnlyThere) {
    const Type type = GetParam();
    const auto block = static_cast<size_t>(format(type).block_elems);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), 3e38f, -3e38f}) {
        if (std::isfinite(bad) && type == Type::mxfp4) continue;  // within its range
        Floats x = normal(1024, 21);
        x[300] = bad;
        const Floats y = decode(type, quantize(type, x));
        const Floats good = decode(type, quantize(type, normal(1024, 21)));
        for (size_t i = 0; i < x.size(); ++i) {
            if (i / block == 300 / block) {
                EXPECT_TRUE(std::isnan(y[i])) << bad << " " << i;
            } else {
                EXPECT_EQ(y[i], good[i]) << bad << " " << i;
            }
        }
    }
}

TEST_P(Searched, ValuesThatAreInTheFormatComeBack) {
    const Type type = GetParam();
    std::mt19937 rng(5);
    double worst = 0;
    for (int round = 0; round < 40; ++round) {
        const test::Block b = test::random_block(type, rng);
        Floats x(b.values.begin(), b.values.end());
        double energy = 0;
        for (const float v : x) energy += static_cast<double>(v) * v;
        worst = std::max(worst, error(type, x, quantize(type, x)) / energy);
    }
    // Exact for the formats with one scale. In the others the scales are to be found again from eight or sixteen
    // independent fits; what is left has to stay far below the error on a Gaussian.
    const double bound = type == Type::mxfp4 ? 0 : type == Type::q8_0 ? 1e-5 : type == Type::q6_k ? 4e-4 : 2e-2;
    EXPECT_LE(worst, bound) << format(type).name;
}

TEST_P(Searched, BothInstructionSetsWriteTheSameBytes) {
    const SearchKernels* avx2 = avx2_search();
    if (avx2 == nullptr) GTEST_SKIP() << "no AVX2 here";
    const Type type = GetParam();
    std::mt19937 rng(31);
    for (int round = 0; round < 60; ++round) {
        const float size = std::exp2(static_cast<float>(static_cast<int>(rng() % 60) - 45));
        const auto seed = static_cast<unsigned>(rng());
        Floats x = round % 2 == 0 ? normal(768, seed) : heavy(768, seed);
        for (float& v : x) v *= size;
        if (round % 5 == 0)
            for (size_t i = 0; i < x.size(); ++i) x[i] = rng() % 3 == 0 ? 0.0f : x[i];
        if (round % 7 == 0) std::fill(x.begin() + 256, x.begin() + 512, size);
        if (round % 11 == 0) x[600] = std::numeric_limits<float>::infinity();
        Floats w;
        if (round % 3 != 0) {
            w = log_normal(768, seed + 1, round % 4 == 0 ? 8.0f : 1.0f);
            for (float& v : w)
                if (rng() % 4 == 0) v = 0.0f;
        }
        Bytes a(static_cast<size_t>(row_bytes(type, 768))), b(a.size());
        quantize_rows_searching(scalar_search(), type, x.data(), 1, 768, pointer(w), a.data());
        quantize_rows_searching(*avx2, type, x.data(), 1, 768, pointer(w), b.data());
        ASSERT_EQ(a, b) << format(type).name << " round " << round;
        EXPECT_EQ(a, quantize(type, x, 1, w));
    }
}

TEST_P(Searched, ARowDoesNotDependOnTheOthers) {
    const Type type = GetParam();
    const Floats x = heavy(3 * 512, 41);
    const Floats w = log_normal(512, 42);
    const Bytes all = quantize(type, x, 3, w);
    const size_t bytes = all.size() / 3;
    for (size_t r = 0; r < 3; ++r) {
        const Floats row(x.begin() + static_cast<ptrdiff_t>(512 * r),
                         x.begin() + static_cast<ptrdiff_t>(512 * (r + 1)));
        const Bytes one = quantize(type, row, 1, w);
        EXPECT_EQ(0, std::memcmp(one.data(), all.data() + r * bytes, bytes));
    }
}

TEST(QuantizeBlocks32, AnyNumberOfBlocksPerRow) {
    for (const Type type : {Type::q8_0, Type::mxfp4})
        for (const size_t n_block : {1U, 3U, 8U, 9U, 15U}) {
            const Floats x = normal(32 * n_block, 51);
            const Floats w = log_normal(32 * n_block, 52);
            const Bytes all = quantize(type, x, 1, w);
            const auto bytes = static_cast<size_t>(format(type).block_bytes);
            for (size_t b = 0; b < n_block; ++b) {
                const auto from = static_cast<ptrdiff_t>(32 * b);
                const Bytes one = quantize(type, Floats(x.begin() + from, x.begin() + from + 32), 1,
                                           Floats(w.begin() + from, w.begin() + from + 32));
                EXPECT_EQ(0, std::memcmp(one.data(), all.data() + b * bytes, bytes)) << format(type).name << " " << b;
            }
        }
}

// Where importance says so, error moves: with some columns a hundred times as important, their error falls and that of
// the others rises, beside the encoding without.
TEST_P(Searched, ImportanceMovesTheErrorToWhereItDoesNotMatter) {
    const Type type = GetParam();
    const Floats x = normal(256 * 32, 61);
    Floats w(x.size());
    for (size_t i = 0; i < w.size(); ++i) w[i] = i % 4 == 0 ? 100.0f : 1.0f;
    const Floats plain = decode(type, quantize(type, x)), weighted = decode(type, quantize(type, x, 1, w));
    double important[2] = {}, other[2] = {};
    for (size_t i = 0; i < x.size(); ++i) {
        const double a = x[i] - plain[i], b = x[i] - weighted[i];
        (w[i] > 1 ? important : other)[0] += a * a;
        (w[i] > 1 ? important : other)[1] += b * b;
    }
    EXPECT_LT(important[1], important[0] * (type == Type::q8_0 || type == Type::mxfp4 ? 0.97 : 0.9));
    EXPECT_GT(other[1], other[0]);
}

TEST_P(Searched, WeightsOfOneAndOfAnyPowerOfTwoEqualNone) {
    const Floats x = heavy(512, 71);
    const Floats w = log_normal(512, 72);
    Floats scaled = w;
    for (float& v : scaled) v *= 0x1p40f;
    EXPECT_EQ(quantize(GetParam(), x, 1, w), quantize(GetParam(), x, 1, scaled));
    EXPECT_EQ(quantize(GetParam(), x), quantize(GetParam(), x, 1, Floats(512, 0.0f)));
}

// --- against the obvious encoder and against all possibilities --------------------

TEST(QuantizeBlocks32, NeverWorseThanTheEncodersThatDoNotSearch) {
    for (const Type type : {Type::q8_0, Type::mxfp4})
        for (unsigned seed = 0; seed < 50; ++seed) {
            Floats x = seed % 2 == 0 ? normal(256, seed) : heavy(256, seed);
            if (seed % 5 == 0)
                for (float& v : x) v *= 1e-6f;
            const Floats w = seed % 3 == 0 ? Floats{} : log_normal(256, seed + 100);
            Bytes plain(static_cast<size_t>(row_bytes(type, 256)));
            format(type).encode(x.data(), plain.data(), 256);
            // 1e-5: the search compares E in f32.
            EXPECT_LE(error(type, x, quantize(type, x, 1, w), w), error(type, x, plain, w) * (1 + 1e-5));
        }
}

// The least E over every scale byte, each with the nearest levels.
TEST(QuantizeMxfp4, FindsTheBestScaleOfAll) {
    constexpr double kLevel[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (unsigned seed = 0; seed < 200; ++seed) {
        const Floats x = seed % 2 == 0 ? normal(32, seed, 0.1f) : heavy(32, seed);
        const Floats w = log_normal(32, seed + 1000, seed % 3 == 0 ? 3.0f : 1.0f);
        double best = HUGE_VAL;
        for (int e = -20; e <= 20; ++e) {
            double sum = 0;
            for (size_t i = 0; i < 32; ++i) {
                double nearest = HUGE_VAL;
                for (const double level : kLevel)
                    nearest = std::min(nearest, std::fabs(std::fabs(x[i]) - std::ldexp(level, e)));
                sum += static_cast<double>(w[i]) * nearest * nearest;
            }
            best = std::min(best, sum);
        }
        // The search stops at a quarter of the obvious scale; extreme weights may want an eighth.
        EXPECT_LE(error(Type::mxfp4, x, quantize(Type::mxfp4, x, 1, w), w), best * (seed % 3 == 0 ? 1.5 : 1.001))
            << seed;
    }
}

// The least E over every f16 d between 0.9 and 1.1 of amax/127.
TEST(QuantizeQ80, IsNearTheBestOfAllStoredScales) {
    double ours = 0, best_sum = 0;
    for (unsigned seed = 0; seed < 100; ++seed) {
        const Floats x = seed % 2 == 0 ? normal(32, seed) : heavy(32, seed);
        float amax = 0;
        for (const float v : x) amax = std::max(amax, std::fabs(v));
        double best = HUGE_VAL;
        const uint16_t first = f32_to_f16(amax / 127.0f * 0.9f), last = f32_to_f16(amax / 127.0f * 1.1f);
        for (uint16_t h = first; h <= last; ++h) {
            const double d = f16_to_f32(h);
            double sum = 0;
            for (const float v : x) {
                const double q = std::max(-127.0, std::min(127.0, std::nearbyint(v / d)));
                sum += (v - d * q) * (v - d * q);
            }
            best = std::min(best, sum);
        }
        best_sum += best;
        ours += error(Type::q8_0, x, quantize(Type::q8_0, x));
    }
    EXPECT_LE(ours, best_sum * 1.08);
    EXPECT_GE(ours, best_sum * 0.999);
}

// For the d and dmin that were chosen, every sub-block's scale and minimum against all pairs of them, with the nearest
// codes. Few sub-blocks may miss the best pair, and by little.
struct Fields {
    double d, dmin;
    int n, n_factor, n_code;
};
Fields fields(Type type, const Bytes& b) {
    const auto half = [&](size_t at) {
        uint16_t h = 0;
        std::memcpy(&h, b.data() + at, 2);
        return static_cast<double>(f16_to_f32(h));
    };
    if (type == Type::q2_k) return {half(80), half(82), 16, 16, 4};
    return {half(0), half(2), 32, 64, type == Type::q4_k ? 16 : 32};
}

class WithMinimum : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(All, WithMinimum, testing::Values(Type::q2_k, Type::q4_k, Type::q5_k), name_of);

TEST_P(WithMinimum, FactorsAreNearTheBestOfAllPairs) {
    const Type type = GetParam();
    double ours = 0, best_sum = 0;
    for (unsigned seed = 0; seed < 6; ++seed) {
        const Floats x = seed % 2 == 0 ? normal(256, seed) : heavy(256, seed);
        const Floats w = seed < 2 ? Floats(256, 1.0f) : log_normal(256, seed + 10);
        const Bytes bytes = quantize(type, x, 1, w);
        const Fields f = fields(type, bytes);
        ours += error(type, x, bytes, w);
        for (size_t from = 0; from < 256; from += static_cast<size_t>(f.n)) {
            double best = HUGE_VAL;
            for (int sc = 0; sc < f.n_factor; ++sc)
                for (int mn = 0; mn < f.n_factor; ++mn) {
                    const double s = f.d * sc, m = f.dmin * mn;
                    double sum = 0;
                    for (size_t i = from; i < from + static_cast<size_t>(f.n); ++i) {
                        double q = s > 0 ? std::nearbyint((x[i] + m) / s) : 0;
                        q = std::max(0.0, std::min(static_cast<double>(f.n_code - 1), q));
                        const double r = x[i] - (s * q - m);
                        sum += static_cast<double>(w[i]) * r * r;
                    }
                    best = std::min(best, sum);
                }
            best_sum += best;
        }
    }
    EXPECT_GE(ours, best_sum * 0.999) << "all pairs were tried";
    EXPECT_LE(ours, best_sum * 1.03) << format(type).name;
    RecordProperty("ratio", std::to_string(ours / best_sum));
}

class ScaleOnly : public testing::TestWithParam<Type> {};
INSTANTIATE_TEST_SUITE_P(All, ScaleOnly, testing::Values(Type::q3_k, Type::q6_k), name_of);

TEST_P(ScaleOnly, FactorsAreNearTheBestOfAll) {
    const Type type = GetParam();
    const bool three = type == Type::q3_k;
    const int least = three ? -32 : -128, most = three ? 31 : 127;
    const double low = three ? -4 : -32, high = three ? 3 : 31;
    double ours = 0, best_sum = 0;
    for (unsigned seed = 0; seed < 12; ++seed) {
        const Floats x = seed % 2 == 0 ? normal(256, seed) : heavy(256, seed);
        const Floats w = seed < 4 ? Floats(256, 1.0f) : log_normal(256, seed + 10);
        const Bytes bytes = quantize(type, x, 1, w);
        uint16_t h = 0;
        std::memcpy(&h, bytes.data() + (three ? 108 : 208), 2);
        const double d = f16_to_f32(h);
        ours += error(type, x, bytes, w);
        for (size_t from = 0; from < 256; from += 16) {
            double best = HUGE_VAL;
            for (int sc = least; sc <= most; ++sc) {
                double sum = 0;
                for (size_t i = from; i < from + 16; ++i) {
                    const double q = sc == 0 ? 0 : std::max(low, std::min(high, std::nearbyint(x[i] / (d * sc))));
                    const double r = x[i] - d * sc * q;
                    sum += static_cast<double>(w[i]) * r * r;
                }
                best = std::min(best, sum);
            }
            best_sum += best;
        }
    }
    EXPECT_GE(ours, best_sum * 0.999);
    EXPECT_LE(ours, best_sum * 1.03) << format(type).name;
    RecordProperty("ratio", std::to_string(ours / best_sum));
}

// The obvious encoder, written here: step = range over the number of codes, factors rounded to nearest, d from the
// largest. The search has to be clearly better, not just different.
TEST_P(WithMinimum, ClearlyBetterThanRoundingToTheObviousScales) {
    const Type type = GetParam();
    double ours = 0, obvious = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
        const Floats x = seed % 2 == 0 ? normal(256, seed) : heavy(256, seed);
        const Bytes bytes = quantize(type, x);
        ours += error(type, x, bytes);
        const Fields f = fields(type, bytes);
        const auto n = static_cast<size_t>(f.n);
        std::vector<double> s, m;
        double s_max = 0, m_max = 0;
        for (size_t from = 0; from < 256; from += n) {
            const auto [low, high] = std::minmax_element(x.begin() + static_cast<ptrdiff_t>(from),
                                                         x.begin() + static_cast<ptrdiff_t>(from + n));
            m.push_back(std::max(0.0, -static_cast<double>(*low)));
            s.push_back((*high + m.back()) / (f.n_code - 1));
            s_max = std::max(s_max, s.back()), m_max = std::max(m_max, m.back());
        }
        const auto round16 = [](double v) {
            return static_cast<double>(f16_to_f32(f32_to_f16(static_cast<float>(v))));
        };
        const double d = round16(s_max / (f.n_factor - 1)), dmin = round16(m_max / (f.n_factor - 1));
        for (size_t i = 0; i < 256; ++i) {
            const double scale = d * std::nearbyint(s[i / n] / d), min = dmin * std::nearbyint(m[i / n] / dmin);
            const double q = std::max(0.0, std::min(f.n_code - 1.0, std::nearbyint((x[i] + min) / scale)));
            const double r = x[i] - (scale * q - min);
            obvious += r * r;
        }
    }
    EXPECT_LT(ours, obvious * 0.85) << format(type).name;
}

}  // namespace
}  // namespace vesta::quant
