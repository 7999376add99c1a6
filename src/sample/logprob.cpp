#include "sample/logprob.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace vesta::sample {

Status check_finite(std::span<const float> logits) {
    size_t n_bad = 0;
    for (const float l : logits) n_bad += l - l != 0.0f;  // inf - inf and NaN - NaN are NaN, and NaN != 0
    if (n_bad == 0) return {};
    const auto bad = std::find_if(logits.begin(), logits.end(), [](float l) { return !std::isfinite(l); });
    return Error{Code::numeric, strf("logits: token {} has the value {}; {} of {} logits are not finite",
                                     bad - logits.begin(), *bad, n_bad, logits.size())};
}

double log_sum_exp(std::span<const float> logits) {
    VESTA_CHECK(!logits.empty());
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float l : logits) sum += std::exp(l - top);
    return top + std::log(sum);
}

void log_softmax(std::span<const float> logits, std::span<float> out) {
    VESTA_CHECK(logits.size() == out.size());
    const double norm = log_sum_exp(logits);
    for (size_t i = 0; i < logits.size(); ++i) out[i] = static_cast<float>(logits[i] - norm);
}

Result<std::vector<TokenLogprob>> top_logprobs(std::span<const float> logits, size_t n) {
    VESTA_CHECK(!logits.empty());
    VESTA_TRY_STATUS(check_finite(logits));
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    n = std::min(n, ids.size());
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(), [&](int32_t a, int32_t b) {
        const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
        return la != lb ? la > lb : a < b;
    });
    const double norm = log_sum_exp(logits);
    std::vector<TokenLogprob> top;
    for (size_t i = 0; i < n; ++i) top.push_back({ids[i], logits[static_cast<size_t>(ids[i])] - norm});
    return top;
}

}  // namespace vesta::sample
