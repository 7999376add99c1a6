#include "imatrix/statistics.h"

#include <gtest/gtest.h>

#include <limits>

namespace vesta::imatrix {
namespace {

int64_t unknown(const std::string&) { return 0; }

Statistics one(const Entry& e, int64_t n_vector = 0) {
    Matrix m;
    m.entries["t"] = e;
    const auto all = describe(m, [&](const std::string&) { return n_vector; });
    if (all.size() != 1) throw std::runtime_error("expected one tensor");
    return all[0];
}

TEST(Statistics, ExpertsNeverHitCountForNothing) {
    Entry e;
    e.n_call = 2;
    e.n_row = {4, 0, 2};
    e.sum = {4, 12, 0, 0, 1, 3};  // means 1 3, none, .5 1.5
    e.set_values_from_sums();
    const Statistics s = one(e);
    EXPECT_EQ(s.n_call, 2);
    EXPECT_EQ(s.n_vector, 3);
    EXPECT_EQ(s.n_col, 2);
    EXPECT_EQ(s.n_row, 6);
    EXPECT_EQ(s.never_hit, std::vector<int64_t>{1});
    EXPECT_DOUBLE_EQ(s.min, 0.5);
    EXPECT_DOUBLE_EQ(s.max, 3);
    EXPECT_DOUBLE_EQ(s.mean, (1 + 3 + 0.5 + 1.5) / 4);
    EXPECT_DOUBLE_EQ(s.top_share, 0.75);  // one column of two holds 3/4 in both
    EXPECT_EQ(s.n_bad, 0);
}

TEST(Statistics, TheLargestHundredthOfTheColumns) {
    Entry e;
    e.n_call = 1;
    e.n_row = {1};
    e.sum.assign(200, 1.0);
    e.sum[7] = 101;
    e.sum[9] = 51;  // two columns of 200: (101 + 51) / (198 + 152)
    e.set_values_from_sums();
    EXPECT_NEAR(one(e).top_share, 152.0 / 350, 1e-6);
    e.sum.assign(200, 3.0);
    e.set_values_from_sums();
    EXPECT_NEAR(one(e).top_share, 0.01, 1e-6);
}

TEST(Statistics, AForeignFileNeedsTheModelToCountExperts) {
    const Entry e{.n_call = 1, .value = {1, 1, 2, 5}, .n_row = {}, .sum = {}};
    const Statistics blind = one(e);
    EXPECT_EQ(blind.n_vector, 0);
    EXPECT_EQ(blind.n_row, -1);
    EXPECT_EQ(blind.n_col, 4);
    EXPECT_TRUE(blind.never_hit.empty());
    const Statistics told = one(e, 2);
    EXPECT_EQ(told.n_vector, 2);
    EXPECT_EQ(told.never_hit, std::vector<int64_t>{0});
    EXPECT_DOUBLE_EQ(told.mean, 3.5);
    EXPECT_EQ(one(e, 3).n_vector, 0);  // does not divide
}

TEST(Statistics, BadValuesAreCountedAndLeftOut) {
    const float inf = std::numeric_limits<float>::infinity();
    const Statistics s = one({.n_call = 1, .value = {1, -1, inf, 3}, .n_row = {9}, .sum = {}});
    EXPECT_EQ(s.n_bad, 2);
    EXPECT_TRUE(s.never_hit.empty());
    EXPECT_DOUBLE_EQ(s.mean, 2);
    EXPECT_EQ(describe({}, unknown).size(), 0u);
}

}  // namespace
}  // namespace vesta::imatrix
