// What an importance matrix says, and what two of them say together.
#include <algorithm>
#include <cmath>
#include <limits>

#include "imatrix/dat.h"

namespace vesta::imatrix {
namespace {

// A vector without n_row counts as a placeholder when this many columns in a row are equal. Real columns agree in all
// 24 bits by chance only; no matrix has fewer columns than a block of 32.
constexpr size_t kPlaceholderRun = 32;

bool all_equal(std::span<const float> v) {
    return std::all_of(v.begin(), v.end(), [&](float x) { return x == v.front(); });
}

Error bad_value(const std::string& name, size_t i, float value) {
    return Error{Code::bad_file, strf("{}: importance value {} is {}, expected a finite number >= 0", name, i, value)};
}

Status check_values(const std::string& name, const Entry& e) {
    for (size_t i = 0; i < e.value.size(); ++i)
        if (!(e.value[i] >= 0) || !std::isfinite(e.value[i])) return bad_value(name, i, e.value[i]);
    return {};
}

float clamped(double value) {
    return static_cast<float>(std::min(value, static_cast<double>(std::numeric_limits<float>::max())));
}

int32_t add_saturated(int32_t a, int32_t b) {
    return static_cast<int32_t>(std::min<int64_t>(int64_t{a} + b, std::numeric_limits<int32_t>::max()));
}

// sum[i], or what it must have been: mean · rows.
double sum_of(const Entry& e, size_t i) {
    if (!e.sum.empty()) return e.sum[i];
    return static_cast<double>(e.mean(i)) * static_cast<double>(e.n_row[i / (e.value.size() / e.n_row.size())]);
}

void merge_by_rows(Entry& into, const Entry& from) {
    const size_t n_col = into.value.size() / into.n_row.size();
    const bool exact = !into.sum.empty() && !from.sum.empty();
    std::vector<double> sum(into.value.size());
    for (size_t v = 0; v < into.n_row.size(); ++v)
        for (size_t i = v * n_col; i < (v + 1) * n_col; ++i)
            sum[i] = (into.n_row[v] > 0 ? sum_of(into, i) : 0.0) + (from.n_row[v] > 0 ? sum_of(from, i) : 0.0);
    into.sum = std::move(sum);
    for (size_t v = 0; v < into.n_row.size(); ++v) into.n_row[v] = std::min(into.n_row[v] + from.n_row[v], kMaxRows);
    into.n_call = add_saturated(into.n_call, from.n_call);
    into.set_values_from_sums();
    if (!exact) into.sum.clear();
}

// Columns that say nothing, for an entry whose number of vectors may be unknown (n_vector 0).
std::vector<bool> placeholders(const Entry& e, size_t n_vector) {
    const size_t n = e.value.size();
    std::vector<bool> empty(n, false);
    if (!e.n_row.empty()) {
        for (size_t i = 0; i < n; ++i) empty[i] = e.n_row[i / (n / e.n_row.size())] == 0;
        return empty;
    }
    const size_t n_col = n_vector > 0 ? n / n_vector : n;
    for (size_t first = 0; first < n;) {
        size_t end = first + 1;
        while (end < n && e.value[end] == e.value[first]) ++end;
        if (end - first >= std::min(n_col, kPlaceholderRun))
            std::fill(empty.begin() + static_cast<ptrdiff_t>(first), empty.begin() + static_cast<ptrdiff_t>(end), true);
        first = end;
    }
    return empty;
}

// mean = (calls_a·mean_a + calls_b·mean_b) / (calls_a + calls_b), without the side that says nothing.
void merge_by_calls(Entry& into, const Entry& from) {
    const size_t n_vector = std::max(into.n_row.size(), from.n_row.size());
    const std::vector<bool> empty_a = placeholders(into, n_vector), empty_b = placeholders(from, n_vector);
    const double calls_a = std::max(into.n_call, 1), calls_b = std::max(from.n_call, 1);
    const int32_t n_call = add_saturated(std::max(into.n_call, 1), std::max(from.n_call, 1));
    for (size_t i = 0; i < into.value.size(); ++i) {
        const double a = into.mean(i), b = from.mean(i);
        double mean = (calls_a * a + calls_b * b) / (calls_a + calls_b);
        if (empty_a[i] && empty_b[i])
            mean = 1;
        else if (empty_a[i])
            mean = b;
        else if (empty_b[i])
            mean = a;
        into.value[i] = clamped(mean * n_call);
    }
    into.n_call = n_call;
    into.n_row.clear();
    into.sum.clear();
}

}  // namespace

void Entry::set_values_from_sums() {
    VESTA_CHECK(!n_row.empty() && !sum.empty() && sum.size() % n_row.size() == 0);
    value.resize(sum.size());
    const size_t n_col = sum.size() / n_row.size();
    const double calls = n_call > 0 ? n_call : 1;
    for (size_t i = 0; i < sum.size(); ++i) {
        const uint64_t rows = n_row[i / n_col];
        value[i] = rows > 0 ? clamped(sum[i] / static_cast<double>(rows) * calls) : static_cast<float>(calls);
    }
}

Result<std::vector<float>> Matrix::importance(const std::string& name, int64_t n_col, int64_t n_expert,
                                              int64_t expert) const {
    VESTA_CHECK(n_col > 0 && n_expert > 0 && expert >= 0 && expert < n_expert);
    const auto found = entries.find(name);
    if (found == entries.end()) return Error{Code::not_found, strf("{}: no entry in the importance matrix", name)};
    const Entry& e = found->second;
    const auto columns = static_cast<size_t>(n_col);
    size_t first = 0;
    if (e.value.size() % columns == 0 && e.value.size() / columns == static_cast<size_t>(n_expert))
        first = static_cast<size_t>(expert) * columns;
    else if (e.value.size() != columns)
        return Error{Code::bad_file, strf("{}: {} importance values, expected {} columns x {} experts, or {}", name,
                                          e.value.size(), n_col, n_expert, n_col)};
    std::vector<float> mean(columns);
    for (size_t i = 0; i < columns; ++i) {
        mean[i] = e.mean(first + i);
        if (!(mean[i] >= 0) || !std::isfinite(mean[i])) return bad_value(name, first + i, mean[i]);
    }
    return mean;
}

bool Matrix::measured(const std::string& name, int64_t n_col, int64_t n_expert, int64_t expert) const {
    const Result<std::vector<float>> mean = importance(name, n_col, n_expert, expert);
    if (!mean.ok()) return false;
    const Entry& e = entries.find(name)->second;
    if (e.n_row.size() == static_cast<size_t>(n_expert)) return e.n_row[static_cast<size_t>(expert)] > 0;
    if (e.n_row.size() == 1) return e.n_row[0] > 0;
    return !all_equal(mean.value());
}

Status merge(Matrix& into, const Matrix& from) {
    for (const auto& [name, e] : from.entries) {  // everything is checked before anything changes
        VESTA_TRY_STATUS(check_values(name, e));
        const auto found = into.entries.find(name);
        if (found == into.entries.end()) continue;
        VESTA_TRY_STATUS(check_values(name, found->second));
        if (found->second.value.size() != e.value.size())
            return Error{Code::bad_file,
                         strf("{}: {} importance values in one file, {} in the other; they belong to different "
                              "models",
                              name, found->second.value.size(), e.value.size())};
    }
    for (const auto& [name, e] : from.entries) {
        const auto [at, is_new] = into.entries.emplace(name, e);
        if (is_new) continue;
        const bool rows_known = !e.n_row.empty() && e.n_row.size() == at->second.n_row.size();
        rows_known ? merge_by_rows(at->second, e) : merge_by_calls(at->second, e);
    }
    into.n_chunk = add_saturated(into.n_chunk, from.n_chunk);
    if (!from.dataset.empty() && from.dataset != into.dataset)
        into.dataset += (into.dataset.empty() ? "" : " + ") + from.dataset;
    into.run.reset();
    return {};
}

}  // namespace vesta::imatrix
