// Files: a read-only mapping, and a writer whose result appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace vesta {

class UniqueFd {
 public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    ~UniqueFd() { reset(); }
    UniqueFd(UniqueFd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& o) noexcept {
        std::swap(fd_, o.fd_);
        return *this;
    }
    int get() const { return fd_; }
    void reset();

 private:
    int fd_ = -1;
};

// A whole file mapped read-only. Spans and views into bytes() are valid while the MappedFile (or what it was moved
// into) lives. Safe to read from any thread. An empty file maps to an empty span.
class MappedFile {
 public:
    static Result<MappedFile> open(const std::string& path);
    MappedFile() = default;
    ~MappedFile();
    MappedFile(MappedFile&& o) noexcept;
    MappedFile& operator=(MappedFile&& o) noexcept;

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::string& path() const { return path_; }

 private:
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
    std::string path_;
};

// Writes PATH.tmp-<pid>-<n> beside PATH; commit() flushes it to the disk and renames it over PATH. Without commit() the
// destructor removes the temporary file, so a killed or failed conversion never leaves half a model under a real name.
// The temporary file is locked (flock) while its writer lives: one that nobody locks is left over from a dead process.
class AtomicFile {
 public:
    // `overwrite` false: refuses (already_exists) when PATH exists, at create() and again at commit().
    // `mode`: the file's permissions before the umask; 0600 for what only its owner should read.
    static Result<AtomicFile> create(const std::string& path, bool overwrite, unsigned mode = 0644);
    // The same under the fixed name PATH.part, which stays when the process dies or keep(true) was called, and is
    // opened again, as it was left, by the next resume(). Refuses (already_exists) while another process has it.
    static Result<AtomicFile> resume(const std::string& path, bool overwrite, unsigned mode = 0644);
    static std::string part_path(const std::string& path) { return path + ".part"; }
    ~AtomicFile();
    AtomicFile(AtomicFile&& o) noexcept = default;
    AtomicFile& operator=(AtomicFile&& o) noexcept;  // swaps: the file that was here is removed with `o`

    Status write(std::span<const std::byte> bytes);             // appends
    Status write_at(uint64_t offset, std::span<const std::byte> bytes);  // anywhere; does not move the append position
    uint64_t offset() const { return offset_; }                 // append position = bytes appended so far
    Result<size_t> read_at(uint64_t offset, std::span<std::byte> bytes) const;  // short only at the end of the file
    Status truncate(uint64_t size);
    Status flush();                      // to the disk
    void keep(bool k) { keep_ = k; }     // whether the destructor leaves the temporary file where it is
    Status commit();                     // afterwards the bytes and their name survive a power loss
    const std::string& path() const { return path_; }

 private:
    AtomicFile() = default;
    UniqueFd fd_;
    std::string path_, temporary_;
    bool overwrite_ = false, keep_ = false;
    uint64_t offset_ = 0;
};

// Removes PATH.tmp-<pid>-<n> of processes that are gone: nobody locks the file, and the process does not exist or has
// not touched the file for an hour. Returns how many. Never fails; what cannot be looked at stays.
int remove_stale_temporaries(const std::string& path);

// Tells the system that these bytes of a mapping are not needed soon: they stop counting as this process's memory and are
// read from the file again when touched. Whole pages inside `bytes` only.
void release_pages(std::span<const std::byte> bytes);

// "PATH: cannot DOING: <errno as text>": not_found, already_exists or io, as errno says. Call it before anything else
// can change errno.
Error system_error(const std::string& path, std::string_view doing);

// A folder of which only its owner may know what is in it: mode 0700; those missing above it as the user makes folders.
// No error where it exists, whatever it is.
Status make_private_folder(const std::string& path);

// The whole file as bytes; refuses files over max_bytes.
Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);
bool file_exists(const std::string& path);

}  // namespace vesta
