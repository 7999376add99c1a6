// Log-probabilities of raw logits (temperature 1, no penalties, no filters): what --dump-logprobs, the server's
// `logprobs` and perplexity report.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace vesta::sample {

struct TokenLogprob {
    int32_t id;
    double logprob;  // natural logarithm
};

// Code::numeric naming the first token whose logit is NaN or infinite, its value and how many there are.
Status check_finite(std::span<const float> logits);

// log Σ exp(l_i), shifted by the maximum so that nothing overflows. Requires: finite logits, at least one.
double log_sum_exp(std::span<const float> logits);

// out[i] = l_i - log_sum_exp(l). out may alias logits. Requires: as above, equal sizes.
void log_softmax(std::span<const float> logits, std::span<float> out);

// The n most likely tokens (fewer if the vocabulary is smaller), most likely first, ties to the lower id.
Result<std::vector<TokenLogprob>> top_logprobs(std::span<const float> logits, size_t n);

}  // namespace vesta::sample
