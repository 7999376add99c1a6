#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vesta {
namespace {

// About 20 µs of polling before a thread parks: longer than the gap between two loops of one layer, shorter than the
// time anyone would notice a busy core after the last token.
constexpr int kSpins = 2000;

void cpu_relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int n_thread) {
    for (int i = 1; i < n_thread; ++i) workers_.emplace_back([this] { worker_main(); });
}

ThreadPool::~ThreadPool() {
    stop_.store(true);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (std::thread& t : workers_) t.join();
}

bool ThreadPool::work() {
    bool any = false;
    for (;;) {
        // Look before claiming, so that polling does not count the lower half up.
        uint64_t ticket = ticket_.load(std::memory_order_acquire);
        if (static_cast<uint32_t>(ticket) >= static_cast<uint32_t>(ticket >> 32)) return any;
        ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
        const auto task = static_cast<uint32_t>(ticket), n_task = static_cast<uint32_t>(ticket >> 32);
        if (task >= n_task) return any;
        call_(body_, first_ + task);
        any = true;
        if (n_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_task) n_done_.notify_one();
    }
}

void ThreadPool::run_erased(int64_t n_task, Call call, void* body) {
    if (workers_.empty() || n_task <= 1) {
        for (int64_t task = 0; task < n_task; ++task) call(body, task);
        return;
    }
    // Half a word counts the tasks; late claims may overshoot it by one per thread.
    constexpr int64_t kBatch = int64_t{1} << 31;
    for (int64_t first = 0; first < n_task; first += kBatch)
        run_batch(static_cast<uint32_t>(std::min(kBatch, n_task - first)), call, body, first);
}

void ThreadPool::run_batch(uint32_t n_task, Call call, void* body, int64_t first) {
    call_ = call;
    body_ = body;
    first_ = first;
    n_done_.store(0, std::memory_order_relaxed);
    ticket_.store(uint64_t{n_task} << 32, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    work();
    // What is missing now is in the hands of workers. Spin a little, then sleep: a worker that lost its core to another
    // program can move to this one only when this thread leaves it.
    for (int spin = 0; spin < kSpins; ++spin) {
        if (n_done_.load(std::memory_order_acquire) == n_task) return;
        cpu_relax();
    }
    for (uint32_t done; (done = n_done_.load(std::memory_order_acquire)) != n_task;)
        n_done_.wait(done, std::memory_order_acquire);
}

void ThreadPool::worker_main() {
    while (!stop_.load(std::memory_order_relaxed)) {
        const uint32_t epoch = epoch_.load(std::memory_order_acquire);
        if (work()) continue;
        int spin = 0;
        while (epoch_.load(std::memory_order_acquire) == epoch && spin++ < kSpins) cpu_relax();
        if (spin > kSpins && !stop_.load()) epoch_.wait(epoch, std::memory_order_acquire);
    }
}

int ThreadPool::available_cores() {
    int n = 1;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) n = std::max(1, CPU_COUNT(&set));
    // cgroup v2 quota: "<quota|max> <period>", both in µs
    if (std::FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
        long long quota = 0, period = 0;
        if (std::fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
            n = std::clamp(static_cast<int>((quota + period - 1) / period), 1, n);
        std::fclose(f);
    }
    return n;
}

}  // namespace vesta
