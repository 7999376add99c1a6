// Counting a hit: one page of the file is overwritten, the one of the two that does not count at the moment. Whatever
// becomes of that write, the other page still says what was true before it.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "snapshot/input.h"

namespace vesta::snapshot {
namespace {

// Two processes that count at once would write the same slot. The lock is held for two reads and a write, so whoever
// finds it taken waits a little; whoever cannot get it loses a hit, which is better than a request that hangs.
Status lock(const Input& input) {
    constexpr int kAttempts = 50;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        if (::flock(input.fd(), LOCK_EX | LOCK_NB) == 0) return {};
        if (errno != EWOULDBLOCK && errno != EINTR) return system_error(input.path(), "lock");
        ::usleep(2000);
    }
    return Error{Code::io,
                 strf("{}: usage: another process has locked the file; the hit is not counted", input.path())};
}

}  // namespace

Status record_use(const std::string& path, int64_t now) {
    VESTA_TRY(const Input input, Input::open(path, /*writable=*/true));
    VESTA_TRY_STATUS(lock(input));  // until the descriptor is closed
    VESTA_TRY(const Layout layout, input.layout());
    Page page[2];
    Slot slot[2];
    for (int i = 0; i < 2; ++i) {
        VESTA_TRY_STATUS(input.read((1 + i) * kPageBytes, page[i], "usage"));
        slot[i] = decode_slot(page[i]);
    }
    const int newest = newest_slot(slot[0], slot[1]);
    const Slot before = newest < 0 ? Slot{.usage = {.last_used = layout.header.created}} : slot[newest];
    if (before.sequence == std::numeric_limits<uint64_t>::max())
        return Error{Code::bad_file, strf("{}: usage: sequence number {} has no successor", path, before.sequence)};
    const uint64_t hits = before.usage.hits + (before.usage.hits < std::numeric_limits<uint64_t>::max() ? 1 : 0);
    const Page next = encode_slot(before.sequence + 1, {.hits = hits, .last_used = now});
    const int other = newest == 0 ? 1 : 0;
    const ssize_t n = ::pwrite(input.fd(), next.data(), next.size(), static_cast<off_t>((1 + other) * kPageBytes));
    if (n < 0) return system_error(path, "write usage");
    if (static_cast<size_t>(n) != next.size())
        return Error{Code::io, strf("{}: usage: {} of {} bytes were written", path, n, next.size())};
    return {};
}

}  // namespace vesta::snapshot
