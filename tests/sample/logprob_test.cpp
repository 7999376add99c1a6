#include "sample/logprob.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace vesta::sample {
namespace {

TEST(LogSoftmax, HasClosedFormValues) {
    std::vector<float> two = {0, 0};
    log_softmax(two, two);  // in place
    EXPECT_FLOAT_EQ(two[0], -std::log(2.0f));
    EXPECT_FLOAT_EQ(two[1], -std::log(2.0f));
    const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f)};
    std::vector<float> out(3);
    log_softmax(logits, out);
    EXPECT_NEAR(out[0], std::log(1.0 / 8), 1e-6);
    EXPECT_NEAR(out[1], std::log(2.0 / 8), 1e-6);
    EXPECT_NEAR(out[2], std::log(5.0 / 8), 1e-6);
}

TEST(LogSumExp, DoesNotOverflowAndIsShiftedByAConstant) {
    EXPECT_NEAR(log_sum_exp(std::vector<float>{1000, 1000}), 1000 + std::log(2.0), 1e-12);
    EXPECT_NEAR(log_sum_exp(std::vector<float>{-1000, -1000}), -1000 + std::log(2.0), 1e-12);
    const float huge = std::numeric_limits<float>::max();
    EXPECT_EQ(log_sum_exp(std::vector<float>{huge, -huge}), static_cast<double>(huge));
}

TEST(TopLogprobs, AreSortedWithTiesToTheLowerId) {
    const std::vector<float> logits = {1, 3, 2, 3, -1};
    const auto top = top_logprobs(logits, 3);
    ASSERT_TRUE(top.ok());
    ASSERT_EQ(top.value().size(), 3u);
    EXPECT_EQ(top.value()[0].id, 1);
    EXPECT_EQ(top.value()[1].id, 3);
    EXPECT_EQ(top.value()[2].id, 2);
    const double sum = std::exp(1.) + 2 * std::exp(3.) + std::exp(2.) + std::exp(-1.);
    EXPECT_NEAR(top.value()[2].logprob, std::log(std::exp(2.) / sum), 1e-12);
    EXPECT_EQ(top_logprobs(logits, 20).value().size(), 5u);
    EXPECT_TRUE(top_logprobs(logits, 0).value().empty());
}

TEST(TopLogprobs, RefusesNonFiniteLogits) {
    const auto r = top_logprobs(std::vector<float>{0, std::numeric_limits<float>::infinity()}, 2);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, Code::numeric);
}

}  // namespace
}  // namespace vesta::sample
