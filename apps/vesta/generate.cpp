#include "generate.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "interrupt.h"

namespace vesta::app {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

Result<StepLog> log_step(const Session& session, int32_t id) {
    VESTA_TRY(auto top, sample::top_logprobs(session.logits(), kTopAlternatives));
    const double logprob =
        static_cast<double>(session.logits()[static_cast<size_t>(id)]) - sample::log_sum_exp(session.logits());
    return StepLog{session.n_token(), id, logprob, std::move(top)};
}

Json token_json(const tokenizer::Tokenizer& tokenizer, int32_t id, double logprob) {
    std::string bytes;
    tokenizer.append_token_bytes(id, bytes);
    Json out;
    out["id"] = id;
    out["text"] = replace_invalid_utf8(bytes);
    if (!is_valid_utf8(bytes)) {
        Json list = Json::array();
        for (const char b : bytes) list.push_back(static_cast<unsigned char>(b));
        out["bytes"] = std::move(list);
    }
    out["logprob"] = logprob;
    return out;
}

}  // namespace

const char* finish_name(Finish finish) {
    switch (finish) {
        case Finish::stop:
            return "stop";
        case Finish::stop_string:
            return "stop_string";
        case Finish::length:
            return "length";
        case Finish::context_full:
            return "context";
        case Finish::interrupted:
            return "interrupted";
    }
    return "unknown";
}

Result<Generated> generate(Session& session, sample::Sampler& sampler, const GenerateOptions& options,
                           const std::function<bool(int32_t)>& on_token, std::vector<StepLog>* log) {
    Generated out;
    const auto started = Clock::now();
    const auto end = [&](Finish finish) {
        out.finish = finish;
        out.seconds = std::chrono::duration<double>(Clock::now() - started).count();
        return std::move(out);
    };
    for (;;) {
        if (InterruptGuard::requested()) return end(Finish::interrupted);
        if (options.n_max >= 0 && static_cast<int64_t>(out.ids.size()) >= options.n_max) return end(Finish::length);
        VESTA_TRY(const int32_t id, sampler.sample(session.logits()));
        if (log != nullptr) {
            VESTA_TRY(StepLog step, log_step(session, id));
            log->push_back(std::move(step));
        }
        if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), id) != options.stop_tokens.end())
            return end(Finish::stop);
        out.ids.push_back(id);
        sampler.accept(id);
        if (!on_token(id)) return end(Finish::stop_string);
        if (options.n_max >= 0 && static_cast<int64_t>(out.ids.size()) >= options.n_max) return end(Finish::length);
        if (session.n_token() >= session.n_ctx()) return end(Finish::context_full);
        VESTA_TRY_STATUS(session.decode(id));
        ++out.n_pass;
    }
}

std::string logprobs_json(const EngineInfo& info, const tokenizer::Tokenizer& tokenizer,
                          std::span<const int32_t> prompt, const std::vector<StepLog>& log, Finish finish) {
    Json out;
    out["model"] = replace_invalid_utf8(info.name);
    out["backend"] = info.backend;
    out["prompt_ids"] = std::vector<int32_t>(prompt.begin(), prompt.end());
    out["finish"] = finish_name(finish);
    Json steps = Json::array();
    for (const StepLog& step : log) {
        Json one;
        one["position"] = step.position;
        one["token"] = token_json(tokenizer, step.id, step.logprob);
        Json top = Json::array();
        for (const sample::TokenLogprob& t : step.top) top.push_back(token_json(tokenizer, t.id, t.logprob));
        one["top"] = std::move(top);
        steps.push_back(std::move(one));
    }
    out["steps"] = std::move(steps);
    return out.dump(1) + "\n";
}

}  // namespace vesta::app
