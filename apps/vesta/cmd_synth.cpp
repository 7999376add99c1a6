// `vesta synth`: a model file of any shape with random weights, for measuring speed without the real model.
#include <CLI/CLI.hpp>
#include <chrono>
#include <map>

#include "base/file.h"
#include "base/thread_pool.h"
#include "command_line.h"
#include "commands.h"
#include "stop_signal.h"
#include "synth_options.h"
#include "terminal.h"

namespace vesta::app {
namespace {

struct Arguments {
    std::string out;
    SynthFlags model;
    bool force = false, dry_run = false, list = false;
    int threads = 0;
};

void print_tensors(const synth::Plan& plan) {
    for (const synth::PlannedTensor& t : plan.tensors) {
        std::string dims;
        for (const uint64_t d : t.dims) dims += (dims.empty() ? "" : " x ") + std::to_string(d);
        fmt::print("{:<40} {:>22}  {:<8} {:>14} bytes\n", t.name, dims, quant::format(t.type).name, t.bytes);
    }
}

Status run(const CLI::App& app, const Arguments& args) {
    const auto started = std::chrono::steady_clock::now();
    if (!args.dry_run && !args.force && file_exists(args.out))
        return Error{Code::already_exists, strf("{}: exists already; --force replaces it", args.out)};
    VESTA_TRY(const synth::Options options, synth_options(app, args.model));
    VESTA_TRY(const synth::Plan plan, synth::plan(options));
    if (args.list) print_tensors(plan);
    const std::string what =
        strf("{} layers, {} experts, {:.2f} G parameters, {} tensors, {}", plan.config.n_layer, plan.config.n_expert,
             static_cast<double>(plan.n_parameter()) * 1e-9, plan.tensors.size(), format_bytes(plan.data_bytes()));
    if (args.dry_run) {
        fmt::print(stderr, "would write {}\n", what);
        return {};
    }
    StopOnSignal signals;
    ProgressBar bar;
    const int n_thread = args.threads > 0 ? args.threads : ThreadPool::available_cores();
    VESTA_TRY_STATUS(synth::write(plan, args.out, args.force, n_thread,
                                  [&](const Progress& p) { return bar.update(p) && !StopOnSignal::requested(); }));
    bar.finish();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    fmt::print(stderr, "{}: {}, recipe {}, seed {}, {:.1f} s\n", args.out, what, options.recipe.name, options.seed,
               seconds);
    return {};
}

}  // namespace

int cmd_synth(int argc, char** argv) {
    Arguments args;
    CLI::App app{
        "Writes a model file of any shape with random, valid weights. It says nothing sensible, at the real speed.",
        "vesta synth"};
    app.add_option("out", args.out, "model file to write");
    declare_synth(app, args.model);
    app.add_option("--threads", args.threads, "default: all cores")->check(CLI::Range(1, 1024));
    app.add_flag("--force", args.force, "replace an existing file");
    app.add_flag("--dry-run", args.dry_run, "sizes only, write nothing");
    app.add_flag("--list", args.list, "print every tensor with its format and size on stdout");
    app.footer(
        "examples:\n"
        "  vesta synth slice.gguf --like flash --layers 3 --experts 56 --vocab 4096 --recipe q4\n"
        "  vesta synth --like pro --recipe q2 --dry-run\n"
        "`vesta bench --synth \"flash --layers 3\"` measures such a model without a file.\n");
    if (const auto code = parse_or_exit(app, argc, argv, [&] {
            if (args.out.empty() && !args.dry_run) throw CLI::RequiredError("OUT (or --dry-run)");
        }))
        return *code;
    const Status status = run(app, args);
    return status.ok() ? kExitOk : report("synth", status.error());
}

}  // namespace vesta::app
