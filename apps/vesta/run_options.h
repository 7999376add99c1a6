// The command line of `vesta run`, checked as far as possible before a model is loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chat/message.h"
#include "sample/sampler.h"
#include "vesta/engine.h"

namespace vesta::app {

enum class Thinking { off, on, max };

struct RunOptions {
    std::string model;  // empty: find_model()
    EngineOptions engine;
    SessionOptions session;
    int64_t n_ctx = 0;  // 0: kDefaultContext, or the trained context if that is smaller
    sample::SamplerParams sampler;

    std::optional<std::string> prompt;  // of -p, --prompt-file or stdin: one answer, then exit
    bool raw = false;                   // the prompt is the model's input as it stands
    std::string system;
    Thinking thinking = Thinking::on;
    int64_t n_max = -1;  // negative: until the context is full
    std::vector<std::string> stops;

    bool fold = false, show_special = false, quiet = false, no_stats = false;
    bool no_history = false;
    bool dump_tokens = false;
    bool memory = false;  // print what a session would take, and stop
    std::string dump_logprobs;
};

// A chat's worth of text for a small machine: the pocket's cache at 8192 takes a few MB, and longer ones are a flag
// away.
constexpr int64_t kDefaultContext = 8192;

// The options, or the exit code (help was shown, or the command line made no sense; the message is on stderr). Reads
// stdin and prompt files. argv[0] is the command's name.
struct ParsedCommandLine {
    std::optional<RunOptions> options;
    int exit_code = 0;
};
ParsedCommandLine parse_run_options(int argc, char** argv);

}  // namespace vesta::app
