#include "chat_loop.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "base/utf8.h"
#include "commands.h"
#include "conversation_file.h"
#include "interrupt.h"
#include "terminal.h"

namespace vesta::app {
namespace {

constexpr char kHelp[] =
    "/think [max]   think before answering        /nothink       answer at once\n"
    "/fold          thinking as one line, or not   /new           forget the conversation\n"
    "/read FILE     send a file as your message    /ctx [N]       show or change the context size\n"
    "/save NAME     keep it, with its computed state   /load NAME     go on with a saved one\n"
    "/switch NAME   to another conversation, this one stays open   /list   all of them\n"
    "/save and /load also take a file (./chat.json): the messages alone\n"
    "/stats         speed, sizes, settings         /quit          leave (also Ctrl+D)\n"
    "Alt+Enter or a backslash at the end: new line. Ctrl+C: stop the answer; twice at an empty prompt: leave.\n";

std::string_view trim(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\n");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// "66.7 M", "284.0 B": billions are called B, as model names do.
std::string format_count(int64_t n) {
    const auto value = static_cast<double>(n);
    return n >= 1000000000 ? strf("{:.1f} B", value / 1e9)
           : n >= 1000000  ? strf("{:.1f} M", value / 1e6)
                           : strf("{}", n);
}

const char* thinking_name(Thinking t) { return t == Thinking::off ? "off" : t == Thinking::max ? "max" : "on"; }

}  // namespace

ChatLoop::ChatLoop(Engine& engine, Conversant& conversant, const RunOptions& options, const SessionOptions& session)
    : engine_(engine),
      conversant_(conversant),
      options_(options),
      session_(session),
      thinking_(options.thinking),
      fold_(options.fold),
      conversations_(engine, Conversations::default_folder()) {
    start_over();
}

void ChatLoop::start_over() {
    messages_.clear();
    if (!options_.system.empty()) {
        chat::Message system;
        system.role = chat::Role::system;
        system.content = options_.system;
        messages_.push_back(std::move(system));
    }
    own_file_.clear();
    name_.clear();
    conversant_.forget();
}

void ChatLoop::say(const std::string& text) const {
    if (options_.quiet) return;
    const bool dim = stderr_has_colour();
    fmt::print(stderr, "{}{}{}\n", dim ? "\x1b[2m" : "", text, dim ? "\x1b[0m" : "");
}

void ChatLoop::complain(const std::string& text) const { fmt::print(stderr, "{}\n", text); }

int ChatLoop::run() {
    const int out = ::isatty(STDOUT_FILENO) == 1 ? STDOUT_FILENO : STDERR_FILENO;
    LineEditor editor(STDIN_FILENO, out, options_.no_history ? std::string() : default_history_path());
    if (editor.interactive())
        say(strf("{} · {} parameters · context {} · thinking {} · /help for commands", engine_.info().name,
                 format_count(engine_.info().n_parameter), session_.n_ctx, thinking_name(thinking_)));
    const std::string prompt = stdout_has_colour() ? "\x1b[1m>\x1b[0m " : "> ";
    bool warned = false, interrupted_before = false;
    for (;;) {
        InterruptGuard::clear();
        const InputLine line = editor.read(prompt);
        if (!warned && !editor.warning().empty()) {
            say(strf("history is not kept: {}", editor.warning()));
            warned = true;
        }
        if (line.kind == InputLine::end_of_input) return kExitOk;
        if (line.kind == InputLine::interrupt) {
            if (line.text.empty() && interrupted_before) return kExitOk;
            interrupted_before = line.text.empty();
            if (interrupted_before) say("Ctrl+C again, Ctrl+D or /quit leaves");
            continue;
        }
        interrupted_before = false;
        InterruptGuard::clear();
        if (trim(line.text).empty()) continue;
        if (line.text[0] == '/') {
            if (command(line.text) == Next::quit) return kExitOk;
        } else {
            send(line.text);
        }
    }
}

ChatLoop::Next ChatLoop::command(const std::string& line) {
    const size_t space = std::min(line.find_first_of(" \t\n"), line.size());
    const std::string name = line.substr(0, space);
    const std::string_view argument = trim(std::string_view(line).substr(space));
    const auto given = [&](const char* what) {
        if (argument.empty()) complain(strf("{} needs {}", name, what));
        return !argument.empty();
    };
    if (name == "/quit" || name == "/exit") return Next::quit;
    if (name == "/help") {
        help();
    } else if (name == "/think") {
        if (argument.empty() || argument == "max") {
            thinking_ = argument.empty() ? Thinking::on : Thinking::max;
            say(strf("thinking {}", thinking_name(thinking_)));
        } else {
            complain(strf("/think takes nothing or 'max', not '{}'", argument));
        }
    } else if (name == "/nothink") {
        thinking_ = Thinking::off;
        say("thinking off");
    } else if (name == "/fold") {
        fold_ = !fold_;
        say(fold_ ? "thinking is folded to one line" : "thinking is shown");
    } else if (name == "/new") {
        start_over();
        say("a new conversation");
    } else if (name == "/ctx") {
        set_context(argument);
    } else if (name == "/stats") {
        show_stats();
    } else if (name == "/read") {
        if (given("a file name")) read_file(argument);
    } else if (name == "/save") {
        if (!name_.empty() && argument.empty())
            save(name_);
        else if (given("a name"))
            save(argument);
    } else if (name == "/load") {
        if (given("a name")) load(argument);
    } else if (name == "/switch") {
        if (given("a name")) switch_to(argument);
    } else if (name == "/list") {
        list();
    } else {
        complain(strf("there is no command {}; /help lists them. To send the text, begin with a space", name));
    }
    return Next::go_on;
}

void ChatLoop::help() const { fmt::print(stderr, "{}", kHelp); }

void ChatLoop::send(std::string text) {
    chat::Message message;
    message.role = chat::Role::user;
    message.content = std::move(text);
    messages_.push_back(std::move(message));

    TurnOptions turn_options;
    turn_options.thinking = thinking_;
    turn_options.generate.n_max = options_.n_max;
    turn_options.stops = options_.stops;
    turn_options.show_special = options_.show_special;
    turn_options.progress = !options_.quiet;
    const bool tty = ::isatty(STDOUT_FILENO) == 1;
    turn_options.view = {.answer = stdout,
                         .thinking = options_.quiet ? nullptr : stdout,
                         .answer_is_tty = tty,
                         .thinking_is_tty = tty,
                         .colour = stdout_has_colour(),
                         .fold = fold_};
    auto result = conversant_.answer(messages_, turn_options);
    if (!result.ok()) {
        messages_.pop_back();  // as if it had not been said
        complain(result.error().code == Code::cancelled ? "stopped; your message was taken back"
                                                        : result.error().message);
        return;
    }
    Turn& turn = result.value();
    if (!tty) fmt::print("\n");  // between answers; on a terminal the view ends the line
    std::fflush(stdout);
    last_ = turn.stats;
    total_.n_prefilled += last_.n_prefilled;
    total_.n_generated += last_.n_generated;
    total_.n_pass += last_.n_pass;
    total_.prefill_seconds += last_.prefill_seconds;
    total_.decode_seconds += last_.decode_seconds;
    ++n_turn_;
    if (last_.finish == Finish::interrupted && last_.n_generated == 0) {
        messages_.pop_back();
        complain("stopped; your message was taken back");
        return;
    }
    messages_.push_back(std::move(turn.answer));
    if (last_.finish == Finish::length) complain(strf("[length: stopped after {} tokens, see -n]", last_.n_generated));
    if (last_.finish == Finish::context_full)
        complain(strf("[length: the context of {} tokens is full; /ctx N makes it larger, /new starts over]",
                      session_.n_ctx));
    if (!options_.quiet && !options_.no_stats) say(stats_line(last_));
}

void ChatLoop::set_context(std::string_view argument) {
    if (argument.empty()) {
        say(strf("context: {} of {} tokens used", conversant_.session().n_token(), session_.n_ctx));
        return;
    }
    int64_t n = 0;
    const auto [end, error] = std::from_chars(argument.data(), argument.data() + argument.size(), n);
    if (error != std::errc() || end != argument.data() + argument.size() || n < 1 || n > int64_t{1} << 24)
        return complain(strf("/ctx takes a number of tokens from 1 to 16777216, not '{}'", argument));
    SessionOptions wanted = session_;
    wanted.n_ctx = n;
    if (const Status s = conversant_.open_session(wanted); !s.ok()) {
        complain(s.error().message);
        if (const Status back = conversant_.open_session(session_); !back.ok()) complain(back.error().message);
        return;
    }
    session_ = wanted;
    say(strf("context {}; the conversation is computed again with your next message", n));
}

void ChatLoop::read_file(std::string_view path) {
    auto text = read_text_file(std::string(path), uint64_t{64} << 20);
    if (!text.ok()) return complain(text.error().message);
    if (text.value().find('\0') != std::string::npos) return complain(strf("{}: holds zero bytes; not a text", path));
    if (trim(text.value()).empty()) return complain(strf("{}: is empty", path));
    send(replace_invalid_utf8(text.value()));
}

void ChatLoop::show_stats() const {
    const EngineInfo& info = engine_.info();
    const CachePlan plan = engine_.plan(session_);
    const sample::SamplerParams& p = options_.sampler;
    fmt::print(stderr, "model     {} ({}, {}), {} layers, {} parameters, {}\n", info.name, info.architecture,
               info.dialect, info.n_layer, format_count(info.n_parameter),
               format_bytes(static_cast<uint64_t>(info.weight_bytes)));
    fmt::print(stderr, "backend   {}, {} threads\n", info.backend, info.n_thread);
    fmt::print(stderr, "context   {} of {} tokens used; kv cache {}\n", conversant_.session().n_token(), session_.n_ctx,
               format_bytes(static_cast<uint64_t>(plan.total_bytes)));
    fmt::print(stderr, "sampling  temperature {}, top-k {}, top-p {}, min-p {}, seed {}\n", p.temperature, p.top_k,
               p.top_p, p.min_p, p.seed);
    fmt::print(stderr, "thinking  {}\n", thinking_name(thinking_));
    if (n_turn_ == 0) return;
    fmt::print(stderr, "last turn {}\n", stats_line(last_));
    const auto speed = [](int64_t n, double s) { return s > 0 ? static_cast<double>(n) / s : 0.0; };
    fmt::print(stderr, "all {:<5} prefill {} tokens, {:.1f} tok/s · decode {} tokens, {:.1f} tok/s\n", n_turn_,
               total_.n_prefilled, speed(total_.n_prefilled, total_.prefill_seconds), total_.n_generated,
               speed(total_.n_pass, total_.decode_seconds));
}

namespace {

// What /save and /load take as a file rather than a name.
bool is_path(std::string_view where) { return where.find('/') != std::string_view::npos || where.ends_with(".json"); }

std::string bytes_text(int64_t n) { return format_bytes(static_cast<uint64_t>(n)); }

}  // namespace

void ChatLoop::save(std::string_view where) {
    if (messages_.empty()) return complain("there is nothing to save yet");
    if (is_path(where)) {
        const std::string file(where);
        const Status s = save_conversation(file, messages_, engine_.info().name, file == own_file_);
        if (!s.ok()) return complain(s.error().message);
        own_file_ = file;
        return say(strf("{}: {} messages", file, messages_.size()));
    }
    if (!Conversations::valid_name(where))
        return complain(strf("'{}' is no name: letters, digits, '.', '_' and '-'; a file is written as ./FILE.json", where));
    if (where != name_ && conversations_.is_parked(std::string(where)))
        return complain(strf("{} is open; /switch {} goes to it", where, where));
    const Conversation c = current(std::string(where));
    const Status s = conversations_.save(c, where == name_);
    if (!s.ok()) return complain(s.error().message);
    name_ = where;
    say(strf("{}: {} messages, {} tokens ({})", name_, messages_.size(), c.state ? c.state->n_token() : 0,
             bytes_text(c.state ? c.state->n_byte() : 0)));
}

void ChatLoop::load(std::string_view where) {
    if (is_path(where)) {
        auto loaded = load_conversation(std::string(where));
        if (!loaded.ok()) return complain(loaded.error().message);
        park();
        messages_ = std::move(loaded).value();
        own_file_ = where;
        return say(strf("{}: {} messages; they are computed with your next message", where, messages_.size()));
    }
    const std::string name(where);
    if (!Conversations::valid_name(where) || !conversations_.is_saved(name))
        return complain(strf("no conversation is saved as '{}'; /list shows them, a file is given as ./FILE.json", where));
    std::string remark;
    auto loaded = conversations_.load(name, remark);
    if (!loaded.ok()) return complain(loaded.error().message);
    if (name_ != name) park();
    if (conversations_.is_parked(name)) conversations_.take(name);  // the saved one replaces it, as asked
    if (!remark.empty()) say(remark);
    go_on_with(std::move(loaded).value());
}

void ChatLoop::switch_to(std::string_view to) {
    const std::string name(to);
    if (name == name_) return say(strf("{} is the current conversation", name));
    if (!conversations_.is_parked(name)) return load(name);
    Conversation c = conversations_.take(name);
    park();
    go_on_with(std::move(c));
}

Conversation ChatLoop::current(std::string name) {
    Conversation c{std::move(name), messages_, {}};
    auto state = conversant_.session().snapshot();
    if (state.ok()) c.state = std::move(state).value();
    return c;
}

void ChatLoop::park() {
    if (messages_.size() > (options_.system.empty() ? 0u : 1u))
        say(strf("{} stays open", conversations_.park(current(name_))));
    start_over();
}

void ChatLoop::go_on_with(Conversation c) {
    messages_ = std::move(c.messages);
    name_ = std::move(c.name);
    own_file_.clear();
    conversant_.forget();
    std::string state = "; they are computed with your next message";
    if (c.state) {
        const Status s = conversant_.session().restore(*c.state);
        if (s.ok())
            state = strf(", {} tokens as they were", c.state->n_token());
        else
            complain(s.error().message);
    }
    say(strf("{}: {} messages{}", name_, messages_.size(), state));
}

void ChatLoop::list() const {
    fmt::print(stderr, "* {:<24} {:>4} messages {:>8} tokens\n", name_.empty() ? "(this one, no name)" : name_,
               messages_.size(), conversant_.session().n_token());
    for (const Conversations::Entry& e : conversations_.list()) {
        if (e.name == name_) continue;
        const std::string messages = e.open ? strf("{:>4} messages", e.n_message) : std::string(13, ' ');
        fmt::print(stderr, "  {:<24} {} {:>8} tokens {:>10}  {}{}\n", e.name, messages, e.n_token, bytes_text(e.n_byte),
                   e.open ? "open" : "", e.saved ? (e.open ? ", saved" : "saved") : "");
    }
}

}  // namespace vesta::app
