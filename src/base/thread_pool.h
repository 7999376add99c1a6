// A fixed set of workers for data-parallel loops. Work is cut into tasks by the caller; which thread runs which task is
// left open, so a task's result must not depend on it. That, and a task cut that does not depend on the thread count,
// is what makes results equal for 1 and N threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace vesta {

class ThreadPool {
 public:
    // n_thread counts the calling thread: 1 starts no workers. Workers are joined by the destructor.
    explicit ThreadPool(int n_thread);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int n_thread() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls body(task) for task = 0..n_task-1 on all threads and returns when all are done. `body` must not throw.
    // Not re-entrant, and one caller at a time.
    template <class F>
    void run(int64_t n_task, F&& body) {
        using Body = std::remove_reference_t<F>;
        run_erased(
            n_task, [](void* f, int64_t task) { (*static_cast<Body*>(f))(task); }, &body);
    }

    // Cores this process may use: affinity mask and cgroup quota, at least 1.
    static int available_cores();

 private:
    using Call = void (*)(void*, int64_t);
    void run_erased(int64_t n_task, Call call, void* body);
    void run_batch(uint32_t n_task, Call call, void* body, int64_t first);
    bool work();  // claims and runs tasks until none is left; false when there was none
    void worker_main();

    std::vector<std::thread> workers_;
    // The loop being run: n_task in the upper, the next unclaimed task in the lower half of one word, so that a claim
    // says of itself whether it is valid. run() ends when every claimed task is done, and a worker reads call_, body_
    // and first_ only with a valid claim in hand: nobody has to wait for a worker that has not begun, which on a busy
    // machine may be one that the scheduler has put aside.
    std::atomic<uint64_t> ticket_{0};
    Call call_ = nullptr;
    void* body_ = nullptr;
    int64_t first_ = 0;
    alignas(64) std::atomic<uint32_t> n_done_{0};
    alignas(64) std::atomic<uint32_t> epoch_{0};  // counts loops; what parked workers wait for
    std::atomic<bool> stop_{false};
};

}  // namespace vesta
