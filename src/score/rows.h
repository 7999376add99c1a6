// One row of logits, looked at as a distribution. Sums run in the order of token ids in double precision, so a value
// does not depend on threads or on which instruction set computed it; f32 is only how log-probabilities are kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace vesta::score {

// The k tokens with the largest logits (all of them when the vocabulary is smaller), largest first, ties to the lower
// id. One pass with a heap of k: O(n log k) at worst, close to O(n) because few logits beat the heap's smallest.
void top_k(std::span<const float> logits, size_t k, std::vector<int32_t>& ids);

// log Σ exp(l_i) - log_norm over the ids that are not in `sorted_ids` (ascending, distinct, in range): the logarithm of
// the probability that is left. Shifted by the largest of those logits, so that it stays finite however small;
// -infinity when no id is left. log_norm is sample::log_sum_exp of the row.
double log_rest(std::span<const float> logits, std::span<const int32_t> sorted_ids, double log_norm);

// What is kept of a row: k tokens and one bucket for all others.
struct Truncated {
    std::vector<int32_t> ids;     // likeliest first
    std::vector<float> logprobs;  // natural logarithms, of the same tokens
    float log_rest = 0;           // -infinity when every token is listed
};
Truncated truncate(std::span<const float> logits, size_t k, double log_norm);

// KL(base ‖ model) over the cells of `base`: Σ p log(p/q) over its tokens, plus the same for the bucket. Merging tokens
// into a bucket can only lower a KL divergence, so this is a lower bound of the one over the whole vocabulary, and
// equal to it when the bucket is empty or both models spread it alike. Both sides are rounded to f32 logarithms first:
// a model against itself gives exactly 0. Not below 0 otherwise, up to that rounding.
double divergence(const Truncated& base, std::span<const float> logits, double log_norm);

}  // namespace vesta::score
