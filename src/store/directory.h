// A folder of snapshot files as several processes share it: what lies there, who may change it when, and which files
// somebody is reading. Knows names, sizes and the files' own summaries; nothing of tokens and models. Used by the disk
// store and by `vesta kv`.
//
// Rules between processes: files appear by rename and are never changed but for their usage slots; whoever adds,
// removes or renames one holds the folder's lock; whoever reads one just opens it, because a removed file stays
// readable through its descriptor; a file that is gone when it is opened was never there. A process that dies leaves no
// lock behind, the kernel drops it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "snapshot/file.h"
#include "store/policy.h"

namespace vesta::store {

constexpr std::string_view kSuffix = ".kv";      // snapshot files
constexpr size_t kMaxBad = 4;                    // files kept that were set aside, unless somebody says otherwise
constexpr std::string_view kBadSuffix = ".bad";  // after the whole name of one that was set aside

// Which file a name stood for when it was looked at.
struct FileId {
    uint64_t device = 0, inode = 0, bytes = 0;
    int64_t modified_ns = 0;
    bool operator==(const FileId&) const = default;
    // Counting a hit changes the time; another file under the same name has another inode, or another size.
    bool same_file(const FileId& o) const { return device == o.device && inode == o.inode && bytes == o.bytes; }
};

struct Entry {
    std::string name;  // in the folder
    FileId id;
    snapshot::Summary summary;     // meaningless with a problem
    std::optional<Error> problem;  // why the summary could not be read: bad_file, unsupported (another version), io
    uint64_t bytes() const { return id.bytes; }
    int64_t last_used() const;  // seconds; creation where there was no use, the file's time where there is no summary
};

// A file somebody reads or has just restored: no process that asks first removes it. Released by destruction or death.
class Pin {
 public:
    Pin() = default;
    bool held() const { return fd_.get() >= 0; }
    void release() { fd_.reset(); }

 private:
    friend class Directory;
    UniqueFd fd_;
};

class Directory {
 public:
    // `create`: makes it (and what is above it) with mode 0700 where it is missing. Errors: not_found; invalid_argument
    // for what is no folder, and for one that another user owns or may write to, with the command that helps: whoever
    // can put a file there decides what the model remembers.
    static Result<Directory> open(const std::string& path, bool create);

    const std::string& path() const { return path_; }
    std::string path_of(std::string_view name) const { return strf("{}/{}", path_, name); }

    // The lock for changing the folder, held until destroyed. Waits up to wait_ms. Error io: somebody else has it.
    Result<UniqueFd> lock(int64_t wait_ms) const;

    // Looks again: a summary is read only of files that are new or changed. Error io: the folder cannot be listed.
    Status refresh();
    const std::map<std::string, Entry>& entries() const { return entries_; }  // since the last refresh()
    struct BadFile {
        std::string name;
        uint64_t bytes;
        int64_t modified_ns;
    };
    const std::vector<BadFile>& bad_files() const { return bad_; }  // oldest first
    uint64_t total_bytes() const;                                   // of both

    // A pin on the file that is there now; not held when there is none.
    Pin pin(std::string_view name) const;
    bool is_pinned(std::string_view name) const;  // by any process, this one included

    // The following require the lock. False: it was not there any more, or the system refused.
    bool remove(const std::string& name);
    // Renames it to NAME.bad, for people to look at, and keeps at most max_bad of such files. `id`: only if it is still
    // this file.
    bool set_aside(const std::string& name, const FileId& id, size_t max_bad);
    bool remove_bad(const std::string& name);
    // What dead writers left: NAME.kv.tmp-*. Returns how many.
    int remove_temporaries();

 private:
    Directory() = default;
    std::string path_;
    std::map<std::string, Entry> entries_;
    std::vector<BadFile> bad_;
};

Worth worth_of(const Entry& entry, bool superseded);

// What `vesta kv prune` removes: everything that was not used since `unused_since` (seconds since 1970), then bad files
// and the least valuable snapshots until budget_bytes hold the rest. Nothing that is pinned. Requires a refresh().
std::vector<std::string> prunable(const Directory& dir, uint64_t budget_bytes, int64_t unused_since, int64_t now);

// What stat(2) says of a file now; nullopt for what is no regular file.
std::optional<FileId> file_id(const std::string& path);

}  // namespace vesta::store
