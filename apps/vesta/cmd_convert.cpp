// `vesta convert`: a checkpoint folder in, one model file out. Everything that can be refused is refused before the
// file is begun; Ctrl+C leaves nothing behind.
#include <CLI/CLI.hpp>
#include <chrono>

#include "base/thread_pool.h"
#include "command_line.h"
#include "commands.h"
#include "convert/convert.h"
#include "plan_view.h"
#include "stop_signal.h"
#include "terminal.h"

namespace vesta::app {
namespace {

std::string recipe_help() {
    return "recipes (or a file; `vesta quantize --show NAME` prints one):\n" + recipe_list() +
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

void print_json(const convert::Plan& plan, const std::string& out, bool written, uint64_t file_bytes, double seconds) {
    nlohmann::ordered_json summary;
    summary["from"] = plan.options.from;
    summary["out"] = out;
    summary["written"] = written;
    summary.update(plan_json(plan));
    if (written) summary["file_bytes"] = file_bytes, summary["seconds"] = seconds;
    fmt::print("{}\n", summary.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void print_summary(const convert::Plan& plan) {
    print_notes(plan.notes);
    print_type_totals(plan);
}

int convert_main(const Arguments& args) {
    const auto started = std::chrono::steady_clock::now();
    auto recipe = convert::load_recipe(args.recipe);
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
        return bar.update(progress) && !StopOnSignal::requested();
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
    if (const auto code = parse_or_exit(app, argc, argv, [&] {
            if (args.out.empty() && !args.dry_run) throw CLI::RequiredError("--out (or --dry-run)");
        }))
        return *code;
    return convert_main(args);
}

}  // namespace vesta::app
