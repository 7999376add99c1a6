// `vesta score`: measures a model's quality on a text or on a manifest of cases, or compares two results. Ctrl+C stops
// with what has been measured, marked as partial, and exit code 130.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>

#include "base/file.h"
#include "base/utf8.h"
#include "command_line.h"
#include "commands.h"
#include "interrupt.h"
#include "model_path.h"
#include "score_report.h"
#include "terminal.h"
#include "tokenizer/tokenizer.h"

namespace vesta::app {
namespace {

using Ids = std::vector<int32_t>;
using tokenizer::SpecialMode;
using tokenizer::Tokenizer;

constexpr int64_t kMaxContext = int64_t{1} << 24;
constexpr int64_t kDefaultScoreContext = 2048;  // where one more token of context hardly helps on ordinary prose

struct Arguments {
    std::string model, text, ids, manifest, compare_model;
    std::vector<std::string> compare;
    int64_t ctx = 0, stride = 0, max_tokens = 0, limit = 0;
    bool specials = false, no_specials = false, no_bos = false;
    std::string save_base, base, out;
    int64_t top_k = 64;
    bool greedy = false, json = false, quiet = false, force = false;
    EngineOptions engine;
    std::string kv = "fp8";
    int64_t chunk = 512;

    CacheFormat cache_format() const {
        return kv == "f32" ? CacheFormat::f32 : kv == "f16" ? CacheFormat::f16 : CacheFormat::fp8;
    }
};

// A bar with the rate behind the count, and the question whether to go on.
class Listener {
 public:
    explicit Listener(bool quiet) : bar_(!quiet && stderr_is_tty()) {}
    ProgressFn function() {
        return [this](const Progress& p) {
            Progress shown = p;
            const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
            const std::string unit = seconds > 0.5 && p.done > 0 && p.stage == "score"
                                         ? strf("{}, {:.3g} per s", p.unit, static_cast<double>(p.done) / seconds)
                                         : std::string(p.unit);
            shown.unit = unit;
            return bar_.update(shown) && !InterruptGuard::requested();
        };
    }

 private:
    ProgressBar bar_;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

Result<std::unique_ptr<Engine>> open_engine(const Arguments& args, const std::string& path) {
    Listener listener(args.quiet);
    return Engine::open(path, args.engine, listener.function());
}

void print_json(const OrderedJson& j) {
    fmt::print("{}\n", j.dump(1, ' ', false, OrderedJson::error_handler_t::replace));
}

Status flushed() {
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
        return Error{Code::io, strf("stdout: {}", std::strerror(errno))};
    return {};
}

// ---- a text

// Numbers between white space, commas and brackets, as `vesta tokenize --ids` or --json writes them.
Result<Ids> parse_ids(std::string_view text, const std::string& name, int64_t n_vocab) {
    constexpr std::string_view kBetween = " \t\r\n,[]";
    Ids ids;
    for (;;) {
        text.remove_prefix(std::min(text.find_first_not_of(kBetween), text.size()));
        if (text.empty()) return ids;
        const std::string_view word = text.substr(0, text.find_first_of(kBetween));
        int32_t id = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
        if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= n_vocab)
            return Error{Code::bad_file, strf("{}: '{}' at number {} is no token id of a vocabulary of {}",
                                              printable(name), printable(word.substr(0, 40)), ids.size() + 1, n_vocab)};
        ids.push_back(id);
        text.remove_prefix(word.size());
    }
}

struct Text {
    Ids ids;
    uint64_t hash = 0;
    TextFacts facts;
};

Result<Text> read_text(const Arguments& args, const Tokenizer& t) {
    Text text;
    text.facts.file = args.text.empty() ? args.ids : args.text;
    std::string bytes;
    if (args.text.empty()) {
        VESTA_TRY(const std::string list, read_text_file(args.ids, 16 * uint64_t{Tokenizer::kMaxTextBytes}));
        VESTA_TRY(text.ids, parse_ids(list, args.ids, t.n_vocab()));
        VESTA_TRY(bytes, t.decode(text.ids));
    } else {
        VESTA_TRY(bytes, read_text_file(args.text, Tokenizer::kMaxTextBytes));
        t.encode(bytes, args.specials ? SpecialMode::recognise : SpecialMode::text, text.ids);
    }
    text.hash = score::hash_text(bytes);
    text.facts.n_byte = bytes.size();
    text.facts.specials = args.specials;
    if (!args.no_bos && args.ids.empty() && t.bos() && (text.ids.empty() || text.ids[0] != *t.bos())) {
        text.ids.insert(text.ids.begin(), *t.bos());
        text.facts.bos = true;
    }
    if (args.max_tokens > 0 && static_cast<int64_t>(text.ids.size()) > args.max_tokens)
        text.ids.resize(static_cast<size_t>(args.max_tokens));
    text.facts.n_token = static_cast<int64_t>(text.ids.size());
    return text;
}

Result<int> text_main(const Arguments& args, Engine& engine) {
    const EngineInfo& info = engine.info();
    VESTA_TRY(Text text, read_text(args, engine.tokenizer()));
    TextFacts& facts = text.facts;
    facts.ctx = args.ctx > 0           ? args.ctx
                : info.n_ctx_train > 0 ? std::min(kDefaultScoreContext, info.n_ctx_train)
                                       : kDefaultScoreContext;
    facts.stride = args.stride > 0 ? args.stride : std::max(facts.ctx / 2, int64_t{1});
    if (info.n_ctx_train > 0 && facts.ctx > info.n_ctx_train && !args.quiet)
        fmt::print(stderr, "vesta score: {} was trained for {} tokens; windows of {} measure it beyond that\n",
                   printable(info.name), info.n_ctx_train, facts.ctx);
    score::BaseHeader header;
    header.n_vocab = static_cast<uint32_t>(info.n_vocab);
    header.k = static_cast<uint32_t>(std::min(args.top_k, info.n_vocab));
    header.n_record = text.ids.empty() ? 0 : text.ids.size() - 1;
    header.ctx = facts.ctx;
    header.stride = facts.stride;
    header.text_hash = text.hash;
    header.token_hash = score::hash_tokens(text.ids);
    header.model_name = info.name;

    std::optional<score::BaseFile> base;
    if (!args.base.empty()) {
        VESTA_TRY(base, score::BaseFile::open(args.base));
        VESTA_TRY_STATUS(score::check_base(*base, header));
        facts.base_file = args.base;
        facts.base_model = base->header().model_name;
        facts.base_k = base->header().k;
        facts.base_fingerprint = base->header().model_fingerprint;
    }
    std::optional<score::BaseWriter> save;
    if (!args.save_base.empty()) {
        VESTA_TRY(header.model_fingerprint, score::model_fingerprint(info.path));
        VESTA_TRY(save, score::BaseWriter::create(args.save_base, header, args.force));
    }
    Listener listener(args.quiet);
    VESTA_TRY(const score::TextResult result, score::score_text(engine,
                                                                {.ids = text.ids,
                                                                 .ctx = facts.ctx,
                                                                 .stride = facts.stride,
                                                                 .cache_format = args.cache_format(),
                                                                 .chunk = args.chunk,
                                                                 .base = base ? &*base : nullptr,
                                                                 .save = save ? &*save : nullptr},
                                                                listener.function()));
    std::string spelled;
    for (int64_t i = 0; i < result.n_scored; ++i) {
        spelled.clear();
        engine.tokenizer().append_token_bytes(text.ids[static_cast<size_t>(i + 1)], spelled);
        facts.scored_bytes += spelled.size();
    }
    if (save && !result.partial()) VESTA_TRY_STATUS(save->commit());
    if (args.json) {
        OrderedJson j;
        j["model"] = model_json(info);
        j.update(text_json(facts, result));
        print_json(j);
    } else {
        print_model(info);
        print_text(facts, result);
    }
    if (save && result.partial())
        fmt::print(stderr, "vesta score: {} was not written: it needs the whole text\n", args.save_base);
    VESTA_TRY_STATUS(flushed());
    return result.partial() ? kExitInterrupted : kExitOk;
}

// ---- cases

Result<std::vector<score::Case>> read_cases(const Arguments& args) {
    VESTA_TRY(const std::string text, read_text_file(args.manifest));
    VESTA_TRY(std::vector<score::Case> cases, score::parse_manifest(text, args.manifest));
    if (args.limit > 0) {
        std::map<std::string, int64_t> taken;
        std::erase_if(cases, [&](const score::Case& c) { return ++taken[c.kind] > args.limit; });
    }
    return cases;
}

Result<score::CasesResult> run_cases(const Arguments& args, Engine& engine, const std::vector<score::Case>& cases,
                                     const std::string& out) {
    // Line by line into a temporary name: a run of hours that fails leaves no half file that looks whole. An
    // interrupted one keeps what it has, since each line stands on its own.
    std::optional<AtomicFile> file;
    if (!out.empty()) {
        VESTA_TRY(file, AtomicFile::create(out, args.force));
    }
    Listener listener(args.quiet);
    const score::CaseOptions options{.greedy = args.greedy,
                                     .recognise_specials = !args.no_specials,
                                     .add_bos = !args.no_bos,
                                     .cache_format = args.cache_format(),
                                     .chunk = args.chunk};
    VESTA_TRY(score::CasesResult result, score::score_cases(engine, cases, options, listener.function(),
                                                            [&](const score::CaseResult& r) -> Status {
                                                                if (!file) return {};
                                                                const std::string line = score::to_json_line(r);
                                                                return file->write(std::as_bytes(std::span(line)));
                                                            }));
    if (file && !result.results.empty()) VESTA_TRY_STATUS(file->commit());
    if (result.results.empty()) return Error{Code::cancelled, "stopped before any case was scored"};
    return result;
}

int exit_of(bool partial) { return partial ? kExitInterrupted : kExitOk; }

Result<int> manifest_main(const Arguments& args, const std::string& path) {
    VESTA_TRY(const std::vector<score::Case> cases, read_cases(args));
    OrderedJson j;
    score::CasesResult first;
    {
        VESTA_TRY(const auto engine, open_engine(args, path));
        VESTA_TRY(first, run_cases(args, *engine, cases, args.out));
        j["model"] = model_json(engine->info());
        j.update(cases_json(first));
        if (!args.json) {
            print_model(engine->info());
            print_cases(first);
        }
    }
    bool partial = first.partial;
    if (!args.compare_model.empty() && !partial) {
        // The first engine is closed: two large models need not fit at once.
        VESTA_TRY(const auto engine, open_engine(args, args.compare_model));
        VESTA_TRY(const score::CasesResult second, run_cases(args, *engine, cases, {}));
        partial = second.partial;
        VESTA_TRY(const score::Comparison c, score::compare_results(first.results, second.results));
        j["other"]["model"] = model_json(engine->info());
        j["other"].update(cases_json(second));
        j["comparison"] = comparison_json(path, args.compare_model, c);
        if (!args.json) {
            fmt::print("\n");
            print_model(engine->info());
            print_cases(second);
            fmt::print("\n");
            print_comparison(path, args.compare_model, c);
        }
    }
    if (args.json) print_json(j);
    VESTA_TRY_STATUS(flushed());
    return exit_of(partial);
}

Result<int> compare_main(const Arguments& args) {
    std::vector<score::CaseResult> sides[2];
    for (size_t i = 0; i < 2; ++i) {
        VESTA_TRY(const std::string text, read_text_file(args.compare[i]));
        VESTA_TRY(sides[i], score::parse_results(text, args.compare[i]));
    }
    VESTA_TRY(const score::Comparison c, score::compare_results(sides[0], sides[1]));
    if (args.json)
        print_json(comparison_json(args.compare[0], args.compare[1], c));
    else
        print_comparison(args.compare[0], args.compare[1], c);
    VESTA_TRY_STATUS(flushed());
    return kExitOk;
}

Result<int> score_main(const Arguments& args) {
    if (!args.compare.empty()) return compare_main(args);
    for (const std::string& out : {args.save_base, args.out})
        if (!out.empty() && !args.force && file_exists(out))
            return Error{Code::already_exists, strf("{}: exists already; --force replaces it", printable(out))};
    VESTA_TRY(const std::string path, find_model(args.model));
    InterruptGuard guard;
    if (!args.manifest.empty()) return manifest_main(args, path);
    VESTA_TRY(const auto engine, open_engine(args, path));
    return text_main(args, *engine);
}

constexpr const char* kNotes =
    "exactly one of --text, --ids, --manifest and --compare says what is measured; docs/score.md defines every number\n"
    "\nexamples:\n"
    "  vesta score -m M.gguf --text book.txt                                  perplexity\n"
    "  vesta score -m full.gguf --text book.txt --save-base book.base         keep the reference's predictions\n"
    "  vesta score -m small.gguf --text book.txt --base book.base             how far is small from full?\n"
    "  vesta score -m M.gguf --manifest cases.jsonl --greedy --out M.jsonl    likelihood and exact answers\n"
    "  vesta score --compare A.jsonl B.jsonl                                  who is better, and is it chance?\n";

void declare(CLI::App& app, Arguments& a) {
    const auto what = "what to measure";
    auto* text = app.add_option("--text", a.text, "perplexity of this text file")->group(what);
    auto* ids =
        app.add_option("--ids", a.ids, "the same for a file of token ids (`vesta tokenize --ids`); no BOS is added")
            ->group(what);
    auto* manifest =
        app.add_option("--manifest", a.manifest, "cases, one JSON object per line: prompt and continuation (or answer)")
            ->group(what);
    auto* compare = app.add_option("--compare", a.compare, "two result files of --out")->expected(2)->group(what);
    for (CLI::Option* one : {text, ids, manifest, compare})
        for (CLI::Option* other : {text, ids, manifest, compare})
            if (one != other) one->excludes(other);
    app.add_option("-m,--model", a.model, "model file (GGUF); default: $VESTA_MODEL, else the built-in pocket model");

    const auto of_text = "text";
    app.add_option("--ctx", a.ctx, strf("tokens per window; default {}", kDefaultScoreContext))
        ->check(CLI::Range(int64_t{1}, kMaxContext))
        ->group(of_text);
    app.add_option("--stride", a.stride, "tokens scored per window, the rest is context; default: half of --ctx")
        ->check(CLI::Range(int64_t{1}, kMaxContext))
        ->group(of_text);
    auto* specials = app.add_flag("--specials", a.specials,
                                  "markers in the text become special tokens (manifests: always, unless --no-specials)")
                         ->group(of_text);
    app.add_option("--max-tokens", a.max_tokens, "only the first tokens of the text")
        ->check(CLI::Range(int64_t{2}, int64_t{1} << 40))
        ->group(of_text);
    auto* save =
        app.add_option("--save-base", a.save_base, "record this model's predictions into this file")->group(of_text);
    auto* base = app.add_option("--base", a.base, "compare with predictions recorded by --save-base")->group(of_text);
    app.add_option("--top-k", a.top_k, "--save-base: tokens kept per position")
        ->check(CLI::Range(int64_t{5}, int64_t{1} << 20))
        ->capture_default_str()
        ->needs(save)
        ->group(of_text);
    for (CLI::Option* o : {save, base}) o->excludes(manifest)->excludes(compare);

    const auto of_cases = "manifest";
    app.add_flag("--greedy", a.greedy, "also judge greedy answers")->needs(manifest)->group(of_cases);
    app.add_option("--out", a.out, "write one JSON line per case")->needs(manifest)->group(of_cases);
    app.add_option("--compare-model", a.compare_model, "run this model too and compare")
        ->needs(manifest)
        ->group(of_cases);
    app.add_option("--limit", a.limit, "only the first cases of each kind")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
        ->needs(manifest)
        ->group(of_cases);
    app.add_flag("--no-specials", a.no_specials, "markers in prompts are ordinary text")
        ->excludes(specials)
        ->needs(manifest)
        ->group(of_cases);

    const auto machine = "machine";
    app.add_flag("--no-bos", a.no_bos, "no BOS in front of a text or prompt that has none")->group(machine);
    app.add_option("--threads", a.engine.n_thread, "threads; default: every core")
        ->check(CLI::Range(1, 1024))
        ->group(machine);
    app.add_option("--backend", a.engine.backend, "auto, cpu or reference (the scalar definition, slow)")
        ->check(CLI::IsMember({"auto", "cpu", "reference"}))
        ->group(machine);
    app.add_option("--kv", a.kv, "form of the kv cache: fp8 (as trained), f16, f32")
        ->check(CLI::IsMember({"fp8", "f16", "f32"}))
        ->group(machine);
    app.add_option("--chunk", a.chunk, "tokens computed together")
        ->check(CLI::Range(int64_t{1}, int64_t{65536}))
        ->capture_default_str()
        ->group(machine);

    const auto output = "output";
    app.add_flag("--json", a.json, "one JSON object on stdout")->group(output);
    app.add_flag("--quiet", a.quiet, "no progress bar or remarks on stderr")->group(output);
    app.add_flag("--force", a.force, "replace existing files")->group(output);
    app.footer(kNotes);
}

}  // namespace

int cmd_score(int argc, char** argv) {
    Arguments args;
    CLI::App app{"Measures quality: perplexity, divergence from a reference model, likelihood of answers.",
                 "vesta score"};
    declare(app, args);
    if (const auto code = parse_or_exit(app, argc, argv, [&] {
            if (args.text.empty() && args.ids.empty() && args.manifest.empty() && args.compare.empty())
                throw CLI::RequiredError("one of --text, --ids, --manifest, --compare");
        }))
        return *code;
    try {
        const auto result = score_main(args);
        return result.ok() ? result.value() : report("score", result.error());
    } catch (const std::bad_alloc&) {
        return report("score", Error{Code::no_memory, "not enough memory; a smaller --ctx or --chunk needs less"});
    }
}

}  // namespace vesta::app
