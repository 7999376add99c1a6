// Two models' results on the same cases: who finds the wanted continuations likelier, who answers right, and whether
// the difference could be chance. Only cases that both have are compared, pairwise, so their different difficulty
// cancels.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "score/manifest.h"
#include "score/statistics.h"

namespace vesta::score {

// Differences of mean NLL below this are ties: 1e-6 nats per token is what another summation order makes.
constexpr double kTieNats = 1e-6;

struct CompareGroup {
    std::string kind;  // empty: all cases
    // Likelihood, of the cases that have one. Wins: smaller NLL per token.
    int64_t n_nll = 0, a_wins = 0, b_wins = 0, ties = 0;
    double mean_a = 0, mean_b = 0;     // mean over cases of NLL per token
    PairedTest nll;                    // of b - a: negative when B is better
    int64_t a_first = 0, b_first = 0;  // cases whose first token was the likeliest
    // Greedy answers, of the cases where both were judged.
    int64_t n_judged = 0, a_right = 0, b_right = 0, only_a = 0, only_b = 0;
    double answer_p = 1;  // exact sign test of only_a : only_b (McNemar)
};

struct Comparison {
    int64_t n_common = 0, n_only_a = 0, n_only_b = 0;
    std::vector<CompareGroup> groups;  // all first, then every kind in alphabetical order when there is more than one
};

// invalid_argument when an id has different cases behind it in the two lists, or none is in both.
Result<Comparison> compare_results(std::span<const CaseResult> a, std::span<const CaseResult> b);

// Per kind and over all: how often the greedy answer was right.
struct Accuracy {
    std::string kind;  // empty: all
    int64_t n = 0, n_judged = 0, n_right = 0, n_reproduced = 0, n_nll = 0;
    double nll = 0, n_token = 0;  // sums over the cases that have a likelihood
    Estimate mean_nll;            // over cases, of NLL per token
};
std::vector<Accuracy> accuracy_by_kind(std::span<const CaseResult> results);

}  // namespace vesta::score
