#include "sample/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace vesta::sample {
namespace {

TEST(Rng, IsSplitMix64) {
    // The widely published first outputs for seed 1234567.
    Rng rng(1234567);
    for (const uint64_t expected : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                    4593380528125082431u, 16408922859458223821u})
        EXPECT_EQ(rng.next(), expected);
}

TEST(Rng, UniformIsInTheHalfOpenUnitIntervalAndFlat) {
    Rng rng(7);
    constexpr int kDraws = 200000, kBins = 64;
    int bins[kBins] = {};
    for (int i = 0; i < kDraws; ++i) {
        const double u = rng.uniform();
        ASSERT_GE(u, 0);
        ASSERT_LT(u, 1);
        ++bins[static_cast<int>(u * kBins)];
    }
    double chi2 = 0;
    constexpr double kExpected = static_cast<double>(kDraws) / kBins;
    for (const int n : bins) chi2 += (n - kExpected) * (n - kExpected) / kExpected;
    EXPECT_LT(chi2, 103.4);  // 63 degrees of freedom, 0.1 % point
}

TEST(Exp, EqualsLibmWithinTwoUnitsInTheLastPlace) {
    for (double x = 0; x > -708; x -= 0.00731) {
        const double expected = std::exp(x);
        ASSERT_NEAR(exp_nonpositive(x) / expected, 1, 2 * std::numeric_limits<double>::epsilon()) << x;
    }
    EXPECT_EQ(exp_nonpositive(0), 1);
    EXPECT_EQ(exp_nonpositive(-0.0), 1);
    EXPECT_EQ(exp_nonpositive(-1e300), 0);
    EXPECT_EQ(exp_nonpositive(-std::numeric_limits<double>::infinity()), 0);
}

TEST(Exp, NeverRisesAsItsArgumentFalls) {
    double last = 1;
    for (double x = 0; x > -3; x -= 1e-5) {
        const double now = exp_nonpositive(x);
        ASSERT_LE(now, last) << x;
        last = now;
    }
}

}  // namespace
}  // namespace vesta::sample
