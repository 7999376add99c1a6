// Going back and forth in a session: whatever it reuses, the logits are bit for bit those of a fresh one.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine_helpers.h"
#include "kv/cache.h"
#include "model/model.h"

namespace vesta {
namespace {

using test::ids;
using test::open_toy;

std::vector<float> copy(std::span<const float> x) { return {x.begin(), x.end()}; }

std::vector<float> fresh(Engine& engine, const SessionOptions& o, std::span<const int32_t> tokens) {
    auto s = engine.new_session(o).value();
    EXPECT_TRUE(s->prefill(tokens).ok());
    return copy(s->logits());
}

// `kept` of the first list, then others.
std::vector<int32_t> branch(const std::vector<int32_t>& from, int64_t kept, int n_new, int seed) {
    std::vector<int32_t> out(from.begin(), from.begin() + kept);
    for (const int32_t t : ids(n_new, seed)) out.push_back(t == (kept < std::ssize(from) ? from[kept] : -1) ? t + 1 : t);
    return out;
}

class RewindIn : public testing::TestWithParam<std::tuple<CacheFormat, int>> {};

// Every distance, with a ring that reaches back 0, 5 or 40 positions: over the counter, over checkpoints, from nothing.
TEST_P(RewindIn, ByAnyDistanceThenOn) {
    const auto [format, reach] = GetParam();
    const auto engine = open_toy("cpu");
    const SessionOptions o{.n_ctx = 128, .chunk = 7, .cache_format = format, .rewind = reach, .checkpoint_spacing = 16,
                           .checkpoint_limit = 3};
    const std::vector<int32_t> base = ids(61);
    auto s = engine->new_session(o).value();
    for (int64_t back = 1; back <= 61; ++back) {
        ASSERT_TRUE(s->sync(base).ok());
        ASSERT_TRUE(s->rewind(61 - back).ok());
        EXPECT_EQ(s->n_token(), 61 - back);
        EXPECT_TRUE(std::ranges::equal(s->tokens(), std::span(base).first(static_cast<size_t>(61 - back))));
        EXPECT_TRUE(s->logits().empty());
        for (const int more : {1, 3, 30}) {
            const std::vector<int32_t> then = branch(base, 61 - back, more, 5 + more);
            const auto report = s->sync(then);
            ASSERT_TRUE(report.ok());
            EXPECT_EQ(report.value().reused + report.value().computed, std::ssize(then));
            ASSERT_EQ(copy(s->logits()), fresh(*engine, o, then)) << "back " << back << ", then " << more;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, RewindIn,
                         testing::Combine(testing::Values(CacheFormat::fp8, CacheFormat::f16, CacheFormat::f32),
                                          testing::Values(0, 5, 40)));

TEST(Sync, ReportsWhatItDid) {
    const auto engine = open_toy("cpu");
    auto s = engine->new_session({.n_ctx = 200, .rewind = 50, .checkpoint_spacing = 0}).value();
    const std::vector<int32_t> base = ids(100);
    const auto sync = [&](const std::vector<int32_t>& tokens) {
        const auto r = s->sync(tokens);
        EXPECT_TRUE(r.ok());
        return std::array{r.value().reused, r.value().rewound, r.value().computed};
    };
    using Counts = std::array<int64_t, 3>;
    EXPECT_EQ(sync(base), (Counts{0, 0, 100}));
    EXPECT_EQ(sync(base), (Counts{100, 0, 0})) << "the logits are still there";
    EXPECT_EQ(sync(branch(base, 100, 20, 1)), (Counts{100, 0, 20}));
    EXPECT_EQ(sync(base), (Counts{99, 21, 1})) << "the last token is computed again for its logits";
    EXPECT_EQ(sync(branch(base, 90, 5, 2)), (Counts{90, 10, 5}));
    EXPECT_EQ(sync(branch(base, 60, 5, 2)), (Counts{0, 95, 65})) << "beyond the ring: rows up to position 120 were written";
    EXPECT_EQ(sync({}), (Counts{0, 65, 0}));
    EXPECT_TRUE(s->logits().empty());
    EXPECT_EQ(s->n_token(), 0);
}

TEST(Sync, CheckpointsReachFurtherBack) {
    const auto engine = open_toy("cpu");
    const SessionOptions o{.n_ctx = 200, .chunk = 10, .rewind = 4, .checkpoint_spacing = 20, .checkpoint_limit = 10};
    auto s = engine->new_session(o).value();
    const std::vector<int32_t> base = ids(105);
    ASSERT_TRUE(s->prefill(base).ok());
    EXPECT_EQ(s->n_checkpoint(), 5);
    EXPECT_EQ(s->checkpoint_bytes(), 5 * engine->plan(o).checkpoint_bytes);
    const std::vector<int32_t> other = branch(base, 77, 3, 9);
    const auto r = s->sync(other);
    EXPECT_EQ(r.value().reused, 60);
    EXPECT_EQ(r.value().rewound, 45);
    EXPECT_EQ(copy(s->logits()), fresh(*engine, o, other));
    // Those behind us are still good, those ahead are gone.
    EXPECT_EQ(s->n_checkpoint(), 4);  // 20, 40, 60 and, passed again, 80
    const std::vector<int32_t> third = branch(other, 41, 40, 3);
    EXPECT_EQ(s->sync(third).value().reused, 40);
    EXPECT_EQ(copy(s->logits()), fresh(*engine, o, third));
}

TEST(Sync, TooManyCheckpointsAreThinned) {
    const auto engine = open_toy("cpu");
    const SessionOptions o{.n_ctx = 400, .chunk = 4, .rewind = 0, .checkpoint_spacing = 8, .checkpoint_limit = 4};
    auto s = engine->new_session(o).value();
    const std::vector<int32_t> base = ids(300);
    for (const int32_t t : base) ASSERT_TRUE(s->decode(t).ok());
    EXPECT_LE(s->n_checkpoint(), 4);
    EXPECT_GE(s->n_checkpoint(), 2);
    const std::vector<int32_t> other = branch(base, 250, 2, 4);
    const auto r = s->sync(other);
    EXPECT_GT(r.value().reused, 100);
    EXPECT_EQ(copy(s->logits()), fresh(*engine, o, other));
}

// Known failure D10: the same prompt twice leaves nothing to compute.
TEST(Sync, TheSamePromptTwice) {
    const auto engine = open_toy("cpu");
    const SessionOptions o{.n_ctx = 64};
    auto s = engine->new_session(o).value();
    const std::vector<int32_t> prompt = ids(20);
    ASSERT_TRUE(s->sync(prompt).ok());
    const std::vector<float> first = copy(s->logits());
    ASSERT_TRUE(s->decode(9).ok());
    EXPECT_EQ(s->sync(prompt).value().reused, 19);
    EXPECT_EQ(copy(s->logits()), first);
    EXPECT_EQ(s->sync(prompt).value().computed, 0);
    EXPECT_EQ(copy(s->logits()), first);
}

TEST(Sync, RefusedTokensChangeNothing) {
    const auto engine = open_toy("cpu");
    auto s = engine->new_session({.n_ctx = 30}).value();
    ASSERT_TRUE(s->prefill(ids(12)).ok());
    const std::vector<float> before = copy(s->logits());
    std::vector<int32_t> bad = ids(12, 3);
    bad.back() = 260;
    for (const auto& tokens : {ids(31, 1), bad}) {
        const auto r = s->sync(tokens);
        ASSERT_FALSE(r.ok());
        EXPECT_EQ(r.error().code, Code::invalid_argument);
        EXPECT_EQ(copy(s->logits()), before);
        EXPECT_EQ(s->n_token(), 12);
    }
    for (const int64_t n : {-1, 13}) EXPECT_FALSE(s->rewind(n).ok());
    EXPECT_TRUE(s->rewind(12).ok());
    EXPECT_EQ(copy(s->logits()), before) << "nothing was taken back";
}

TEST(Sync, StoppedItHoldsABeginning) {
    const auto engine = open_toy("cpu");
    const SessionOptions o{.n_ctx = 128, .chunk = 8};
    auto s = engine->new_session(o).value();
    ASSERT_TRUE(s->prefill(ids(40, 1)).ok());
    const std::vector<int32_t> wanted = branch(ids(40, 1), 10, 60, 2);
    int calls = 0;
    const auto r = s->sync(wanted, [&](const Progress&) { return ++calls < 4; });
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, Code::cancelled);
    EXPECT_EQ(s->n_token(), 10 + 3 * 8);
    EXPECT_TRUE(std::ranges::equal(s->tokens(), std::span(wanted).first(34)));
    EXPECT_EQ(s->sync(wanted).value().reused, 34);
    EXPECT_EQ(copy(s->logits()), fresh(*engine, o, wanted));
}

// A long random walk: appends, rewinds, branches, snapshots of other moments.
TEST(Sync, ARandomWalk) {
    const auto engine = open_toy("cpu");
    const SessionOptions o{.n_ctx = 160, .chunk = 9, .rewind = 12, .checkpoint_spacing = 25, .checkpoint_limit = 2};
    auto s = engine->new_session(o).value();
    std::mt19937 random(7);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(1, n))); };
    std::vector<int32_t> tokens = ids(30);
    std::vector<Snapshot> snapshots;
    for (int step = 0; step < 150; ++step) {
        switch (below(4)) {
            case 0: tokens = branch(tokens, below(std::ssize(tokens) + 1), 1 + static_cast<int>(below(20)), step); break;
            case 1: tokens.resize(static_cast<size_t>(1 + below(std::ssize(tokens)))); break;
            case 2:
                snapshots.push_back(s->snapshot().value());
                if (const auto& one = snapshots[static_cast<size_t>(below(std::ssize(snapshots)))]; one.n_token() > 0) {
                    ASSERT_TRUE(s->restore(one).ok());
                    tokens.assign(one.tokens().begin(), one.tokens().end());
                    tokens.push_back(7);
                }
                break;
            default: tokens = branch(tokens, std::ssize(tokens), 1 + static_cast<int>(below(3)), step); break;
        }
        if (tokens.size() > 150) tokens.resize(20);
        ASSERT_TRUE(s->sync(tokens).ok());
        ASSERT_EQ(copy(s->logits()), fresh(*engine, o, tokens)) << "step " << step;
    }
}

TEST(RewindCost, IsInThePlan) {
    const auto engine = open_toy("cpu");
    const SessionOptions with{.n_ctx = 4096, .rewind = 512}, without{.n_ctx = 4096, .rewind = 0};
    const CachePlan a = engine->plan(with), b = engine->plan(without);
    EXPECT_EQ(a.total_bytes - b.total_bytes, a.rewind_bytes);
    // Per position: four window rows; c and z of two lanes of 80 and 32, and of one lane of 80.
    const int64_t row = quant::attn_row_bytes(quant::RowFormat::fp8, 80, 16);
    EXPECT_NEAR(static_cast<double>(a.rewind_bytes), static_cast<double>(512 * (4 * row + 8 * (2 * 80 + 2 * 32 + 80))), 600);
    EXPECT_EQ(b.rewind_bytes, 0);
    EXPECT_EQ(a.n_checkpoint, 2);
    const auto memory = engine->memory(with);
    EXPECT_EQ(memory.session_bytes(), a.total_bytes + 2 * a.checkpoint_bytes + memory.scratch_bytes + memory.backend_bytes);
}

TEST(KvUsedBytes, ByLayerAddsUpToACopy) {
    const auto engine = open_toy("cpu");
    for (const int n : {0, 1, 3, 4, 7, 8, 15, 16, 17, 40})
        for (const auto format : {CacheFormat::fp8, CacheFormat::f16, CacheFormat::f32}) {
            auto s = engine->new_session({.n_ctx = 64, .cache_format = format}).value();
            ASSERT_TRUE(s->prefill(ids(n)).ok());
            const auto snapshot = s->snapshot().value();
            const quant::RowFormat rows = format == CacheFormat::fp8   ? quant::RowFormat::fp8
                                          : format == CacheFormat::f16 ? quant::RowFormat::f16
                                                                       : quant::RowFormat::f32;
            int64_t sum = 0;
            for (const int64_t b : kv::used_bytes_by_layer(engine->model().cache_shape(), rows, n)) sum += b;
            EXPECT_EQ(sum, snapshot.n_byte() - n * 4 - (n > 0 ? 260 * 4 : 0));
        }
}

}  // namespace
}  // namespace vesta
