// `vesta run`: opens a model and either answers one prompt or chats. See run_options.h for the command line,
// chat_turn.h for what happens in a turn.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/utf8.h"
#include "chat_loop.h"
#include "chat_turn.h"
#include "commands.h"
#include "gguf/file.h"
#include "interrupt.h"
#include "memory_view.h"
#include "model_path.h"
#include "run_options.h"
#include "terminal.h"
#include "vesta/engine.h"

namespace vesta::app {
namespace {

// A program started with stdin, stdout or stderr closed would get those numbers for the files it opens, and then print
// into them. The null device takes the place; stdout read-only, so that writing the answer fails as it should.
void occupy_standard_descriptors() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            if (const int null = ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
                null >= 0 && null != fd) {
                ::dup2(null, fd);
                ::close(null);
            }
}

std::vector<chat::Message> first_messages(const RunOptions& o) {
    std::vector<chat::Message> messages;
    if (!o.system.empty()) {
        messages.emplace_back();
        messages.back().role = chat::Role::system;
        messages.back().content = o.system;
    }
    messages.emplace_back();
    messages.back().content = *o.prompt;
    return messages;
}

// Only the vocabulary is read: no weights, no engine.
Result<int> dump_tokens(const std::string& path, const RunOptions& o) {
    VESTA_TRY(const gguf::File file, gguf::File::open(path));
    VESTA_TRY(const tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::from_gguf(file));
    std::vector<int32_t> ids;
    if (o.raw) {
        tokenizer.encode(*o.prompt, tokenizer::SpecialMode::recognise, ids);
    } else {
        std::string dialect = "dsv4";
        if (file.has("vesta.chat.dialect")) {
            VESTA_TRY(dialect, file.string("vesta.chat.dialect"));
        }
        VESTA_TRY(ids, Conversant::prompt_tokens(tokenizer, dialect, first_messages(o), o.thinking));
    }
    for (const int32_t id : ids) {
        std::string bytes;
        tokenizer.append_token_bytes(id, bytes);
        fmt::print("{}\t{}\n", id, nlohmann::json(replace_invalid_utf8(bytes)).dump());
    }
    if (!o.quiet) fmt::print(stderr, "{} tokens\n", ids.size());
    return std::fflush(stdout) == 0 ? kExitOk : kExitFailure;
}

Result<int> answer_once(Engine& engine, Conversant& conversant, const RunOptions& o) {
    const bool answer_tty = ::isatty(STDOUT_FILENO) == 1;
    TurnOptions turn_options;
    turn_options.thinking = o.thinking;
    turn_options.generate.n_max = o.n_max;
    turn_options.stops = o.stops;
    turn_options.show_special = o.show_special;
    turn_options.progress = !o.quiet;
    turn_options.log = !o.dump_logprobs.empty();
    turn_options.view = {.answer = stdout,
                         .thinking = o.quiet ? nullptr : stderr,
                         .answer_is_tty = answer_tty,
                         .thinking_is_tty = stderr_is_tty(),
                         .colour = stderr_has_colour(),
                         .fold = o.fold};
    VESTA_TRY(const Turn turn, o.raw ? conversant.complete(*o.prompt, turn_options)
                                     : conversant.answer(first_messages(o), turn_options));
    const TurnStats& stats = turn.stats;
    if (stats.finish == Finish::length)
        fmt::print(stderr, "vesta run: length: stopped after {} tokens (-n)\n", stats.n_generated);
    if (stats.finish == Finish::context_full)
        fmt::print(stderr, "vesta run: length: the context of {} tokens is full; --ctx N makes it larger\n",
                   conversant.session().n_ctx());
    if (!o.quiet && !o.no_stats) fmt::print(stderr, "{} · seed {}\n", stats_line(stats), o.sampler.seed);
    if (!o.dump_logprobs.empty()) {
        VESTA_TRY(AtomicFile file, AtomicFile::create(o.dump_logprobs, true));
        const std::string json = logprobs_json(engine.info(), engine.tokenizer(), turn.prompt, turn.log, stats.finish);
        VESTA_TRY_STATUS(file.write(std::as_bytes(std::span(json))));
        VESTA_TRY_STATUS(file.commit());
    }
    if (turn.write_failed) return Error{Code::io, "stdout: the answer could not be written"};
    return stats.finish == Finish::interrupted ? kExitInterrupted : kExitOk;
}

Result<int> run(RunOptions o) {
    VESTA_TRY(const std::string path, find_model(o.model));
    if (o.dump_tokens) return dump_tokens(path, o);
    InterruptGuard guard;
    std::unique_ptr<Engine> engine;
    {
        ProgressBar bar(!o.quiet && stderr_is_tty());
        VESTA_TRY(engine, Engine::open(path, o.engine, [&](const Progress& p) {
                      return bar.update(p) && !InterruptGuard::requested();
                  }));
    }
    const EngineInfo& info = engine->info();
    const int64_t trained = info.n_ctx_train;
    o.session.n_ctx = o.n_ctx > 0 ? o.n_ctx : trained > 0 ? std::min(kDefaultContext, trained) : kDefaultContext;
    if (trained > 0 && o.n_ctx > trained && !o.quiet)
        fmt::print(stderr, "vesta run: {} was trained for {} tokens; a context of {} may degrade\n", info.name, trained,
                   o.n_ctx);
    if (o.memory) {
        const MemoryLimit limit = memory_limit();
        fmt::print("{}", memory_table(engine->memory(o.session), o.session, limit));
        VESTA_TRY_STATUS(check_memory(*engine, o.session, limit));
        return std::fflush(stdout) == 0 ? kExitOk : kExitFailure;
    }
    VESTA_TRY(sample::Sampler sampler, sample::Sampler::create(o.sampler, static_cast<int32_t>(info.n_vocab)));
    Conversant conversant(*engine, sampler);
    VESTA_TRY_STATUS(conversant.open_session(o.session));
    if (o.prompt) return answer_once(*engine, conversant, o);
    return ChatLoop(*engine, conversant, o, o.session).run();
}

}  // namespace

int cmd_run(int argc, char** argv) {
    occupy_standard_descriptors();
    ParsedCommandLine line = parse_run_options(argc, argv);
    if (!line.options) return line.exit_code;
    try {
        auto result = run(std::move(*line.options));
        return result.ok() ? result.value() : report("run", result.error());
    } catch (const std::bad_alloc&) {
        return report("run", Error{Code::no_memory, "not enough memory; a smaller --ctx or --chunk needs less"});
    }
}

}  // namespace vesta::app
