#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>

namespace vesta {

Error system_error(const std::string& path, std::string_view doing) {
    const int e = errno;
    const Code code = e == ENOENT ? Code::not_found : e == EEXIST ? Code::already_exists : Code::io;
    return Error{code, strf("{}: cannot {}: {}", path, doing, std::strerror(e))};
}

Status make_private_folder(const std::string& path) {
    for (size_t slash = path.find('/', 1); slash != path.npos; slash = path.find('/', slash + 1)) {
        const std::string above = path.substr(0, slash);
        if (::mkdir(above.c_str(), 0777) != 0 && errno != EEXIST) return system_error(above, "make the folder");
    }
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error(path, "make the folder");
    return {};
}

namespace {

std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// A name lives in its folder, and the folder has a cache of its own: without this, power loss may bring the old name
// back, or neither.
Status flush_folder_of(const std::string& path) {
    const std::string folder = folder_of(path);
    const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) return {};  // a folder we may write but not read; its names are flushed when the system does
    // Some file systems have nothing to flush here, and say so.
    if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
        return system_error(folder, "flush the name of a new file in");
    return {};
}

}  // namespace

void UniqueFd::reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) return system_error(path, "open");
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return system_error(path, "stat");
    if (S_ISDIR(st.st_mode)) return Error{Code::invalid_argument, strf("{}: is a directory, expected a file", path)};
    if (!S_ISREG(st.st_mode)) return Error{Code::invalid_argument, strf("{}: not a regular file", path)};
    MappedFile file;
    file.path_ = path;
    file.size_ = static_cast<size_t>(st.st_size);
    if (file.size_ > 0) {
        void* p = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd.get(), 0);
        if (p == MAP_FAILED) {
            file.size_ = 0;
            return system_error(path, "map");
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
    file.fd_ = UniqueFd(::open(file.temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (file.fd_.get() < 0) {
        Error error = system_error(file.temporary_, "create");
        file.temporary_.clear();
        return error;
    }
    ::flock(file.fd_.get(), LOCK_EX | LOCK_NB);  // only a sign of life: file systems without locks do without
    return file;
}

Result<AtomicFile> AtomicFile::resume(const std::string& path, bool overwrite, unsigned mode) {
    if (!overwrite && file_exists(path))
        return Error{Code::already_exists, strf("{}: exists already; remove it or allow overwriting", path)};
    const std::string name = part_path(path);
    // The holder of the lock may rename or remove the file between our open and our lock: then we hold a file that has
    // lost its name, and must look again.
    for (int attempt = 0; attempt < 100; ++attempt) {
        UniqueFd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode));
        if (fd.get() < 0) return system_error(name, "create");
        if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK)
                return Error{Code::already_exists, strf("{}: another process is writing it", name)};
            return system_error(name, "lock");
        }
        struct stat held {
        }, named{};
        if (::fstat(fd.get(), &held) != 0) return system_error(name, "stat");
        if (!S_ISREG(held.st_mode)) return Error{Code::invalid_argument, strf("{}: not a regular file", name)};
        if (::stat(name.c_str(), &named) != 0 || named.st_ino != held.st_ino || named.st_dev != held.st_dev) continue;
        if (held.st_nlink > 1) {  // PATH itself, from a commit() that died between link and unlink: must not be touched
            ::unlink(name.c_str());
            continue;
        }
        AtomicFile file;
        file.fd_ = std::move(fd);
        file.path_ = path;
        file.temporary_ = name;
        file.overwrite_ = overwrite;
        return file;
    }
    return Error{Code::io, strf("{}: changes all the time", name)};
}

AtomicFile::~AtomicFile() {
    if (fd_.get() >= 0 && !temporary_.empty() && !keep_) ::unlink(temporary_.c_str());
}

// Member-wise moving would pass the old descriptor on but drop the old name, and leave that temporary file behind.
AtomicFile& AtomicFile::operator=(AtomicFile&& o) noexcept {
    std::swap(fd_, o.fd_);
    std::swap(path_, o.path_);
    std::swap(temporary_, o.temporary_);
    std::swap(overwrite_, o.overwrite_);
    std::swap(keep_, o.keep_);
    std::swap(offset_, o.offset_);
    return *this;
}

Status AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return system_error(temporary_, "write");
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

Result<size_t> AtomicFile::read_at(uint64_t offset, std::span<std::byte> bytes) const {
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n =
            ::pread(fd_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return system_error(temporary_, "read");
        if (n == 0) break;
        done += static_cast<size_t>(n);
    }
    return done;
}

Status AtomicFile::truncate(uint64_t size) {
    if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return system_error(temporary_, "cut");
    return {};
}

Status AtomicFile::flush() {
    if (::fsync(fd_.get()) != 0) return system_error(temporary_, "flush");
    return {};
}

Status AtomicFile::commit() {
    VESTA_TRY_STATUS(flush());
    if (overwrite_) {
        if (::rename(temporary_.c_str(), path_.c_str()) != 0) return system_error(path_, "rename into place");
    } else {
        // link() refuses an existing name, so a file that appeared meanwhile is kept.
        if (::link(temporary_.c_str(), path_.c_str()) != 0) return system_error(path_, "put into place");
        ::unlink(temporary_.c_str());
    }
    fd_.reset();
    temporary_.clear();
    return flush_folder_of(path_);
}

Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) return system_error(path, "open");
    std::string text;
    char buffer[1 << 16];
    for (;;) {
        const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return system_error(path, "read");
        if (n == 0) return text;
        if (text.size() + static_cast<size_t>(n) > max_bytes)
            return Error{Code::invalid_argument, strf("{}: larger than the limit of {} bytes", path, max_bytes)};
        text.append(buffer, static_cast<size_t>(n));
    }
}

int remove_stale_temporaries(const std::string& path) {
    constexpr std::time_t kForgottenSeconds = 3600;
    const size_t slash = path.rfind('/');
    const std::string folder = folder_of(path);
    const std::string prefix = path.substr(slash == std::string::npos ? 0 : slash + 1) + ".tmp-";
    DIR* dir = ::opendir(folder.c_str());
    if (dir == nullptr) return 0;
    int n_removed = 0;
    while (const dirent* entry = ::readdir(dir)) {
        const std::string_view name = entry->d_name;
        long pid = 0;
        unsigned serial = 0;
        int end = 0;
        if (!name.starts_with(prefix)) continue;
        const char* rest = entry->d_name + prefix.size();
        if (std::sscanf(rest, "%9ld-%9u%n", &pid, &serial, &end) != 2 || rest[end] != 0 || pid <= 0) continue;
        const std::string full = strf("{}/{}", folder, name);
        const UniqueFd fd(::open(full.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
        struct stat st {};
        if (fd.get() < 0 || ::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) continue;
        const bool gone = ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
        if (!gone && std::time(nullptr) - st.st_mtime < kForgottenSeconds) continue;
        if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
        n_removed += ::unlink(full.c_str()) == 0 ? 1 : 0;
    }
    ::closedir(dir);
    return n_removed;
}

void release_pages(std::span<const std::byte> bytes) {
    static const auto kPage = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<uintptr_t>(bytes.data());
    const uintptr_t begin = (first + kPage - 1) / kPage * kPage, end = (first + bytes.size()) / kPage * kPage;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool file_exists(const std::string& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0;
}

}  // namespace vesta
