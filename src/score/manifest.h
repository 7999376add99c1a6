// Cases of prompt and wanted continuation, and what a model made of them; both as JSON lines, one object per line.
//
//   {"prompt": "...", "continuation": "...", "id": "...", "kind": "...", "end": false, "max_tokens": 64}
//   {"prompt": "...", "answer": "...", "match": "exact", "final": "...", "kind": "...", "max_tokens": 64}
//   {"prompt": "...", "answer": "(?s)(?=.*Karl)(?=.*dog).{150,}", "match": "regex", ...}
//
// `answer` is a continuation after which the model must end its turn. With `final`, only what follows the last </think>
// decides whether a greedy answer is right: there are many ways to think. `regex` takes the one form that the
// evaluation sets use, "contains these words and is at least so long", and refuses others: a general engine would have
// to defend itself against patterns that never end. Such a case has no wanted text, so no likelihood.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace vesta::score {

// (?s)(?=.*A)(?=.*B).{N,} : every word is in the text, and the text has N characters (code points) or more.
struct Pattern {
    std::vector<std::string> words;
    int64_t n_char = 0;
    static std::optional<Pattern> parse(std::string_view text);
    bool matches(std::string_view text) const;
};

struct Case {
    std::string id;    // "1", "2", ... (line numbers) when the line has none
    std::string kind;  // empty when the line has none
    std::string prompt;
    std::string continuation;  // empty with a pattern
    bool end = false;          // the end-of-text token belongs to the continuation
    std::string final_answer;  // empty: the whole continuation is the answer
    std::optional<Pattern> pattern;
    int64_t max_tokens = 0;  // for a greedy answer; 0: twice the continuation
    uint64_t hash = 0;       // of what is asked and wanted: results of different cases are never compared
};

// bad_file with the line's number. Empty lines are skipped; at least one case.
Result<std::vector<Case>> parse_manifest(std::string_view text, const std::string& name);

struct CaseResult {
    std::string id, kind;
    uint64_t hash = 0;
    int64_t n_token = 0;          // of the continuation, its end included; 0: no likelihood
    double nll = 0;               // nats, summed over them
    int64_t first_rank = 0;       // of the continuation's first token among the model's choices; 1: the likeliest
    bool reproduced = false;      // every token was the likeliest one given those before it
    std::optional<bool> correct;  // with greedy answers: see Verdict in cases.h
    std::string output;           // the greedy answer as far as it was generated; only when it is not the continuation

    double mean_nll() const { return n_token > 0 ? nll / static_cast<double>(n_token) : 0; }
};

std::string to_json_line(const CaseResult& result);  // with '\n'
Result<std::vector<CaseResult>> parse_results(std::string_view text, const std::string& name);

}  // namespace vesta::score
