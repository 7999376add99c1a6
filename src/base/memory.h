// Memory as the system hands it out: bringing a mapping into RAM, keeping it there, and how much of it is left. Knows
// pages and limits, not what is in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/progress.h"
#include "base/result.h"

namespace vesta {

class ThreadPool;

// Reads every page of `bytes` once, on all threads of the pool, so that later reads fault nothing in. Progress in bytes
// ("warm"); a listener that returns false stops it with Code::cancelled.
Status warm_pages(std::span<const std::byte> bytes, ThreadPool& pool, const ProgressFn& progress);

// Keeps the pages in RAM until the mapping ends. Error io with the limit and what to do about it.
Status lock_pages(std::span<const std::byte> bytes);

// Asks for huge pages; a kernel that has none for this kind of memory ignores it.
void advise_huge_pages(std::span<const std::byte> bytes);

// How many of the bytes are in RAM now (whole pages; of a mapping that others share, theirs count too).
int64_t resident_bytes(std::span<const std::byte> bytes);

// What a process may still take without swapping: MemAvailable of the machine, or what is left of a smaller cgroup
// limit.
struct MemoryLimit {
    int64_t total_bytes = 0;      // 0: the system does not say
    int64_t available_bytes = 0;  // page cache that can be dropped counts as available
    bool by_cgroup = false;       // the cgroup's limit is the smaller one
};
MemoryLimit memory_limit();

// The parts of memory_limit() that read text, for tests. `root`: where the file systems hang, "" for the real ones.
MemoryLimit memory_limit_at(const std::string& root);

// Peak resident set of this process, in bytes; 0 when unknown. reset_peak_rss() begins a new peak where the system can.
int64_t peak_rss_bytes();
int64_t current_rss_bytes();
bool reset_peak_rss();

}  // namespace vesta
