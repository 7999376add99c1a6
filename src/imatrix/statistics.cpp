#include "imatrix/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace vesta::imatrix {
namespace {

Statistics describe_entry(const Matrix& m, const std::string& name, const Entry& e, int64_t asked) {
    Statistics s;
    s.name = name;
    s.n_call = e.n_call;
    const auto n = static_cast<int64_t>(e.value.size());
    s.n_vector = !e.n_row.empty() ? static_cast<int64_t>(e.n_row.size()) : asked > 0 && n % asked == 0 ? asked : 0;
    const int64_t n_vector = std::max<int64_t>(s.n_vector, 1);
    s.n_col = n / n_vector;
    if (!e.n_row.empty()) s.n_row = static_cast<int64_t>(std::accumulate(e.n_row.begin(), e.n_row.end(), uint64_t{0}));

    const auto n_top = static_cast<size_t>(std::max<int64_t>(1, s.n_col / 100));
    double low = std::numeric_limits<double>::infinity(), total = 0, shares = 0;
    int64_t n_value = 0, n_shared = 0;
    std::vector<double> column;
    for (int64_t v = 0; v < n_vector; ++v) {
        column.clear();
        for (int64_t i = v * s.n_col; i < (v + 1) * s.n_col; ++i) {
            const double mean = e.mean(static_cast<size_t>(i));
            if (mean >= 0 && std::isfinite(mean))
                column.push_back(mean);
            else
                ++s.n_bad;
        }
        // Judged by measured() only where all its columns are good; a vector with bad ones was hit by something.
        if (static_cast<int64_t>(column.size()) == s.n_col && s.n_vector > 0 &&
            !m.measured(name, s.n_col, n_vector, v)) {
            s.never_hit.push_back(v);
            continue;
        }
        if (column.empty()) continue;
        const double sum = std::accumulate(column.begin(), column.end(), 0.0);
        std::sort(column.begin(), column.end(), std::greater<>());
        low = std::min(low, column.back());
        s.max = std::max(s.max, column.front());
        total += sum;
        n_value += static_cast<int64_t>(column.size());
        if (sum > 0) {
            const auto top = column.begin() + static_cast<ptrdiff_t>(std::min(n_top, column.size()));
            shares += std::accumulate(column.begin(), top, 0.0) / sum;
            ++n_shared;
        }
    }
    if (n_value > 0) s.min = low, s.mean = total / static_cast<double>(n_value);
    if (n_shared > 0) s.top_share = shares / static_cast<double>(n_shared);
    return s;
}

}  // namespace

std::vector<Statistics> describe(const Matrix& matrix, const std::function<int64_t(const std::string&)>& n_vector) {
    std::vector<Statistics> all;
    for (const auto& [name, e] : matrix.entries) all.push_back(describe_entry(matrix, name, e, n_vector(name)));
    return all;
}

}  // namespace vesta::imatrix
