#include "score/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vesta::score {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// f(i) for every id that is not in `sorted_ids`, ascending.
template <class F>
void for_others(size_t n, std::span<const int32_t> sorted_ids, F&& f) {
    size_t i = 0;
    for (const int32_t listed : sorted_ids) {
        for (; i < static_cast<size_t>(listed); ++i) f(i);
        i = static_cast<size_t>(listed) + 1;
    }
    for (; i < n; ++i) f(i);
}

float rounded(double log_probability) { return static_cast<float>(std::min(log_probability, 0.0)); }

}  // namespace

void top_k(std::span<const float> logits, size_t k, std::vector<int32_t>& ids) {
    ids.clear();
    const auto better = [&](int32_t a, int32_t b) {
        const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
        return la != lb ? la > lb : a < b;
    };
    k = std::min(k, logits.size());
    if (k == 0) return;
    for (size_t i = 0; i < k; ++i) ids.push_back(static_cast<int32_t>(i));
    std::make_heap(ids.begin(), ids.end(), better);  // the worst of the k is in front
    float worst = logits[static_cast<size_t>(ids.front())];
    for (size_t i = k; i < logits.size(); ++i) {
        if (!(logits[i] > worst)) continue;  // an equal one has the higher id and loses
        std::pop_heap(ids.begin(), ids.end(), better);
        ids.back() = static_cast<int32_t>(i);
        std::push_heap(ids.begin(), ids.end(), better);
        worst = logits[static_cast<size_t>(ids.front())];
    }
    std::sort(ids.begin(), ids.end(), better);
}

double log_rest(std::span<const float> logits, std::span<const int32_t> sorted_ids, double log_norm) {
    double top = -kInfinity, sum = 0;
    for_others(logits.size(), sorted_ids, [&](size_t i) { top = std::max(top, static_cast<double>(logits[i])); });
    if (top == -kInfinity) return -kInfinity;
    for_others(logits.size(), sorted_ids, [&](size_t i) { sum += std::exp(static_cast<double>(logits[i]) - top); });
    return top + std::log(sum) - log_norm;
}

Truncated truncate(std::span<const float> logits, size_t k, double log_norm) {
    Truncated t;
    top_k(logits, k, t.ids);
    for (const int32_t id : t.ids)
        t.logprobs.push_back(rounded(static_cast<double>(logits[static_cast<size_t>(id)]) - log_norm));
    std::vector<int32_t> sorted = t.ids;
    std::sort(sorted.begin(), sorted.end());
    t.log_rest = rounded(log_rest(logits, sorted, log_norm));
    return t;
}

double divergence(const Truncated& base, std::span<const float> logits, double log_norm) {
    double sum = 0;
    const auto add = [&](float log_p, double log_q) {
        if (log_p == -std::numeric_limits<float>::infinity()) return;  // 0 · log 0 = 0
        const double p = static_cast<double>(log_p);
        sum += std::exp(p) * (p - static_cast<double>(rounded(log_q)));
    };
    for (size_t i = 0; i < base.ids.size(); ++i)
        add(base.logprobs[i], static_cast<double>(logits[static_cast<size_t>(base.ids[i])]) - log_norm);
    if (base.ids.size() < logits.size()) {
        std::vector<int32_t> sorted = base.ids;
        std::sort(sorted.begin(), sorted.end());
        add(base.log_rest, log_rest(logits, sorted, log_norm));
    }
    return sum;
}

}  // namespace vesta::score
