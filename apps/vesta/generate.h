// The token loop: logits to token to logits, until something ends it. Knows no text; what tokens mean is the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "sample/logprob.h"
#include "sample/sampler.h"
#include "tokenizer/tokenizer.h"
#include "vesta/engine.h"

namespace vesta::app {

enum class Finish {
    stop,          // the model ended its turn
    stop_string,   // the listener said so
    length,        // n_max tokens
    context_full,  // no room for another token
    interrupted,   // Ctrl+C
};
const char* finish_name(Finish finish);  // "stop", "stop_string", "length", "context", "interrupted"

struct GenerateOptions {
    int64_t n_max = -1;                // tokens to generate; negative: as many as fit
    std::vector<int32_t> stop_tokens;  // end the turn; not part of the text
};

// One step of --dump-logprobs.
struct StepLog {
    int64_t position;  // of the token in the session
    int32_t id;
    double logprob;
    std::vector<sample::TokenLogprob> top;
};
constexpr size_t kTopAlternatives = 20;

struct Generated {
    std::vector<int32_t> ids;  // without the stop token
    Finish finish = Finish::stop;
    double seconds = 0;  // sampling and decoding
    int64_t n_pass = 0;  // decoded tokens: the last one sampled is not decoded
};

// Requires: the session has logits. `on_token` returns false to stop after this token. Each sampled token is accepted
// by the sampler; the last one is not decoded into the session. With `log`, every step is recorded, the stop token
// included.
Result<Generated> generate(Session& session, sample::Sampler& sampler, const GenerateOptions& options,
                           const std::function<bool(int32_t)>& on_token, std::vector<StepLog>* log = nullptr);

// The log as JSON: prompt ids, then per step the token chosen and its alternatives. A token that is no UTF-8 text on
// its own has its bytes beside the text.
std::string logprobs_json(const EngineInfo& info, const tokenizer::Tokenizer& tokenizer,
                          std::span<const int32_t> prompt, const std::vector<StepLog>& log, Finish finish);

}  // namespace vesta::app
