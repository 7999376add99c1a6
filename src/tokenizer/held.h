// What a session already holds of a prompt. Compared as text, not as ids: clients resend an answer as text, and
// tokenizing it again may cut it in other places than the model did; the tokens that were sampled are kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/segment.h"
#include "tokenizer/tokenizer.h"

namespace vesta::tokenizer {

struct Held {
    size_t n_token = 0;         // so many of the held tokens are a beginning of the prompt
    std::vector<Segment> rest;  // what of the prompt comes after them
};

// The longest beginning of `held` whose text is a beginning of `prompt`: special tokens where the prompt has control
// segments, and nowhere else. When the two part in the middle of a text, the cut is at the last special token before,
// so that all of the text that differs is tokenized anew, as a fresh run would. Requires valid ids.
Held held_prefix(const Tokenizer& tokenizer, std::span<const int32_t> held, std::span<const Segment> prompt);

}  // namespace vesta::tokenizer
