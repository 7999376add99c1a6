// Perplexity of a text and the divergence of a model from a base file over it. The text streams through the model
// window by window; memory is bounded by one pass's logits, whatever the text's length, plus 8 to 48 bytes per scored
// token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/progress.h"
#include "score/base_file.h"
#include "score/statistics.h"
#include "vesta/engine.h"

namespace vesta::score {

struct TextJob {
    std::span<const int32_t> ids;       // a BOS in front is the caller's choice
    int64_t ctx = 2048, stride = 1024;  // see windows.h
    CacheFormat cache_format = CacheFormat::fp8;
    int64_t chunk = 512;             // rows per pass at most; less for large vocabularies (kMaxLogitBytes)
    const BaseFile* base = nullptr;  // compare with this; must be of the same tokens, vocabulary, ctx and stride
    BaseWriter* save = nullptr;      // record into this; the caller commits when the result is complete
};

// 64 MB: 129 rows of 129280 logits, 4096 of the pocket's. Rows beyond some dozens make a pass no faster.
constexpr int64_t kMaxLogitBytes = int64_t{64} << 20;

// How far the model's predictions are from the base's; every list has one value per scored token.
struct Divergence {
    Estimate kl;  // nats, KL(base ‖ model); a lower bound, see rows.h
    double kl_median = 0, kl_90 = 0, kl_99 = 0, kl_max = 0;
    Estimate same_top1;       // share of tokens where both have the same likeliest token
    double same_top5 = 0;     // ... where both have the same five likeliest, in any order
    double top5_overlap = 0;  // mean share of the base's five that are among the model's
    Estimate delta_nll;       // model - base, paired
    double ppl_ratio = 0, ppl_ratio_low = 0, ppl_ratio_high = 0;  // exp of delta_nll
    double rms_dp = 0;  // root mean square of p_model - p_base of the token that came
    double base_nll = 0;
};

struct TextResult {
    int64_t n_target = 0, n_scored = 0;  // n_scored < n_target: stopped early
    int64_t n_computed = 0;              // tokens through the model, context included
    int64_t n_window = 0;
    int64_t block = 0;  // tokens per block of the standard errors
    Estimate nll;       // nats per token
    double seconds = 0;
    std::optional<Divergence> divergence;
    std::vector<double> token_nll;  // of tokens 1, 2, ...

    bool partial() const { return n_scored < n_target; }
    double ppl() const;
};

// A listener that returns false stops the work; what has been scored so far is the result. Uses the engine's number of
// threads; the numbers do not depend on it. Errors: invalid_argument for ctx, stride, a text of less than two tokens or
// a base file of something else; numeric and no_memory from the session.
Result<TextResult> score_text(Engine& engine, const TextJob& job, const ProgressFn& progress = {});

// invalid_argument naming the first thing that differs.
Status check_base(const BaseFile& base, const BaseHeader& now);

}  // namespace vesta::score
