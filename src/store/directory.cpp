#include "store/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "base/utf8.h"

namespace vesta::store {
namespace {

constexpr const char* kLockName = ".lock";

Error refusal(Code code, const std::string& path, std::string_view what) {
    return Error{code, strf("{}: {}", printable(path), what)};
}

Error system_refusal(const std::string& path, std::string_view doing) {
    const int e = errno;
    const std::string shown = printable(path);
    errno = e;
    return system_error(shown, doing);
}

int64_t modified_ns(const struct stat& st) {
#ifdef __APPLE__
    const timespec t = st.st_mtimespec;
#else
    const timespec t = st.st_mtim;
#endif
    return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

std::optional<FileId> to_id(const struct stat& st) {
    if (!S_ISREG(st.st_mode)) return std::nullopt;
    return FileId{.device = static_cast<uint64_t>(st.st_dev),
                  .inode = static_cast<uint64_t>(st.st_ino),
                  .bytes = static_cast<uint64_t>(st.st_size),
                  .modified_ns = modified_ns(st)};
}

// One names() for everything that walks the folder. Names with a slash or NUL cannot occur.
Result<std::vector<std::string>> names(const std::string& path) {
    struct Close {
        void operator()(DIR* d) const { ::closedir(d); }
    };
    const std::unique_ptr<DIR, Close> dir(::opendir(path.c_str()));
    if (dir == nullptr) return system_refusal(path, "list the folder");
    std::vector<std::string> out;
    for (errno = 0; const dirent* entry = ::readdir(dir.get()); errno = 0) out.emplace_back(entry->d_name);
    if (errno != 0) return system_refusal(path, "list the folder");
    std::sort(out.begin(), out.end());
    return out;
}

}  // namespace

std::optional<FileId> file_id(const std::string& path) {
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0) return std::nullopt;
    return to_id(st);
}

int64_t Entry::last_used() const {
    if (problem) return id.modified_ns / 1000000000;
    return summary.last_used();
}

Worth worth_of(const Entry& entry, bool superseded) {
    if (entry.problem)  // of a version this program cannot read: of no value to it
        return {.tokens = 0, .bytes = entry.bytes(), .hits = 0, .last_used = entry.last_used()};
    const snapshot::Header& h = entry.summary.header;
    const bool manual = h.reason == snapshot::Reason::manual;
    return {.tokens = h.n_token,
            .bytes = entry.bytes(),
            .hits = entry.summary.usage.hits,
            .last_used = entry.last_used(),
            .manual = manual,
            .superseded = superseded && !manual};
}

std::vector<std::string> prunable(const Directory& dir, uint64_t budget_bytes, int64_t unused_since, int64_t now) {
    struct Ranked {
        const Entry* entry;
        double value;
    };
    std::vector<std::string> out;
    std::vector<Ranked> order;
    uint64_t left = dir.total_bytes();
    const auto take = [&](const std::string& name, uint64_t bytes) {
        out.push_back(name);
        left -= bytes;
    };
    for (const Directory::BadFile& b : dir.bad_files())
        if (b.modified_ns / 1000000000 < unused_since || left > budget_bytes) take(b.name, b.bytes);
    for (const auto& [name, entry] : dir.entries()) {
        if (dir.is_pinned(name)) continue;
        if (entry.last_used() < unused_since)
            take(name, entry.bytes());
        else
            order.push_back({&entry, value(worth_of(entry, false), now)});
    }
    std::sort(order.begin(), order.end(), [](const Ranked& a, const Ranked& b) {
        if (a.value != b.value) return a.value < b.value;
        return a.entry->last_used() != b.entry->last_used() ? a.entry->last_used() < b.entry->last_used()
                                                            : a.entry->name < b.entry->name;
    });
    for (const Ranked& r : order)
        if (left > budget_bytes) take(r.entry->name, r.entry->bytes());
    return out;
}

Result<Directory> Directory::open(const std::string& path, bool create) {
    if (path.empty()) return Error{Code::invalid_argument, "the name of the snapshot folder is empty"};
    std::string clean = path;
    while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
    struct stat st {};
    if (::stat(clean.c_str(), &st) != 0) {
        if (errno != ENOENT || !create) return system_refusal(clean, "open the snapshot folder");
        VESTA_TRY_STATUS(make_private_folder(clean));
        if (::stat(clean.c_str(), &st) != 0) return system_refusal(clean, "open the snapshot folder");
    }
    if (!S_ISDIR(st.st_mode)) return refusal(Code::invalid_argument, clean, "expected a folder for snapshots");
    if (st.st_uid != ::geteuid())
        return refusal(Code::invalid_argument, clean,
                       strf("the snapshot folder belongs to user {}, expected {} (you); choose another one", st.st_uid,
                            ::geteuid()));
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return refusal(Code::invalid_argument, clean,
                       strf("other users may write to the snapshot folder (mode {:04o}), expected 0700; "
                            "run: chmod 700 '{}'",
                            st.st_mode & 07777, printable(clean)));
    Directory d;
    d.path_ = std::move(clean);
    return d;
}

Result<UniqueFd> Directory::lock(int64_t wait_ms) const {
    const std::string name = path_of(kLockName);
    UniqueFd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd.get() < 0) return system_refusal(name, "open the lock");
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
    // Asked again and again instead of waiting in flock(): a process that is stopped while it holds the lock must not
    // stop every other one for good.
    while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) return system_refusal(name, "lock");
        if (std::chrono::steady_clock::now() >= give_up)
            return refusal(Code::io, path_,
                           strf("another process has been changing the snapshot folder for {} ms", wait_ms));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return fd;
}

Status Directory::refresh() {
    VESTA_TRY(const std::vector<std::string> all, names(path_));
    std::map<std::string, Entry> next;
    std::vector<BadFile> bad;
    for (const std::string& name : all) {
        const bool is_snapshot = name.ends_with(kSuffix);
        if (!is_snapshot && !name.ends_with(strf("{}{}", kSuffix, kBadSuffix))) continue;
        const std::string full = path_of(name);
        const std::optional<FileId> id = file_id(full);
        if (!id) continue;
        if (!is_snapshot) {
            bad.push_back({name, id->bytes, id->modified_ns});
            continue;
        }
        if (const auto known = entries_.find(name); known != entries_.end() && known->second.id == *id) {
            next.insert(entries_.extract(known));
            continue;
        }
        Entry entry{.name = name, .id = *id, .summary = {}, .problem = {}};
        Result<snapshot::Summary> summary = snapshot::read_summary(full);
        if (summary.ok()) {
            entry.summary = std::move(summary).value();
        } else {
            if (summary.error().code == Code::not_found) continue;
            entry.problem = summary.error();
        }
        next.emplace(name, std::move(entry));
    }
    std::sort(bad.begin(), bad.end(), [](const BadFile& a, const BadFile& b) {
        return a.modified_ns != b.modified_ns ? a.modified_ns < b.modified_ns : a.name < b.name;
    });
    entries_ = std::move(next);
    bad_ = std::move(bad);
    return {};
}

uint64_t Directory::total_bytes() const {
    uint64_t total = 0;
    for (const auto& [name, entry] : entries_) total += entry.bytes();
    for (const BadFile& b : bad_) total += b.bytes;
    return total;
}

// Pins are open-file-description locks: they belong to a descriptor, so that two pins of one process are two, and they
// do not meet the flock() with which hits are counted. Where the system has none, pins protect nothing against other
// processes, and a removed file is a miss.
Pin Directory::pin(std::string_view name) const {
    Pin pin;
    pin.fd_ = UniqueFd(::open(path_of(name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
#ifdef F_OFD_SETLK
    if (pin.held()) {
        struct flock lock {};
        lock.l_type = F_RDLCK;
        lock.l_whence = SEEK_SET;
        (void)::fcntl(pin.fd_.get(), F_OFD_SETLK, &lock);
    }
#endif
    return pin;
}

bool Directory::is_pinned(std::string_view name) const {
#ifdef F_OFD_SETLK
    const UniqueFd fd(::open(path_of(name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd.get() < 0) return false;
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    return ::fcntl(fd.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
#else
    (void)name;
    return false;
#endif
}

bool Directory::remove(const std::string& name) {
    entries_.erase(name);
    return ::unlink(path_of(name).c_str()) == 0;
}

bool Directory::remove_bad(const std::string& name) {
    std::erase_if(bad_, [&](const BadFile& b) { return b.name == name; });
    return ::unlink(path_of(name).c_str()) == 0;
}

bool Directory::set_aside(const std::string& name, const FileId& id, size_t max_bad) {
    const std::optional<FileId> now = file_id(path_of(name));
    if (!now || !now->same_file(id)) return false;
    entries_.erase(name);
    if (max_bad == 0) return ::unlink(path_of(name).c_str()) == 0;
    const std::string bad_name = strf("{}{}", name, kBadSuffix);
    if (::rename(path_of(name).c_str(), path_of(bad_name).c_str()) != 0)
        return ::unlink(path_of(name).c_str()) == 0;  // better gone than tried again
    // The time of the last change says when it was written; what counts here is when it was set aside.
    (void)::utimensat(AT_FDCWD, path_of(bad_name).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    if (!refresh().ok()) return true;
    while (bad_.size() > max_bad) {
        const std::string oldest = bad_.front().name;
        remove_bad(oldest);
    }
    return true;
}

int Directory::remove_temporaries() {
    const Result<std::vector<std::string>> all = names(path_);
    if (!all.ok()) return 0;
    const std::string mark = strf("{}.tmp-", kSuffix);
    std::set<std::string> of;
    for (const std::string& name : all.value())
        if (const size_t at = name.find(mark); at != name.npos) of.insert(name.substr(0, at + kSuffix.size()));
    int n_removed = 0;
    for (const std::string& name : of) n_removed += remove_stale_temporaries(path_of(name));
    return n_removed;
}

}  // namespace vesta::store
