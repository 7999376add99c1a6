// Rows of logits and windows over a text, against brute force.
#include "score/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "sample/logprob.h"
#include "score/windows.h"

namespace vesta::score {
namespace {

std::vector<float> random_logits(size_t n, uint32_t seed, float spread = 3) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> v(n);
    for (float& x : v) x = normal(random);
    return v;
}

std::vector<long double> probabilities(const std::vector<float>& logits) {
    std::vector<long double> p;
    long double sum = 0;
    for (const float l : logits) sum += p.emplace_back(std::exp(static_cast<long double>(l)));
    for (long double& x : p) x /= sum;
    return p;
}

TEST(Rows, TopKIsTheFrontOfAFullSort) {
    std::mt19937 random(1);
    for (const size_t n : {1u, 5u, 64u, 1000u})
        for (const size_t k : {1u, 5u, 64u}) {
            std::vector<float> logits(n);
            for (float& l : logits) l = static_cast<float>(random() % 50);  // many ties
            std::vector<int32_t> all(n), ours;
            std::iota(all.begin(), all.end(), 0);
            std::stable_sort(all.begin(), all.end(), [&](int32_t a, int32_t b) {
                return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
            });
            all.resize(std::min(n, k));
            top_k(logits, k, ours);
            EXPECT_EQ(ours, all) << n << ", " << k;
        }
}

TEST(Rows, TruncatedKeepsTheProbabilitiesAndTheRest) {
    const std::vector<float> logits = random_logits(300, 2);
    const auto p = probabilities(logits);
    const Truncated t = truncate(logits, 10, sample::log_sum_exp(logits));
    long double rest = 1;
    for (size_t i = 0; i < 10; ++i) {
        EXPECT_NEAR(t.logprobs[i], std::log(static_cast<double>(p[static_cast<size_t>(t.ids[i])])), 1e-5);
        rest -= p[static_cast<size_t>(t.ids[i])];
    }
    EXPECT_NEAR(t.log_rest, std::log(static_cast<double>(rest)), 1e-5);
    EXPECT_EQ(truncate(logits, 300, sample::log_sum_exp(logits)).log_rest, -std::numeric_limits<float>::infinity());
}

TEST(Rows, TheRestStaysFiniteWhenItsMassUnderflows) {
    std::vector<float> logits(50, -2000.0f);
    logits[7] = 100;
    const Truncated t = truncate(logits, 1, sample::log_sum_exp(logits));
    EXPECT_NEAR(t.log_rest, std::log(49.0) - 2100, 1e-3);
    EXPECT_EQ(t.logprobs[0], 0.0f);
}

TEST(Rows, DivergenceWithEveryTokenListedIsTheFullOne) {
    const std::vector<float> a = random_logits(200, 3), b = random_logits(200, 4);
    const auto p = probabilities(a), q = probabilities(b);
    long double want = 0;
    for (size_t i = 0; i < p.size(); ++i) want += p[i] * std::log(p[i] / q[i]);
    const double norm_a = sample::log_sum_exp(a), norm_b = sample::log_sum_exp(b);
    EXPECT_NEAR(divergence(truncate(a, 200, norm_a), b, norm_b), static_cast<double>(want), 1e-5);

    // With a bucket: the same sum over merged cells, never above the full one.
    const Truncated t = truncate(a, 8, norm_a);
    long double merged = 0, rest_p = 1, rest_q = 1;
    for (const int32_t id : t.ids) {
        const auto i = static_cast<size_t>(id);
        merged += p[i] * std::log(p[i] / q[i]);
        rest_p -= p[i];
        rest_q -= q[i];
    }
    merged += rest_p * std::log(rest_p / rest_q);
    EXPECT_NEAR(divergence(t, b, norm_b), static_cast<double>(merged), 1e-5);
    EXPECT_LT(merged, want);
}

TEST(Rows, ADistributionAgainstItselfIsExactlyZero) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        const std::vector<float> logits = random_logits(500, seed, 0.1f + static_cast<float>(seed));
        const double norm = sample::log_sum_exp(logits);
        EXPECT_EQ(divergence(truncate(logits, 16, norm), logits, norm), 0.0);
    }
}

TEST(Windows, EveryTokenIsScoredOnceWithEnoughContext) {
    std::mt19937 random(11);
    for (int round = 0; round < 3000; ++round) {
        const int64_t n = 2 + random() % 300, ctx = 1 + random() % 70, stride = 1 + random() % ctx;
        const auto windows = cut_windows(n, ctx, stride);
        ASSERT_TRUE(windows.ok());
        std::vector<int> times(static_cast<size_t>(n), 0);
        for (size_t w = 0; w < windows.value().size(); ++w) {
            const Window& v = windows.value()[w];
            ASSERT_GE(v.begin, 0);
            ASSERT_LE(v.end - v.begin, ctx);
            ASSERT_LT(v.end, n);  // `end` is a target, so it is a token
            ASSERT_TRUE(w == 0 || v.n_target() <= stride);
            for (int64_t t = v.first_target; t <= v.end; ++t) {
                ++times[static_cast<size_t>(t)];
                ASSERT_TRUE(w == 0 || t - v.begin >= ctx - stride + 1);  // tokens before the target in its window
            }
        }
        ASSERT_EQ(times[0], 0);
        ASSERT_EQ(std::count(times.begin() + 1, times.end(), 1), n - 1) << n << " " << ctx << " " << stride;
    }
}

TEST(Windows, NonsenseIsRefused) {
    EXPECT_FALSE(cut_windows(1, 8, 4).ok());
    EXPECT_FALSE(cut_windows(10, 0, 0).ok());
    EXPECT_FALSE(cut_windows(10, 8, 9).ok());
    EXPECT_FALSE(cut_windows(10, 8, 0).ok());
}

}  // namespace
}  // namespace vesta::score
