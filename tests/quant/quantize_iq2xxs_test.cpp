// The IQ2_XXS search against brute force: every expectation is computed here from the decoder's formula, in double.
#include "quant/quantize_iq2xxs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "quant/format.h"
#include "quant/iq2xxs_grid.h"
#include "quant/quantize.h"
#include "quant/quantize_iq2xxs_search.h"

namespace vesta::quant {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Random {
    std::mt19937_64 engine;
    explicit Random(uint64_t seed) : engine(seed) {}
    double uniform() { return static_cast<double>(engine() >> 11) * 0x1p-53; }
    double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * 3.141592653589793 * uniform()); }
    Floats normals(size_t n, double sigma = 1) {
        return make(n, [&] { return sigma * normal(); });
    }
    // Student's t with 2 degrees of freedom: infinite variance.
    Floats heavy(size_t n) {
        return make(n, [&] { return normal() / std::sqrt(-std::log(1 - uniform())); });
    }
    Floats positive(size_t n, double spread) {
        return make(n, [&] { return std::exp(spread * normal()); });
    }
    static Floats make(size_t n, const std::function<double()>& value) {
        Floats out(n);
        for (float& v : out) v = static_cast<float>(value());
        return out;
    }
};

Bytes encode(const Floats& x, const float* importance = nullptr, int64_t n_row = 1) {
    const int64_t n_col = static_cast<int64_t>(x.size()) / n_row;
    Bytes out(x.size() / 256 * 66, std::byte{0xa5});
    quantize_iq2_xxs(x.data(), n_row, n_col, importance, out.data());
    return out;
}

Floats decode(const Bytes& bytes) {
    Floats out(bytes.size() / 66 * 256);
    format(Type::iq2_xxs).decode(bytes.data(), out.data(), static_cast<int64_t>(out.size()));
    return out;
}

double error(const Floats& x, const Floats& y, const float* importance = nullptr) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
        sum += (importance != nullptr ? static_cast<double>(importance[i]) : 1.0) * d * d;
    }
    return sum;
}

double relative_error(const Floats& x, const float* importance = nullptr) {
    return error(x, decode(encode(x, importance)), importance) / error(x, Floats(x.size()), importance);
}

double grid(int point, int i) { return static_cast<double>((kIq2xxsGrid[point] >> (8 * i)) & 255u); }

// The least error of 8 values at scale s over every point and every sign pattern the format can store.
double least_of_all(const float* x, const float* w, double s) {
    double least = std::numeric_limits<double>::infinity();
    for (int point = 0; point < 256; ++point) {
        double with[8][2];  // error of element i stored positive, negative
        for (int i = 0; i < 8; ++i)
            for (int sign = 0; sign < 2; ++sign) {
                const double d = static_cast<double>(x[i]) - (sign != 0 ? -s : s) * grid(point, i);
                with[i][sign] = static_cast<double>(w[i]) * d * d;
            }
        for (unsigned signs = 0; signs < 256; ++signs) {
            if (std::popcount(signs) % 2 != 0) continue;
            double e = 0;
            for (int i = 0; i < 8; ++i) e += with[i][(signs >> i) & 1u];
            least = std::min(least, e);
        }
    }
    return least;
}

// The same, in time for thousands of scales: the best signs are those of the values, one flipped where parity demands.
double least_of_points(const float* x, const float* w, double s) {
    int n_negative = 0;
    for (int i = 0; i < 8; ++i) n_negative += x[i] < 0;
    double least = std::numeric_limits<double>::infinity();
    for (int point = 0; point < 256; ++point) {
        double e = 0, flip = std::numeric_limits<double>::infinity();
        for (int i = 0; i < 8; ++i) {
            const double m = std::fabs(static_cast<double>(x[i])), wi = static_cast<double>(w[i]);
            const double sg = s * grid(point, i);
            e += wi * (m - sg) * (m - sg);
            flip = std::min(flip, 4 * wi * m * sg);
        }
        least = std::min(least, e + (n_negative % 2 != 0 ? flip : 0));
    }
    return least;
}

double least_of_block(const float* x, const float* w, double s) {
    double e = 0;
    for (int i = 0; i < 32; i += 8) e += least_of_points(x + i, w + i, s);
    return e;
}

std::vector<const iq2xxs::Kernels*> every_kernel() {
    std::vector<const iq2xxs::Kernels*> all = {&iq2xxs::scalar_kernels()};
    if (iq2xxs::avx2_kernels() != nullptr) all.push_back(iq2xxs::avx2_kernels());
    return all;
}

TEST(Iq2XxsSearch, PointsOfAGroupAreTheBestOfAllPointsAndAllSigns) {
    Random random(1);
    for (int round = 0; round < 3; ++round) {
        iq2xxs::Problem problem;
        Floats x = random.normals(256), w = random.positive(256, round);
        float s[8];
        for (int b = 0; b < 8; ++b) {
            s[b] = static_cast<float>(std::exp(-3.2 + 0.6 * random.normal()));  // around 1/25
            for (int e = 0; e < 32; ++e) {
                if (b == 1) x[32 * b + e] = std::fabs(x[32 * b + e]);                                 // all positive
                if (b == 2) x[32 * b + e] = std::copysign(x[32 * b + e], e % 8 == 5 ? -1.0f : 1.0f);  // all odd
                if (b == 3 && e % 3 == 0) w[32 * b + e] = 0;
                problem.x[e][b] = std::fabs(x[32 * b + e]);
                problem.w[e][b] = w[32 * b + e];
            }
            for (int g = 0; g < 4; ++g) {
                int n = 0;
                for (int i = 0; i < 8; ++i) n += x[32 * b + 8 * g + i] < 0;
                problem.odd[g][b] = static_cast<float>(n % 2);
            }
        }
        for (const iq2xxs::Kernels* kernels : every_kernel()) {
            iq2xxs::Points out;
            kernels->best_points(problem, s, out);
            for (int b = 0; b < 8; ++b) {
                double p = 0, q = 0;
                for (int g = 0; g < 4; ++g) {
                    const float* xs = &x[32 * b + 8 * g];
                    const float* ws = &w[32 * b + 8 * g];
                    double e = 0;
                    int n_negative = 0;
                    for (int i = 0; i < 8; ++i) {
                        const bool negative = (xs[i] < 0) != (out.flip[g][b] == i);
                        n_negative += negative;
                        const double y = (negative ? -1 : 1) * grid(out.point[g][b], i),
                                     wi = static_cast<double>(ws[i]);
                        const double d = static_cast<double>(xs[i]) - static_cast<double>(s[b]) * y;
                        e += wi * d * d;
                        p += wi * static_cast<double>(xs[i]) * y;
                        q += wi * y * y;
                    }
                    EXPECT_EQ(n_negative % 2, 0);
                    const double least = least_of_all(xs, ws, static_cast<double>(s[b]));
                    EXPECT_LE(e, least * (1 + 1e-5)) << b << " " << g;
                    EXPECT_NEAR(least_of_points(xs, ws, static_cast<double>(s[b])), least, 1e-12 * (1 + least));
                }
                EXPECT_NEAR(static_cast<double>(out.p[b]), p, 1e-5 * (1 + std::fabs(p)));
                EXPECT_NEAR(static_cast<double>(out.q[b]), q, 1e-5 * q);
            }
        }
    }
}

// No d of a fine grid, with the best of all codes, points and signs, does better by more than the factor.
TEST(Iq2XxsSearch, ASuperBlockIsNearlyAsGoodAsExhaustiveSearch) {
    Random random(2);
    struct Case {
        Floats x, w;
        double factor;
    };
    std::vector<Case> cases;
    cases.push_back({random.normals(256), Floats(256, 1.0f), 1.002});
    cases.push_back({random.normals(256), random.positive(256, 1), 1.002});
    cases.push_back({random.heavy(256), random.positive(256, 2), 1.01});
    Floats odd = random.normals(256);  // one negative in every 8
    for (size_t i = 0; i < odd.size(); ++i) odd[i] = std::copysign(odd[i], i % 8 == 3 ? -1.0f : 1.0f);
    cases.push_back({odd, Floats(256, 1.0f), 1.002});
    Floats stepped = random.normals(256);  // block sizes 1 : 1.5 : 2.25 ... 17
    for (size_t i = 0; i < stepped.size(); ++i)
        stepped[i] *= static_cast<float>(std::pow(1.5, static_cast<double>(i / 32)));
    cases.push_back({stepped, Floats(256, 1.0f), 1.002});
    for (size_t n = 0; n < cases.size(); ++n) {
        const Case& c = cases[n];
        const double found = error(c.x, decode(encode(c.x, c.w.data())), c.w.data());
        float largest = 0;
        for (const float v : c.x) largest = std::max(largest, std::fabs(v));
        double least = std::numeric_limits<double>::infinity();
        // From the largest value being 5/2 times the reach of d (43·31/8) to it being a tenth of it.
        for (double d = static_cast<double>(largest) / 167 / 2.5; d < static_cast<double>(largest) / 167 * 10;
             d *= 1.02) {
            double e = 0;
            for (int b = 0; b < 8 && e < least; ++b) {
                double block = std::numeric_limits<double>::infinity();
                for (int code = 0; code < 16; ++code)
                    block = std::min(block, least_of_block(&c.x[32 * b], &c.w[32 * b], d * (2 * code + 1) / 8));
                e += block;
            }
            least = std::min(least, e);
        }
        RecordProperty("ratio" + std::to_string(n), std::to_string(found / least));
        EXPECT_LE(found, least * c.factor) << n;
    }
}

// One block carries the error, the others are zero, so d is free to suit it: only the search over its scale counts.
TEST(Iq2XxsSearch, ABlockIsNearlyAsGoodAsAFineSearchOverItsScale) {
    Random random(3);
    double sum = 0, sum_least = 0;
    for (int round = 0; round < 12; ++round) {
        Floats x(256);
        const Floats block = round % 3 == 2 ? random.heavy(32) : random.normals(32);
        Floats w = round % 2 == 0 ? Floats(256, 1.0f) : random.positive(256, 1.5);
        double energy = 0, weight = 0;
        for (size_t i = 0; i < 32; ++i) {
            x[96 + i] = block[i];
            energy += static_cast<double>(w[96 + i]) * static_cast<double>(block[i]) * static_cast<double>(block[i]);
            weight += static_cast<double>(w[96 + i]);
        }
        for (size_t i = 0; i < w.size(); ++i)
            if (i < 96 || i >= 128) w[i] = 0;
        const double rms = std::sqrt(energy / weight);
        const double found = error(x, decode(encode(x, w.data())), w.data());
        double least = std::numeric_limits<double>::infinity();
        for (double s = rms / 60; s < rms / 4; s *= 1.002) least = std::min(least, least_of_block(&x[96], &w[96], s));
        EXPECT_LE(found, least * 1.03) << round;
        sum += found / energy;
        sum_least += least / energy;
    }
    EXPECT_LE(sum, sum_least * 1.005);
}

TEST(Iq2XxsSearch, EveryInstructionSetWritesTheSameBytes) {
    if (iq2xxs::avx2_kernels() == nullptr) GTEST_SKIP() << "no AVX2 here";
    Random random(4);
    std::vector<Floats> rows = {random.normals(4096),        random.heavy(4096),        random.normals(1024, 1e-7),
                                random.normals(1024, 1e-30), random.normals(1024, 3e5), Floats(512, -0.25f)};
    Floats wild(4096);
    for (float& v : wild) v = static_cast<float>(random.normal() * std::pow(10.0, 40 * random.uniform() - 35));
    rows.push_back(wild);
    Floats sparse(4096);
    for (size_t i = 0; i < sparse.size(); i += 1 + random.engine() % 40)
        sparse[i] = static_cast<float>(random.normal());
    rows.push_back(sparse);
    for (const Floats& x : rows) {
        Floats w[4] = {random.positive(x.size(), 1), random.positive(x.size(), 12), random.positive(x.size(), 1), {}};
        for (size_t i = 0; i < x.size(); ++i)
            if (random.engine() % 3 == 0 || i / 32 % 5 == 1) w[2][i] = i % 2 != 0 ? 0.0f : -0.0f;
        for (const Floats& importance : w) {
            const float* p = importance.empty() ? nullptr : importance.data();
            const int64_t n = static_cast<int64_t>(x.size());
            Bytes scalar(x.size() / 256 * 66), avx2(scalar.size());
            iq2xxs::quantize(iq2xxs::scalar_kernels(), x.data(), 1, n, p, scalar.data());
            iq2xxs::quantize(*iq2xxs::avx2_kernels(), x.data(), 1, n, p, avx2.data());
            EXPECT_EQ(scalar, avx2);
            EXPECT_EQ(encode(x, p), scalar);
        }
    }
}

TEST(Iq2XxsQuantize, RelativeErrorsOfKnownDistributions) {
    Random random(5);
    const double normal = relative_error(random.normals(16384));
    EXPECT_GT(normal, 0.09);  // 2.06 bits can do no better than 4^-2.06 = 0.057, the grid is not the ideal code
    EXPECT_LT(normal, 0.115);
    // An outlier sets the scale, and the least its 7 neighbours can then be is 8/43 of it each.
    EXPECT_LT(relative_error(random.heavy(16384)), 7 * (8.0 / 43) * (8.0 / 43) + 0.12);
    Floats positive = random.normals(16384);
    for (float& v : positive) v = std::fabs(v);
    EXPECT_LT(relative_error(positive), 0.115);
    for (size_t i = 0; i < positive.size(); i += 8) positive[i + i / 8 % 8] *= -1.0f;  // every parity wrong
    EXPECT_LT(relative_error(positive), 0.14);
}

TEST(Iq2XxsQuantize, ConstantRowsAreExactButForTheRoundingOfTheScale) {
    for (const float c : {1.0f, -0.37f, 5e4f, 0.01f}) {
        const Floats y = decode(encode(Floats(512, c)));
        for (const float v : y) EXPECT_NEAR(v / c, 1.0f, 0.0005f);  // half a step of f16: 2^-11
    }
}

TEST(Iq2XxsQuantize, ZeroRowsAreZeroBytes) {
    EXPECT_EQ(encode(Floats(512)), Bytes(132));
    EXPECT_EQ(encode(Floats(512, -0.0f)), Bytes(132));
    const Floats w(512, 1.0f);
    EXPECT_EQ(encode(Floats(512), w.data()), Bytes(132));
}

TEST(Iq2XxsQuantize, TinyValuesUseSubnormalScalesOrVanish) {
    Random random(6);
    EXPECT_LT(relative_error(random.normals(1024, 1e-4)), 0.12);
    EXPECT_LT(relative_error(random.normals(1024, 1e-6)), 0.25);  // d is one or two times 2^-24
    for (const double sigma : {1e-7, 1e-9, 1e-30, 1e-44}) {
        const Floats x = random.normals(1024, sigma);
        EXPECT_LE(relative_error(x), 1.0 + 1e-9) << sigma;  // never worse than writing zeros
    }
}

TEST(Iq2XxsQuantize, HugeValuesFitUpToTheLargestScaleAndAreNaNBeyond) {
    Random random(7);
    EXPECT_LT(relative_error(random.normals(1024, 1e6)), 0.12);  // the largest value of the format is 65504·31/8·43
    for (const double sigma : {1e9, 1e37}) {
        for (const float v : decode(encode(random.normals(512, sigma)))) EXPECT_TRUE(std::isnan(v));
    }
    for (const float bad : {kNaN, std::numeric_limits<float>::infinity()}) {
        Floats x = random.normals(512);
        x[300] = bad;
        const Floats y = decode(encode(x));
        for (size_t i = 0; i < 512; ++i) EXPECT_EQ(std::isnan(y[i]), i >= 256);
    }
}

TEST(Iq2XxsQuantize, RowsOfTheFormatComeBack) {
    Random random(8);
    Bytes blocks(64 * 66);
    for (std::byte& b : blocks) b = static_cast<std::byte>(random.engine() & 255u);
    for (size_t b = 0; b < blocks.size(); b += 66) {
        const uint16_t d = static_cast<uint16_t>(0x1800 + random.engine() % 0x2000);  // 2^-9 .. 2^-1
        std::memcpy(&blocks[b], &d, 2);
        blocks[b + 2 + 8 * (b / 66 % 8) + 7] |=
            std::byte{0xf0};  // one block with code 15, so that d is the obvious one
    }
    const Floats x = decode(blocks);
    EXPECT_LT(relative_error(x), 1e-3);
}

TEST(Iq2XxsQuantize, ImportanceMovesTheErrorToTheOtherColumns) {
    Random random(9);
    const Floats x = random.normals(8192);
    Floats w(x.size(), 1.0f);
    for (size_t i = 0; i < w.size(); i += 4) w[i] = 30.0f;
    const Floats plain = decode(encode(x)), weighted = decode(encode(x, w.data()));
    EXPECT_LT(error(x, weighted, w.data()), 0.7 * error(x, plain, w.data()));
    EXPECT_GT(error(x, weighted), error(x, plain));
    Floats heavy_only(x.size());
    for (size_t i = 0; i < w.size(); i += 4) heavy_only[i] = 1.0f;
    EXPECT_LT(error(x, weighted, heavy_only.data()), 0.5 * error(x, plain, heavy_only.data()));
}

TEST(Iq2XxsQuantize, ImportanceCountsByItsRatios) {
    Random random(10);
    const Floats x = random.normals(2048), w = random.positive(2048, 2);
    Floats small = w, large = w;
    for (float& v : small) v *= 0x1p-90f;
    for (float& v : large) v *= 0x1p90f;
    EXPECT_EQ(encode(x, small.data()), encode(x, w.data()));
    EXPECT_EQ(encode(x, large.data()), encode(x, w.data()));
    EXPECT_EQ(encode(x, Floats(2048, 4.0f).data()), encode(x));
    EXPECT_EQ(encode(x, Floats(2048).data()), encode(x));
}

TEST(Iq2XxsQuantize, ColumnsOfNoImportanceCostNothing) {
    Random random(11);
    Floats x = random.normals(2048), w = random.positive(2048, 1);
    for (size_t i = 0; i < w.size(); ++i)
        if (random.engine() % 4 == 0) w[i] = 0;
    const Floats y = decode(encode(x, w.data()));
    Floats other = x;
    for (size_t i = 0; i < w.size(); ++i)
        if (w[i] == 0) other[i] *= 1e30f;
    const Floats z = decode(encode(other, w.data()));
    for (size_t i = 0; i < w.size(); ++i) {
        if (w[i] == 0) continue;
        EXPECT_EQ(y[i], z[i]) << i;
    }
}

TEST(Iq2XxsQuantize, ABlockWithoutImportanceFollowsTheOthersAndIsStillEncoded) {
    Random random(12);
    Floats x = random.normals(256), w(256, 1.0f);
    for (size_t i = 64; i < 96; ++i) w[i] = 0;
    const Floats y = decode(encode(x, w.data()));
    double e = 0, energy = 0;
    for (size_t i = 64; i < 96; ++i) {
        e += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
        energy += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    EXPECT_LT(e, 0.2 * energy);
    // A super-block of which no column matters is encoded as without importance, whatever its neighbour.
    Floats two = random.normals(512), half(512, 1.0f);
    for (size_t i = 256; i < 512; ++i) half[i] = 0;
    EXPECT_EQ(encode(two, half.data()), encode(two));
}

TEST(Iq2XxsQuantize, BytesDependOnTheRowOnly) {
    Random random(13);
    const int64_t n_row = 6, n_col = 768;
    const Floats x = random.heavy(n_row * n_col), w = random.positive(n_col, 1);
    const Bytes all = encode(x, w.data(), n_row);
    for (int64_t r = 0; r < n_row; ++r) {
        const Floats row(x.begin() + r * n_col, x.begin() + (r + 1) * n_col);
        const Bytes one = encode(row, w.data());
        EXPECT_EQ(std::memcmp(one.data(), all.data() + r * 198, 198), 0);
    }
    EXPECT_EQ(encode(x, w.data(), n_row), all);
}

TEST(Iq2XxsQuantize, QuantizeRowsWritesIt) {
    ASSERT_TRUE(can_quantize(Type::iq2_xxs));
    Random random(14);
    const Floats x = random.normals(1024), w = random.positive(1024, 1);
    Bytes out(4 * 66);
    quantize_rows(Type::iq2_xxs, x.data(), 1, 1024, w.data(), out.data());
    EXPECT_EQ(out, encode(x, w.data()));
    ErrorSum sum;
    add_error(Type::iq2_xxs, x.data(), out.data(), 1, 1024, w.data(), sum);
    EXPECT_NEAR(sum.error, error(x, decode(out), w.data()), 1e-9 * sum.error);
}

}  // namespace
}  // namespace vesta::quant
