#include "run_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <random>

#include "base/file.h"
#include "commands.h"
#include "terminal.h"

namespace vesta::app {
namespace {

constexpr uint64_t kMaxPromptBytes = uint64_t{256} << 20;
constexpr int64_t kMaxContext = int64_t{1} << 24;

constexpr char kFooter[] =
    "Without a prompt, on a terminal: a chat (type /help there). With -p, --prompt-file, or text on stdin: one answer "
    "on\n"
    "stdout and nothing else there; thinking, progress and statistics go to stderr.\n"
    "One line feed at the end of a file or stdin is not part of the prompt, except with --raw.\n"
    "exit codes: 0 done, 1 failed, 2 usage, 3 damaged file, 4 not supported, 130 interrupted\n";

struct Flags {
    std::string prompt, prompt_file, cache_format = "fp8";
    bool interactive = false, think = false, no_think = false, think_max = false;
    std::vector<std::string> bias;
    uint64_t seed = 0;
};

template <class T>
bool parse_number(std::string_view text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

Result<std::pair<int32_t, double>> parse_bias(std::string_view text) {
    const size_t equals = text.find('=');
    std::pair<int32_t, double> bias{};
    std::string_view value = equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
    if (value.starts_with('+')) value.remove_prefix(1);
    if (equals == std::string_view::npos || !parse_number(text.substr(0, equals), bias.first) ||
        !parse_number(value, bias.second))
        return Error{Code::invalid_argument, strf("--logit-bias '{}': expected ID=VALUE, for example 1234=-100", text)};
    return bias;
}

void trim_last_feed(std::string& text) {
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
}

Result<std::string> read_stdin() {
    std::string text;
    char buffer[1 << 16];
    for (;;) {
        const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return Error{Code::io, strf("stdin: cannot read: {}", std::strerror(errno))};
        if (n == 0) return text;
        text.append(buffer, static_cast<size_t>(n));
        if (text.size() > kMaxPromptBytes)
            return Error{Code::invalid_argument, strf("stdin: more than {} bytes", kMaxPromptBytes)};
    }
}

// Where the prompt comes from: exactly one source, or none for a chat. With -p, stdin is not touched: in scripts and CI
// it is often closed, empty or someone else's pipe.
Status find_prompt(const CLI::App& app, const Flags& flags, RunOptions& o) {
    if (o.memory) return {};  // nothing will be asked, and stdin may be anyone's
    const bool has_prompt = app.count("--prompt") > 0, has_file = app.count("--prompt-file") > 0;
    const auto usage = [](std::string message) { return Error{Code::invalid_argument, std::move(message)}; };
    if (has_prompt && has_file) return usage("-p and --prompt-file are both given; there can be only one prompt");
    if (flags.interactive && (has_prompt || has_file))
        return usage("--interactive asks for a chat; it takes no -p or --prompt-file");
    const bool from_stdin =
        has_file ? flags.prompt_file == "-" : !has_prompt && !flags.interactive && ::isatty(STDIN_FILENO) != 1;
    const char* what = has_prompt ? "-p" : from_stdin ? "stdin" : "--prompt-file";
    if (has_prompt) {
        o.prompt = flags.prompt;
    } else if (from_stdin) {
        VESTA_TRY(o.prompt, read_stdin());
    } else if (has_file) {
        VESTA_TRY(o.prompt, read_text_file(flags.prompt_file, kMaxPromptBytes));
    }
    if (o.prompt && !has_prompt && !o.raw) trim_last_feed(*o.prompt);
    if (o.prompt && o.prompt->empty())
        return usage(strf("the prompt is empty ({}); give one with -p TEXT, or --interactive for a chat", what));
    if (o.prompt) return {};
    if (o.raw) return usage("--raw needs a prompt: -p TEXT, --prompt-file FILE or stdin");
    if (o.dump_tokens) return usage("--dump-tokens needs a prompt: -p TEXT, --prompt-file FILE or stdin");
    if (!o.dump_logprobs.empty()) return usage("--dump-logprobs needs a prompt: -p TEXT, --prompt-file FILE or stdin");
    return {};
}

void declare(CLI::App& app, RunOptions& o, Flags& f) {
    app.footer(kFooter);
    app.add_option("-m,--model", o.model, "model file (GGUF); default: $VESTA_MODEL, else the built-in pocket model");
    app.add_option("-p,--prompt", f.prompt, "one question; the answer goes to stdout");
    app.add_option("--prompt-file", f.prompt_file, "the same from a file ('-': stdin)");
    app.add_flag("-i,--interactive", f.interactive, "chat even when stdin is no terminal (one line, one message)");
    app.add_flag("--raw", o.raw, "no chat markup: the prompt is the model's input, special tokens in it recognised");
    app.add_option("--system", o.system, "system text at the beginning of the conversation");
    auto* think = app.add_flag("--think", f.think, "think before answering (the default)");
    auto* no_think = app.add_flag("--nothink", f.no_think, "answer at once");
    auto* think_max = app.add_flag("--think-max", f.think_max, "think with the greatest effort");
    think->excludes(no_think)->excludes(think_max);
    no_think->excludes(think_max);

    const auto generation = "generation";
    app.add_option("-n,--max-tokens", o.n_max, "tokens to generate at most; default: until the context is full")
        ->check(CLI::Range(int64_t{0}, kMaxContext))
        ->group(generation);
    app.add_option("--stop", o.stops, "end the answer before this text (may be repeated)")
        ->allow_extra_args(false)
        ->group(generation);
    app.add_option("--temp", o.sampler.temperature, "temperature; 0 takes the likeliest token")
        ->capture_default_str()
        ->group(generation);
    app.add_option("--top-k", o.sampler.top_k, "keep the k likeliest tokens; 0: off")->group(generation);
    app.add_option("--top-p", o.sampler.top_p, "keep the likeliest tokens that hold this mass; 1: off")
        ->group(generation);
    app.add_option("--min-p", o.sampler.min_p, "keep tokens with this share of the top probability; 0: off")
        ->capture_default_str()
        ->group(generation);
    app.add_option("--repetition-penalty", o.sampler.repetition_penalty, "weaken tokens of prompt and text; 1: off")
        ->group(generation);
    app.add_option("--presence-penalty", o.sampler.presence_penalty, "subtracted once from generated tokens; 0: off")
        ->group(generation);
    app.add_option("--frequency-penalty", o.sampler.frequency_penalty, "subtracted per occurrence; 0: off")
        ->group(generation);
    app.add_option("--penalty-window", o.sampler.penalty_window, "tokens the penalties look back; 0: all")
        ->group(generation);
    app.add_option("--logit-bias", f.bias, "ID=VALUE, -100 to 100, added to a token's logit (may be repeated)")
        ->allow_extra_args(false)
        ->group(generation);
    app.add_option("--seed", f.seed, "seed of the draw; default: a new one each time (shown with the statistics)")
        ->group(generation);

    const auto machine = "machine";
    app.add_option("--ctx", o.n_ctx,
                   strf("context in tokens; default {}, or what the model was trained with", kDefaultContext))
        ->check(CLI::Range(int64_t{1}, kMaxContext))
        ->group(machine);
    app.add_option("--threads", o.engine.n_thread, "threads; default: every core")
        ->check(CLI::Range(1, 1024))
        ->group(machine);
    app.add_option("--mtp", o.engine.drafter_path,
                   "separate file with the MTP block (checked and loaded; nothing drafts with it yet)")
        ->group(machine);
    app.add_option("--backend", o.engine.backend, "auto, cpu or reference (the scalar definition, slow)")
        ->check(CLI::IsMember({"auto", "cpu", "reference"}))
        ->group(machine);
    app.add_option("--kv", f.cache_format, "form of the kv cache: fp8 (as trained), f16, f32")
        ->check(CLI::IsMember({"fp8", "f16", "f32"}))
        ->group(machine);
    app.add_option("--chunk", o.session.chunk, "prompt tokens computed together")
        ->check(CLI::Range(int64_t{1}, int64_t{65536}))
        ->capture_default_str()
        ->group(machine);
    app.add_option("--rewind", o.session.rewind, "tokens that can be taken back without computing anything (memory: --memory)")
        ->check(CLI::Range(int64_t{0}, kMaxContext))
        ->capture_default_str()
        ->group(machine);
    app.add_option("--checkpoints", o.session.checkpoint_spacing,
                   strf("tokens between checkpoints for going back further, at most {} of them; 0: none", o.session.checkpoint_limit))
        ->check(CLI::Range(int64_t{0}, kMaxContext))
        ->capture_default_str()
        ->group(machine);
    app.add_flag("--warm", o.engine.warm, "read the whole model file before the first token, on all threads")
        ->group(machine);
    app.add_flag("--mlock", o.engine.lock, "and keep it in memory")->group(machine);
    app.add_flag("--huge-pages", o.engine.huge_pages, "ask for huge pages under the weights")->group(machine);
    app.add_flag("--memory", o.memory, "print what a session would take, and stop before inference")->group(machine);

    const auto output = "output";
    app.add_flag("--fold", o.fold, "show thinking as one line with its length")->group(output);
    app.add_flag("--show-special", o.show_special, "print the model's text as it is, special tokens included")
        ->group(output);
    app.add_flag("--quiet", o.quiet, "no thinking, progress or statistics on stderr")->group(output);
    app.add_flag("--no-stats", o.no_stats, "no statistics on stderr")->group(output);
    app.add_flag("--no-history", o.no_history, "chat: do not read or write the history file")->group(output);
    app.add_flag("--dump-tokens", o.dump_tokens, "print the prompt's tokens and stop before inference")->group(output);
    app.add_option("--dump-logprobs", o.dump_logprobs, "write each step's 20 likeliest tokens to this JSON file")
        ->group(output);
}

Status finish(const CLI::App& app, const Flags& flags, RunOptions& o) {
    o.thinking = flags.no_think ? Thinking::off : flags.think_max ? Thinking::max : Thinking::on;
    o.session.cache_format = flags.cache_format == "f32"   ? CacheFormat::f32
                             : flags.cache_format == "f16" ? CacheFormat::f16
                                                           : CacheFormat::fp8;
    for (const std::string& text : flags.bias) {
        VESTA_TRY(const auto bias, parse_bias(text));
        o.sampler.logit_bias.push_back(bias);
    }
    for (const std::string& stop : o.stops)
        if (stop.empty()) return Error{Code::invalid_argument, "--stop is empty; it needs a text to stop at"};
    // 53 bits: a seed that JSON readers and people can copy.
    o.sampler.seed =
        app.count("--seed") > 0 ? flags.seed : (uint64_t{std::random_device{}()} << 21 | std::random_device{}() >> 11);
    VESTA_TRY_STATUS(sample::validate(o.sampler, std::numeric_limits<int32_t>::max()));
    return find_prompt(app, flags, o);
}

}  // namespace

ParsedCommandLine parse_run_options(int argc, char** argv) {
    RunOptions options;
    Flags flags;
    CLI::App app("Chat with a model, or answer one prompt.", "vesta run");
    declare(app, options, flags);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        const bool help = e.get_exit_code() == 0;
        if (help) {
            app.exit(e);
            return {{}, kExitOk};
        }
        fmt::print(stderr, "vesta run: {}; `vesta run --help` lists the options\n", e.what());
        return {{}, kExitUsage};
    }
    if (const Status s = finish(app, flags, options); !s.ok()) return {{}, report("run", s.error())};
    return {std::move(options), kExitOk};
}

}  // namespace vesta::app
