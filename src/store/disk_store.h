// Conversations on disk: a folder of snapshot files in which the longest beginning of a prompt is found by its bytes.
//
// The key of a prompt (store/key.h) is hashed once from left to right; wherever a stored key ends, the hash so far is
// compared with the one in that file's header. So a lookup costs the prompt's bytes plus the number of files, whatever
// they hold. A file whose hash agrees is then compared byte by byte: a hash is a hint.
//
// What can go wrong with a file is the file's problem: it is a miss, the file is set aside, and the request goes on as
// if it had never been there. So nothing here fails because of a file but save(), whose caller wants to know. Several
// processes may use one folder (store/directory.h). All functions are safe from any thread. No threads of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/directory.h"
#include "store/key.h"
#include "store/policy.h"
#include "vesta/engine.h"

namespace vesta::store {

struct DiskOptions {
    std::string dir;
    uint64_t budget_bytes = uint64_t{4096} << 20;  // of all files in it, whichever model they belong to
    SavePolicy policy{};
    CacheFormat cache_format = CacheFormat::fp8;    // of the sessions this store is for
    bool compress = false;                          // snapshot::WriteOptions::compress
    size_t max_bad = kMaxBad;                       // files kept that were set aside
    int64_t lock_wait_ms = 30000;                   // for another process to finish its save
    std::function<int64_t()> clock{};               // seconds since 1970; empty: the system's
    std::function<void(const std::string&)> log{};  // one line per decision, without a newline; empty: nobody listens
};

// A stored beginning of a prompt. Not loaded yet.
struct Match {
    std::string path;
    snapshot::Header header;
    int64_t n_token = 0;        // stored
    size_t key_bytes = 0;       // of the prompt's key that they are
    std::vector<int32_t> rest;  // the prompt's tokens after them
    bool retokenized = false;   // the file ends inside one of the prompt's tokens
    FileId id;
    Pin pin;  // while it is held no save in any process evicts the file
};

// A match in memory.
struct Loaded {
    Snapshot snapshot;
    SnapshotNotes notes;
    std::vector<int32_t>
        tokens;  // those of the snapshot, then the rest of the prompt: for Session::sync() after restore
};

// A match in a session.
struct Resumed {
    std::string path;
    int64_t n_token = 0;          // restored; tokens.size() - n_token are to be computed
    std::vector<int32_t> tokens;  // as in Loaded. They render to the prompt, but may differ from it as tokens
    std::string tool_calls;
    Pin pin;  // keep it until prefill has succeeded, so that nobody evicts what a retry would need
};

enum class SaveOutcome {
    written,
    already_stored,
    too_short,  // below min_tokens, and nobody asked for it
    no_room,    // it would be the first to be evicted: nothing was written, nothing removed
    busy,       // another process kept the folder locked
};
const char* outcome_name(SaveOutcome outcome);

struct Saved {
    SaveOutcome outcome;
    std::string path;  // written, already_stored
    uint64_t bytes = 0;
    int n_evicted = 0;
};

class DiskStore {
 public:
    // `engine` must outlive the store. Makes the folder, removes what dead writers left, sets damaged files aside and
    // evicts down to the budget. Errors: those of Directory::open and check(SavePolicy).
    static Result<std::unique_ptr<DiskStore>> open(const Engine& engine, DiskOptions options);

    // The longest stored beginning of the prompt that a session of max_tokens can hold; nullopt: none.
    std::optional<Match> find(std::span<const int32_t> prompt, int64_t max_tokens);

    // Reads and checks everything; counts the hit. nullopt: the file is of no use, and find() will not give it again.
    // `session`: restored as well, and left as it was when that is refused.
    std::optional<Loaded> load(const Match& match, Session* session = nullptr);

    // find() and load() until one works. Only what is longer than min_reused tokens: what the session has of the prompt
    // already.
    std::optional<Resumed> resume(Session& session, std::span<const int32_t> prompt, int64_t min_reused = 0);

    // The prefill after a hit failed: whatever is wrong with this state, a retry must not meet it again.
    void drop_failed(const std::string& path, std::string_view why);

    // Errors: io and others of Engine::write_snapshot (nothing is left behind); everything else is an outcome.
    Result<Saved> save(const Snapshot& snapshot, snapshot::Reason reason, const std::string& tool_calls = {});
    // What save() would say of these tokens with about n_byte of state, before the state is copied. Looks, does
    // nothing.
    Result<SaveOutcome> would_save(std::span<const int32_t> tokens, int64_t n_byte, snapshot::Reason reason);

    const SavePolicy& policy() const { return options_.policy; }
    const std::string& dir() const { return dir_.path(); }
    uint64_t used_bytes();

 private:
    DiskStore(const Engine& engine, DiskOptions options, Directory dir);
    int64_t now() const;
    void log(const std::string& line) const;
    bool refresh();  // false: the folder cannot be listed
    bool is_refused(const Entry& entry) const;
    bool usable(const Entry& entry) const;
    // Usable files whose key, by its hash, begins `key`; shortest first.
    std::vector<const Entry*> prefixes(std::string_view key) const;
    std::optional<Match> find_but(const std::set<std::string>& tried, std::span<const int32_t> prompt,
                                  int64_t max_tokens, int64_t min_reused);
    std::optional<Match> try_match(const Entry& entry, std::span<const int32_t> prompt, const Key& key,
                                   int64_t max_tokens);
    void give_up(const std::string& name, const FileId& id, std::string_view why);
    void refuse(const Match& match, std::string_view why);
    void note_prefixes(std::string_view key, const std::string& of);

    struct Locked {  // while mutex_ is held: the folder's lock is ours too
        explicit Locked(DiskStore& s) : store(s) { store.have_lock_ = true; }
        ~Locked() { store.have_lock_ = false; }
        Locked(const Locked&) = delete;
        DiskStore& store;
    };
    struct Newcomer;
    struct Room;
    Newcomer newcomer(std::string_view key, uint64_t n_token, int64_t n_byte, snapshot::Reason reason) const;
    std::optional<SaveOutcome> known_outcome(const Newcomer& n) const;
    std::optional<Room> find_room(const Newcomer& n) const;
    int evict(const Room& room);
    int trim_to_budget(const std::string& keep);

    const Engine& engine_;
    const DiskOptions options_;
    const uint32_t row_format_;  // of files for sessions like ours
    std::mutex mutex_;           // guards everything below; not held while a snapshot is read or written
    Directory dir_;
    bool have_lock_ = false;
    std::map<std::string, FileId> refused_;          // not to be tried again: not for us, or not yet set aside
    std::map<std::string, std::string> superseded_;  // name -> a longer file that begins with it, as far as was seen
};

}  // namespace vesta::store
