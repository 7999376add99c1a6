#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace vesta {
namespace {

TEST(ThreadPool, RunsEveryTaskExactlyOnce) {
    for (const int n_thread : {1, 2, 3, 4, 8, 16}) {
        ThreadPool pool(n_thread);
        ASSERT_EQ(pool.n_thread(), n_thread);
        std::vector<int> n_run;  // plain ints: TSan would see two threads on one task
        for (int64_t n_task = 0; n_task <= 1000; n_task = n_task < 40 ? n_task + 1 : n_task * 2 - 7) {
            n_run.assign(static_cast<size_t>(n_task), 0);
            pool.run(n_task, [&](int64_t task) { ++n_run[static_cast<size_t>(task)]; });
            for (int64_t task = 0; task < n_task; ++task)
                ASSERT_EQ(n_run[static_cast<size_t>(task)], 1)
                    << n_thread << " threads, task " << task << " of " << n_task;
        }
    }
}

TEST(ThreadPool, ManyShortLoopsSeeEachOthersResults) {
    // Each loop reads what the one before wrote: run() must be a barrier in both directions.
    for (const int n_thread : {2, 4}) {
        ThreadPool pool(n_thread);
        constexpr int64_t kTask = 7;
        int64_t value[kTask] = {}, next[kTask] = {};
        constexpr int kLoops = 3000;
        for (int loop = 0; loop < kLoops; ++loop) {
            pool.run(kTask, [&](int64_t t) { next[t] = value[(t + 1) % kTask] + 1; });
            pool.run(kTask, [&](int64_t t) { value[t] = next[t]; });
        }
        for (const int64_t v : value) ASSERT_EQ(v, kLoops);
    }
}

TEST(ThreadPool, WakesUpAfterAPause) {
    ThreadPool pool(3);
    for (int round = 0; round < 20; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough for the workers to park
        std::atomic<int64_t> sum{0};
        pool.run(100, [&](int64_t t) { sum += t; });
        ASSERT_EQ(sum.load(), 4950);
    }
}

TEST(ThreadPool, SpreadsWorkOverItsThreads) {
    ThreadPool pool(2);
    // Two tasks that wait for each other can only end on two threads.
    std::atomic<int> n_here{0};
    pool.run(2, [&](int64_t) {
        ++n_here;
        while (n_here.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(n_here.load(), 2);
}

TEST(ThreadPool, ComesAndGoes) {
    for (int i = 0; i < 200; ++i) {
        ThreadPool pool(1 + i % 5);
        if (i % 3 == 0) continue;  // never used
        std::atomic<int> n{0};
        pool.run(i % 7, [&](int64_t) { ++n; });
        ASSERT_EQ(n.load(), i % 7);
    }
}

TEST(ThreadPool, KnowsHowManyCoresItMayUse) {
    EXPECT_GE(ThreadPool::available_cores(), 1);
    EXPECT_LE(ThreadPool::available_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace vesta
