#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace vesta {
namespace {

Error os_error(const std::string& path, const char* doing) {
    const int e = errno;
    const Code code = e == ENOENT ? Code::not_found : e == EEXIST ? Code::already_exists : Code::io;
    return Error{code, strf("{}: cannot {}: {}", path, doing, std::strerror(e))};
}

}  // namespace

void UniqueFd::reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) return os_error(path, "open");
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return os_error(path, "stat");
    if (S_ISDIR(st.st_mode)) return Error{Code::invalid_argument, strf("{}: is a directory, expected a file", path)};
    if (!S_ISREG(st.st_mode)) return Error{Code::invalid_argument, strf("{}: not a regular file", path)};
    MappedFile file;
    file.path_ = path;
    file.size_ = static_cast<size_t>(st.st_size);
    if (file.size_ > 0) {
        void* p = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd.get(), 0);
        if (p == MAP_FAILED) {
            file.size_ = 0;
            return os_error(path, "map");
        }
        file.data_ = static_cast<const std::byte*>(p);
    }
    return file;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)), path_(std::move(o.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    std::swap(path_, o.path_);
    return *this;
}

Result<AtomicFile> AtomicFile::create(const std::string& path, bool overwrite, unsigned mode) {
    static std::atomic<unsigned> serial{0};
    if (!overwrite && file_exists(path))
        return Error{Code::already_exists, strf("{}: exists already; remove it or allow overwriting", path)};
    AtomicFile file;
    file.path_ = path;
    file.overwrite_ = overwrite;
    file.temporary_ = strf("{}.tmp-{}-{}", path, ::getpid(), serial.fetch_add(1));
    file.fd_ = UniqueFd(::open(file.temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file.fd_.get() < 0) {
        Error error = os_error(file.temporary_, "create");
        file.temporary_.clear();
        return error;
    }
    return file;
}

AtomicFile::~AtomicFile() {
    if (fd_.get() >= 0 && !temporary_.empty()) ::unlink(temporary_.c_str());
}

// Member-wise moving would pass the old descriptor on but drop the old name, and leave that temporary file behind.
AtomicFile& AtomicFile::operator=(AtomicFile&& o) noexcept {
    std::swap(fd_, o.fd_);
    std::swap(path_, o.path_);
    std::swap(temporary_, o.temporary_);
    std::swap(overwrite_, o.overwrite_);
    std::swap(offset_, o.offset_);
    return *this;
}

Status AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return os_error(temporary_, "write");
        offset += static_cast<uint64_t>(n);
        bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return {};
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
    VESTA_TRY_STATUS(write_at(offset_, bytes));
    offset_ += bytes.size();
    return {};
}

Status AtomicFile::commit() {
    if (::fsync(fd_.get()) != 0) return os_error(temporary_, "flush");
    if (overwrite_) {
        if (::rename(temporary_.c_str(), path_.c_str()) != 0) return os_error(path_, "rename into place");
    } else {
        // link() refuses an existing name, so a file that appeared meanwhile is kept.
        if (::link(temporary_.c_str(), path_.c_str()) != 0) return os_error(path_, "put into place");
        ::unlink(temporary_.c_str());
    }
    fd_.reset();
    temporary_.clear();
    return {};
}

Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) return os_error(path, "open");
    std::string text;
    char buffer[1 << 16];
    for (;;) {
        const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return os_error(path, "read");
        if (n == 0) return text;
        if (text.size() + static_cast<size_t>(n) > max_bytes)
            return Error{Code::invalid_argument, strf("{}: larger than the limit of {} bytes", path, max_bytes)};
        text.append(buffer, static_cast<size_t>(n));
    }
}

bool file_exists(const std::string& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0;
}

}  // namespace vesta
