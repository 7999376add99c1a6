// `vesta imatrix`: collects an importance matrix from a model and text, merges several, shows what one holds. A run can
// be stopped (Ctrl+C, or anything harder) and continued: the file is saved between sequences, whole or not at all.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>

#include "backend/registry.h"
#include "base/file.h"
#include "base/utf8.h"
#include "command_line.h"
#include "commands.h"
#include "gguf/file.h"
#include "imatrix/collector.h"
#include "imatrix/statistics.h"
#include "interrupt.h"
#include "model_path.h"
#include "terminal.h"
#include "tokenizer/tokenizer.h"

namespace vesta::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Arguments {
    std::string model, mtp, out, show, backend = "auto";
    std::vector<std::string> data, merge;
    int64_t n_ctx = 512, max_tokens = 0, max_sequences = 0, batch = 256;
    int n_thread = 0;
    double save_every_s = 300;
    bool resume = false, force = false, json = false, quiet = false;
};

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// --- collecting ----------------------------------------------------------------------------------------------------

Result<std::vector<imatrix::Sequence>> read_sequences(const Arguments& args, const tokenizer::Tokenizer& tokenizer) {
    std::vector<imatrix::Sequence> all;
    for (const std::string& path : args.data) {
        VESTA_TRY(const std::string bytes, read_text_file(path));
        VESTA_TRY(const std::vector<std::string> texts, imatrix::split_texts(bytes, path));
        if (texts.empty()) return Error{Code::bad_file, strf("{}: no text in it", path)};
        for (const std::string& text : texts) imatrix::append_sequences(tokenizer, text, args.n_ctx, all);
    }
    // Whole sequences only, so that a later run with higher limits can continue this one.
    size_t n = 0;
    for (int64_t n_token = 0; n < all.size(); ++n) {
        if (args.max_sequences > 0 && n == static_cast<size_t>(args.max_sequences)) break;
        if (args.max_tokens > 0 && n_token >= args.max_tokens) break;
        n_token += static_cast<int64_t>(all[n].size());
    }
    all.resize(n);
    return all;
}

std::string dataset_name(const Arguments& args) {
    std::string name;
    for (const std::string& path : args.data)
        name += (name.empty() ? "" : " + ") + std::filesystem::path(path).filename().string();
    return name;
}

// "blk.3.": experts 1, 4 of 16.  One line per layer: gate, up and down of a layer are hit by the same tokens.
void print_never_hit(std::FILE* to, const std::vector<imatrix::Statistics>& all) {
    std::string last;
    for (const imatrix::Statistics& s : all) {
        if (s.never_hit.empty() || s.n_vector < 2) continue;
        const std::string layer = s.name.substr(0, s.name.find(".ffn_"));
        if (layer == last) continue;
        last = layer;
        std::string ids;
        constexpr size_t kShown = 24;
        for (size_t i = 0; i < std::min(kShown, s.never_hit.size()); ++i) ids += strf(" {}", s.never_hit[i]);
        if (s.never_hit.size() > kShown) ids += strf(" and {} more", s.never_hit.size() - kShown);
        fmt::print(to, "never hit in {}: {} of {} experts:{}\n", printable(layer), s.never_hit.size(), s.n_vector, ids);
    }
}

void print_summary(const imatrix::Matrix& m, double perplexity, std::span<const gguf::File* const> files,
                   const std::string& out, double seconds, uint64_t n_new_token) {
    fmt::print(stderr, "{}: {} tensors, {} sequences, {} tokens", out, m.entries.size(), m.run->n_sequence,
               m.run->n_token);
    if (n_new_token > 0)
        fmt::print(stderr, "; {:.1f} s, {:.0f} tokens/s, perplexity {:.2f}", seconds,
                   static_cast<double>(n_new_token) / seconds, perplexity);
    fmt::print(stderr, "\n");
    print_never_hit(stderr, imatrix::describe(m, [](const std::string&) { return 0; }));
    // Added position by position, never multiplied; nothing to say about them.
    std::vector<std::string> left = imatrix::not_covered(files, m);
    std::erase_if(left, [](const std::string& name) { return name.ends_with("_ape.weight"); });
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(left.size(), 8); ++i) names += " " + printable(left[i]);
    if (left.size() > 8) names += strf(" and {} more", left.size() - 8);
    if (!left.empty()) fmt::print(stderr, "without data:{}\n", names);
}

Result<int> collect(const Arguments& args) {
    // Said now, not after an hour of work.
    const bool exists = file_exists(args.out);
    if (exists && !args.resume && !args.force)
        return Error{Code::already_exists,
                     strf("{}: exists already; --resume continues it, --force replaces it", args.out)};
    VESTA_TRY(const std::string path, find_model(args.model));
    VESTA_TRY(const gguf::File file, gguf::File::open(path));
    std::vector<gguf::File> side;
    if (!args.mtp.empty()) {
        VESTA_TRY(auto drafter, gguf::File::open(args.mtp));
        side.push_back(std::move(drafter));
    }
    std::vector<const gguf::File*> files = {&file};
    for (const gguf::File& f : side) files.push_back(&f);
    VESTA_TRY(const auto tokenizer, tokenizer::Tokenizer::from_gguf(file));
    VESTA_TRY(const auto ops, backend::create(args.backend, args.n_thread));
    VESTA_TRY(const auto model, model::load(file, side.empty() ? nullptr : &side[0], *ops));
    VESTA_TRY(auto sequences, read_sequences(args, tokenizer));
    const size_t n_sequence = sequences.size();

    imatrix::CollectOptions options{.model = model.get(),
                                    .files = files,
                                    .backend = ops.get(),
                                    .sequences = std::move(sequences),
                                    .n_ctx = args.n_ctx,
                                    .chunk = args.batch,
                                    .dataset = dataset_name(args)};
    std::unique_ptr<imatrix::Collector> run;
    if (exists && args.resume) {
        VESTA_TRY(const imatrix::Matrix previous, imatrix::read_dat(args.out));
        auto continued = imatrix::Collector::create(std::move(options), &previous);
        if (!continued.ok()) {
            Error e = std::move(continued).error();
            return Error{e.code, strf("{}: {}", args.out, e.message)};
        }
        run = std::move(continued).value();
        if (!args.quiet)
            fmt::print(stderr, "{}: {} of {} sequences are done{}\n", args.out, run->n_sequence_done(), n_sequence,
                       previous.run->finished && !run->done()
                           ? "; the file was finished, so its sums are rounded to f32"
                           : "");
    } else {
        VESTA_TRY(run, imatrix::Collector::create(std::move(options)));
    }

    InterruptGuard guard;
    ProgressBar bar(!args.quiet && stderr_is_tty());
    bool may_replace = args.force || args.resume;
    const auto save = [&](const imatrix::Matrix& m) -> Status {
        VESTA_TRY_STATUS(imatrix::write_dat(m, args.out, may_replace));
        may_replace = true;
        return {};
    };
    const uint64_t n_before = run->n_sequence_done(), n_token_before = run->n_token_done();
    const auto started = Clock::now();
    auto saved = started;
    while (!run->done() && !InterruptGuard::requested()) {
        bool said = false;
        VESTA_TRY_STATUS(run->step([&](const Progress& p) {
            if (InterruptGuard::requested() && !said && !args.quiet) {
                bar.finish();
                fmt::print(stderr, "finishing this sequence; Ctrl+C again stops at once\n");
                said = true;
            }
            return bar.update(p);
        }));
        if (!run->done() && seconds_since(saved) >= args.save_every_s) {
            VESTA_TRY_STATUS(save(run->snapshot()));
            saved = Clock::now();
        }
    }
    bar.finish();
    if (!run->done()) {
        if (run->n_sequence_done() > n_before) VESTA_TRY_STATUS(save(run->snapshot()));
        fmt::print(stderr, "vesta imatrix: stopped after {} of {} sequences; --resume continues\n",
                   run->n_sequence_done(), n_sequence);
        return kExitInterrupted;
    }
    const double perplexity = run->perplexity();
    const uint64_t n_new_token = run->n_token_done() - n_token_before;
    const imatrix::Matrix matrix = std::move(*run).finish();
    VESTA_TRY_STATUS(save(matrix));
    if (!args.quiet) print_summary(matrix, perplexity, files, args.out, seconds_since(started), n_new_token);
    return kExitOk;
}

// --- merging -------------------------------------------------------------------------------------------------------

Result<int> merge(const Arguments& args) {
    if (!args.force && file_exists(args.out))
        return Error{Code::already_exists, strf("{}: exists already; --force replaces it", args.out)};
    VESTA_TRY(imatrix::Matrix all, imatrix::read_dat(args.merge[0]));
    all.run.reset();
    for (size_t i = 1; i < args.merge.size(); ++i) {
        VESTA_TRY(const imatrix::Matrix next, imatrix::read_dat(args.merge[i]));
        const Status merged = imatrix::merge(all, next);
        if (!merged.ok()) return Error{merged.error().code, strf("{}: {}", args.merge[i], merged.error().message)};
    }
    VESTA_TRY_STATUS(imatrix::write_dat(all, args.out, args.force));
    if (!args.quiet) {
        fmt::print(stderr, "{}: {} tensors, {} sequences of {} files\n", args.out, all.entries.size(), all.n_chunk,
                   args.merge.size());
        print_never_hit(stderr, imatrix::describe(all, [](const std::string&) { return 0; }));
    }
    return kExitOk;
}

// --- showing -------------------------------------------------------------------------------------------------------

Json to_json(const imatrix::Matrix& m, const std::vector<imatrix::Statistics>& all, const std::string& path) {
    Json j;
    j["file"] = path;
    j["dataset"] = replace_invalid_utf8(m.dataset);
    j["n_chunk"] = m.n_chunk;
    if (m.run)
        j["run"] = {{"finished", m.run->finished},
                    {"n_ctx", m.run->n_ctx},
                    {"n_sequence", m.run->n_sequence},
                    {"n_token", m.run->n_token}};
    j["tensors"] = Json::array();
    for (const imatrix::Statistics& s : all) {
        Json t;
        t["name"] = replace_invalid_utf8(s.name);
        t["n_call"] = s.n_call;
        t["n_row"] = s.n_row >= 0 ? Json(s.n_row) : Json();
        t["n_vector"] = s.n_vector > 0 ? Json(s.n_vector) : Json();
        t["n_col"] = s.n_col;
        t["never_hit"] = s.n_vector > 0 ? Json(s.never_hit) : Json();
        t["min"] = s.min;
        t["mean"] = s.mean;
        t["max"] = s.max;
        t["top_share"] = s.top_share;
        t["n_bad"] = s.n_bad;
        j["tensors"].push_back(std::move(t));
    }
    return j;
}

void print_table(const imatrix::Matrix& m, const std::vector<imatrix::Statistics>& all, const std::string& path) {
    fmt::print("{}: {} tensors, {} sequences, data: {}\n", path, m.entries.size(), m.n_chunk,
               m.dataset.empty() ? "not named" : printable(m.dataset));
    if (m.run)
        fmt::print("{} run over {} tokens in sequences of up to {}\n", m.run->finished ? "finished" : "unfinished",
                   m.run->n_token, m.run->n_ctx);
    size_t width = 6;
    for (const imatrix::Statistics& s : all) width = std::max(width, s.name.size());
    fmt::print("\n{:<{}} {:>6} {:>9} {:>11} {:>6} {:>10} {:>10} {:>10} {:>7}\n", "tensor", width, "calls", "rows",
               "experts hit", "cols", "min", "mean", "max", "top 1 %");
    int64_t n_vector = 0, n_hit = 0;
    for (const imatrix::Statistics& s : all) {
        std::string hit = s.n_vector == 0 ? "?"
                          : s.n_vector == 1
                              ? ""
                              : strf("{}/{}", s.n_vector - static_cast<int64_t>(s.never_hit.size()), s.n_vector);
        fmt::print("{:<{}} {:>6} {:>9} {:>11} {:>6} {:>10.3g} {:>10.3g} {:>10.3g} {:>5.1f} %{}\n", printable(s.name),
                   width, s.n_call, s.n_row >= 0 ? strf("{}", s.n_row) : "?", hit, s.n_col, s.min, s.mean, s.max,
                   100 * s.top_share, s.n_bad > 0 ? strf("  {} bad values", s.n_bad) : "");
        if (s.n_vector > 1) n_vector += s.n_vector, n_hit += s.n_vector - static_cast<int64_t>(s.never_hit.size());
    }
    if (n_vector > 0)
        fmt::print("\nexpert matrices with data: {} of {} ({:.1f} %)\n", n_hit, n_vector,
                   100.0 * static_cast<double>(n_hit) / static_cast<double>(n_vector));
    print_never_hit(stdout, all);
}

Result<int> show(const Arguments& args) {
    VESTA_TRY(const imatrix::Matrix m, imatrix::read_dat(args.show));
    std::vector<gguf::File> model;  // none or one
    if (!args.model.empty()) {
        VESTA_TRY(auto file, gguf::File::open(args.model));
        model.push_back(std::move(file));
    }
    const auto n_vector = [&](const std::string& name) -> int64_t {
        const gguf::TensorInfo* t = model.empty() ? nullptr : model[0].find_tensor(name);
        return t == nullptr ? 0 : static_cast<int64_t>(t->dims[2]);
    };
    const std::vector<imatrix::Statistics> all = imatrix::describe(m, n_vector);
    if (args.json)
        fmt::print("{}\n", to_json(m, all, args.show).dump(1));
    else
        print_table(m, all, args.show);
    if (std::fflush(stdout) != 0) return Error{Code::io, "stdout: the table could not be written"};
    return kExitOk;
}

constexpr char kFooter[] =
    "The text: plain text, cut into pieces of --ctx tokens; or prompts, each after a line that starts with\n"
    "\"===== VESTA_PROMPT\" (or \"===== DS4_IMATRIX_PROMPT\"); or *.jsonl with \"prompt\" or \"text\". Special tokens "
    "in it\n"
    "are recognised. calibration/calibration.txt in the source tree is one.\n"
    "\nexamples:\n"
    "  vesta imatrix -m M.gguf --data calibration.txt --out M.dat            collect\n"
    "  vesta imatrix -m M.gguf --data calibration.txt --out M.dat --resume   go on after a stop\n"
    "  vesta imatrix --merge chat.dat code.dat --out both.dat\n"
    "  vesta imatrix --show M.dat                                            a table; --json for programs\n"
    "exit codes: 0 done, 1 failed, 2 usage, 3 damaged file, 4 not supported, 130 interrupted (what was done is "
    "saved)\n";

}  // namespace

int cmd_imatrix(int argc, char** argv) {
    Arguments args;
    CLI::App app{
        "Importance matrix: how much each column of every weight matrix matters, for `vesta quantize --imatrix`.",
        "vesta imatrix"};
    app.add_option("-m,--model", args.model,
                   "model file (GGUF); default: $VESTA_MODEL, else the built-in pocket model");
    CLI::Option* data = app.add_option("-d,--data", args.data, "text to run the model over (may be repeated)");
    CLI::Option* out = app.add_option("-o,--out", args.out, "the importance matrix to write (.dat)");
    app.add_option("--ctx", args.n_ctx, "longest sequence in tokens; each starts from an empty context")
        ->check(CLI::Range(int64_t{2}, kv::kMaxContext))
        ->capture_default_str();
    app.add_option("--max-tokens", args.max_tokens, "stop after the sequence that reaches this; default: all")
        ->check(CLI::PositiveNumber);
    app.add_option("--chunks", args.max_sequences, "sequences at most; default: all")->check(CLI::PositiveNumber);
    app.add_option("--batch", args.batch, "rows computed together: speed and memory, never a result")
        ->check(CLI::Range(1, 1 << 16))
        ->capture_default_str();
    app.add_option("--mtp", args.mtp, "separate file with the MTP block, to cover it too");
    app.add_option("--backend", args.backend, "auto, cpu or reference (the scalar definition, slow)")
        ->capture_default_str();
    app.add_option("--threads", args.n_thread, "threads; default: every core")->check(CLI::Range(1, 1024));
    CLI::Option* resume =
        app.add_flag("--resume", args.resume, "continue the run that --out holds, over the same text");
    app.add_option("--save-every", args.save_every_s, "seconds between saves on the way")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    CLI::Option* merging =
        app.add_option("--merge", args.merge, "add these files up into --out")->excludes(data)->excludes(resume);
    CLI::Option* showing =
        app.add_option("--show", args.show, "print what a file holds (-m helps with other tools' files)")
            ->excludes(data)
            ->excludes(out)
            ->excludes(merging)
            ->excludes(resume);
    app.add_flag("--json", args.json, "with --show: one JSON object")->needs(showing);
    app.add_flag("--force", args.force, "replace --out if it exists")->excludes(resume);
    app.add_flag("-q,--quiet", args.quiet, "no progress or summary on stderr");
    app.footer(kFooter);
    if (const auto code = parse_or_exit(app, argc, argv, [&] {
            if (!*showing && !*out) throw CLI::RequiredError("--out");
            if (!*showing && !*merging && !*data) throw CLI::RequiredError("--data");
        }))
        return *code;
    try {
        const auto result = !args.show.empty() ? show(args) : !args.merge.empty() ? merge(args) : collect(args);
        return result.ok() ? result.value() : report("imatrix", result.error());
    } catch (const std::bad_alloc&) {
        return report("imatrix", Error{Code::no_memory, "not enough memory; a smaller --batch needs less"});
    }
}

}  // namespace vesta::app
