// A fixed set of workers for data-parallel loops. Work is cut into tasks by the caller; which thread runs which task is
// left open, so a task's result must not depend on it. That, and a task cut that does not depend on the thread count,
// is what makes results equal for 1 and N threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
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
        run_erased(n_task, [](void* f, int64_t task) { (*static_cast<Body*>(f))(task); }, &body);
    }

    // Cores this process may use: affinity mask and cgroup quota, at least 1.
    static int available_cores();

 private:
    using Call = void (*)(void*, int64_t);
    void run_erased(int64_t n_task, Call call, void* body);
    void work();
    void worker_main();

    std::vector<std::thread> workers_;
    // One generation per run(). A worker reads call_/body_/n_task_ only after it has seen the new generation, and run()
    // returns only after every worker has reported itself done with it.
    Call call_ = nullptr;
    void* body_ = nullptr;
    int64_t n_task_ = 0;
    std::atomic<int64_t> next_{0};
    std::atomic<uint32_t> generation_{0};
    std::atomic<int> n_busy_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;                  // guards parked workers: generation_ changes under it
    std::condition_variable wake_;
};

}  // namespace vesta
