// Means with their uncertainty, quantiles, and tests for paired differences. Plain functions of numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vesta::score {

struct Estimate {
    double mean = 0;
    double standard_error = 0;  // NaN with fewer than two blocks
    double low = 0, high = 0;   // 95 % confidence interval: mean ± t(0.975, n_block - 1) · standard error; or NaN
    int64_t n = 0, n_block = 0;
};

// Mean of values that come in an order in which neighbours correlate, as the tokens of a text do: a hard sentence has
// many surprising tokens. Treating them as independent makes the interval too narrow, so the values are summed in
// blocks of `block` consecutive ones and the blocks are taken as independent. With block sums s_b of n_b values and N =
// Σ n_b:
//   mean = Σ s_b / N,     SE² = B/(B-1) · Σ (s_b - mean · n_b)² / N²          (ratio estimator: the last block is
//   shorter)
Estimate block_mean(std::span<const double> values, int64_t block);
// 256 tokens are some paragraphs, beyond which correlation is weak; a short text has smaller blocks so that there are
// about 16 of them, down to single tokens.
int64_t default_block(int64_t n);
// Independent values: blocks of one.
inline Estimate mean_of(std::span<const double> values) { return block_mean(values, 1); }

// The q-quantile, 0 <= q <= 1, linear between order statistics (position q · (n-1)). NaN for no values. Reorders.
double quantile(std::vector<double>& values, double q);

// P(|T| >= |t|) of Student's t with `freedom` degrees, and the t with P(T <= t) = p.
double t_two_sided(double t, double freedom);
double t_quantile(double p, double freedom);

struct PairedTest {
    int64_t n = 0, n_less = 0, n_greater = 0, n_equal = 0;  // differences below, above and equal to 0
    Estimate difference;
    double t_p = 1;  // paired t test
    double wilcoxon_p =
        1;  // signed ranks; exact up to 60 differences that are not 0, beyond that normal with tie correction
    double sign_p = 1;  // exact sign test
};
PairedTest paired_test(std::span<const double> differences);

// Exact two-sided sign test: P of a split at least as uneven as a : b when both sides are equally likely. For correct /
// wrong answers on the same cases this is McNemar's exact test.
double sign_test(int64_t a, int64_t b);
// Two-sided p of Wilcoxon's signed-rank test. Zeros are dropped, equal sizes share their mean rank.
double wilcoxon_signed_rank(std::span<const double> differences);

}  // namespace vesta::score
