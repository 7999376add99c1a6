#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vesta {
namespace {

// About 20 µs of polling before a worker parks: longer than the gap between two loops of one layer, shorter than the
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
    {
        std::lock_guard lock(mutex_);
        stop_.store(true);
        generation_.fetch_add(1);
    }
    wake_.notify_all();
    for (std::thread& t : workers_) t.join();
}

void ThreadPool::work() {
    for (;;) {
        const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
        if (task >= n_task_) return;
        call_(body_, task);
    }
}

void ThreadPool::run_erased(int64_t n_task, Call call, void* body) {
    if (workers_.empty() || n_task <= 1) {
        for (int64_t task = 0; task < n_task; ++task) call(body, task);
        return;
    }
    call_ = call;
    body_ = body;
    n_task_ = n_task;
    next_.store(0, std::memory_order_relaxed);
    n_busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    {
        std::lock_guard lock(mutex_);
        generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    work();
    // Workers that are late are still inside a task, or about to see that none is left. Yield rather than spin when the
    // machine is oversubscribed: the late worker may need this very core.
    for (int spin = 0; n_busy_.load(std::memory_order_acquire) != 0; ++spin) {
        if (spin < kSpins)
            cpu_relax();
        else
            sched_yield();
    }
}

void ThreadPool::worker_main() {
    uint32_t seen = 0;
    for (;;) {
        int spin = 0;
        while (generation_.load(std::memory_order_acquire) == seen && spin++ < kSpins) cpu_relax();
        if (generation_.load(std::memory_order_acquire) == seen) {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
        }
        ++seen;
        if (stop_.load()) return;
        work();
        n_busy_.fetch_sub(1, std::memory_order_release);
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
