// A text longer than the context, cut into overlapping windows so that every token is scored exactly once and, but for
// those of the first window, with at least ctx - stride tokens before it.
//
//   inputs   begin ............................ end        at most ctx tokens go through the model
//   targets         first_target ................ end      the token after each of the last inputs, `end` included
//
// A row of logits predicts the token after it, so a window of ctx inputs has ctx targets, the last of which is not an
// input. Token 0 has nothing before it and is no target: put a BOS in front to score the first word.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace vesta::score {

struct Window {
    int64_t begin, end;    // inputs: tokens [begin, end)
    int64_t first_target;  // targets: tokens [first_target, end]; begin < first_target <= end
    int64_t n_target() const { return end - first_target + 1; }
};

// Targets 1 .. n_token - 1, in order. invalid_argument unless 1 <= stride <= ctx and n_token >= 2.
Result<std::vector<Window>> cut_windows(int64_t n_token, int64_t ctx, int64_t stride);

}  // namespace vesta::score
