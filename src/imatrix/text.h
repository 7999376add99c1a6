// Calibration text: files of text or rendered prompts, and the token sequences a run goes over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace vesta::imatrix {

// The texts in one file. `name` decides: *.jsonl has one object per line with a string "prompt" or "text". In other
// files a line that starts with "===== VESTA_PROMPT" or "===== DS4_IMATRIX_PROMPT" begins a new text (the rest of the
// line is a label, newlines before it belong to it); without such a line the file is one text. Blank texts are dropped.
// Errors: bad_file with the line number.
Result<std::vector<std::string>> split_texts(std::string_view bytes, const std::string& name);

using Sequence = std::vector<int32_t>;  // begins at position 0 of an empty cache

// Markers in the text (<｜User｜>, <think>, ...) become their tokens: these texts are ours, and a rendered chat means
// them. A text that is longer than n_ctx tokens is cut; every piece begins with BOS if the vocabulary has one. Requires
// n_ctx >= 2.
void append_sequences(const tokenizer::Tokenizer& tokenizer, std::string_view text, int64_t n_ctx,
                      std::vector<Sequence>& out);

// FNV-1a over the lengths and ids of the first n sequences.
uint64_t hash_sequences(const std::vector<Sequence>& sequences, size_t n);

}  // namespace vesta::imatrix
