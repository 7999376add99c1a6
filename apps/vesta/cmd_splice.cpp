// `vesta splice`: chosen layers of one model file replaced by those of another file of the same model.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "command_line.h"
#include "commands.h"
#include "convert/splice.h"
#include "stop_signal.h"
#include "terminal.h"

namespace vesta::app {
namespace {

struct Arguments {
    std::string base, donor, layers, tensors = "experts", out;
    bool dry_run = false, force = false, json = false;
};

void print_plan(const convert::Splice& s) {
    for (const convert::SplicedTensor& t : s.plan) {
        if (!t.from_donor) continue;
        const gguf::TensorInfo* old = s.base->find_tensor(t.tensor->name);
        fmt::print("{:<40} {:>7} -> {:<7} {:>12} -> {:>12} bytes\n", printable(t.tensor->name),
                   quant::format(old->type).name, quant::format(t.tensor->type).name, old->bytes.size(),
                   t.tensor->bytes.size());
    }
}

void print_json(const convert::Splice& s, const Arguments& args, bool written) {
    nlohmann::ordered_json j = {
        {"base", args.base},         {"donor", args.donor},          {"out", args.out},
        {"written", written},        {"layers", args.layers},        {"which", args.tensors},
        {"tensors", s.plan.size()},  {"from_donor", s.n_from_donor}, {"types_changed", s.n_type_changed},
        {"file_bytes", s.file_bytes}};
    fmt::print("{}\n", j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

int splice_main(const Arguments& args) {
    if (!args.dry_run && !args.force && file_exists(args.out))
        return report("splice", {Code::already_exists, strf("{}: exists already; --force replaces it", args.out)});
    const auto base = gguf::File::open(args.base), donor = gguf::File::open(args.donor);
    if (!base.ok()) return report("splice", base.error());
    if (!donor.ok()) return report("splice", donor.error());
    const auto splice = convert::plan_splice(base.value(), donor.value(), args.layers, args.tensors);
    if (!splice.ok()) return report("splice", splice.error());
    const convert::Splice& s = splice.value();
    if (!args.dry_run) {
        StopOnSignal signals;
        ProgressBar bar;
        const Status status = convert::write_splice(
            s, args.out, args.force, [&](const Progress& p) { return bar.update(p) && !StopOnSignal::requested(); });
        bar.finish();
        if (!status.ok()) return report("splice", status.error());
    } else if (!args.json) {
        print_plan(s);
    }
    if (args.json)
        print_json(s, args, !args.dry_run);
    else
        fmt::print(stderr, "{}{}: {} of {} tensors from {}, {} change their format; {} ({} bytes)\n",
                   args.dry_run ? "would write " : "", args.out.empty() ? "a file" : args.out, s.n_from_donor,
                   s.plan.size(), args.donor, s.n_type_changed, format_bytes(s.file_bytes), s.file_bytes);
    return kExitOk;
}

}  // namespace

int cmd_splice(int argc, char** argv) {
    Arguments args;
    CLI::App app{"Copies the tensors of some layers from a second file of the same model, byte for byte.",
                 "vesta splice"};
    app.add_option("BASE", args.base, "model file that gives everything else")->required();
    app.add_option("DONOR", args.donor, "model file that gives the chosen layers")->required();
    app.add_option("--layers", args.layers, "inclusive ranges, from 0: 37:42 or 0,5:7")->required();
    app.add_option("--tensors", args.tensors, "experts (the routed ones) or all")
        ->check(CLI::IsMember({"experts", "all"}))
        ->capture_default_str();
    app.add_option("OUT,--out,-o", args.out, "model file to write");
    app.add_flag("--dry-run", args.dry_run, "print what would be taken, write nothing");
    app.add_flag("--force", args.force, "replace an existing file");
    app.add_flag("--json", args.json, "one JSON object on stdout");
    app.footer(
        "example:\n  vesta splice flash-q2.gguf flash-q4.gguf --layers 37:42 --tensors experts -o flash-mixed.gguf\n");
    if (const auto code = parse_or_exit(app, argc, argv, [&] {
            if (args.out.empty() && !args.dry_run) throw CLI::RequiredError("--out (or --dry-run)");
        }))
        return *code;
    return splice_main(args);
}

}  // namespace vesta::app
