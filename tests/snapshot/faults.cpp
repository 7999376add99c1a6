#include "faults.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace vesta::snapshot {

Faults& Faults::now() {
    static Faults faults;
    return faults;
}

namespace {

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string name_of(int fd) {
    char buffer[4096];
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), buffer, sizeof buffer);
    return n < 0 ? "?" : last_part(std::string(buffer, static_cast<size_t>(n)));
}

void die() {
    ::raise(SIGKILL);
    for (;;) ::pause();
}

// `within`: what of the call happens when the process dies in the middle of it.
long watched(const std::string& what, const std::function<long()>& call, const std::function<void()>& within = {}) {
    Faults& f = Faults::now();
    if (f.record) f.calls.push_back(what);
    if (f.n_call++ != f.at) return call();
    switch (f.fault) {
        case Fault::fail:
            errno = f.error;
            return -1;
        case Fault::die_before:
            die();
            break;
        case Fault::die_within:
            if (within) within();
            die();
            break;
        case Fault::die_after:
            call();
            die();
            break;
        case Fault::none:
        case Fault::half:
            break;
    }
    return call();
}

}  // namespace
}  // namespace vesta::snapshot

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
    using namespace vesta::snapshot;
    const auto some = [&](size_t k) { return ::syscall(SYS_pwrite64, fd, data, k, offset); };
    const Faults& f = Faults::now();
    if (f.fault == Fault::half && f.n_call == f.at && n > 1)
        return watched("pwrite " + name_of(fd), [&] { return some(n / 2); });
    return watched(
        "pwrite " + name_of(fd), [&] { return some(n); }, [&] { some(n / 2); });
}

int fsync(int fd) {
    using namespace vesta::snapshot;
    return static_cast<int>(watched("fsync " + name_of(fd), [&] { return ::syscall(SYS_fsync, fd); }));
}

int rename(const char* from, const char* to) noexcept {
    using namespace vesta::snapshot;
    return static_cast<int>(
        watched("rename " + last_part(to), [&] { return ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); }));
}

int link(const char* from, const char* to) noexcept {
    using namespace vesta::snapshot;
    return static_cast<int>(
        watched("link " + last_part(to), [&] { return ::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0); }));
}

}  // extern "C"
