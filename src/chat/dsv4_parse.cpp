// The outer machine: which bytes are reasoning, which are content, and where a tool section starts. A section itself is
// read by SectionParser. Bytes pass, in this order: the end-of-sentence filter, a marker finder, a white space hold
// (what is dropped depends on what follows), a character gate.
#include "chat/dsv4_parse.h"

#include <optional>
#include <utility>

#include "chat/dsv4_markers.h"
#include "chat/dsv4_section.h"

namespace vesta::chat {
namespace {

using namespace dsv4;
using Kind = OutputEvent::Kind;

constexpr size_t kMaxNotes = 16;

enum class Mark { end_think, think, section, invoke, closer, section_end };

// A marker finder that knows what each marker means.
class Finder {
 public:
    Finder() : finder_({}) {}
    explicit Finder(std::vector<std::pair<Mark, std::string>> list) : finder_(spellings(list)) {
        for (const auto& entry : list) marks_.push_back(entry.first);
    }
    template <class Text>
    size_t run(std::string_view bytes, std::optional<Mark>& mark, std::string_view& spelling, Text&& text) {
        size_t found = MarkerFinder::kNone;
        const size_t n = finder_.run(bytes, found, text);
        mark.reset();
        if (found != MarkerFinder::kNone) mark = marks_[found], spelling = finder_.marker(found);
        return n;
    }
    std::string take_tail() { return finder_.take_tail(); }

 private:
    static std::vector<std::string> spellings(const std::vector<std::pair<Mark, std::string>>& list) {
        std::vector<std::string> out;
        for (const auto& entry : list) out.push_back(entry.second);
        return out;
    }
    MarkerFinder finder_;
    std::vector<Mark> marks_;
};

}  // namespace

class OutputParser::Impl {
 public:
    explicit Impl(ParseOptions options)
        : options_(std::move(options)),
          spellings_(accepted_spellings(options_)),
          eos_(options_.strip_eos ? std::vector<std::string>{std::string(kEos)} : std::vector<std::string>{}),
          state_(options_.mode == Mode::thinking ? State::reasoning : State::content),
          leading_(state_ == State::reasoning) {
        const bool tools = options_.any_tool || !options_.tools.empty();
        std::vector<std::pair<Mark, std::string>> reasoning = {{Mark::end_think, std::string(kEndThink)},
                                                               {Mark::think, std::string(kThink)}};
        auto content = reasoning;
        std::vector<std::pair<Mark, std::string>> broken;
        for (size_t s = 0; tools && s < spellings_.size(); ++s) {
            const auto& [open, close] = spellings_[s];
            if (options_.recover_call_in_reasoning) reasoning.emplace_back(Mark::section, open + "tool_calls>");
            content.emplace_back(Mark::section, open + "tool_calls>");
            broken.emplace_back(Mark::section, open + "tool_calls>");
            broken.emplace_back(Mark::section_end, close + "tool_calls>");
            if (open == "<") continue;  // plain XML in prose is too common to be touched outside a block
            if (options_.accept_bare_invoke) content.emplace_back(Mark::invoke, open + "invoke ");
            for (const char* name : {"tool_calls>", "invoke>", "parameter>"})
                content.emplace_back(Mark::closer, close + name);
        }
        in_reasoning_ = Finder(std::move(reasoning));
        in_content_ = Finder(std::move(content));
        in_broken_ = Finder(std::move(broken));
    }

    void feed(std::string_view bytes, std::vector<OutputEvent>* events) {
        events_ = events;
        while (!bytes.empty()) {
            if (eos_seen_) {  // something follows, so it was only text
                eos_seen_ = false;
                advance(kEos);
            }
            size_t found = MarkerFinder::kNone;
            bytes.remove_prefix(eos_.run(bytes, found, [&](std::string_view text) { advance(text); }));
            eos_seen_ = found != MarkerFinder::kNone;
        }
    }

    bool done() const { return state_ == State::finished; }

    ParsedOutput finish(Ending ending, std::vector<OutputEvent>* events) {
        events_ = events;
        advance(eos_.take_tail());
        switch (state_) {
            case State::reasoning:
                finish_reasoning(ending);
                break;
            case State::content:
                content(in_content_.take_tail());
                finish_content();
                break;
            case State::broken:
                content(in_broken_.take_tail());
                finish_content();
                break;
            case State::section:
                finish_section(ending);
                break;
            case State::finished:
                break;
        }
        return std::move(out_);
    }

 private:
    enum class State { reasoning, content, section, broken, finished };

    void advance(std::string_view bytes) {
        while (!bytes.empty()) {
            switch (state_) {
                case State::reasoning:
                    bytes.remove_prefix(on_reasoning(bytes));
                    break;
                case State::content:
                    bytes.remove_prefix(on_content(bytes, in_content_));
                    break;
                case State::broken:
                    bytes.remove_prefix(on_content(bytes, in_broken_));
                    break;
                case State::section:
                    bytes.remove_prefix(on_section(bytes));
                    break;
                case State::finished:
                    return;
            }
        }
    }

    // ---- reasoning ----

    size_t on_reasoning(std::string_view bytes) {
        std::optional<Mark> mark;
        std::string_view spelling;
        const size_t n = in_reasoning_.run(bytes, mark, spelling, [&](std::string_view text) { reasoning(text); });
        if (!mark) return n;
        switch (*mark) {
            case Mark::end_think:
                reject_candidate();
                add(Kind::reasoning, gate_.flush());
                hold_.clear();  // newlines before the closing tag
                state_ = State::content;
                leading_ = true;
                think_allowed_ = false;
                break;
            case Mark::section:
                start_candidate(spelling);
                break;
            default:  // <think>, which belongs to the prompt: one at the start is skipped
                if (!std::exchange(think_allowed_, false)) reasoning(spelling);
                break;
        }
        return n;
    }

    // Inside reasoning a section is only a candidate: it counts when it is complete, ends the output, and reasoning is
    // still open then. Until that is known its bytes are in candidate_raw_.
    void start_candidate(std::string_view opener) {
        think_allowed_ = false;
        if (candidate_) {
            if (candidate_->status() == SectionParser::Status::open) {
                candidate_->feed(opener);
                if (candidate_->status() == SectionParser::Status::open) {
                    candidate_raw_ += opener;
                    return;
                }
            }
            reject_candidate();
        }
        candidate_.emplace(options_, spellings_, next_call_, false);
        candidate_raw_ = opener;
    }

    void reject_candidate() {
        if (!candidate_) return;
        candidate_.reset();
        emit_reasoning(std::exchange(candidate_raw_, {}));
    }

    void reasoning(std::string_view text) {
        if (!candidate_) return emit_reasoning(text);
        candidate_raw_ += text;
        if (candidate_->status() == SectionParser::Status::open) text.remove_prefix(candidate_->feed(text));
        for (const char c : text)
            if (!is_space(c)) return reject_candidate();  // broken, or followed by more reasoning
    }

    void emit_reasoning(std::string_view text) {
        if (leading_) {
            const size_t first = text.find_first_not_of('\n');
            if (first == std::string_view::npos) return;
            text.remove_prefix(first);
            leading_ = think_allowed_ = false;
        }
        emit(Kind::reasoning, text, "\n");
    }

    void finish_reasoning(Ending ending) {
        reasoning(in_reasoning_.take_tail());
        const bool rescued = candidate_ && candidate_->status() == SectionParser::Status::ended &&
                             !candidate_->calls().empty() && ending == Ending::stopped;
        if (!rescued) {
            reject_candidate();
            add(Kind::reasoning, gate_.pass(std::exchange(hold_, {})));
            add(Kind::reasoning, gate_.flush());
            out_.reasoning_open = true;
            return;
        }
        add(Kind::reasoning, gate_.flush());
        note("tool calls at the end of reasoning that was never closed");
        out_.recovered = true;
        take_calls(*candidate_);
    }

    // ---- content ----

    size_t on_content(std::string_view bytes, Finder& finder) {
        std::optional<Mark> mark;
        std::string_view spelling;
        const size_t n = finder.run(bytes, mark, spelling, [&](std::string_view text) { content(text); });
        if (!mark) return n;
        switch (*mark) {
            case Mark::think:
                if (!std::exchange(think_allowed_, false)) content(spelling);
                break;
            case Mark::end_think:
                note("dropped a </think> in content");
                break;
            case Mark::closer:
                note("dropped a closing tag in content");
                break;
            case Mark::section:
                start_section(spelling, false);
                break;
            case Mark::invoke:
                start_section(spelling, true);
                break;
            case Mark::section_end:
                content(spelling);
                state_ = State::content;
                break;
        }
        return n;
    }

    void content(std::string_view text) {
        if (text.empty()) return;
        if (leading_) {
            const size_t first = text.find_first_not_of('\n');
            if (first == std::string_view::npos) return;
            text.remove_prefix(first);
            leading_ = false;
        }
        if (think_allowed_ && text.find_first_not_of('\n') != std::string_view::npos) think_allowed_ = false;
        emit(Kind::content, text, " \t\r\n");
    }

    void finish_content() {
        add(Kind::content, gate_.pass(std::exchange(hold_, {})));
        add(Kind::content, gate_.flush());
    }

    // ---- a section after content ----

    void start_section(std::string_view opener, bool bare) {
        add(Kind::content, gate_.flush());
        raw_ = std::exchange(hold_, {});
        raw_ += opener;
        section_.emplace(options_, spellings_, next_call_, bare);
        if (bare) section_->feed(opener);
        state_ = State::section;
    }

    size_t on_section(std::string_view bytes) {
        const size_t n = section_->feed(bytes);
        const bool has_calls = !section_->calls().empty();
        if (!has_calls) raw_ += bytes.substr(0, n);
        if (!section_->bare() || has_calls) forward_events();
        switch (section_->status()) {
            case SectionParser::Status::open:
                break;
            case SectionParser::Status::ended:
                if (has_calls) {
                    close_section();
                } else {
                    note("an empty tool section");
                    section_.reset();
                    state_ = State::content;
                }
                break;
            case SectionParser::Status::broken:
                out_.recovered = true;
                if (has_calls)
                    close_section();
                else
                    give_up_section();
                break;
        }
        return n;
    }

    // No call was complete: the section is shown as it was written. A bare invoke was only a candidate; a wrapper's
    // text is not interpreted until its end or a new start.
    void give_up_section() {
        const bool bare = section_->bare();
        for (std::string& text : section_->notes()) note(std::move(text));
        if (!bare) next_call_ += section_->n_begun();
        section_.reset();
        state_ = bare ? State::content : State::broken;
        content(std::exchange(raw_, {}));
    }

    void close_section() {
        if (section_->bare()) {
            out_.recovered = true;
            note("calls without the block around them");
        }
        take_calls(*section_);
    }

    void take_calls(SectionParser& section) {
        for (std::string& text : section.notes()) note(std::move(text));
        out_.recovered = out_.recovered || section.repaired();
        out_.tool_calls = std::move(section.calls());
        append_events(section);
        state_ = State::finished;
    }

    void finish_section(Ending ending) {
        section_->finish(ending == Ending::stopped);
        const bool has_calls = !section_->calls().empty();
        const bool lost = section_->has_open_call();
        if (!section_->bare() || lost) out_.unterminated = true;
        if (has_calls) {
            out_.recovered = out_.recovered || lost;
            return close_section();
        }
        if (!section_->bare()) forward_events();
        out_.recovered = true;
        give_up_section();
        finish_content();
    }

    // ---- what leaves ----

    // Holds back a trailing run of `held` characters: what comes next decides about them.
    void emit(Kind kind, std::string_view text, std::string_view held) {
        const size_t last = text.find_last_not_of(held);
        if (last == std::string_view::npos) {
            hold_ += text;
            return;
        }
        if (!hold_.empty()) add(kind, gate_.pass(std::exchange(hold_, {})));
        add(kind, gate_.pass(text.substr(0, last + 1)));
        hold_ = text.substr(last + 1);
    }

    void add(Kind kind, std::string_view text) {
        if (text.empty()) return;
        (kind == Kind::reasoning ? out_.reasoning : out_.content) += text;
        if (events_ != nullptr) add_event(*events_, kind, 0, text);
    }

    void forward_events() { append_events(*section_); }
    void append_events(SectionParser& section) {
        if (events_ != nullptr)
            for (const OutputEvent& event : section.events()) add_event(*events_, event.kind, event.call, event.text);
        section.events().clear();
    }

    void note(std::string text) {
        if (out_.notes.size() < kMaxNotes) out_.notes.push_back(std::move(text));
    }

    const ParseOptions options_;
    const std::vector<Spelling> spellings_;
    MarkerFinder eos_;
    bool eos_seen_ = false;
    Finder in_reasoning_, in_content_, in_broken_;
    State state_;
    bool leading_;               // newlines are dropped until something else comes
    bool think_allowed_ = true;  // nothing but newlines so far: a repeated <think> would be skipped
    std::string hold_;           // white space whose fate is open
    CharacterGate gate_;

    std::optional<SectionParser> candidate_;  // inside reasoning
    std::string candidate_raw_;
    std::optional<SectionParser> section_;  // after content
    std::string raw_;                       // its bytes, while it has no complete call
    size_t next_call_ = 0;

    ParsedOutput out_;
    std::vector<OutputEvent>* events_ = nullptr;  // of the current call
};

OutputParser::OutputParser(ParseOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

void OutputParser::feed(std::string_view bytes, std::vector<OutputEvent>* events) { impl_->feed(bytes, events); }
bool OutputParser::done() const { return impl_->done(); }
ParsedOutput OutputParser::finish(Ending ending, std::vector<OutputEvent>* events) {
    return impl_->finish(ending, events);
}

ParsedOutput parse_output(std::string_view text, const ParseOptions& options, Ending ending) {
    OutputParser parser(options);
    parser.feed(text);
    return parser.finish(ending);
}

}  // namespace vesta::chat
