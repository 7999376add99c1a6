// The operations against numbers worked out elsewhere: the known vectors of the architecture, closed forms, and second
// statements in f64. The reference backend is asked; tests/backend compares the others with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "backend/reference/reference_ops.h"
#include "support/ops_data.h"

namespace vesta {
namespace {

using backend::ReferenceOps;
using quant::RowFormat;
using test::OwnedCache;
using test::Rows;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// --- hyper-connections --------------------

struct Split {
    Rows pre, post, comb;
};
Split split(std::vector<float> mix, std::vector<float> scale, std::vector<float> base, int n_sinkhorn = 20) {
    Rows m(std::move(mix), 24);
    const int64_t n = m.n_row();
    Split s{Rows(n, 4), Rows(n, 4), Rows(n, 16)};
    ReferenceOps ops(1);
    ops.hc_split({.pre = s.pre.t(),
                  .post = s.post.t(),
                  .comb = s.comb.t(),
                  .mix = m.t(),
                  .scale = scale.data(),
                  .base = base.data(),
                  .n_stream = 4,
                  .n_sinkhorn = n_sinkhorn,
                  .eps = 1e-6f});
    return s;
}

TEST(HyperConnection, KnownGatesAndMixing) {
    std::vector<float> mix(24), base(24, 0.0f);
    for (size_t k = 0; k < 24; ++k) mix[k] = 0.1f * static_cast<float>(k) - 1.2f;
    base[8] = 0.5f, base[17] = 0.25f, base[23] = -0.75f;
    const Split s = split(mix, {1, 1, 3}, base);
    const double pre[] = {0.2314762, 0.2497409, 0.2689424, 0.2890515};
    const double post[] = {0.620051, 0.6636245, 0.7086874, 0.7550813};
    const double comb[] = {0.3161278, 0.2053071, 0.2189797, 0.2595844, 0.2189797, 0.2344722, 0.2500871, 0.29646,
                           0.2053072, 0.28227,   0.2344722, 0.2779497, 0.2595843, 0.2779497, 0.29646,   0.166005};
    // The numbers have seven digits; twenty normalisations in f32 add about as much again.
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(s.pre.v[i], pre[i], 1e-7) << i;
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(s.post.v[i], post[i], 1e-7) << i;
    for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(s.comb.v[i], comb[i], 3e-7) << i;
}

TEST(HyperConnection, SinkhornMakesRowsAndColumnsSumToOne) {
    const int64_t n = 50;
    const Split s = split(test::gaussian(n * 24, 1), {1, 1, 1}, test::gaussian(24, 2, 0.5f));
    for (int64_t t = 0; t < n; ++t)
        for (int64_t i = 0; i < 4; ++i) {
            double row = 0, column = 0;
            for (int64_t k = 0; k < 4; ++k) {
                row += static_cast<double>(s.comb.v[static_cast<size_t>(t * 16 + i * 4 + k)]);
                column += static_cast<double>(s.comb.v[static_cast<size_t>(t * 16 + k * 4 + i)]);
            }
            EXPECT_NEAR(column, 1.0, 2e-6);  // normalised last: off by eps and f32
            EXPECT_NEAR(row, 1.0, 1e-4);     // converging
        }
}

TEST(HyperConnection, LargeMixesStayFinite) {
    std::vector<float> mix(24);
    for (size_t k = 0; k < 24; ++k) mix[k] = k % 2 == 0 ? 3000.0f : -3000.0f;
    const Split s = split(mix, {1, 1, 1}, std::vector<float>(24, 0.0f));
    for (const Rows* r : {&s.pre, &s.post, &s.comb})
        for (const float v : r->v) EXPECT_TRUE(std::isfinite(v));
}

// Rows of comb are sources and columns destinations; an asymmetric matrix tells them apart.
TEST(HyperConnection, MixingOutSumsOverTheSourceIndex) {
    Rows streams({1, 10, 100, 1000}, 4), y(std::vector<float>{5}, 1), post({1, 2, 3, 4}, 4);  // S = 4, E = 1
    Rows comb(std::vector<float>(16, 0.0f), 16);
    comb.v[0 * 4 + 1] = 1;  // from stream 0 to stream 1
    comb.v[3 * 4 + 0] = 2;  // from stream 3 to stream 0
    ReferenceOps ops(1);
    ops.hc_mix_out({.streams = streams.t(), .y = y.t(), .post = post.t(), .comb = comb.t()});
    EXPECT_EQ(streams.v, (std::vector<float>{5 + 2000, 10 + 1, 15, 20}));
}

TEST(HyperConnection, CollapseWeighsTheStreams) {
    Rows streams({1, 2, 10, 20, 100, 200, 1000, 2000}, 8), gate({1, 0.5f, 2, 0}, 4), y(1, 2);
    ReferenceOps ops(1);
    ops.hc_collapse({.y = y.t(), .gate = gate.t(), .streams = streams.t()});
    EXPECT_EQ(y.v, (std::vector<float>{1 + 5 + 200, 2 + 10 + 400}));
}

TEST(HyperConnection, HeadGateIsASigmoidPlusEps) {
    Rows mix({-1, 0, 1, 2}, 4), gate(1, 4);
    const float base[] = {0.5f, 0.25f, -0.5f, 0};
    ReferenceOps ops(1);
    ops.hc_head_gate({.gate = gate.t(), .mix = mix.t(), .scale = 1.5f, .base = base, .eps = 0.125f});
    for (size_t i = 0; i < 4; ++i) {
        const double z = static_cast<double>(mix.v[i]) * 1.5 + static_cast<double>(base[i]);
        EXPECT_NEAR(gate.v[i], 1 / (1 + std::exp(-z)) + 0.125, 1e-7);
    }
}

// --- router --------------------

struct Routed {
    std::vector<int32_t> expert;
    std::vector<float> weight;
};
Routed route(std::vector<float> logits, std::vector<float> bias, int64_t n_used, float scale,
             const int32_t* hash = nullptr, int32_t token = 0) {
    const auto n = static_cast<int64_t>(logits.size());
    Rows z(std::move(logits), n);
    Routed r{std::vector<int32_t>(static_cast<size_t>(n_used)), std::vector<float>(static_cast<size_t>(n_used))};
    const ops::Row row{.token = token};
    if (bias.empty()) bias.assign(static_cast<size_t>(n), 0.0f);
    ReferenceOps ops(1);
    ops.route({.expert = r.expert.data(),
               .weight = r.weight.data(),
               .logits = z.t(),
               .bias = hash == nullptr ? bias.data() : nullptr,
               .hash = hash,
               .n_used = n_used,
               .scale = scale,
               .rows = {&row, 1}});
    return r;
}

long double exact_score(float z) { return std::sqrt(std::log1p(std::exp(static_cast<long double>(z)))); }

TEST(Router, KnownScores) {
    // Weights scaled by the sum of the scores are the scores.
    const double want[] = {0.2204253878, 0.8325546112, 1.1459763032, 2.0045323464};
    const double sum = std::accumulate(std::begin(want), std::end(want), 0.0);
    const Routed r = route({-3, 0, 1, 4}, {}, 4, static_cast<float>(sum));
    EXPECT_EQ(r.expert, (std::vector<int32_t>{3, 2, 1, 0}));
    for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(r.weight[k], want[3 - k], 2e-7) << k;
}

TEST(Router, KnownWeightsOfSixExperts) {
    const double want[] = {0.303055, 0.22017, 0.148013, 0.385676, 0.261001, 0.182084};
    const Routed r = route({1, 0, -1, 2, 0.5f, -0.5f}, {}, 6, 1.5f);
    for (size_t k = 0; k < 6; ++k)
        EXPECT_NEAR(r.weight[k], want[static_cast<size_t>(r.expert[k])], 1e-6) << "expert " << r.expert[k];
}

// The pocket model chooses experts with logits below -20, where log(1 + e^z) in f32 is zero.
TEST(Router, VeryNegativeLogitsAreExact) {
    for (const float z : {0.0f, -10.0f, -16.0f, -17.0f, -20.0f, -25.0f, -39.75f, -40.25f, -60.0f, -103.0f, -200.0f,
                          -745.0f, -800.0f, -1400.0f, 25.0f, 31.0f, 80.0f}) {
        const std::vector<float> logits = {z - 1, z, z + 0.5f};
        const Routed r = route(logits, {}, 3, 2.5f);
        long double sum = 0;
        for (const float l : logits) sum += exact_score(l);
        for (size_t k = 0; k < 3; ++k) {
            const long double want = exact_score(logits[static_cast<size_t>(r.expert[k])]) / sum * 2.5L;
            // One rounding to f32.
            EXPECT_NEAR(static_cast<double>(r.weight[k] / want), 1.0, 0x1p-24 + 1e-12)
                << z << ", expert " << r.expert[k];
        }
    }
}

TEST(Router, VeryDifferentLogitsKeepTheirRatio) {
    const Routed r = route({-25, -60, -200, -800}, {}, 4, 1.0f);
    EXPECT_EQ(r.expert, (std::vector<int32_t>{0, 1, 2, 3}));
    long double sum = 0;
    for (const float z : {-25.0f, -60.0f, -200.0f, -800.0f}) sum += exact_score(z);
    for (size_t k = 0; k < 2; ++k)
        EXPECT_NEAR(static_cast<double>(r.weight[k] / (exact_score(k == 0 ? -25.0f : -60.0f) / sum)), 1.0,
                    0x1p-24 + 1e-12);
    // e^-87.5 and e^-387.5 of the first: the smallest f32 numbers end near e^-103.
    EXPECT_NEAR(static_cast<double>(r.weight[2] / (exact_score(-200) / sum)), 1.0, 0x1p-23);
    EXPECT_EQ(r.weight[3], 0.0f);
}

TEST(Router, AllScoresZeroShareEqually) {
    const Routed r = route({-1e30f, -1e30f, -1e30f}, {}, 2, 3.0f);
    EXPECT_EQ(r.weight, (std::vector<float>{1.5f, 1.5f}));
}

TEST(Router, BiasChoosesButDoesNotWeigh) {
    const Routed r = route({3, 2, 1, 0}, {-5, 0, 0, 1}, 2, 1.0f);
    EXPECT_EQ(r.expert, (std::vector<int32_t>{3, 1}));  // 0.83 + 1, 1.46
    const long double a = exact_score(0), b = exact_score(2);
    EXPECT_NEAR(r.weight[0], static_cast<double>(a / (a + b)), 1e-7);
    EXPECT_NEAR(r.weight[1], static_cast<double>(b / (a + b)), 1e-7);
}

TEST(Router, TiesGoToTheLowerExpert) {
    EXPECT_EQ(route({1, 2, 2, 2, 1}, {}, 2, 1.0f).expert, (std::vector<int32_t>{1, 2}));
}

TEST(Router, HashLayersTakeTheTokensExpertsAndStillWeighThem) {
    const int32_t table[] = {0, 1, 3, 2};
    const Routed r = route({0, 1, 2, 3}, {}, 2, 1.0f, table, 1);
    EXPECT_EQ(r.expert, (std::vector<int32_t>{3, 2}));
    const long double a = exact_score(3), b = exact_score(2);
    EXPECT_NEAR(r.weight[0], static_cast<double>(a / (a + b)), 1e-7);
}

TEST(Router, ANanLogitMakesTheWeightsNan) {
    for (size_t at = 0; at < 4; ++at) {
        std::vector<float> logits = {1, 2, 3, 4};
        logits[at] = kNan;
        for (const float w : route(logits, {}, 2, 1.0f).weight) EXPECT_TRUE(std::isnan(w)) << at;
    }
}

// --- experts' nonlinearity --------------------

TEST(Swiglu, KnownValuesWithTheClamp) {
    Rows gate({12, -20, 1}, 3), up({-11, 3, 2}, 3), y(1, 3);
    ReferenceOps ops(1);
    ops.swiglu({.y = y.t(), .gate = gate.t(), .up = up.t(), .clamp = 10.0f});
    const double want[] = {-99.9954602, -1.2366922e-7, 1.4621171573};
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(y.v[i] / want[i], 1.0, 3e-7) << i;
}

TEST(Swiglu, TheGateIsClampedFromAboveOnlyAndUpOnBothSides) {
    Rows gate({-50, 50, 50, 3}, 4), up({50, -50, 50, -3}, 4), y(1, 4);
    const float scale[] = {2.0f};
    ReferenceOps ops(1);
    ops.swiglu({.y = y.t(), .gate = gate.t(), .up = up.t(), .clamp = 7.0f, .scale = scale});
    const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
    const double want[] = {silu(-50) * 7 * 2, silu(7) * -7 * 2, silu(7) * 7 * 2, silu(3) * -3 * 2};
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y.v[i] / want[i], 1.0, 3e-7) << i;
}

// --- norm, rotation, small things --------------------

TEST(RmsNorm, IsTheQuotientWithTheRootMeanSquare) {
    Rows x(test::gaussian(3 * 77, 5), 77), y(3, 77), unit(3, 77);
    const std::vector<float> w = test::gaussian(77, 6);
    ReferenceOps ops(1);
    ops.rms_norm({.y = y.t(), .x = x.t(), .w = w.data(), .eps = 0.25f});
    ops.rms_norm({.y = unit.t(), .x = x.t(), .w = nullptr, .eps = 0.25f});
    for (size_t t = 0; t < 3; ++t) {
        double sum = 0;
        for (size_t i = 0; i < 77; ++i)
            sum += static_cast<double>(x.v[t * 77 + i]) * static_cast<double>(x.v[t * 77 + i]);
        for (size_t i = 0; i < 77; ++i) {
            const double want = static_cast<double>(x.v[t * 77 + i]) / std::sqrt(sum / 77 + 0.25);
            EXPECT_NEAR(unit.v[t * 77 + i], want, 3e-7);
            EXPECT_NEAR(y.v[t * 77 + i], want * static_cast<double>(w[i]), 1e-6);
        }
    }
}

TEST(Rope, TurnsAdjacentPairsOfTheLastValues) {
    const float freq[] = {1.0f, 0.25f};
    for (const int32_t position : {0, 1, 77, 1048575}) {
        const ops::Row row{.position = position};
        Rows x(test::gaussian(2 * 6, 7), 12);  // 2 heads of 6, the last 4 rotary
        const std::vector<float> before = x.v;
        ReferenceOps ops(1);
        ops.rope({.x = x.t(), .n_head = 2, .head_dim = 6, .n_rot = 4, .freq = freq, .rows = {&row, 1}});
        for (size_t h = 0; h < 2; ++h) {
            EXPECT_EQ(x.v[h * 6], before[h * 6]);
            EXPECT_EQ(x.v[h * 6 + 1], before[h * 6 + 1]);
            for (size_t i = 0; i < 2; ++i) {
                const long double angle = static_cast<long double>(position) * static_cast<long double>(freq[i]);
                const long double a = before[h * 6 + 2 + 2 * i], b = before[h * 6 + 3 + 2 * i];
                EXPECT_NEAR(x.v[h * 6 + 2 + 2 * i], static_cast<double>(a * std::cos(angle) - b * std::sin(angle)),
                            5e-7);
                EXPECT_NEAR(x.v[h * 6 + 3 + 2 * i], static_cast<double>(a * std::sin(angle) + b * std::cos(angle)),
                            5e-7);
            }
        }
        ops.rope(
            {.x = x.t(), .n_head = 2, .head_dim = 6, .n_rot = 4, .freq = freq, .rows = {&row, 1}, .inverse = true});
        for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(x.v[i], before[i], 5e-7);
    }
}

TEST(Ops, EmbedCopiesTheTokensRowIntoEveryStream) {
    const test::OwnedWeight table(quant::Type::f32, 5, 3, 1);
    std::vector<float> values(15);
    std::memcpy(values.data(), table.bytes.data(), 60);
    const ops::Row rows[] = {{.token = 4}, {.token = 0}};
    Rows y(2, 6);
    ReferenceOps ops(1);
    ops.embed({.y = y.t(), .table = table.w, .n_copy = 2, .rows = rows});
    for (size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(y.v[i], values[12 + i % 3]);
        EXPECT_EQ(y.v[6 + i], values[i % 3]);
    }
}

TEST(Ops, CombineAddScaleAndGather) {
    Rows parts({1, 2, 10, 20, 100, 200, 1000, 2000}, 2), shared({0.5f, 0.25f, 5, 6}, 2), y(2, 2), z(2, 2);
    ReferenceOps ops(1);
    ops.combine({.y = y.t(), .parts = parts.t(), .shared = shared.t()});
    EXPECT_EQ(y.v, (std::vector<float>{11.5f, 22.25f, 1105, 2206}));
    ops.add(y.t(), shared.t());
    ops.scale(y.t(), 2.0f);
    EXPECT_EQ(y.v, (std::vector<float>{24, 45, 2220, 4424}));
    const int32_t picked[] = {1, 0};
    ops.gather_rows(z.t(), y.t(), picked);
    EXPECT_EQ(z.v, (std::vector<float>{2220, 4424, 24, 45}));
}

TEST(Ops, TheFirstFaultIsReportedOnceWithItsPlace) {
    Rows x(std::vector<float>(12, 1.0f), 4);
    const ops::Row rows[] = {{.token = 3, .position = 10}, {.token = 4, .position = 11}, {.token = 5, .position = 12}};
    ReferenceOps ops(1);
    ops.check_finite({.x = x.t(), .layer = 1, .what = "streams", .rows = rows});
    EXPECT_TRUE(ops.end_pass().ok());
    x.v[6] = std::numeric_limits<float>::infinity();
    ops.check_finite({.x = x.t(), .layer = 2, .what = "streams", .rows = rows});
    x.v[0] = kNan;
    ops.check_finite({.x = x.t(), .layer = 3, .what = "streams", .rows = rows});
    const Status status = ops.end_pass();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::numeric);
    EXPECT_EQ(status.error().message, "streams are not finite (inf) in layer 2 at position 11, token 4");
    EXPECT_TRUE(ops.end_pass().ok());
    // Large is not infinite, even where the sum is.
    std::fill(x.v.begin(), x.v.end(), 3e38f);
    ops.check_finite({.x = x.t(), .layer = 0, .what = "streams", .rows = rows});
    EXPECT_TRUE(ops.end_pass().ok());
}

}  // namespace
}  // namespace vesta
