// Finding and loading. Saving and evicting: disk_save.cpp.
#include "store/disk_store.h"

#include <algorithm>

#include "base/clock.h"
#include "base/hash.h"
#include "base/utf8.h"

namespace vesta::store {
namespace {

// A request does not wait for another process's save only to rename a damaged file.
constexpr int64_t kShortWaitMs = 200;

std::string_view name_in(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

DiskStore::DiskStore(const Engine& engine, DiskOptions options, Directory dir)
    : engine_(engine),
      options_(std::move(options)),
      row_format_(engine.row_format_number(options_.cache_format)),
      dir_(std::move(dir)) {}

int64_t DiskStore::now() const {
    return options_.clock ? options_.clock() : unix_seconds();
}

void DiskStore::log(const std::string& line) const {
    if (options_.log) options_.log(printable(line));
}

Result<std::unique_ptr<DiskStore>> DiskStore::open(const Engine& engine, DiskOptions options) {
    VESTA_TRY_STATUS(check(options.policy));
    VESTA_TRY(Directory dir, Directory::open(options.dir, /*create=*/true));
    std::unique_ptr<DiskStore> store(new DiskStore(engine, std::move(options), std::move(dir)));
    const std::lock_guard guard(store->mutex_);
    const Result<UniqueFd> lock = store->dir_.lock(store->options_.lock_wait_ms);
    if (!lock.ok()) {  // the next save tidies up
        store->log(lock.error().message);
        return store;
    }
    if (const int n = store->dir_.remove_temporaries(); n > 0) store->log(strf("removed {} unfinished files", n));
    VESTA_TRY_STATUS(store->dir_.refresh());
    const Locked locked(*store);
    store->trim_to_budget({});
    return store;
}

bool DiskStore::refresh() {
    if (const Status status = dir_.refresh(); !status.ok()) {
        log(status.error().message);
        return false;
    }
    const auto gone = [&](const std::string& name) { return !dir_.entries().contains(name); };
    std::erase_if(refused_, [&](const auto& r) { return gone(r.first); });
    std::erase_if(superseded_, [&](const auto& s) { return gone(s.first) || gone(s.second); });
    std::vector<Entry> damaged;  // copies: giving a file up changes the index
    for (const auto& [name, entry] : dir_.entries())
        if (entry.problem && entry.problem->code == Code::bad_file && (have_lock_ || !is_refused(entry)))
            damaged.push_back(entry);
    for (const Entry& entry : damaged) give_up(entry.name, entry.id, entry.problem->message);
    return true;
}

bool DiskStore::is_refused(const Entry& entry) const {
    const auto refused = refused_.find(entry.name);
    return refused != refused_.end() && refused->second.same_file(entry.id);
}

bool DiskStore::usable(const Entry& entry) const {
    if (entry.problem) return false;
    const snapshot::Header& h = entry.summary.header;
    if (h.model != engine_.fingerprint() || h.row_format != row_format_) return false;
    if (h.n_token == 0 || h.text_bytes == 0) return false;
    if (h.reason != snapshot::Reason::manual && h.n_token < static_cast<uint64_t>(options_.policy.min_tokens))
        return false;
    return !is_refused(entry);
}

std::vector<const Entry*> DiskStore::prefixes(std::string_view key) const {
    std::vector<const Entry*> order;
    for (const auto& [name, entry] : dir_.entries())
        if (usable(entry) && entry.summary.header.text_bytes <= key.size()) order.push_back(&entry);
    const auto length = [](const Entry* e) { return e->summary.header.text_bytes; };
    std::stable_sort(order.begin(), order.end(), [&](const Entry* a, const Entry* b) { return length(a) < length(b); });
    std::vector<const Entry*> out;
    Hash64 hash;
    size_t hashed = 0;
    for (const Entry* e : order) {
        const auto end = static_cast<size_t>(length(e));
        if (end > hashed) hash.add(std::as_bytes(std::span(key.substr(hashed, end - hashed))));
        hashed = end;
        if (hash.digest() == e->summary.header.text_hash) out.push_back(e);
    }
    return out;
}

// Sets a damaged file aside. Requires mutex_. Without the folder's lock it is only never looked at again.
void DiskStore::give_up(const std::string& name, const FileId& id, std::string_view why) {
    log(strf("{} is set aside: {}", name, why));
    refused_[name] = id;
    superseded_.erase(name);
    if (have_lock_) {
        dir_.set_aside(name, id, options_.max_bad);
        return;
    }
    const Result<UniqueFd> lock = dir_.lock(kShortWaitMs);
    if (lock.ok()) dir_.set_aside(name, id, options_.max_bad);
}

void DiskStore::refuse(const Match& match, std::string_view why) {
    log(strf("{} is not used: {}", match.path, why));
    const std::lock_guard guard(mutex_);
    refused_[std::string(name_in(match.path))] = match.id;
}

// Of all stored beginnings of `key`, `of` is the longest: the others are there for its sake only. Requires mutex_.
void DiskStore::note_prefixes(std::string_view key, const std::string& of) {
    for (const Entry* e : prefixes(key))
        if (e->name != of && e->summary.header.reason != snapshot::Reason::manual) superseded_[e->name] = of;
}

// What the file says, against the prompt itself. Requires mutex_.
std::optional<Match> DiskStore::try_match(const Entry& entry, std::span<const int32_t> prompt, const Key& key,
                                          int64_t max_tokens) {
    const snapshot::Header& h = entry.summary.header;
    const auto at = static_cast<size_t>(h.text_bytes);
    if (!can_continue_at(engine_.tokenizer(), prompt, key, at)) return std::nullopt;
    Match match;
    match.path = dir_.path_of(entry.name);
    match.header = h;
    match.n_token = static_cast<int64_t>(h.n_token);
    match.key_bytes = at;
    match.id = entry.id;
    match.pin = dir_.pin(entry.name);
    if (!match.pin.held()) return std::nullopt;  // gone, or not ours to read: a miss
    const Result<std::string> text = snapshot::read_text(match.path);
    if (!text.ok()) {
        if (text.error().code == Code::bad_file) give_up(entry.name, match.id, text.error().message);
        return std::nullopt;
    }
    if (text.value() != std::string_view(key.bytes).substr(0, at)) {
        if (text.value().size() != at || snapshot::text_hash(text.value()) != h.text_hash)
            give_up(entry.name, match.id, "its text is not the one its header speaks of");
        return std::nullopt;  // otherwise a collision: its own text, but another one
    }
    Result<std::vector<int32_t>> rest = tokens_after(engine_.tokenizer(), prompt, key, at);
    if (!rest.ok()) {
        log(rest.error().message);
        return std::nullopt;
    }
    match.rest = std::move(rest).value();
    match.retokenized = !std::binary_search(key.ends.begin(), key.ends.end(), at);
    if (match.n_token + static_cast<int64_t>(match.rest.size()) > max_tokens) return std::nullopt;
    return match;
}

std::optional<Match> DiskStore::find_but(const std::set<std::string>& tried, std::span<const int32_t> prompt,
                                         int64_t max_tokens, int64_t min_reused) {
    const Result<Key> key = key_of(engine_.tokenizer(), prompt);
    if (!key.ok()) {
        log(key.error().message);
        return std::nullopt;
    }
    const std::lock_guard guard(mutex_);
    if (!refresh()) return std::nullopt;
    std::vector<Entry> found;  // copies: giving a file up changes the index
    for (const Entry* e : prefixes(key.value().bytes))
        if (!tried.contains(e->name) && static_cast<int64_t>(e->summary.header.n_token) > min_reused)
            found.push_back(*e);
    for (size_t i = found.size(); i-- > 0;) {
        std::optional<Match> match = try_match(found[i], prompt, key.value(), max_tokens);
        if (!match) continue;
        note_prefixes(std::string_view(key.value().bytes).substr(0, match->key_bytes), found[i].name);
        return match;
    }
    return std::nullopt;
}

std::optional<Match> DiskStore::find(std::span<const int32_t> prompt, int64_t max_tokens) {
    return find_but({}, prompt, max_tokens, 0);
}

std::optional<Loaded> DiskStore::load(const Match& match, Session* session) {
    const auto damaged = [&](std::string_view why) {
        const std::lock_guard guard(mutex_);
        give_up(std::string(name_in(match.path)), match.id, why);
        return std::nullopt;
    };
    Result<SavedSnapshot> read = engine_.read_snapshot(match.path);
    if (!read.ok()) {
        const Error& e = read.error();
        if (e.code == Code::bad_file) return damaged(e.message);
        if (e.code == Code::unsupported)
            refuse(match, e.message);
        else
            log(strf("not loaded: {}", e.message));  // gone, or the system refused: another time perhaps
        return std::nullopt;
    }
    SavedSnapshot& saved = read.value();
    // The file may be another one than find() saw, and its tokens are not the prompt's: both are held against the text.
    const Result<Key> key = key_of(engine_.tokenizer(), saved.snapshot.tokens());
    if (!key.ok() || key.value().bytes != saved.notes.text) return damaged("its text is not that of its tokens");
    if (key.value().bytes.size() != match.key_bytes ||
        snapshot::text_hash(saved.notes.text) != match.header.text_hash) {
        log(strf("{} was replaced by another conversation", match.path));
        return std::nullopt;
    }
    if (session != nullptr) {
        if (const Status status = session->restore(saved.snapshot); !status.ok()) {
            log(strf("not restored: {}", status.error().message));  // another session may take it
            return std::nullopt;
        }
    }
    if (const Status used = snapshot::record_use(match.path, now()); !used.ok()) log(used.error().message);
    const std::span<const int32_t> tokens = saved.snapshot.tokens();
    Loaded loaded{saved.snapshot, std::move(saved.notes), {tokens.begin(), tokens.end()}};
    loaded.tokens.insert(loaded.tokens.end(), match.rest.begin(), match.rest.end());
    return loaded;
}

std::optional<Resumed> DiskStore::resume(Session& session, std::span<const int32_t> prompt, int64_t min_reused) {
    std::set<std::string> tried;
    while (std::optional<Match> match = find_but(tried, prompt, session.n_ctx(), min_reused)) {
        std::optional<Loaded> loaded = load(*match, &session);
        if (loaded)
            return Resumed{.path = match->path,
                           .n_token = loaded->snapshot.n_token(),
                           .tokens = std::move(loaded->tokens),
                           .tool_calls = std::move(loaded->notes.tool_calls),
                           .pin = std::move(match->pin)};
        tried.emplace(name_in(match->path));
    }
    return std::nullopt;
}

void DiskStore::drop_failed(const std::string& path, std::string_view why) {
    const std::lock_guard guard(mutex_);
    const std::string name(name_in(path));
    if (const std::optional<FileId> id = file_id(dir_.path_of(name))) give_up(name, *id, why);
}

uint64_t DiskStore::used_bytes() {
    const std::lock_guard guard(mutex_);
    return refresh() ? dir_.total_bytes() : 0;
}

}  // namespace vesta::store
