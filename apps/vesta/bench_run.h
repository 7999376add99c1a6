// Measuring one model: prompts from nothing, then growing contexts with decoding at each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "bench_report.h"
#include "vesta/engine.h"

namespace vesta::app {

struct BenchPlan {
    std::vector<int64_t> prefill, depth;
    int n_decode = 32, repeat = 5, warmup = 1;
    bool same_tokens = false;  // decode feeds bench_token() instead of the likeliest token
    SessionOptions session;    // n_ctx is set by the run
};

// Token i of every prompt, the convention of bench/peers/llama_peer: both engines then do the same work. Avoids the
// ends of the vocabulary, where special tokens stand. Requires: n_vocab > 20.
int32_t bench_token(int64_t i, int64_t n_vocab);

// The likeliest token that does not end the answer; ties go to the lower id. Requires: a token other than `eos`.
int32_t likeliest_except(std::span<const float> logits, std::optional<int32_t> eos);

// `open` opens the engine; its time, and the time to the first token, are part of the report. Fills everything of the
// report but version, model file and peak.
Result<BenchReport> run_bench(const std::function<Result<std::unique_ptr<Engine>>()>& open, BenchPlan plan,
                              const ProgressFn& progress);

}  // namespace vesta::app
