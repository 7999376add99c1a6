#include "score/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vesta::score {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kExactWilcoxon = 60;  // 2 · 60 · 61 / 2 sums in a table; the normal is good to 3 digits long before

// The continued fraction of the incomplete beta function (Abramowitz & Stegun 26.5.8), by Lentz's method.
double beta_fraction(double x, double a, double b) {
    constexpr double kTiny = 1e-300;
    const auto guarded = [](double v) { return std::fabs(v) < kTiny ? kTiny : v; };
    double c = 1, d = 1 / guarded(1 - (a + b) * x / (a + 1)), f = d;
    for (int m = 1; m <= 500; ++m) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 / guarded(1 + even * d);
        c = guarded(1 + even / c);
        f *= d * c;
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / guarded(1 + odd * d);
        c = guarded(1 + odd / c);
        f *= d * c;
        if (std::fabs(d * c - 1) < 1e-15) break;
    }
    return f;
}

// Regularised incomplete beta function I_x(a, b).
double incomplete_beta(double x, double a, double b) {
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    const double front =
        std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(x, a, b) / a;  // where the fraction converges fast
    return 1 - front * beta_fraction(1 - x, b, a) / b;
}

}  // namespace

Estimate block_mean(std::span<const double> values, int64_t block) {
    Estimate e{.mean = kNan, .standard_error = kNan, .low = kNan, .high = kNan};
    e.n = static_cast<int64_t>(values.size());
    if (values.empty()) return e;
    std::vector<double> sums;
    std::vector<double> counts;
    double total = 0;
    for (size_t i = 0; i < values.size(); i += static_cast<size_t>(block)) {
        const size_t n = std::min(static_cast<size_t>(block), values.size() - i);
        double sum = 0;
        for (const double v : values.subspan(i, n)) sum += v;
        sums.push_back(sum);
        counts.push_back(static_cast<double>(n));
        total += sum;
    }
    const double n = static_cast<double>(values.size()), n_block = static_cast<double>(sums.size());
    e.n_block = static_cast<int64_t>(sums.size());
    e.mean = total / n;
    if (sums.size() < 2) return e;
    double squares = 0;
    for (size_t b = 0; b < sums.size(); ++b) {
        const double off = sums[b] - e.mean * counts[b];
        squares += off * off;
    }
    e.standard_error = std::sqrt(n_block / (n_block - 1) * squares) / n;
    const double half = t_quantile(0.975, n_block - 1) * e.standard_error;
    e.low = e.mean - half;
    e.high = e.mean + half;
    return e;
}

int64_t default_block(int64_t n) { return std::clamp(n / 16, int64_t{1}, int64_t{256}); }

double quantile(std::vector<double>& values, double q) {
    if (values.empty()) return kNan;
    const double position = q * static_cast<double>(values.size() - 1);
    const auto lower = static_cast<size_t>(position);
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(lower);
    std::nth_element(values.begin(), at, values.end());
    if (lower + 1 == values.size()) return *at;
    const double next = *std::min_element(at + 1, values.end());
    return *at + (next - *at) * (position - static_cast<double>(lower));
}

// P(|T| >= t) = I_{f/(f+t²)}(f/2, 1/2)          (Abramowitz & Stegun 26.7.1, 26.5.27)
double t_two_sided(double t, double freedom) {
    if (std::isnan(t) || freedom <= 0) return kNan;
    if (std::isinf(t)) return 0;
    return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5);
}

double t_quantile(double p, double freedom) {
    if (p == 0.5) return 0;
    if (p < 0.5) return -t_quantile(1 - p, freedom);
    const double tail = 2 * (1 - p);
    double low = 0, high = 1;
    while (t_two_sided(high, freedom) > tail && high < 1e12) high *= 2;
    for (int i = 0; i < 200 && high - low > 1e-13 * high; ++i) {
        const double middle = (low + high) / 2;
        (t_two_sided(middle, freedom) > tail ? low : high) = middle;
    }
    return (low + high) / 2;
}

double sign_test(int64_t a, int64_t b) {
    const int64_t n = a + b, fewer = std::min(a, b);
    if (n == 0) return 1;
    double p = 0;
    const double log_all = std::lgamma(static_cast<double>(n) + 1) - static_cast<double>(n) * std::log(2.0);
    for (int64_t k = 0; k <= fewer; ++k)
        p += std::exp(log_all - std::lgamma(static_cast<double>(k) + 1) - std::lgamma(static_cast<double>(n - k) + 1));
    return std::min(1.0, 2 * p);
}

double wilcoxon_signed_rank(std::span<const double> differences) {
    std::vector<double> d;
    for (const double x : differences)
        if (x != 0) d.push_back(x);
    if (d.empty()) return 1;
    std::sort(d.begin(), d.end(), [](double a, double b) { return std::fabs(a) < std::fabs(b); });
    // Ranks times two: a mean rank of a tie is a multiple of one half.
    std::vector<int64_t> ranks;
    double ties = 0;
    for (size_t i = 0; i < d.size();) {
        size_t end = i;
        while (end < d.size() && std::fabs(d[end]) == std::fabs(d[i])) ++end;
        ranks.insert(ranks.end(), end - i, static_cast<int64_t>(i + 1 + end));
        const double t = static_cast<double>(end - i);
        ties += t * t * t - t;
        i = end;
    }
    int64_t positive = 0, total = 0;
    for (size_t i = 0; i < d.size(); ++i) {
        total += ranks[i];
        if (d[i] > 0) positive += ranks[i];
    }
    const int64_t smaller = std::min(positive, total - positive);
    if (d.size() <= kExactWilcoxon) {
        // probability[s]: of a positive rank sum s when every sign is a fair coin.
        std::vector<double> probability(static_cast<size_t>(total) + 1, 0);
        probability[0] = 1;
        int64_t reach = 0;
        for (const int64_t rank : ranks) {
            reach += rank;
            for (int64_t s = reach; s >= 0; --s) {
                const double with = s >= rank ? probability[static_cast<size_t>(s - rank)] : 0;
                probability[static_cast<size_t>(s)] = (probability[static_cast<size_t>(s)] + with) / 2;
            }
        }
        double p = 0;
        for (int64_t s = 0; s <= smaller; ++s) p += probability[static_cast<size_t>(s)];
        return std::min(1.0, 2 * p);
    }
    const double n = static_cast<double>(d.size());
    const double variance = n * (n + 1) * (2 * n + 1) / 24 - ties / 48;
    const double away = std::fabs(static_cast<double>(positive) / 2 - n * (n + 1) / 4) - 0.5;  // continuity correction
    if (variance <= 0 || away <= 0) return 1;
    return std::erfc(away / std::sqrt(2 * variance));
}

PairedTest paired_test(std::span<const double> differences) {
    PairedTest r;
    r.n = static_cast<int64_t>(differences.size());
    for (const double d : differences) {
        r.n_less += d < 0;
        r.n_greater += d > 0;
        r.n_equal += d == 0;
    }
    r.difference = mean_of(differences);
    if (r.n >= 2 && r.difference.standard_error > 0)
        r.t_p = t_two_sided(r.difference.mean / r.difference.standard_error, static_cast<double>(r.n - 1));
    else
        r.t_p = r.n >= 2 && r.difference.mean != 0 ? 0 : 1;  // all differences are the same
    r.wilcoxon_p = wilcoxon_signed_rank(differences);
    r.sign_p = sign_test(r.n_less, r.n_greater);
    return r;
}

}  // namespace vesta::score
