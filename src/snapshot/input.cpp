#include "snapshot/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace vesta::snapshot {

Result<Input> Input::open(const std::string& path, bool writable) {
    // Non-blocking: opening a fifo would wait for its other end. Regular files do not care.
    const int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    Input input;
    input.path_ = path;
    input.fd_ = UniqueFd(::open(path.c_str(), flags));
    if (input.fd_.get() < 0) return system_error(path, "open");
    struct stat st {};
    if (::fstat(input.fd_.get(), &st) != 0) return system_error(path, "stat");
    if (!S_ISREG(st.st_mode))
        return Error{Code::invalid_argument,
                     strf("{}: {}, expected a regular file", path,
                          S_ISDIR(st.st_mode) ? "is a directory" : "is a device, pipe or socket")};
    input.size_ = static_cast<uint64_t>(st.st_size);
    return input;
}

Status Input::read(uint64_t offset, std::span<std::byte> bytes, std::string_view what) const {
    while (!bytes.empty()) {
        const ssize_t n = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return system_error(path_, strf("read {}", what));
        if (n == 0)
            return Error{Code::bad_file,
                         strf("{}: {}: the file ends at byte {}, expected {} more", path_, what, offset, bytes.size())};
        offset += static_cast<uint64_t>(n);
        bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return {};
}

Result<Layout> Input::layout() const {
    if (size_ < kHeadBytes)
        return Error{Code::bad_file, strf("{}: header: the file has {} bytes, expected at least {}; it is cut short or "
                                          "no snapshot file",
                                          path_, size_, kHeadBytes)};
    Page page;
    VESTA_TRY_STATUS(read(0, page, "header"));
    VESTA_TRY(Layout layout, decode_header(path_, page, size_));
    std::vector<std::byte> directory(layout.n_section * kEntryBytes);
    VESTA_TRY_STATUS(read(kHeadBytes, directory, "directory"));
    VESTA_TRY_STATUS(decode_directory(path_, directory, &layout));
    return layout;
}

}  // namespace vesta::snapshot
