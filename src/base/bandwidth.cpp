#include "base/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/thread_pool.h"

namespace vesta {
namespace {

// What every 64-bit machine adds in one instruction. Vectors of 32 or 64 bytes that the compiler has to cut into such
// pieces are slower (4 GB/s where these give 14), and the memory, not the width of a load, is the limit.
typedef uint64_t Pair __attribute__((vector_size(16)));
constexpr size_t kLine = 4;  // pairs per cache line

// Two streams, each line in four sums. One stream leaves the prefetchers underused: 15 GB/s with two threads on a Zen 5
// virtual machine of two cores, 17 with two or four streams.
uint64_t sum_pairs(const Pair* p, size_t n) {
    const size_t half = n / 2 / kLine * kLine;
    Pair a[kLine]{}, b[kLine]{};
    for (size_t i = 0; i < half; i += kLine)
        for (size_t k = 0; k < kLine; ++k) {
            a[k] += p[i + k];
            b[k] += p[half + i + k];
        }
    for (size_t i = 2 * half; i < n; ++i) a[0] += p[i];
    Pair sum{};
    for (size_t k = 0; k < kLine; ++k) sum += a[k] + b[k];
    return sum[0] + sum[1];
}

}  // namespace

Result<Bandwidth> measure_read_bandwidth(int n_thread, int64_t bytes, int repeats) {
    VESTA_CHECK(n_thread >= 1 && repeats >= 1);
    // Tasks of 4 MB: larger than a core's own caches, small enough that threads end together.
    constexpr size_t kTask = size_t{4} << 20;
    const size_t n_task = std::max<size_t>(1, static_cast<size_t>(bytes) / kTask), size = n_task * kTask;
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return Error{Code::no_memory, strf("{} bytes for the bandwidth measurement were refused", size)};
    ::madvise(memory, size, MADV_HUGEPAGE);
    ThreadPool pool(n_thread);
    auto* base = static_cast<std::byte*>(memory);
    pool.run(static_cast<int64_t>(n_task),
             [&](int64_t t) { std::memset(base + static_cast<size_t>(t) * kTask, 1, kTask); });
    std::atomic<uint64_t> sink{0};
    std::vector<double> rates;
    for (int r = 0; r < repeats + 1; ++r) {  // the first one warms up
        const auto start = std::chrono::steady_clock::now();
        pool.run(static_cast<int64_t>(n_task), [&](int64_t t) {
            const auto* p = reinterpret_cast<const Pair*>(base + static_cast<size_t>(t) * kTask);
            sink.fetch_add(sum_pairs(p, kTask / sizeof(Pair)), std::memory_order_relaxed);
        });
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        if (r > 0) rates.push_back(static_cast<double>(size) / seconds.count());
    }
    ::munmap(memory, size);
    VESTA_CHECK(sink.load() ==
                (static_cast<uint64_t>(repeats) + 1) * (size / 8) * 0x0101010101010101u);  // nothing was left out
    std::sort(rates.begin(), rates.end());
    return Bandwidth{n_thread, rates[rates.size() / 2], rates.back()};
}

}  // namespace vesta
