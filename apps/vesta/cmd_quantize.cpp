// `vesta quantize`: a checkpoint or a model file in, a smaller model file out. The work can take hours for a large
// model, so it goes on where it was when it is stopped or killed and started again.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/file.h"
#include "base/thread_pool.h"
#include "command_line.h"
#include "commands.h"
#include "convert/convert.h"
#include "plan_view.h"
#include "stop_signal.h"
#include "terminal.h"

namespace vesta::app {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
    std::string in, out, recipe = "q4", imatrix, compare, with, show, drafter;
    std::vector<std::string> sets;
    bool strict = false, dry_run = false, list = false, json = false, verbose = false, force = false, restart = false;
    bool ignore_unknown = false;
    int threads = 0;
    int n_thread() const { return threads > 0 ? threads : ThreadPool::available_cores(); }
};

int fail(const Error& error) { return report("quantize", error); }

void print(const Json& j) { fmt::print("{}\n", j.dump(1, ' ', false, Json::error_handler_t::replace)); }

double relative(const quant::ErrorSum& s) { return s.energy > 0 ? s.error / s.energy : 0; }

int print_recipes(bool json) {
    if (json) {
        Json list = Json::array();
        for (const convert::Recipe& r : convert::recipes())
            list.push_back({{"name", r.name}, {"summary", r.summary}, {"text", r.text}});
        print(list);
        return kExitOk;
    }
    const char* gap = "";
    for (const convert::Recipe& r : convert::recipes()) {
        fmt::print("{}==== {} ====\n{}", gap, r.name, r.text);
        gap = "\n";
    }
    return kExitOk;
}

Json size_json(const convert::Plan& p) {
    const model::Traffic t = p.traffic();
    Json j = plan_json(p);
    j["file_bytes"] = p.file_bytes();
    j["bits_per_weight"] = p.bits_per_weight();
    j["bytes_per_token"] = t.total();
    j["bytes_per_token_parts"] = {
        {"routed", t.routed}, {"shared", t.shared}, {"attention", t.attention}, {"head", t.head}, {"rest", t.rest}};
    return j;
}

Json tensors_json(const convert::Plan& p) {
    Json list = Json::array();
    for (const convert::PlannedTensor& t : p.tensors)
        list.push_back({{"name", t.expected.gguf_name},
                        {"from", t.stored_name()},
                        {"to", quant::format(t.type).name},
                        {"dims", t.dims},
                        {"bytes", t.bytes},
                        {"copied", t.copy}});
    return list;
}

void print_sizes(const convert::Plan& p) {
    const model::Traffic t = p.traffic();
    const auto mb = [](uint64_t bytes) { return format_bytes(bytes); };
    fmt::print(stderr, "file         {} ({} bytes)\nbits/weight  {:.3f}\n", mb(p.file_bytes()), p.file_bytes(),
               p.bits_per_weight());
    fmt::print(stderr, "per token    {} ({} bytes): experts {}, shared {}, attention {}, head {}, rest {}\n",
               mb(t.total()), t.total(), mb(t.routed), mb(t.shared), mb(t.attention), mb(t.head), mb(t.rest));
}

int dry_run(const convert::Plan& p, const Arguments& args) {
    if (args.json) {
        Json j = {{"from", args.in}, {"out", args.out}, {"written", false}};
        j.update(size_json(p));
        j["tensor_list"] = tensors_json(p);
        print(j);
        return kExitOk;
    }
    print_tensors(p);
    print_notes(p.notes);
    print_type_totals(p);
    print_sizes(p);
    return kExitOk;
}

int compare(const convert::Plan& p, const Arguments& args) {
    const std::string& path = args.with.empty() ? args.out : args.with;
    const auto file = gguf::File::open(path);
    if (!file.ok()) return fail(file.error());
    StopOnSignal signals;
    ProgressBar bar;
    const auto result = convert::compare_tensor(p, args.compare, file.value(), args.n_thread(), [&](const Progress& x) {
        return bar.update(x) && !StopOnSignal::requested();
    });
    bar.finish();
    if (!result.ok()) return fail(result.error());
    const convert::Comparison& c = result.value();
    if (args.json) {
        print({{"tensor", args.compare},
               {"type", quant::format(c.type).name},
               {"with", path},
               {"equal", c.equal},
               {"blocks", c.n_block},
               {"blocks_that_differ", c.n_block_differs},
               {"first_difference", c.equal ? Json(nullptr) : Json(c.first_difference)}});
    } else if (c.equal) {
        fmt::print("{}: {}, {} blocks, every byte equal\n", args.compare, quant::format(c.type).name, c.n_block);
    } else {
        fmt::print("{}: {}, {} of {} blocks differ, the first at byte {} of the tensor\n", args.compare,
                   quant::format(c.type).name, c.n_block_differs, c.n_block, c.first_difference);
    }
    return c.equal ? kExitOk : kExitFailure;
}

void print_errors(const convert::Plan& p, const convert::Summary& s) {
    fmt::print("{:<40} {:<8} {:>12}  {}\n", "tensor", "format", "error/energy", "rms");
    for (const convert::TensorError& e : s.errors)
        fmt::print("{:<40} {:<8} {:>12.4e}  {:.3f} %\n", p.tensors[e.tensor].expected.gguf_name,
                   quant::format(p.tensors[e.tensor].type).name, relative(e.sum), 100 * std::sqrt(relative(e.sum)));
}

int write(const convert::Plan& p, const Arguments& args) {
    const auto started = std::chrono::steady_clock::now();
    StopOnSignal signals;
    ProgressBar bar;
    const auto result = convert::execute(
        p, {.path = args.out,
            .overwrite = args.force,
            .n_thread = args.n_thread(),
            .resumable = true,
            .restart = args.restart,
            .measure = true,
            .progress = [&](const Progress& x) { return bar.update(x) && !StopOnSignal::requested(); }});
    bar.finish();
    if (!result.ok()) return fail(result.error());
    const convert::Summary& s = result.value();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    if (args.json) {
        Json j = {{"from", args.in}, {"out", args.out}, {"written", true}};
        j.update(size_json(p));
        for (const std::string& note : s.notes) j["notes"].push_back(note);
        j["file_bytes"] = s.file_bytes;
        j["resumed_tensors"] = s.n_resumed;
        j["seconds"] = seconds;
        j["errors"] = Json::array();
        for (const convert::TensorError& e : s.errors)
            j["errors"].push_back({{"name", p.tensors[e.tensor].expected.gguf_name},
                                   {"type", quant::format(p.tensors[e.tensor].type).name},
                                   {"error", e.sum.error},
                                   {"energy", e.sum.energy},
                                   {"relative", relative(e.sum)}});
        print(j);
        return kExitOk;
    }
    if (args.verbose) print_errors(p, s);
    print_notes(p.notes);
    print_notes(s.notes);
    print_type_totals(p);
    print_sizes(p);
    if (s.n_resumed > 0) fmt::print(stderr, "continued: {} tensors were there already\n", s.n_resumed);
    fmt::print(stderr, "{}: {} tensors, {}, recipe {}, {:.1f} s\n", args.out, s.n_tensor, format_bytes(s.file_bytes),
               p.options.recipe.name, seconds);
    return kExitOk;
}

// "flash-q2.gguf" -> "flash-q2.mtp.gguf"
std::string drafter_path(const std::string& out) {
    const std::string stem = out.ends_with(".gguf") ? out.substr(0, out.size() - 5) : out;
    return stem + ".mtp.gguf";
}

// Whether OUT is what this plan makes: a run that was killed between the two files left it.
bool is_written(const convert::Plan& p, const std::string& out) {
    const auto file = MappedFile::open(out);
    if (!file.ok()) return false;
    const gguf::Writer writer = convert::new_writer(p);
    const std::vector<std::byte> header = writer.header();
    const std::span<const std::byte> bytes = file.value().bytes();
    return bytes.size() == header.size() + writer.data_bytes() &&
           std::equal(header.begin(), header.end(), bytes.begin());
}

int quantize_main(const Arguments& args) {
    auto recipe = convert::load_recipe(args.recipe);
    if (!recipe.ok()) return fail(recipe.error());
    // Say no before reading hundreds of GB, not after.
    const bool writes = !args.dry_run && args.compare.empty();
    const bool in_the_way = writes && !args.force && file_exists(args.out);
    const Error exists{Code::already_exists, strf("{}: exists already; --force replaces it", args.out)};
    if (in_the_way && file_exists(drafter_path(args.out))) return fail(exists);
    convert::Options options{.from = args.in, .recipe = std::move(recipe).value()};
    const bool recipe_drafter_is_beside = options.recipe.drafter_beside;
    options.version = VESTA_VERSION;
    options.quantize = true;
    options.strict = args.strict;
    options.ignore_unknown = args.ignore_unknown;
    for (const std::string& text : args.sets) {
        auto o = convert::Override::parse(text);
        if (!o.ok()) return fail(o.error());
        options.overrides.push_back(std::move(o).value());
    }
    if (!args.imatrix.empty()) {
        auto importance = convert::read_importance(args.imatrix);
        if (!importance.ok()) return fail(importance.error());
        options.importance = std::move(importance).value();
    }
    const std::string place = !args.drafter.empty() ? args.drafter : recipe_drafter_is_beside ? "beside" : "inside";
    if (place != "inside") options.drafter = convert::Drafter::left_out;
    const bool shapes_only = args.dry_run && args.in.ends_with(".json");
    const auto plan = shapes_only ? convert::plan_shapes(args.in, options) : convert::plan(options);
    if (!plan.ok()) return fail(plan.error());
    const bool beside = place == "beside" && plan.value().has_drafter;
    options.drafter = convert::Drafter::alone;
    if (args.dry_run) {
        if (beside && !args.json)
            fmt::print(stderr,
                       "note: the drafter (mtp.*) goes to a file of its own, *.mtp.gguf (--drafter inside keeps it)\n");
        return dry_run(plan.value(), args);
    }
    // A tensor of the drafter is compared with the file that holds it.
    const bool asks_drafter = args.compare.starts_with("mtp.") && beside;
    if (!args.compare.empty() && !asks_drafter) return compare(plan.value(), args);
    if (args.compare.empty() && beside && !args.force && file_exists(drafter_path(args.out)))
        return fail({Code::already_exists, strf("{}: exists already; --force replaces it", drafter_path(args.out))});
    const bool done = in_the_way && beside && is_written(plan.value(), args.out);
    if (in_the_way && !done) return fail(exists);
    if (args.compare.empty() && !done)
        if (const int code = write(plan.value(), args); code != kExitOk) return code;
    if (!beside) return kExitOk;
    const auto drafter = convert::plan(options);
    if (!drafter.ok()) return fail(drafter.error());
    Arguments side = args;
    side.out = drafter_path(args.out);
    if (asks_drafter) return compare(drafter.value(), side);
    side.json = false;  // one object on stdout: the main file's
    return write(drafter.value(), side);
}

}  // namespace

int cmd_quantize(int argc, char** argv) {
    Arguments args;
    CLI::App app{"Makes a model file with other formats for its weights, from a model file or an official checkpoint.",
                 "vesta quantize"};
    app.add_option("IN", args.in, "model file (.gguf) or folder of a checkpoint; for --dry-run also a config.json");
    app.add_option("OUT,--out,-o", args.out, "model file to write");
    app.add_option("--recipe", args.recipe, "which format each tensor gets: a name below, or a file")
        ->capture_default_str();
    app.add_option("--set", args.sets,
                   "'regex=type': another format for the matrices whose name the expression is found "
                   "in; repeatable, the last match wins")
        ->allow_extra_args(false);
    app.add_option("--drafter", args.drafter,
                   "the MTP block: inside OUT, beside it in *.mtp.gguf, or none; default: as the recipe says")
        ->check(CLI::IsMember({"inside", "beside", "none"}));
    app.add_option("--imatrix", args.imatrix, "importance matrix (.dat), see `vesta imatrix`");
    app.add_flag("--strict", args.strict, "refuse when the importance matrix lacks a tensor or an expert");
    app.add_flag("--dry-run", args.dry_run, "print every tensor's format and the sizes, write nothing");
    app.add_option("--compare-tensor", args.compare,
                   "encode this tensor again and compare with OUT; exit 1 if it differs");
    app.add_option("--with", args.with, "with --compare-tensor: compare with this file instead");
    app.add_option("--threads", args.threads, "default: all cores; changes no byte")->check(CLI::Range(1, 1024));
    app.add_flag("--force", args.force, "replace an existing file");
    app.add_flag("--restart", args.restart, "begin anew even if OUT.part of an earlier run could be continued");
    app.add_flag("--ignore-unknown", args.ignore_unknown,
                 "leave out checkpoint tensors that have no place in the model");
    app.add_flag("--verbose,-v", args.verbose, "print each tensor's error");
    app.add_flag("--json", args.json, "one JSON object on stdout");
    app.add_flag("--list", args.list, "print all recipes and exit");
    app.add_option("--show", args.show, "print one recipe and exit");
    app.footer("recipes:\n" + recipe_list() +
               "\nA run that was stopped or killed leaves OUT.part; the same command continues it.\n\n"
               "examples:\n"
               "  vesta quantize flash-native.gguf flash-q2.gguf --recipe q2 --imatrix flash.dat\n"
               "  vesta quantize DeepSeek-V4-Flash flash-q4.gguf --recipe q4 --set 'blk\\.[0-2]\\..*_exps=q6_k'\n"
               "  vesta quantize DeepSeek-V4-Flash/config.json --recipe q2-small --dry-run\n");
    if (const auto code = parse_or_exit(app, argc, argv, [&] {
            const bool prints_only = args.list || !args.show.empty();
            if (!prints_only && args.in.empty()) throw CLI::RequiredError("IN");
            if (!prints_only && args.out.empty() && !args.dry_run && (args.compare.empty() || args.with.empty()))
                throw CLI::RequiredError("OUT (or --dry-run)");
        }))
        return *code;
    if (args.list) return print_recipes(args.json);
    if (!args.show.empty()) {
        const auto recipe = convert::load_recipe(args.show);
        if (!recipe.ok()) return fail(recipe.error());
        fmt::print("{}", recipe.value().text);
        return kExitOk;
    }
    return quantize_main(args);
}

}  // namespace vesta::app
