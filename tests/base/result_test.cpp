#include "base/result.h"

#include <gtest/gtest.h>

namespace vesta {
namespace {

Result<int> half(int n) {
    if (n % 2 != 0) return Error{Code::invalid_argument, strf("{} is odd", n)};
    return n / 2;
}

Result<int> quarter(int n) {
    VESTA_TRY(const int h, half(n));
    VESTA_TRY(const int q, half(h));
    return q;
}

TEST(Result, TryPassesValuesDownAndErrorsUp) {
    EXPECT_EQ(quarter(12).value(), 3);
    const Result<int> r = quarter(6);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, Code::invalid_argument);
    EXPECT_EQ(r.error().message, "3 is odd");
}

}  // namespace
}  // namespace vesta
