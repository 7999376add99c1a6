#include "chat_turn.h"

#include <algorithm>
#include <chrono>

#include "chat/dsv4_parse.h"
#include "interrupt.h"
#include "memory_view.h"
#include "stop_filter.h"
#include "terminal.h"
#include "tokenizer/held.h"

namespace vesta::app {
namespace {

using chat::OutputEvent;
using chat::Segment;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string rate(int64_t n, double seconds) {
    return seconds > 0 && n > 0 ? strf(", {:.1f} tok/s", static_cast<double>(n) / seconds) : std::string();
}

Result<std::vector<Segment>> render(const std::string& dialect_name, const std::vector<chat::Message>& messages,
                                    Thinking thinking) {
    VESTA_TRY(const chat::Dialect dialect, chat::parse_dialect(dialect_name));
    chat::RenderOptions options;
    options.dialect = dialect;
    options.mode = thinking == Thinking::off ? chat::Mode::chat : chat::Mode::thinking;
    options.effort = thinking == Thinking::max ? chat::Effort::max : chat::Effort::unset;
    chat::Conversation conversation;
    conversation.messages = messages;
    return chat::render(conversation, options);
}

// Turns tokens into what is shown and remembered: bytes, then reasoning and answer, then the search for stop strings.
class AnswerReader {
 public:
    AnswerReader(const tokenizer::Tokenizer& tokenizer, bool is_chat, bool opens_thinking, const TurnOptions& options)
        : tokenizer_(tokenizer),
          // In a chat the parser needs the markers; a raw text shows them only when asked to.
          decoder_(tokenizer, is_chat || options.show_special ? tokenizer::StreamDecoder::Specials::print
                                                              : tokenizer::StreamDecoder::Specials::hide),
          options_(options),
          view_(options.view),
          stop_(options.stops) {
        if (!is_chat) return;
        chat::ParseOptions parse;
        parse.mode = opens_thinking ? chat::Mode::thinking : chat::Mode::chat;
        parser_.emplace(parse);
    }

    bool push(int32_t id) {
        ++n_token_;
        std::string bytes;
        decoder_.push(id, bytes);
        read(bytes);
        return !stop_.stopped();
    }

    // The stop token: shown with --show-special, never part of the message.
    void push_stop(int32_t id) {
        std::string bytes;
        decoder_.flush(bytes);
        if (!bytes.empty()) read(bytes);
        if (!options_.show_special) return;
        bytes.clear();
        tokenizer_.append_token_bytes(id, bytes);
        view_.answer(bytes);
    }

    void finish(bool stopped_by_model) {
        std::string bytes;
        decoder_.flush(bytes);
        if (!bytes.empty()) read(bytes);
        if (parser_) {
            std::vector<OutputEvent> events;
            parser_->finish(stopped_by_model ? chat::Ending::stopped : chat::Ending::cut, &events);
            show(events);
        }
        std::string rest;
        stop_.flush(rest);
        add_answer(rest);
        view_.end();
    }

    chat::Message message() const {
        chat::Message m;
        m.role = chat::Role::assistant;
        m.reasoning = reasoning_;
        m.content = content_;
        return m;
    }
    int64_t n_thinking() const { return n_thinking_; }
    bool write_failed() const { return view_.write_failed(); }

 private:
    void read(const std::string& bytes) {
        if (options_.show_special) view_.answer(bytes);
        if (!parser_) return content(bytes);
        std::vector<OutputEvent> events;
        parser_->feed(bytes, &events);
        show(events);
    }

    void show(const std::vector<OutputEvent>& events) {
        for (const OutputEvent& e : events) {
            if (e.kind == OutputEvent::Kind::reasoning) {
                n_thinking_ = n_token_;
                reasoning_ += e.text;
                if (!options_.show_special) view_.thinking(e.text, n_token_);
            } else if (e.kind == OutputEvent::Kind::content) {
                content(e.text);
            }  // no tools are declared, so no call events come
        }
    }

    void content(std::string_view text) {
        std::string certain;
        stop_.feed(text, certain);
        add_answer(certain);
    }

    void add_answer(std::string_view text) {
        content_ += text;
        if (!options_.show_special) view_.answer(text);
    }

    const tokenizer::Tokenizer& tokenizer_;
    tokenizer::StreamDecoder decoder_;
    const TurnOptions& options_;
    AnswerView view_;
    StopFilter stop_;
    std::optional<chat::OutputParser> parser_;
    std::string reasoning_, content_;
    int64_t n_token_ = 0, n_thinking_ = 0;
};

}  // namespace

std::string stats_line(const TurnStats& s) {
    const std::string reused = s.n_prompt > s.n_prefilled ? strf(" of {}", s.n_prompt) : std::string();
    const std::string thinking = s.n_thinking > 0 ? strf(" ({} thinking)", s.n_thinking) : std::string();
    return strf("prefill {}{} tokens{} · decode {} tokens{}{} · {}", s.n_prefilled, reused,
                rate(s.n_prefilled, s.prefill_seconds), s.n_generated, thinking, rate(s.n_pass, s.decode_seconds),
                finish_name(s.finish));
}

Status Conversant::open_session(const SessionOptions& options) {
    session_.reset();  // first give the old one's memory back
    VESTA_TRY_STATUS(check_memory(engine_, options, memory_limit()));
    VESTA_TRY(session_, engine_.new_session(options));
    return {};
}

Result<std::vector<int32_t>> Conversant::prompt_tokens(const tokenizer::Tokenizer& tokenizer,
                                                       const std::string& dialect,
                                                       const std::vector<chat::Message>& messages, Thinking thinking) {
    VESTA_TRY(const auto segments, render(dialect, messages, thinking));
    std::vector<int32_t> ids;
    VESTA_TRY_STATUS(tokenizer.encode_segments(segments, ids));
    return ids;
}

Result<Turn> Conversant::answer(const std::vector<chat::Message>& messages, const TurnOptions& options) {
    VESTA_TRY(const auto segments, render(engine_.info().dialect, messages, options.thinking));
    const bool opens_thinking = chat::opens_reasoning(segments);
    const tokenizer::Tokenizer& tokenizer = engine_.tokenizer();

    // Official rendering forgets the reasoning of earlier turns: after a turn with thinking the prompt parts from what the
    // session holds where that reasoning begins.
    const std::span<const int32_t> held = session_->tokens();
    const tokenizer::Held kept = tokenizer::held_prefix(tokenizer, held, segments);
    std::vector<int32_t> prompt(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(kept.n_token));
    VESTA_TRY_STATUS(tokenizer.encode_segments(kept.rest, prompt));
    return run(std::move(prompt), true, opens_thinking, options);
}

Result<Turn> Conversant::complete(const std::string& text, const TurnOptions& options) {
    std::vector<int32_t> prompt;
    engine_.tokenizer().encode(text, tokenizer::SpecialMode::recognise, prompt);
    return run(std::move(prompt), false, false, options);
}

Result<Turn> Conversant::run(std::vector<int32_t> prompt, bool is_chat, bool opens_thinking, const TurnOptions& options) {
    const auto n_prompt = static_cast<int64_t>(prompt.size());
    if (n_prompt > session_->n_ctx())
        return Error{Code::invalid_argument,
                     strf("the prompt has {} tokens, the context holds {}; make it larger ({}) or the text shorter",
                          n_prompt, session_->n_ctx(), is_chat ? "--ctx N, in a chat /ctx N" : "--ctx N")};
    sampler_.forget();
    sampler_.accept_prompt(prompt);

    Turn turn;
    turn.stats.n_prompt = n_prompt;
    {
        ProgressBar bar(options.progress && stderr_is_tty());
        const auto start = Clock::now();
        VESTA_TRY(const SyncReport report, session_->sync(prompt, [&](const Progress& p) {
                      return bar.update(p) && !InterruptGuard::requested();
                  }));
        turn.stats.n_prefilled = report.computed;
        turn.stats.prefill_seconds = seconds_since(start);
    }

    const tokenizer::Tokenizer& tokenizer = engine_.tokenizer();
    GenerateOptions generate_options = options.generate;
    if (tokenizer.eos()) generate_options.stop_tokens.push_back(*tokenizer.eos());
    AnswerReader reader(tokenizer, is_chat, opens_thinking, options);
    auto generated = generate(
        *session_, sampler_, generate_options, [&](int32_t id) { return reader.push(id); },
        options.log ? &turn.log : nullptr);
    if (!generated.ok()) {
        reader.finish(false);
        return std::move(generated).error();
    }
    const Generated& g = generated.value();
    if (g.finish == Finish::stop && tokenizer.eos()) reader.push_stop(*tokenizer.eos());
    reader.finish(g.finish == Finish::stop);
    turn.answer = reader.message();
    turn.stats.n_generated = static_cast<int64_t>(g.ids.size());
    turn.stats.n_thinking = reader.n_thinking();
    turn.stats.n_pass = g.n_pass;
    turn.stats.decode_seconds = g.seconds;
    turn.stats.finish = g.finish;
    turn.write_failed = reader.write_failed();
    turn.prompt = std::move(prompt);
    return turn;
}

}  // namespace vesta::app
