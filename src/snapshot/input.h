// A snapshot file opened for reading: ordinary pread(2) with the file's real size known, and its head checked.
#pragma once

#include <string>

#include "base/file.h"
#include "snapshot/layout.h"

namespace vesta::snapshot {

class Input {
 public:
    // Refuses what is no regular file without waiting for it (a fifo nobody writes to). `writable` for the usage slots.
    static Result<Input> open(const std::string& path, bool writable = false);

    // All of `bytes`, or an error: bad_file when the file ends before, io when the system refuses. `what` is for the
    // message.
    Status read(uint64_t offset, std::span<std::byte> bytes, std::string_view what) const;

    // Header and directory, checked.
    Result<Layout> layout() const;

    uint64_t size() const { return size_; }
    int fd() const { return fd_.get(); }
    const std::string& path() const { return path_; }

 private:
    UniqueFd fd_;
    std::string path_;
    uint64_t size_ = 0;
};

}  // namespace vesta::snapshot
