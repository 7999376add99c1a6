#include "base/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"

namespace vesta {
namespace {

// 8 MB: read-ahead has something to work with, and a progress bar moves on a slow disk.
constexpr size_t kWarmTask = size_t{8} << 20;

size_t page_size() {
    const long n = ::sysconf(_SC_PAGESIZE);
    return n > 0 ? static_cast<size_t>(n) : 4096;
}

// madvise and mlock want whole pages: the range grown to their borders. Both ends stay inside the pages the span
// touches.
struct Pages {
    void* begin;
    size_t size;
};
Pages pages_of(std::span<const std::byte> bytes) {
    const auto at = reinterpret_cast<uintptr_t>(bytes.data());
    const uintptr_t begin = at / page_size() * page_size();
    return {reinterpret_cast<void*>(begin), static_cast<size_t>(at - begin) + bytes.size()};
}

std::string read_small(const std::string& path) {
    auto text = read_text_file(path, 1 << 20);
    return text.ok() ? std::move(text).value() : std::string();
}

// The first whole number of a text; -1 when there is none ("max").
int64_t number(std::string_view text) {
    while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && value >= 0 ? value : -1;
}

// The number after "key" at the beginning of a line; -1 when there is none.
int64_t field(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (line.starts_with(key)) return number(line.substr(key.size()));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
    return -1;
}

// This process's group in the unified hierarchy ("0::/path"), or "" .
std::string cgroup_path(std::string_view text) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (line.starts_with("0::")) return std::string(line.substr(3));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
    return {};
}

struct Share {
    int64_t limit = -1, free = -1;
};

// limit, and what is left of it: pages of files that were not used lately can be dropped, so they count as free.
Share share(int64_t limit, int64_t used, const std::string& stat, std::string_view inactive_key) {
    if (limit < 0 || used < 0) return {};
    const int64_t droppable = std::max<int64_t>(0, field(stat, inactive_key));
    return {limit, std::clamp<int64_t>(limit - used + droppable, 0, limit)};
}

int64_t status_bytes(std::string_view key) {
    const int64_t kb = field(read_small("/proc/self/status"), key);
    return kb < 0 ? 0 : kb * 1024;
}

}  // namespace

Status warm_pages(std::span<const std::byte> bytes, ThreadPool& pool, const ProgressFn& progress) {
    if (bytes.empty()) return {};
    const Pages pages = pages_of(bytes);
    ::madvise(pages.begin, pages.size, MADV_WILLNEED);  // starts reading ahead; advice, so a refusal is no error
    const size_t step = page_size();
    std::atomic<unsigned> sink{0};
    const auto touch = [&](size_t first, size_t n) {
        unsigned sum = 0;
        for (size_t i = first; i < first + n; i += step) sum += std::to_integer<unsigned>(bytes[i]);
        sink.fetch_add(sum, std::memory_order_relaxed);  // so that the reads happen
    };
    // One pool loop per batch, so that progress is told on the calling thread.
    const size_t batch = kWarmTask * static_cast<size_t>(pool.n_thread()) * 4;
    for (size_t at = 0; at < bytes.size(); at += batch) {
        if (progress && !progress({"warm", {}, at, bytes.size(), "bytes"}))
            return Error{Code::cancelled, "reading the weights was stopped"};
        const size_t n = std::min(batch, bytes.size() - at);
        pool.run(static_cast<int64_t>((n + kWarmTask - 1) / kWarmTask), [&](int64_t task) {
            const size_t first = static_cast<size_t>(task) * kWarmTask;
            touch(at + first, std::min(kWarmTask, n - first));
        });
    }
    if (progress) progress({"warm", {}, bytes.size(), bytes.size(), "bytes"});
    return {};
}

Status lock_pages(std::span<const std::byte> bytes) {
    if (bytes.empty()) return {};
    const Pages pages = pages_of(bytes);
    if (::mlock(pages.begin, pages.size) == 0) return {};
    const int e = errno;
    struct rlimit limit {};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    const std::string allowed =
        limit.rlim_cur == RLIM_INFINITY ? "no limit" : strf("a limit of {} bytes", limit.rlim_cur);
    return Error{Code::io, strf("cannot lock {} bytes of weights in memory: {} ({} for this process; `ulimit -l` or "
                                "LimitMEMLOCK raises it)",
                                bytes.size(), std::strerror(e), allowed)};
}

void advise_huge_pages(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    const Pages pages = pages_of(bytes);
    ::madvise(pages.begin, pages.size, MADV_HUGEPAGE);
}

int64_t resident_bytes(std::span<const std::byte> bytes) {
    if (bytes.empty()) return 0;
    const Pages pages = pages_of(bytes);
    const size_t page = page_size();
    std::vector<unsigned char> state((pages.size + page - 1) / page);
    if (::mincore(pages.begin, pages.size, state.data()) != 0) return 0;
    int64_t n = 0;
    for (const unsigned char s : state) n += s & 1;
    return std::min(n * static_cast<int64_t>(page), static_cast<int64_t>(bytes.size()));
}

MemoryLimit memory_limit_at(const std::string& root) {
    MemoryLimit m;
    const std::string info = read_small(root + "/proc/meminfo");
    m.total_bytes = std::max<int64_t>(0, field(info, "MemTotal:")) * 1024;
    m.available_bytes = std::max<int64_t>(0, field(info, "MemAvailable:")) * 1024;
    const auto apply = [&](const Share& s) {
        if (s.limit < 0 || (m.total_bytes > 0 && s.limit >= m.total_bytes)) return;
        m.total_bytes = s.limit;
        m.by_cgroup = true;
        m.available_bytes = m.available_bytes > 0 ? std::min(m.available_bytes, s.free) : s.free;
    };
    // Version 2: the limits of this group and of every group above it hold. Inside a container the path may not exist
    // under the mount; the mount itself is then the group.
    const std::string base = root + "/sys/fs/cgroup";
    std::string group = cgroup_path(read_small(root + "/proc/self/cgroup"));
    for (;;) {
        const std::string folder = base + (group == "/" ? "" : group);
        apply(share(number(read_small(folder + "/memory.max")), number(read_small(folder + "/memory.current")),
                    read_small(folder + "/memory.stat"), "inactive_file "));
        if (group.empty() || group == "/") break;
        group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
    }
    // Version 1.
    const std::string v1 = base + "/memory";
    apply(share(number(read_small(v1 + "/memory.limit_in_bytes")), number(read_small(v1 + "/memory.usage_in_bytes")),
                read_small(v1 + "/memory.stat"), "total_inactive_file "));
    return m;
}

MemoryLimit memory_limit() { return memory_limit_at(""); }

int64_t peak_rss_bytes() { return status_bytes("VmHWM:"); }
int64_t current_rss_bytes() { return status_bytes("VmRSS:"); }

bool reset_peak_rss() {
    std::FILE* f = std::fopen("/proc/self/clear_refs", "w");
    if (f == nullptr) return false;
    const bool ok = std::fputs("5", f) >= 0;
    return std::fclose(f) == 0 && ok;
}

}  // namespace vesta
