// `vesta bench`: how fast a model runs here, and how near that is to what the memory allows.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <optional>

#include "base/bandwidth.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "bench_run.h"
#include "command_line.h"
#include "commands.h"
#include "model_path.h"
#include "stop_signal.h"
#include "synth_options.h"
#include "terminal.h"

namespace vesta::app {
namespace {

struct Arguments {
    std::string model, synth, cache = "fp8", csv, plot, compare;
    EngineOptions engine;
    BenchPlan plan{.prefill = {512, 2048}, .depth = {64, 2048}, .session = {}};
    bool json = false, peak_only = false, no_peak = false;
};

// In a process of its own: the buffer does not count towards this one's peak memory.
Result<Bandwidth> peak_in_child(int n_thread) {
    int ends[2];
    if (::pipe(ends) != 0) return Error{Code::io, "no pipe for the bandwidth measurement"};
    UniqueFd read_end(ends[0]), write_end(ends[1]);
    const pid_t child = ::fork();
    if (child < 0) return Error{Code::io, "no process for the bandwidth measurement"};
    if (child == 0) {
        const auto b = measure_read_bandwidth(n_thread);
        const bool ok = b.ok() && ::write(write_end.get(), &b.value(), sizeof(Bandwidth)) == sizeof(Bandwidth);
        ::_exit(ok ? 0 : 1);
    }
    write_end.reset();
    Bandwidth b;
    const bool got = ::read(read_end.get(), &b, sizeof b) == sizeof b;
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!got)
        return Error{Code::no_memory, "the bandwidth measurement failed (it needs 1 GB); --no-peak leaves it out"};
    return b;
}

Status write_text(const std::string& path, const std::string& text) {
    VESTA_TRY(AtomicFile file, AtomicFile::create(path, true));
    VESTA_TRY_STATUS(file.write(std::as_bytes(std::span(text))));
    return file.commit();
}

Status run(Arguments args) {
    const int n_thread = args.engine.n_thread > 0 ? args.engine.n_thread : ThreadPool::available_cores();
    if (args.peak_only) {
        VESTA_TRY(const Bandwidth b, peak_in_child(n_thread));
        if (args.json)
            fmt::print("{{\"threads\": {}, \"peak_bytes_per_s\": {:.0f}, \"best_bytes_per_s\": {:.0f}}}\n", n_thread,
                       b.median, b.best);
        else
            fmt::print("read bandwidth, {} threads: {:.2f} GB/s (best {:.2f})\n", n_thread, b.median * 1e-9,
                       b.best * 1e-9);
        return {};
    }
    std::optional<Baseline> baseline;  // read first: a wrong name is found before minutes of measuring
    if (!args.compare.empty()) {
        VESTA_TRY(const std::string text, read_text_file(args.compare, 64 << 20));
        VESTA_TRY(baseline, parse_bench_csv(text, args.compare));
    }
    args.plan.session.cache_format = args.cache == "f32"   ? CacheFormat::f32
                                     : args.cache == "f16" ? CacheFormat::f16
                                                           : CacheFormat::fp8;
    StopOnSignal signals;
    ProgressBar bar;
    const ProgressFn progress = [&](const Progress& p) { return bar.update(p) && !StopOnSignal::requested(); };
    Bandwidth peak;
    if (!args.no_peak) {
        VESTA_TRY(peak, peak_in_child(n_thread));
    }
    synth::Image image;
    std::string path;
    if (!args.synth.empty()) {
        VESTA_TRY(const synth::Options options, parse_synth(args.synth));
        VESTA_TRY(const synth::Plan plan, synth::plan(options));
        VESTA_TRY(image, synth::build(plan, n_thread, progress));
        path = "synthetic " + args.synth;
    } else {
        VESTA_TRY(path, find_model(args.model));
    }
    const auto open = [&]() -> Result<std::unique_ptr<Engine>> {
        if (!args.synth.empty()) return Engine::open_bytes(image.bytes(), path, args.engine, progress);
        return Engine::open(path, args.engine, progress);
    };
    VESTA_TRY(BenchReport report, run_bench(open, args.plan, progress));
    bar.finish();
    report.version = VESTA_VERSION;
    report.peak = peak.median;
    const Baseline* other = baseline ? &*baseline : nullptr;
    if (!args.csv.empty()) VESTA_TRY_STATUS(write_text(args.csv, bench_csv(report)));
    if (!args.plot.empty()) VESTA_TRY_STATUS(write_text(args.plot, bench_svg(report, other)));
    fmt::print("{}{}", args.json ? bench_json(report) : bench_table(report, other), args.json ? "\n" : "");
    return {};
}

void declare(CLI::App& app, Arguments& a) {
    auto* model = app.add_option("-m,--model", a.model,
                                 "model file (GGUF); default: $VESTA_MODEL, else the built-in pocket model");
    app.add_option("--synth", a.synth,
                   "a synthetic model in memory instead, e.g. \"flash --layers 3 --experts 56 --recipe q4\" "
                   "(flags as in `vesta synth`)")
        ->excludes(model);
    const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 24);
    const auto measure = "measuring";
    app.add_option("--prefill", a.plan.prefill, "prompts from nothing, of these lengths (0: none)")
        ->delimiter(',')
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
        ->capture_default_str()
        ->group(measure);
    app.add_option("--depth", a.plan.depth,
                   "decode after this many tokens; the context grows from one to the next (0: none)")
        ->delimiter(',')
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
        ->capture_default_str()
        ->group(measure);
    app.add_option("--decode", a.plan.n_decode, "tokens to decode at each depth")
        ->check(CLI::Range(0, 1 << 20))
        ->capture_default_str()
        ->group(measure);
    app.add_option("--repeat", a.plan.repeat, "measurements of each")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str()
        ->group(measure);
    app.add_option("--warmup", a.plan.warmup, "unmeasured ones before them")
        ->check(CLI::Range(0, 1000))
        ->capture_default_str()
        ->group(measure);
    app.add_flag("--same-tokens", a.plan.same_tokens,
                 "decode a fixed list of tokens instead of the likeliest: the work of llama_peer")
        ->group(measure);
    app.add_flag("--peak", a.peak_only, "only measure the machine's read bandwidth")->group(measure);
    app.add_flag("--no-peak", a.no_peak, "do not measure it (it takes a second and 1 GB)")->group(measure);

    const auto machine = "machine";
    app.add_option("--backend", a.engine.backend, "auto, cpu, reference")->capture_default_str()->group(machine);
    app.add_option("--threads", a.engine.n_thread, "default: all cores this process may use")
        ->check(CLI::Range(1, 1024))
        ->group(machine);
    app.add_option("--chunk", a.plan.session.chunk, "prefill rows computed together")
        ->check(positive)
        ->capture_default_str()
        ->group(machine);
    app.add_option("--cache,--kv", a.cache, "how kv rows are kept")
        ->check(CLI::IsMember({"fp8", "f16", "f32"}))
        ->capture_default_str()
        ->group(machine);
    app.add_flag("--warm", a.engine.warm, "read the whole model file before measuring")->group(machine);
    app.add_flag("--mlock", a.engine.lock, "and keep it in memory")->group(machine);
    app.add_flag("--huge-pages", a.engine.huge_pages, "ask for huge pages under the weights")->group(machine);

    const auto output = "output";
    app.add_option("--csv", a.csv, "write the rows to this file")->group(output);
    app.add_flag("--json", a.json, "JSON on stdout instead of the table")->group(output);
    app.add_option("--compare", a.compare, "ratios to an earlier --csv file")->group(output);
    app.add_option("--plot", a.plot, "draw tokens per second over context to this SVG file")->group(output);
    app.footer(
        "examples:\n"
        "  vesta bench                                            the pocket model\n"
        "  vesta bench -m flash.gguf --depth 512,4096,32768 --csv today.csv --plot today.svg\n"
        "  vesta bench --synth \"flash --layers 3 --experts 56 --vocab 4096 --recipe q4\" --threads 2\n"
        "docs/bench.md says what the numbers mean.\n");
}

}  // namespace

int cmd_bench(int argc, char** argv) {
    Arguments args;
    CLI::App app{
        "Measures prefill and decode speed at growing contexts, and what share of the memory's bandwidth that is.",
        "vesta bench"};
    declare(app, args);
    if (const auto code = parse_or_exit(app, argc, argv, [] {})) return *code;
    std::erase(args.plan.prefill, 0);
    std::erase(args.plan.depth, 0);
    const Status status = run(std::move(args));
    return status.ok() ? kExitOk : report("bench", status.error());
}

}  // namespace vesta::app
