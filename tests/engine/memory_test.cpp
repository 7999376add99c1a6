// What the engine says a session will take and a token will read, against counting.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/allocations.h"
#include "backend/cpu/cpu_ops.h"
#include "engine_helpers.h"
#include "model/model.h"

namespace vesta {
namespace {

using test::ids;
using test::open_toy;

TEST(MemoryPlan, ScratchIsWhatIsAllocated) {
    const auto engine = open_toy("cpu");
    const model::Model& m = engine->model();
    for (const auto& [rows, outputs, n_ctx] : {std::tuple{1, 1, 8}, {7, 7, 100}, {64, 1, 4096}, {512, 512, 4096}}) {
        const int64_t before = test::allocated_bytes();
        const auto workspace = m.new_workspace(rows, outputs, n_ctx);
        const int64_t taken = test::allocated_bytes() - before, told = m.workspace_bytes(rows, outputs, n_ctx);
        EXPECT_GE(taken, told);
        EXPECT_LE(taken, told + (4 << 10)) << "only the object and its lists may come on top: " << rows;
    }
}

TEST(MemoryPlan, AddsUp) {
    const auto engine = open_toy("cpu");
    const SessionOptions o{.n_ctx = 300, .chunk = 64};
    const MemoryPlan p = engine->memory(o);
    EXPECT_EQ(p.cache.total_bytes, engine->plan(o).total_bytes);
    EXPECT_EQ(p.scratch_bytes, engine->model().workspace_bytes(64, 64, 300) + 260 * 4);
    EXPECT_EQ(p.session_bytes(), p.cache.total_bytes + p.scratch_bytes + p.backend_bytes) << "300 tokens: no checkpoint yet";
    EXPECT_EQ(p.weight_locked_bytes, 0);
    EXPECT_GT(p.weight_resident_bytes, 0);
    EXPECT_LE(p.weight_resident_bytes, p.weight_bytes);
    // A chunk larger than the context is no larger than the context.
    EXPECT_EQ(engine->memory({.n_ctx = 50, .chunk = 512}).scratch_bytes,
              engine->model().workspace_bytes(50, 50, 50) + 1040);
}

// The bound holds for prompts of many lengths, wide chunks and single tokens; and is no fantasy.
TEST(MemoryPlan, TheBackendTakesNoMoreThanItSays) {
    for (const auto& [chunk, n] : {std::pair{64, 200}, {512, 700}, {7, 300}, {1, 40}}) {
        const auto engine = open_toy("cpu");
        const SessionOptions o{.n_ctx = 1024, .chunk = chunk};
        auto s = engine->new_session(o).value();
        ASSERT_TRUE(s->prefill(ids(n)).ok());
        for (const int32_t t : ids(40, 1)) ASSERT_TRUE(s->decode(t).ok());
        const int64_t held = dynamic_cast<backend::CpuOps&>(engine->ops()).scratch_held();
        EXPECT_LE(held, engine->memory(o).backend_bytes) << "chunk " << chunk;
        EXPECT_GT(held * 20, engine->memory({.n_ctx = n + 40, .chunk = chunk}).backend_bytes) << "chunk " << chunk;
    }
}

TEST(TokenTraffic, OfTheToyByHand) {
    const auto engine = open_toy("cpu");
    // f32 rows of 80 and index rows of 32; window 8; layers: window only, ratio 4 (two lanes, index, top 3), ratio 8.
    const int64_t d = 4 * 80, i = 4 * 32;
    const auto at = [&](int64_t n) { return engine->traffic(CacheFormat::f32, n); };
    EXPECT_EQ(at(0).window, 3 * d);  // its own row
    EXPECT_EQ(at(4).window, 3 * 5 * d);
    EXPECT_EQ(at(100).window, 3 * 8 * d);
    EXPECT_EQ(at(2).compressed, 0);
    EXPECT_EQ(at(3).compressed, d);  // the fourth token completes a row and sees it
    EXPECT_EQ(at(7).compressed, 2 * d + d);
    EXPECT_EQ(at(99).compressed, 3 * d + 12 * d);  // the best 3 of 25; all 12
    EXPECT_EQ(at(11).index, 0);                    // three rows, three chosen: nothing to score
    EXPECT_EQ(at(15).index, 4 * i);
    EXPECT_EQ(at(99).index, 25 * i);
    EXPECT_EQ(at(99).frontier, 2 * (2 * d) + 2 * (2 * i) + 2 * d);
    EXPECT_EQ(at(99).total(), at(99).weight_bytes() + at(99).cache_bytes());
    // Every layer reads 2 of 4 experts.
    const int64_t expert = [&] {
        const test::ToyModel toy;
        int64_t n = 0;
        for (const auto& t : toy.tensors)
            if (t.name.starts_with("blk.") && t.name.find("_exps.") != std::string::npos)
                n += static_cast<int64_t>(t.bytes.size());
        return n;
    }();
    EXPECT_EQ(at(0).routed * 2, expert);
    EXPECT_EQ(at(0).weight_bytes(), at(99).weight_bytes());
}

TEST(LoadPath, WarmingAndLockingChangeNoResult) {
    const auto plain = open_toy("cpu");
    std::vector<uint64_t> seen;
    static const std::vector<std::byte> bytes = test::ToyModel().bytes();
    const auto warm = Engine::open_bytes(bytes, "toy.gguf", {.n_thread = 2, .warm = true, .huge_pages = true},
                                         [&](const Progress& p) {
                                             if (p.stage == "warm") seen.push_back(p.done);
                                             return true;
                                         });
    ASSERT_TRUE(warm.ok());
    ASSERT_GE(seen.size(), 2u);
    EXPECT_EQ(seen.back(), bytes.size());
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    auto a = plain->new_session({.n_ctx = 64}).value(), b = warm.value()->new_session({.n_ctx = 64}).value();
    ASSERT_TRUE(a->prefill(ids(20)).ok());
    ASSERT_TRUE(b->prefill(ids(20)).ok());
    EXPECT_TRUE(std::ranges::equal(a->logits(), b->logits()));
}

TEST(LoadPath, StopsWhenTheListenerSaysSo) {
    static const std::vector<std::byte> bytes = test::ToyModel().bytes();
    const auto engine = Engine::open_bytes(bytes, "toy.gguf", {.n_thread = 1, .warm = true},
                                           [](const Progress& p) { return p.stage != "warm"; });
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.error().code, Code::cancelled);
}

}  // namespace
}  // namespace vesta
