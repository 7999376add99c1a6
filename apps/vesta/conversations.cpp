#include "conversations.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "conversation_file.h"
#include "snapshot/file.h"
#include "user_folder.h"

namespace vesta::app {
namespace {

namespace fs = std::filesystem;

}  // namespace

bool Conversations::valid_name(std::string_view name) {
    const auto letter_or_digit = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    };
    return !name.empty() && name.size() <= 64 && letter_or_digit(name[0]) &&
           std::ranges::all_of(name, [&](char c) { return letter_or_digit(c) || c == '.' || c == '_' || c == '-'; });
}

std::string Conversations::default_folder() {
    const std::string folder = user_folder("XDG_DATA_HOME", ".local/share");
    return folder.empty() ? folder : folder + "/conversations";
}

std::string Conversations::park(Conversation c) {
    if (c.name.empty()) {
        int n = 1;
        while (parked_.contains(strf("unnamed-{}", n))) ++n;
        c.name = strf("unnamed-{}", n);
    }
    const std::string name = c.name;
    parked_.insert_or_assign(name, std::move(c));
    return name;
}

Conversation Conversations::take(const std::string& name) {
    const auto at = parked_.find(name);
    VESTA_CHECK(at != parked_.end());
    Conversation c = std::move(at->second);
    parked_.erase(at);
    return c;
}

Status Conversations::save(const Conversation& c, bool own) {
    if (folder_.empty())
        return Error{Code::not_found, "there is no home folder to save conversations in; /save ./FILE.json writes a file"};
    VESTA_TRY_STATUS(make_private_folder(folder_));
    if (!own && is_saved(c.name))
        return Error{Code::already_exists, strf("{}: exists; /load {} goes on with it, another name keeps it",
                                                path(c.name, ".json"), c.name)};
    // The state first: messages beside an older state are found out when they are loaded, because the state's tokens
    // then are no beginning of theirs; nothing is lost either way.
    Status state;
    if (c.state)
        state = engine_.write_snapshot(*c.state, path(c.name, ".vkv"), {.reason = snapshot::Reason::manual, .text = {}, .tool_calls = {}},
                                       {.compress = false, .overwrite = true});
    VESTA_TRY_STATUS(save_conversation(path(c.name, ".json"), c.messages, engine_.info().name, own));
    return state;
}

bool Conversations::is_saved(const std::string& name) const {
    return !folder_.empty() && file_exists(path(name, ".json"));
}

Result<Conversation> Conversations::load(const std::string& name, std::string& remark) const {
    Conversation c;
    c.name = name;
    VESTA_TRY(c.messages, load_conversation(path(name, ".json")));
    if (!file_exists(path(name, ".vkv"))) return c;
    auto saved = engine_.read_snapshot(path(name, ".vkv"));
    if (saved.ok())
        c.state = std::move(saved).value().snapshot;
    else
        remark = saved.error().message;
    return c;
}

std::vector<Conversations::Entry> Conversations::list() const {
    std::map<std::string, Entry> all;
    for (const auto& [name, c] : parked_) {
        Entry& e = all[name];
        e.open = true;
        e.n_message = static_cast<int64_t>(c.messages.size());
        if (c.state) e.n_token = c.state->n_token(), e.n_byte = c.state->n_byte();
    }
    std::error_code error;
    for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
        const fs::path file = it->path();
        if (file.extension() != ".json" || !valid_name(file.stem().string())) continue;
        Entry& e = all[file.stem().string()];
        e.saved = true;
        struct stat s{};
        if (::stat(file.c_str(), &s) == 0) e.changed = s.st_mtime;
        if (e.open) continue;
        if (const auto summary = snapshot::read_summary(path(file.stem().string(), ".vkv")); summary.ok()) {
            e.n_token = static_cast<int64_t>(summary.value().header.n_token);
            e.n_byte = static_cast<int64_t>(summary.value().file_bytes);
        }
    }
    std::vector<Entry> out;
    for (auto& [name, e] : all) {
        e.name = name;
        out.push_back(e);
    }
    return out;
}

}  // namespace vesta::app
