// The pre-tokenizer: cuts a text into the pieces that BPE may merge inside. Three passes, each applied to every piece
// the pass before left, matches and gaps alike (docs/tokenizer.md has the expressions and an example):
//
//   1  \p{N}{1,3}
//   2  [U+4E00-U+9FA5 U+3040-U+309F U+30A0-U+30FF]+
//   3  [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ |  ?[\p{P}\p{S}]+[\r\n]*
//      | \s*[\r\n]+ | \s+(?!\S) | \s+
//
// Hand-written instead of a regex library: it must never be slower than linear, must accept bytes that are not UTF-8,
// and its Unicode version must not depend on the machine. tests/tokenizer/split_test.cpp compares it with PCRE2.
#pragma once

#include <string_view>

namespace vesta::tokenizer {

// Hands out the pieces left to right. They are not empty, and their concatenation is the text. A byte that is no part
// of a valid UTF-8 sequence counts as one character of no class. Keeps a view of the text; O(length) in all.
class Splitter {
 public:
    explicit Splitter(std::string_view text) : rest_(text) {}
    bool next(std::string_view& piece);  // false at the end

 private:
    std::string_view take_segment();

    std::string_view rest_;     // not yet through passes 1 and 2
    std::string_view segment_;  // one piece of pass 2, not yet through pass 3
    size_t known_match_ = 0;    // length of the pass 3 match at the start of segment_, when the gap before it found it
};

}  // namespace vesta::tokenizer
