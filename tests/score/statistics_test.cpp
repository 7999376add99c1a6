// Means, intervals and tests against values worked out by hand, by enumeration, or by numerical integration here.
#include "score/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace vesta::score {
namespace {

TEST(Statistics, BlocksOfOneGiveTheTextbookStandardError) {
    const std::vector<double> v = {2, 4, 4, 4, 5, 5, 7, 9};  // mean 5, sum of squares 32
    const Estimate e = mean_of(v);
    EXPECT_DOUBLE_EQ(e.mean, 5);
    EXPECT_NEAR(e.standard_error, std::sqrt(32.0 / 7 / 8), 1e-14);
    EXPECT_NEAR(e.high - e.mean, 2.364624251592785 * e.standard_error, 1e-9);  // t(0.975, 7) of the printed tables
    EXPECT_NEAR(e.mean - e.low, e.high - e.mean, 1e-12);
    EXPECT_EQ(e.n_block, 8);
}

TEST(Statistics, BlocksAreTakenAsTheIndependentUnits) {
    // Blocks {1,1}, {5,5}, {3}: mean 3, offsets -4, 4, 0, so SE² = 3/2 · 32 / 25.
    const Estimate e = block_mean(std::vector<double>{1, 1, 5, 5, 3}, 2);
    EXPECT_DOUBLE_EQ(e.mean, 3);
    EXPECT_EQ(e.n_block, 3);
    EXPECT_NEAR(e.standard_error, std::sqrt(1.5 * 32 / 25), 1e-14);
}

TEST(Statistics, CorrelatedNeighboursWidenTheInterval) {
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    std::vector<double> v;
    for (int run = 0; run < 400; ++run) v.insert(v.end(), 50, normal(random));  // 50 equal values in a row
    EXPECT_NEAR(block_mean(v, 50).standard_error, 1 / std::sqrt(400.0), 0.01);
    EXPECT_LT(mean_of(v).standard_error, 0.2 * block_mean(v, 50).standard_error);
}

TEST(Statistics, OneBlockHasNoIntervalAndNoValuesHaveNoMean) {
    const Estimate one = block_mean(std::vector<double>{4, 6}, 5);
    EXPECT_DOUBLE_EQ(one.mean, 5);
    EXPECT_TRUE(std::isnan(one.standard_error) && std::isnan(one.low) && std::isnan(one.high));
    EXPECT_TRUE(std::isnan(mean_of({}).mean));
}

TEST(Statistics, QuantilesLieBetweenOrderStatistics) {
    std::vector<double> v = {9, 1, 3, 7, 5};
    EXPECT_DOUBLE_EQ(quantile(v, 0), 1);
    EXPECT_DOUBLE_EQ(quantile(v, 0.5), 5);
    EXPECT_DOUBLE_EQ(quantile(v, 0.9), 8.2);
    EXPECT_DOUBLE_EQ(quantile(v, 1), 9);
}

TEST(Statistics, StudentsTailsEqualTheIntegratedDensity) {
    for (const double freedom : {1.0, 2.0, 5.0, 30.0, 400.0})
        for (const double t : {0.1, 1.0, 2.5}) {
            const double scale = std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2)) /
                                 std::sqrt(freedom * std::acos(-1.0));
            const int n = 20000;  // Simpson over [0, t]
            double inside = 0;
            for (int i = 0; i <= n; ++i) {
                const double x = t * i / n, f = scale * std::pow(1 + x * x / freedom, -(freedom + 1) / 2);
                inside += f * (i == 0 || i == n ? 1 : i % 2 == 1 ? 4 : 2);
            }
            inside *= t / n / 3;
            EXPECT_NEAR(t_two_sided(t, freedom), 1 - 2 * inside, 1e-10) << t << ", " << freedom;
            EXPECT_NEAR(t_two_sided(-t, freedom), t_two_sided(t, freedom), 1e-15);
        }
    EXPECT_NEAR(t_quantile(0.975, 1), 12.706204736174698, 1e-8);
    EXPECT_NEAR(t_quantile(0.025, 10), -2.2281388519649385, 1e-9);
}

TEST(Statistics, SignTestCountsOutcomes) {
    EXPECT_DOUBLE_EQ(sign_test(0, 0), 1);
    EXPECT_NEAR(sign_test(0, 5), 2.0 / 32, 1e-14);
    EXPECT_NEAR(sign_test(8, 2), 2.0 * (1 + 10 + 45) / 1024, 1e-13);
    EXPECT_DOUBLE_EQ(sign_test(5, 5), 1);
}

// Every assignment of signs, counted.
double brute_wilcoxon(const std::vector<double>& d) {
    std::vector<double> size;
    for (const double x : d)
        if (x != 0) size.push_back(std::fabs(x));
    std::vector<double> rank;
    for (const double x : size) {
        double below = 0, equal = 0;
        for (const double y : size) below += y < x, equal += y == x;
        rank.push_back(below + (equal + 1) / 2);
    }
    double observed = 0, total = 0;
    size_t next = 0;
    for (const double x : d)
        if (x != 0) {
            observed += x > 0 ? rank[next] : 0;
            total += rank[next++];
        }
    const double away = std::fabs(observed - total / 2);
    int64_t extreme = 0;
    for (uint32_t signs = 0; signs < 1u << size.size(); ++signs) {
        double sum = 0;
        for (size_t i = 0; i < size.size(); ++i) sum += (signs >> i & 1) != 0 ? rank[i] : 0;
        extreme += std::fabs(sum - total / 2) >= away - 1e-9;
    }
    return static_cast<double>(extreme) / static_cast<double>(1u << size.size());
}

TEST(Statistics, WilcoxonEqualsEnumerationOfAllSigns) {
    std::mt19937 random(3);
    for (int round = 0; round < 30; ++round) {
        std::vector<double> d;
        for (int i = 0; i < 4 + round % 9; ++i) d.push_back(static_cast<int>(random() % 9) - 3);  // ties and zeros
        EXPECT_NEAR(wilcoxon_signed_rank(d), brute_wilcoxon(d), 1e-12);
    }
}

TEST(Statistics, WilcoxonsNormalApproximationContinuesTheExactOne) {
    std::mt19937 random(5);
    std::normal_distribution<double> normal(0.25, 1);
    std::vector<double> d;
    for (int i = 0; i < 60; ++i) d.push_back(normal(random));
    const double exact = wilcoxon_signed_rank(d);
    d.push_back(1e-9);  // the 61st, of rank 1
    EXPECT_NEAR(wilcoxon_signed_rank(d), exact, 0.02);
}

TEST(Statistics, PairedTestOfKnownDifferences) {
    const PairedTest t = paired_test(std::vector<double>{1, 2, 3, 0, -1});  // mean 1, s² = 2.5, SE = sqrt(0.5)
    EXPECT_EQ(t.n_greater, 3);
    EXPECT_EQ(t.n_less, 1);
    EXPECT_EQ(t.n_equal, 1);
    EXPECT_NEAR(t.difference.standard_error, std::sqrt(0.5), 1e-14);
    EXPECT_NEAR(t.t_p, t_two_sided(std::sqrt(2.0), 4), 1e-14);
    EXPECT_NEAR(t.sign_p, 2.0 * 5 / 16, 1e-13);
    EXPECT_DOUBLE_EQ(paired_test(std::vector<double>{0, 0, 0}).t_p, 1);
    EXPECT_DOUBLE_EQ(paired_test({}).wilcoxon_p, 1);
}

}  // namespace
}  // namespace vesta::score
