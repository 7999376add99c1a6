// Saving, and making room for it. The folder's lock is held from the look at what is there until the new file has its
// name: two processes neither write one conversation twice nor fill the budget twice.
#include <sys/statvfs.h>

#include <algorithm>
#include <limits>

#include "base/utf8.h"
#include "store/disk_store.h"

namespace vesta::store {
namespace {

// What a file has beside its sections (docs/kv-format.md): three pages, and 40 bytes of directory per section, of which
// there is one per layer and five others; one page more for what a compressed section may grow by.
uint64_t head_bytes(int64_t n_layer) { return 4 * 4096 + 40 * static_cast<uint64_t>(n_layer + 8); }

uint64_t free_bytes(const std::string& path) {
    struct statvfs fs {};
    if (::statvfs(path.c_str(), &fs) != 0) return std::numeric_limits<uint64_t>::max();  // the write will tell
    return static_cast<uint64_t>(fs.f_bavail) * static_cast<uint64_t>(fs.f_frsize);
}

}  // namespace

const char* outcome_name(SaveOutcome outcome) {
    switch (outcome) {
        case SaveOutcome::written:
            return "written";
        case SaveOutcome::already_stored:
            return "already stored";
        case SaveOutcome::too_short:
            return "too short";
        case SaveOutcome::no_room:
            return "no room";
        case SaveOutcome::busy:
            return "busy";
    }
    return "unknown";
}

// A file that is not there yet.
struct DiskStore::Newcomer {
    std::string_view key;
    std::string name;
    Worth worth;  // bytes: estimated, not less than the file will have
    snapshot::Reason reason;
};

// What has to go for it.
struct DiskStore::Room {
    std::vector<std::string> bad, victims;
};

DiskStore::Newcomer DiskStore::newcomer(std::string_view key, uint64_t n_token, int64_t n_byte,
                                        snapshot::Reason reason) const {
    Newcomer n{.key = key, .name = {}, .worth = {}, .reason = reason};
    n.name = strf("{:016x}-{:016x}-{}{}", snapshot::text_hash(key), engine_.fingerprint(), row_format_, kSuffix);
    n.worth = {
        .tokens = n_token,
        .bytes = static_cast<uint64_t>(std::max<int64_t>(0, n_byte)) + key.size() + head_bytes(engine_.info().n_layer),
        .hits = 0,
        .last_used = now(),
        .manual = reason == snapshot::Reason::manual};
    return n;
}

std::optional<SaveOutcome> DiskStore::known_outcome(const Newcomer& n) const {
    const bool asked_for = n.reason == snapshot::Reason::manual;
    if (n.worth.tokens == 0) return SaveOutcome::too_short;
    if (!asked_for && n.worth.tokens < static_cast<uint64_t>(options_.policy.min_tokens)) return SaveOutcome::too_short;
    for (const Entry* e : prefixes(n.key)) {
        if (e->summary.header.text_bytes != n.key.size()) continue;
        // One that was saved by itself is written once more when somebody asks for it: its reason is in its header.
        if (!asked_for || e->summary.header.reason == snapshot::Reason::manual) return SaveOutcome::already_stored;
    }
    return std::nullopt;
}

// nullopt: there is none for this newcomer. Requires mutex_ and an index that was just refreshed.
std::optional<DiskStore::Room> DiskStore::find_room(const Newcomer& n) const {
    Room room;
    uint64_t used = dir_.total_bytes(), freed = 0;
    std::vector<const Entry*> entries;
    std::vector<Candidate> candidates;
    const std::vector<const Entry*> shorter = prefixes(n.key);
    for (const auto& [name, entry] : dir_.entries()) {
        if (name == n.name) {
            used -= entry.bytes();  // replaced
            continue;
        }
        const bool is_prefix = std::find(shorter.begin(), shorter.end(), &entry) != shorter.end();
        entries.push_back(&entry);
        candidates.push_back({worth_of(entry, is_prefix || superseded_.contains(name)), false});
    }
    if (n.worth.bytes > options_.budget_bytes) return std::nullopt;
    const uint64_t allowed = options_.budget_bytes - n.worth.bytes;
    for (const Directory::BadFile& b : dir_.bad_files()) {
        if (used - freed <= allowed) break;
        room.bad.push_back(b.name);
        freed += b.bytes;
    }
    const double newcomer_value = value(n.worth, n.worth.last_used);
    while (used - freed > allowed) {
        const auto victims = make_room(candidates, used - freed - allowed, newcomer_value, n.worth.last_used);
        if (!victims) return std::nullopt;
        bool any_pinned = false;
        for (const size_t v : *victims)
            if (dir_.is_pinned(entries[v]->name)) candidates[v].pinned = any_pinned = true;
        if (any_pinned) continue;
        for (const size_t v : *victims) room.victims.push_back(entries[v]->name), freed += entries[v]->bytes();
    }
    const uint64_t on_disk = free_bytes(dir_.path());
    if (n.worth.bytes > on_disk && n.worth.bytes - on_disk > freed) return std::nullopt;
    return room;
}

// Requires mutex_ and the folder's lock.
int DiskStore::evict(const Room& room) {
    int n_removed = 0;
    for (const std::string& name : room.bad) dir_.remove_bad(name);
    for (const std::string& name : room.victims) {
        if (!dir_.remove(name)) continue;
        ++n_removed;
        log(strf("{} is evicted", name));
    }
    return n_removed;
}

// For a folder that holds more than the budget all the same: it was made smaller, or an estimate was too low. Requires
// mutex_ and the folder's lock.
int DiskStore::trim_to_budget(const std::string& keep) {
    if (!refresh()) return 0;
    Room room;
    uint64_t used = dir_.total_bytes();
    for (const Directory::BadFile& b : dir_.bad_files()) {
        if (used <= options_.budget_bytes) break;
        room.bad.push_back(b.name);
        used -= b.bytes;
    }
    std::vector<std::string> names;
    std::vector<Candidate> candidates;
    for (const auto& [name, entry] : dir_.entries()) {
        if (name == keep || (used > options_.budget_bytes && dir_.is_pinned(name))) continue;
        names.push_back(name);
        candidates.push_back({worth_of(entry, superseded_.contains(name)), false});
    }
    while (used > options_.budget_bytes) {  // least valuable first, as far as it goes
        const auto victims = make_room(candidates, 1, std::numeric_limits<double>::infinity(), now());
        if (!victims || victims->empty()) break;
        const size_t v = victims->front();
        used -= candidates[v].worth.bytes;
        room.victims.push_back(names[v]);
        candidates[v].pinned = true;
    }
    return evict(room);
}

Result<SaveOutcome> DiskStore::would_save(std::span<const int32_t> tokens, int64_t n_byte, snapshot::Reason reason) {
    VESTA_TRY(const Key key, key_of(engine_.tokenizer(), tokens));
    const std::lock_guard guard(mutex_);
    VESTA_TRY_STATUS(dir_.refresh());
    const Newcomer n = newcomer(key.bytes, tokens.size(), n_byte, reason);
    if (const auto known = known_outcome(n)) return *known;
    return find_room(n) ? SaveOutcome::written : SaveOutcome::no_room;
}

Result<Saved> DiskStore::save(const Snapshot& snapshot, snapshot::Reason reason, const std::string& tool_calls) {
    VESTA_TRY(Key key, key_of(engine_.tokenizer(), snapshot.tokens()));
    const int64_t n_byte = snapshot.n_byte() + static_cast<int64_t>(tool_calls.size());
    const Newcomer n = newcomer(key.bytes, snapshot.tokens().size(), n_byte, reason);
    Saved saved{.outcome = SaveOutcome::busy, .path = dir_.path_of(n.name)};
    const auto end = [&](SaveOutcome outcome) {
        saved.outcome = outcome;
        if (outcome != SaveOutcome::written && outcome != SaveOutcome::already_stored) saved.path.clear();
        log(strf("{} ({}, {} tokens): {}", n.name, snapshot::reason_name(reason), snapshot.n_token(),
                 outcome_name(outcome)));
        return saved;
    };
    // Once without the lock: most saves that need not happen are told apart here, without waiting for anybody.
    {
        const std::lock_guard guard(mutex_);
        if (!refresh()) return Error{Code::io, strf("{}: cannot list the snapshot folder", dir_.path())};
        if (const auto known = known_outcome(n)) return end(*known);
    }
    const Result<UniqueFd> lock = dir_.lock(options_.lock_wait_ms);
    if (!lock.ok()) {
        log(lock.error().message);
        return end(SaveOutcome::busy);
    }
    {
        const std::lock_guard guard(mutex_);
        const Locked locked(*this);
        dir_.remove_temporaries();
        if (!refresh()) return Error{Code::io, strf("{}: cannot list the snapshot folder", dir_.path())};
        if (const auto known = known_outcome(n)) return end(*known);
        const std::optional<Room> room = find_room(n);
        if (!room) return end(SaveOutcome::no_room);
        saved.n_evicted = evict(*room);
    }
    VESTA_TRY_STATUS(engine_.write_snapshot(snapshot, saved.path, {reason, key.bytes, tool_calls},
                                            {.compress = options_.compress, .overwrite = true}));
    const std::lock_guard guard(mutex_);
    const Locked locked(*this);
    refused_.erase(n.name);
    saved.n_evicted += trim_to_budget(n.name);
    const auto written = dir_.entries().find(n.name);
    if (written != dir_.entries().end()) saved.bytes = written->second.bytes();
    note_prefixes(key.bytes, n.name);
    return end(SaveOutcome::written);
}

}  // namespace vesta::store
