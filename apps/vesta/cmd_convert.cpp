// `vesta convert`: a checkpoint folder in, one model file out. Everything that can be refused is refused before the
// file is begun; Ctrl+C leaves nothing behind.
#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>

#include "base/thread_pool.h"
#include "commands.h"
#include "convert/convert.h"
#include "terminal.h"

namespace vesta::app {
namespace {

// Set by SIGINT and SIGTERM, read between two slices of a tensor.
volatile std::sig_atomic_t g_stop = 0;

class StopOnSignal {
 public:
    StopOnSignal() {
        struct sigaction action {};
        action.sa_handler = [](int) { g_stop = 1; };
        ::sigaction(SIGINT, &action, &old_int_);
        ::sigaction(SIGTERM, &action, &old_term_);
    }
    ~StopOnSignal() {
        ::sigaction(SIGINT, &old_int_, nullptr);
        ::sigaction(SIGTERM, &old_term_, nullptr);
    }
    StopOnSignal(const StopOnSignal&) = delete;
    StopOnSignal& operator=(const StopOnSignal&) = delete;

 private:
    struct sigaction old_int_ {
    }, old_term_{};
};

struct TypeTotal {
    size_t n_tensor = 0;
    uint64_t bytes = 0;
};

std::map<std::string, TypeTotal> totals_by_type(const convert::Plan& plan) {
    std::map<std::string, TypeTotal> totals;
    for (const convert::PlannedTensor& t : plan.tensors) {
        TypeTotal& total = totals[quant::format(t.type).name];
        ++total.n_tensor;
        total.bytes += t.bytes;
    }
    return totals;
}

void print_tensors(const convert::Plan& plan) {
    for (const convert::PlannedTensor& t : plan.tensors) {
        std::string dims;
        for (const uint64_t d : t.dims) dims += (dims.empty() ? "" : " x ") + std::to_string(d);
        fmt::print("{:<40} {:>22}  {:>4} -> {:<6} {:>12} bytes\n", t.expected.gguf_name, dims,
                   convert::encoding_name(t.sources[0].encoding), quant::format(t.type).name, t.bytes);
    }
}

void print_json(const convert::Plan& plan, const std::string& out, bool written, uint64_t file_bytes, double seconds) {
    nlohmann::ordered_json summary;
    summary["from"] = plan.options.from;
    summary["out"] = out;
    summary["written"] = written;
    summary["recipe"] = plan.options.recipe.name;
    summary["tensors"] = plan.tensors.size();
    summary["data_bytes"] = plan.data_bytes();
    if (written) summary["file_bytes"] = file_bytes;
    for (const auto& [type, total] : totals_by_type(plan))
        summary["types"][type] = {{"tensors", total.n_tensor}, {"bytes", total.bytes}};
    summary["notes"] = plan.notes;
    if (written) summary["seconds"] = seconds;
    fmt::print("{}\n", summary.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_summary(const convert::Plan& plan) {
    // A model with odd shapes can have a note per layer; the first few say what is going on.
    constexpr size_t kMaxNotes = 8;
    for (size_t i = 0; i < std::min(plan.notes.size(), kMaxNotes); ++i) fmt::print(stderr, "note: {}\n", plan.notes[i]);
    if (plan.notes.size() > kMaxNotes)
        fmt::print(stderr, "note: and {} more like these\n", plan.notes.size() - kMaxNotes);
    for (const auto& [type, total] : totals_by_type(plan))
        fmt::print(stderr, "{:>8}  {:>5} tensors  {:>10}\n", type, total.n_tensor, format_bytes(total.bytes));
}

std::string recipe_help() {
    std::string text = "recipes:\n";
    for (const convert::Recipe& r : convert::recipes()) text += strf("  {:<8} {}\n", r.name, r.summary);
    return text +
           "\nexamples:\n"
           "  vesta convert --from DeepSeek-V4-Flash --out flash.gguf\n"
           "  vesta convert --from pocket-v0 --out pocket.gguf --recipe pocket\n"
           "  vesta convert --from pocket-v0 --recipe q8 --dry-run --list\n";
}

struct Arguments {
    std::string from, out, recipe = "native", dialect = "dsv4", name;
    bool force = false, dry_run = false, list = false, json = false, ignore_unknown = false;
    int threads = 0;
};

int convert_main(const Arguments& args) {
    const auto started = std::chrono::steady_clock::now();
    auto recipe = convert::find_recipe(args.recipe);
    if (!recipe) return report("convert", recipe.error());
    // Say no before reading a checkpoint of hundreds of GB, not after.
    if (!args.dry_run && !args.force && file_exists(args.out))
        return report("convert", {Code::already_exists, strf("{}: exists already; --force replaces it", args.out)});
    auto plan = convert::plan({.from = args.from,
                               .recipe = recipe.value(),
                               .dialect = args.dialect,
                               .model_name = args.name,
                               .version = VESTA_VERSION,
                               .ignore_unknown = args.ignore_unknown});
    if (!plan) return report("convert", plan.error());
    const convert::Plan& p = plan.value();
    if (args.list) print_tensors(p);
    if (args.dry_run) {
        if (args.json) {
            print_json(p, args.out, false, 0, 0);
        } else {
            print_summary(p);
            fmt::print(stderr, "would write {} tensors, {}\n", p.tensors.size(), format_bytes(p.data_bytes()));
        }
        return kExitOk;
    }

    StopOnSignal signals;
    ProgressBar bar;
    const int n_thread = args.threads > 0 ? args.threads : ThreadPool::available_cores();
    const auto summary = convert::execute(p, args.out, args.force, n_thread, [&](const Progress& progress) {
        return bar.update(progress) && g_stop == 0;
    });
    bar.finish();
    if (!summary) return report("convert", summary.error());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    if (args.json) {
        print_json(p, args.out, true, summary.value().file_bytes, seconds);
    } else {
        print_summary(p);
        fmt::print(stderr, "{}: {} tensors, {}, recipe {}, {:.1f} s\n", args.out, summary.value().n_tensor,
                   format_bytes(summary.value().file_bytes), args.recipe, seconds);
    }
    return kExitOk;
}

}  // namespace

int cmd_convert(int argc, char** argv) {
    Arguments args;
    CLI::App app{"Makes a model file (GGUF) from an official checkpoint: safetensors, config.json, tokenizer.json.",
                 "vesta convert"};
    app.add_option("--from", args.from, "folder of the checkpoint")->required();
    app.add_option("--out,-o", args.out, "model file to write");
    app.add_option("--recipe", args.recipe, "which format each tensor gets")->capture_default_str();
    app.add_option("--dialect", args.dialect, "prompt format the file will name")
        ->check(CLI::IsMember({"dsv4"}))
        ->capture_default_str();
    app.add_option("--name", args.name, "model name in the file; default: the folder's name");
    app.add_option("--threads", args.threads, "default: all cores")->check(CLI::Range(1, 1024));
    app.add_flag("--force", args.force, "replace an existing file");
    app.add_flag("--dry-run", args.dry_run, "check everything but the weights' values, write nothing");
    app.add_flag("--list", args.list, "print every tensor with its formats and size on stdout");
    app.add_flag("--json", args.json, "summary as JSON on stdout");
    app.add_flag("--ignore-unknown", args.ignore_unknown, "leave out tensors this converter has no name for");
    app.footer(recipe_help());
    try {
        app.parse(argc, argv);
        if (args.out.empty() && !args.dry_run) throw CLI::RequiredError("--out (or --dry-run)");
    } catch (const CLI::CallForHelp& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        app.exit(e);
        return kExitUsage;
    }
    return convert_main(args);
}

}  // namespace vesta::app
