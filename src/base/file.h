// Files: a read-only mapping, and a writer whose result appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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
class AtomicFile {
 public:
    // `overwrite` false: refuses (already_exists) when PATH exists, at create() and again at commit().
    // `mode`: the file's permissions before the umask; 0600 for what only its owner should read.
    static Result<AtomicFile> create(const std::string& path, bool overwrite, unsigned mode = 0644);
    ~AtomicFile();
    AtomicFile(AtomicFile&& o) noexcept = default;
    AtomicFile& operator=(AtomicFile&& o) noexcept;  // swaps: the file that was here is removed with `o`

    Status write(std::span<const std::byte> bytes);             // appends
    Status write_at(uint64_t offset, std::span<const std::byte> bytes);  // anywhere; does not move the append position
    uint64_t offset() const { return offset_; }                 // append position = bytes appended so far
    Status commit();
    const std::string& path() const { return path_; }

 private:
    AtomicFile() = default;
    UniqueFd fd_;
    std::string path_, temporary_;
    bool overwrite_ = false;
    uint64_t offset_ = 0;
};

// The whole file as bytes; refuses files over max_bytes.
Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);
bool file_exists(const std::string& path);

}  // namespace vesta
