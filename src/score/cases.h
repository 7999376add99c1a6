// A model on the cases of a manifest: the likelihood of each wanted continuation, and whether greedy decoding gives it.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "score/manifest.h"
#include "vesta/engine.h"

namespace vesta::score {

struct CaseOptions {
    bool greedy = false;  // judge greedy answers (`correct`); likelihoods and `reproduced` come in any case
    bool recognise_specials =
        true;             // markers in prompts and continuations are special tokens: a prompt is a rendered chat
    bool add_bos = true;  // in front of a prompt that does not begin with it
    CacheFormat cache_format = CacheFormat::fp8;
    int64_t chunk = 512;
};

// What a greedy answer so far says about the case.
//   pattern          right when it matches at the end of the answer
//   final_answer     right when what follows the last </think> equals it at the end, white space around it aside
//   end              right when the answer equals the continuation at its end, white space around it aside
//   none of these    right as soon as the answer begins with the continuation
// `ended`: the model ended its turn or ran out of tokens. Undecided is never returned then; before, it means that more
// text can still make the answer right, so most wrong answers are known after a few tokens.
enum class Verdict { right, wrong, undecided };
Verdict judge(const Case& c, std::string_view answer, bool ended);

struct CasesResult {
    std::vector<CaseResult> results;  // in the order of the cases
    bool partial = false;             // stopped by the listener; the results are those of the first cases
    int64_t n_computed = 0;           // tokens through the model
    double seconds = 0;
};

// Prompt and continuation are tokenized apart, as they are when a model continues a prompt. `on_result` is called after
// each case; an error from it stops everything.
Result<CasesResult> score_cases(Engine& engine, std::span<const Case> cases, const CaseOptions& options,
                                const ProgressFn& progress = {},
                                const std::function<Status(const CaseResult&)>& on_result = {});

}  // namespace vesta::score
