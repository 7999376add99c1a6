// `vesta kv`: what lies in a folder of snapshot files, whether it is sound, and making it smaller. Needs no model, and
// works beside the server that uses the folder.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/utf8.h"
#include "command_line.h"
#include "commands.h"
#include "snapshot/file.h"
#include "store/directory.h"
#include "store/key.h"
#include "terminal.h"

namespace vesta::app {
namespace {

using Json = nlohmann::ordered_json;
using store::Directory;
using store::Entry;

constexpr int64_t kLockWaitMs = 30000;   // a server may be in the middle of a large save
constexpr size_t kShownTextBytes = 600;  // of the beginning and of the end, without --full

struct Arguments {
    std::string path;                // ls, show, prune
    std::vector<std::string> paths;  // verify
    bool json = false, full = false, set_aside = false, dry_run = false, bad = false;
    uint64_t budget = std::numeric_limits<uint64_t>::max();
    uint64_t older_than = 0;  // seconds
};

std::string ago(int64_t then, int64_t now) {
    const int64_t s = then < now ? now - std::max<int64_t>(then, 0) : 0;
    if (s < 60) return strf("{} s ago", s);
    if (s < 3600) return strf("{} min ago", s / 60);
    return s < 48 * 3600 ? strf("{} h ago", s / 3600) : strf("{} days ago", s / 86400);
}

Status print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        return Error{Code::io, "cannot write to the standard output"};
    return {};
}
Status print(const Json& j) { return print(j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"); }

Json summary_json(const snapshot::Summary& s) {
    const snapshot::Header& h = s.header;
    return {{"bytes", s.file_bytes},
            {"tokens", h.n_token},
            {"reason", snapshot::reason_name(h.reason)},
            {"hits", s.usage.hits},
            {"created", h.created},
            {"last_used", s.last_used()},
            {"model", strf("{:016x}", h.model)},
            {"row_format", h.row_format},
            {"weight_bits", static_cast<double>(h.weight_bits) / 100},
            {"layers", h.n_layer},
            {"logits", h.n_vocab > 0},
            {"text_bytes", h.text_bytes},
            {"compressed", s.compressed}};
}

Json entry_json(const Entry& e, int64_t now) {
    Json j = {{"name", replace_invalid_utf8(e.name)}};
    if (e.problem) {
        j["bytes"] = e.bytes();
        j["problem"] = replace_invalid_utf8(e.problem->message);
        return j;
    }
    j.update(summary_json(e.summary));
    j["value"] = store::value(store::worth_of(e, false), now);
    return j;
}

Status ls(const Arguments& args) {
    VESTA_TRY(Directory dir, Directory::open(args.path, false));
    VESTA_TRY_STATUS(dir.refresh());
    const int64_t now = unix_seconds();
    std::vector<const Entry*> order;
    for (const auto& [name, entry] : dir.entries()) order.push_back(&entry);
    std::stable_sort(order.begin(), order.end(),
                     [](const Entry* a, const Entry* b) { return a->last_used() > b->last_used(); });
    if (args.json) {
        Json j = {{"dir", replace_invalid_utf8(dir.path())}, {"total_bytes", dir.total_bytes()}};
        j["files"] = Json::array();
        for (const Entry* e : order) j["files"].push_back(entry_json(*e, now));
        j["bad"] = Json::array();
        for (const Directory::BadFile& b : dir.bad_files())
            j["bad"].push_back({{"name", replace_invalid_utf8(b.name)}, {"bytes", b.bytes}});
        return print(j);
    }
    std::string out = strf("{:>9}  {:>10}  {:<9}  {:>5}  {:>12}  {:<8}  {}\n", "tokens", "size", "saved", "hits",
                           "last used", "model", "file");
    for (const Entry* e : order) {
        if (e->problem) {
            out += strf("{:>9}  {:>10}  {}\n", "-", format_bytes(e->bytes()), printable(e->problem->message));
            continue;
        }
        const snapshot::Header& h = e->summary.header;
        out += strf("{:>9}  {:>10}  {:<9}  {:>5}  {:>12}  {:08x}  {}\n", h.n_token, format_bytes(e->bytes()),
                    snapshot::reason_name(h.reason), e->summary.usage.hits, ago(e->last_used(), now), h.model >> 32,
                    printable(e->name));
    }
    for (const Directory::BadFile& b : dir.bad_files())
        out += strf("{:>9}  {:>10}  set aside: {}\n", "-", format_bytes(b.bytes), printable(b.name));
    out += strf("{} in {} file{}\n", format_bytes(dir.total_bytes()), order.size() + dir.bad_files().size(),
                order.size() + dir.bad_files().size() == 1 ? "" : "s");
    return print(out);
}

// Lines and tabs as they are, everything else harmless to a terminal.
std::string shown(std::string_view text) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find_first_of("\n\t", at), text.size());
        out += printable(text.substr(at, end - at));
        if (end < text.size()) out += text[end];
        at = end + 1;
    }
    return out;
}

Status show(const Arguments& args) {
    VESTA_TRY(const snapshot::Summary s, snapshot::read_summary(args.path));
    VESTA_TRY(const std::string key, snapshot::read_text(args.path));
    const std::string text = store::readable(key);
    if (args.json) {
        Json j = {{"path", replace_invalid_utf8(args.path)}};
        j.update(summary_json(s));
        j["text"] = replace_invalid_utf8(text);
        return print(j);
    }
    const snapshot::Header& h = s.header;
    const int64_t now = unix_seconds();
    std::string out = printable(args.path) + "\n";
    const auto line = [&](const char* label, const std::string& value) { out += strf("  {:<10} {}\n", label, value); };
    line("tokens", strf("{}{}", h.n_token, h.n_vocab > 0 ? ", with the next token's logits" : ""));
    line("size", strf("{} ({} bytes), {} layers{}", format_bytes(s.file_bytes), s.file_bytes, h.n_layer,
                      s.compressed ? ", compressed" : ""));
    line("saved", strf("{}, {}", snapshot::reason_name(h.reason), ago(h.created, now)));
    line("used", s.usage.hits == 0 ? "never" : strf("{} times, last {}", s.usage.hits, ago(s.usage.last_used, now)));
    line("model", strf("{:016x}, {:.2f} bits per expert weight, row format {}", h.model,
                       static_cast<double>(h.weight_bits) / 100, h.row_format));
    line("text", strf("{} bytes", text.size()));
    const std::string_view all = text;
    if (args.full || all.size() <= 2 * kShownTextBytes) {
        out += "\n" + shown(all) + "\n";
    } else {
        const size_t head = complete_utf8_prefix(all.substr(0, kShownTextBytes));
        size_t tail = all.size() - kShownTextBytes;
        while (tail < all.size() && (static_cast<unsigned char>(all[tail]) & 0xC0) == 0x80) ++tail;
        out += strf("\n{}\n\n... {} bytes; --full shows them ...\n\n{}\n", shown(all.substr(0, head)), tail - head,
                    shown(all.substr(tail)));
    }
    return print(out);
}

// Files, and those in folders. The folder a file lies in decides where it is set aside.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& paths) {
    std::vector<std::string> out;
    for (const std::string& path : paths) {
        std::error_code ignored;
        if (!std::filesystem::is_directory(path, ignored)) {
            out.push_back(path);
            continue;
        }
        VESTA_TRY(Directory dir, Directory::open(path, false));
        VESTA_TRY_STATUS(dir.refresh());
        for (const auto& [name, entry] : dir.entries()) out.push_back(dir.path_of(name));
    }
    return out;
}

Status set_aside(const std::string& path, const store::FileId& id) {
    const std::filesystem::path p(path);
    VESTA_TRY(Directory dir, Directory::open(p.has_parent_path() ? p.parent_path().string() : ".", false));
    VESTA_TRY(const UniqueFd lock, dir.lock(kLockWaitMs));
    if (!dir.set_aside(p.filename().string(), id, store::kMaxBad))
        return Error{Code::io, strf("{}: could not be set aside; it is gone or was replaced", path)};
    return {};
}

Result<int> verify(const Arguments& args) {
    VESTA_TRY(const std::vector<std::string> files, files_of(args.paths));
    Json list = Json::array();
    std::string out;
    size_t n_bad = 0;
    int exit = kExitOk;
    ProgressBar bar;
    for (size_t i = 0; i < files.size(); ++i) {
        bar.update({.stage = "verify", .item = files[i], .done = i, .total = files.size(), .unit = "files"});
        const std::string& path = files[i];
        const auto id = store::file_id(path);
        Status status = snapshot::verify(path);
        Json j = {{"path", replace_invalid_utf8(path)}, {"ok", status.ok()}};
        std::string what = "sound";
        if (!status.ok()) {
            ++n_bad;
            const Code code = status.error().code;
            exit = std::max<int>(exit, code == Code::bad_file ? kExitBadFile : kExitFailure);
            what = status.error().message;
            j["problem"] = replace_invalid_utf8(what);
            if (args.set_aside && code == Code::bad_file && id) {
                const Status aside = set_aside(path, *id);
                if (!aside.ok()) return aside.error();
                what += "; set aside";
                j["set_aside"] = true;
            }
            out += printable(what) + "\n";
        } else {
            out += strf("{}: {}\n", printable(path), what);
        }
        list.push_back(std::move(j));
    }
    bar.finish();
    if (args.json) {
        VESTA_TRY_STATUS(print(Json{{"files", std::move(list)}, {"damaged", n_bad}}));
    } else {
        out += strf("{} file{}, {} with problems\n", files.size(), files.size() == 1 ? "" : "s", n_bad);
        VESTA_TRY_STATUS(print(out));
    }
    return exit;
}

Status prune(const Arguments& args) {
    VESTA_TRY(Directory dir, Directory::open(args.path, false));
    UniqueFd lock;
    if (!args.dry_run) {
        VESTA_TRY(lock, dir.lock(kLockWaitMs));
        dir.remove_temporaries();
    }
    VESTA_TRY_STATUS(dir.refresh());
    const int64_t now = unix_seconds();
    const int64_t since =
        args.older_than > 0 ? now - static_cast<int64_t>(args.older_than) : std::numeric_limits<int64_t>::min();
    std::vector<std::string> names = store::prunable(dir, args.budget, since, now);
    if (args.bad)
        for (const Directory::BadFile& b : dir.bad_files())
            if (std::find(names.begin(), names.end(), b.name) == names.end()) names.push_back(b.name);
    Json removed = Json::array();
    std::string out;
    uint64_t freed = 0;
    size_t n_removed = 0;
    for (const std::string& name : names) {
        const auto id = store::file_id(dir.path_of(name));
        const bool is_bad = name.ends_with(store::kBadSuffix);
        if (!args.dry_run && !(is_bad ? dir.remove_bad(name) : dir.remove(name))) continue;
        const uint64_t bytes = id ? id->bytes : 0;
        freed += bytes;
        ++n_removed;
        removed.push_back({{"name", replace_invalid_utf8(name)}, {"bytes", bytes}});
        out += strf("{} {} ({})\n", args.dry_run ? "would remove" : "removed", printable(name), format_bytes(bytes));
    }
    const uint64_t left = args.dry_run ? dir.total_bytes() - freed : dir.total_bytes();
    if (args.json)
        return print(Json{
            {"dry_run", args.dry_run}, {"removed", std::move(removed)}, {"freed_bytes", freed}, {"left_bytes", left}});
    out += strf("{} {} in {} file{}; {} left\n", format_bytes(freed), args.dry_run ? "would be freed" : "freed",
                n_removed, n_removed == 1 ? "" : "s", format_bytes(left));
    return print(out);
}

constexpr const char* kFooter =
    "A folder of snapshots is what the server keeps with --kv-dir; docs/kv.md says what is saved when, and "
    "docs/kv-format.md\n"
    "what is in a file. All of this works while a server uses the folder; files it is reading are not pruned.\n\n"
    "examples:\n"
    "  vesta kv ls ~/.cache/vesta/kv                          newest first\n"
    "  vesta kv show ~/.cache/vesta/kv/NAME.kv --full         the conversation in it\n"
    "  vesta kv verify ~/.cache/vesta/kv --set-aside          read every byte; rename what is damaged\n"
    "  vesta kv prune ~/.cache/vesta/kv --budget 10GB         drop the least valuable\n"
    "  vesta kv prune ~/.cache/vesta/kv --older-than 30d -n   what would go\n"
    "  vesta kv ls ~/.cache/vesta/kv --json | jq '.files[].tokens'";

}  // namespace

int cmd_kv(int argc, char** argv) {
    Arguments args;
    CLI::App app{"Looks after a folder of saved conversations (snapshot files).", "vesta kv"};
    app.require_subcommand(1);
    app.footer(kFooter);

    CLI::App* ls_app = app.add_subcommand("ls", "list the files of a folder, the last used first");
    ls_app->add_option("DIR", args.path, "folder of snapshots")->required();
    CLI::App* show_app = app.add_subcommand("show", "what one file says of itself, and its text");
    show_app->add_option("FILE", args.path, "snapshot file")->required();
    show_app->add_flag("--full", args.full, "the whole text, not beginning and end");
    CLI::App* verify_app = app.add_subcommand("verify", "read files to the last byte and check every checksum");
    verify_app->add_option("PATH", args.paths, "folders and files")->required();
    verify_app->add_flag("--set-aside", args.set_aside, "rename damaged ones to NAME.bad, so that nothing uses them");
    CLI::App* prune_app = app.add_subcommand("prune", "remove files until a budget holds, or by age");
    prune_app->add_option("DIR", args.path, "folder of snapshots")->required();
    CLI::Option* budget =
        prune_app->add_option("--budget", args.budget, "bytes to keep, the most valuable: 4GB, 500MB");
    budget->transform(CLI::AsSizeValue(true));
    CLI::Option* older = prune_app->add_option("--older-than", args.older_than, "not used for so long: 12h, 30d");
    older->transform(CLI::AsNumberWithUnit(
        std::map<std::string, uint64_t>{{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}, {"w", 604800}},
        CLI::AsNumberWithUnit::UNIT_REQUIRED));
    CLI::Option* bad = prune_app->add_flag("--bad", args.bad, "files that were set aside, all of them");
    prune_app->add_flag("-n,--dry-run", args.dry_run, "say what would go, remove nothing");
    for (CLI::App* sub : {ls_app, show_app, verify_app, prune_app})
        sub->add_flag("--json", args.json, "one JSON object on stdout");

    if (const auto code = parse_or_exit(app, argc, argv, [&] {
            if (*prune_app && !*budget && !*older && !*bad)
                throw CLI::RequiredError("prune: one of --budget, --older-than and --bad");
            if (args.older_than > uint64_t{100} * 365 * 86400)
                throw CLI::ValidationError("--older-than", "over a century");
        }))
        return *code;
    if (*verify_app) {
        const Result<int> exit = verify(args);
        return exit.ok() ? exit.value() : report("kv", exit.error());
    }
    const Status status = *ls_app ? ls(args) : *show_app ? show(args) : prune(args);
    return status.ok() ? kExitOk : report("kv", status.error());
}

}  // namespace vesta::app
