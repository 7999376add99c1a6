// Several processes on one folder, and processes that die in the middle of a save.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>
#include <thread>

#include "store_helpers.h"

namespace vesta::store {
namespace {

using snapshot::Reason;
using Ids = std::vector<int32_t>;

Ids talk(int seed, size_t n) {
    Ids out = {kBos, kUser};
    for (size_t i = 2; i < n; ++i)
        out.push_back(static_cast<int32_t>(33 + (i * 5 + static_cast<size_t>(seed) * 13) % 60));
    return out;
}
constexpr int kTalks = 5;
constexpr size_t kLengths[] = {24, 48, 72};

// Runs `work` in a process of its own, which ends with 1 if an expectation failed. Our engines have one thread and so
// start none: a fork takes everything along.
template <class F>
pid_t start(F&& work) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    work();
    std::fflush(stdout);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
}
int wait_for(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct Child {
    std::unique_ptr<Engine> engine = open_engine();
    std::unique_ptr<Session> session = engine->new_session({.n_ctx = 128}).value();
    std::unique_ptr<DiskStore> store;
    std::vector<Snapshot> all;
    std::vector<std::vector<float>> logits;

    Child(const std::string& folder, uint64_t budget) {
        for (int t = 0; t < kTalks; ++t) {
            session->clear();
            for (const size_t n : kLengths) {
                const Ids tokens = talk(t, n);
                EXPECT_TRUE(session->prefill(std::span(tokens).subspan(static_cast<size_t>(session->n_token()))).ok());
                all.push_back(session->snapshot().value());
                logits.emplace_back(session->logits().begin(), session->logits().end());
            }
        }
        DiskOptions o;
        o.dir = folder;
        o.budget_bytes = budget;
        o.policy.min_tokens = 4;
        auto opened = DiskStore::open(*engine, o);
        EXPECT_TRUE(opened.ok());
        store = std::move(opened).value();
    }
    void save_one(std::mt19937& rng) {
        const Reason reasons[] = {Reason::cold, Reason::continued, Reason::evict, Reason::manual};
        const auto saved = store->save(all[rng() % all.size()], reasons[rng() % 4]);
        EXPECT_TRUE(saved.ok()) << saved.error().message;
    }
};

constexpr uint64_t kBudget = 150 << 10;  // a few of the fifteen files

// Saves and resumes at random; what is resumed must be what this process computed for itself, to the last bit.
void hammer(const std::string& folder, unsigned seed) {
    Child c(folder, kBudget);
    std::mt19937 rng(seed);
    int n_hit = 0;
    for (int i = 0; i < 400; ++i) {
        if (rng() % 2 == 0) c.save_one(rng);
        const int t = static_cast<int>(rng() % kTalks);
        const auto resumed = c.store->resume(*c.session, talk(t, 80));
        if (!resumed) continue;
        ++n_hit;
        const auto length = std::find(std::begin(kLengths), std::end(kLengths), static_cast<size_t>(resumed->n_token));
        ASSERT_NE(length, std::end(kLengths));
        ASSERT_EQ(resumed->tokens, talk(t, 80));
        ASSERT_TRUE(std::ranges::equal(c.session->logits(),
                                       c.logits[static_cast<size_t>(t) * 3 + static_cast<size_t>(length - kLengths)]));
    }
    EXPECT_GT(n_hit, 10);
}

// Saves until it is killed. Says when it begins.
void save_for_ever(const std::string& folder, unsigned seed) {
    Child c(folder, kBudget);
    std::mt19937 rng(seed);
    std::ofstream(folder + "/started") << "x";
    for (;;) {
        // Left alone, the folder would soon be full of what is worth most, and nothing would be written any more.
        for (const auto& e : std::filesystem::directory_iterator(folder))
            if (e.path().extension() == ".kv") std::filesystem::remove(e.path());
        for (int i = 0; i < 6; ++i) c.save_one(rng);
    }
}

bool has_unfinished(const TemporaryFolder& folder) {
    for (const std::string& name : folder.names(""))
        if (name.find(".kv.tmp-") != name.npos) return true;
    return false;
}

void expect_sound(const TemporaryFolder& folder, uint64_t budget) {
    uint64_t total = 0;
    for (const std::string& name : folder.names(".kv")) {
        const Status status = snapshot::verify(folder / name);
        EXPECT_TRUE(status.ok()) << status.error().message;
        total += std::filesystem::file_size(folder / name);
    }
    EXPECT_LE(total, budget);
    EXPECT_EQ(folder.names(".bad").size(), 0u);
}

TEST(Processes, TwoOnOneFolderSeeOnlyWholeFilesAndKeepTheBudget) {
    const TemporaryFolder folder;
    const pid_t a = start([&] { hammer(folder.path(), 1); });
    const pid_t b = start([&] { hammer(folder.path(), 2); });
    EXPECT_EQ(wait_for(a), 0);
    EXPECT_EQ(wait_for(b), 0);
    expect_sound(folder, kBudget);
    for (const std::string& name : folder.names("")) EXPECT_EQ(name.find(".tmp-"), name.npos) << name;
}

TEST(Processes, KilledWhileSavingLeavesNothingThatIsTakenForAFile) {
    const TemporaryFolder folder;
    std::mt19937 rng(7);
    size_t n_unfinished = 0;
    for (unsigned i = 0; i < 40; ++i) {
        std::filesystem::remove(folder / "started");
        const pid_t pid = start([&] { save_for_ever(folder.path(), i); });
        while (!std::filesystem::exists(folder / "started")) {
            ASSERT_EQ(::waitpid(pid, nullptr, WNOHANG), 0) << "the child ended by itself";
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(rng() % 8000));
        if (i % 2 == 0)  // not anywhere in its loop, but while a file is being written
            for (int wait = 0; wait < 10000 && !has_unfinished(folder); ++wait) ::usleep(20);
        ::kill(pid, SIGKILL);
        EXPECT_EQ(wait_for(pid), -SIGKILL);
        expect_sound(folder, kBudget);
        n_unfinished += has_unfinished(folder) ? 1 : 0;
    }
    std::printf("%zu of 40 were in the middle of a file\n", n_unfinished);
    EXPECT_GT(n_unfinished, 0u);
    // What the dead left is removed, their locks are gone, and everything there is of use.
    DiskOptions o;
    o.dir = folder.path();
    o.policy.min_tokens = 4;
    o.lock_wait_ms = 0;
    const auto engine = open_engine();
    auto store = DiskStore::open(*engine, o);
    ASSERT_TRUE(store.ok());
    for (const std::string& name : folder.names("")) EXPECT_EQ(name.find(".tmp-"), name.npos) << name;
    int n_loaded = 0;
    for (int t = 0; t < kTalks; ++t)
        for (const size_t n : kLengths)
            if (const auto match = store.value()->find(talk(t, n), 128))
                n_loaded += store.value()->load(*match) ? 1 : 0;
    EXPECT_GT(n_loaded, 0);
    EXPECT_EQ(folder.names(".bad").size(), 0u);
}

}  // namespace
}  // namespace vesta::store
