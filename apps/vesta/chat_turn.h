// One turn of a conversation on a session: render, tokenize, reuse what the session already holds, prefill, generate
// and show. Used by the chat and by a single answer alike.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer_view.h"
#include "chat/dsv4_render.h"
#include "chat/message.h"
#include "generate.h"
#include "run_options.h"

namespace vesta::app {

struct TurnStats {
    int64_t n_prompt = 0;     // tokens of the whole prompt
    int64_t n_prefilled = 0;  // of them computed now
    int64_t n_thinking = 0, n_generated = 0, n_pass = 0;
    double prefill_seconds = 0, decode_seconds = 0;
    Finish finish = Finish::stop;
};
// "prefill 12 tokens, 350.1 tok/s · decode 45 tokens, 66.2 tok/s · stop"
std::string stats_line(const TurnStats& stats);

struct Turn {
    chat::Message answer;
    TurnStats stats;
    std::vector<int32_t> prompt;
    std::vector<StepLog> log;
    bool write_failed = false;  // stdout refused
};

struct TurnOptions {
    Thinking thinking = Thinking::on;
    GenerateOptions generate;  // stop_tokens are filled in
    std::vector<std::string> stops;
    ViewOptions view;
    bool show_special = false;  // the view gets the model's text as it is
    bool progress = false;      // a bar on stderr
    bool log = false;           // fill Turn::log
};

class Conversant {
 public:
    // Both are borrowed. The sampler outlives the turns: a chat draws from one random sequence.
    Conversant(Engine& engine, sample::Sampler& sampler) : engine_(engine), sampler_(sampler) {}

    // Replaces the session; the conversation is prefilled again by the next turn.
    Status open_session(const SessionOptions& options);
    Session& session() { return *session_; }
    void forget() { session_->clear(); }

    // Answers the conversation, whose last message is the user's. Code::cancelled: Ctrl+C during prefill. An error
    // leaves the session usable.
    Result<Turn> answer(const std::vector<chat::Message>& messages, const TurnOptions& options);
    // Continues a text without any chat markup.
    Result<Turn> complete(const std::string& text, const TurnOptions& options);

    // The tokens of a conversation's prompt, without a session.
    static Result<std::vector<int32_t>> prompt_tokens(const tokenizer::Tokenizer& tokenizer, const std::string& dialect,
                                                      const std::vector<chat::Message>& messages, Thinking thinking);

 private:
    Result<Turn> run(std::vector<int32_t> prompt, bool is_chat, bool opens_thinking, const TurnOptions& options);

    Engine& engine_;
    sample::Sampler& sampler_;
    std::unique_ptr<Session> session_;
};

}  // namespace vesta::app
