// Going back to an earlier state of a session, and the sizes told before it is opened.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine_helpers.h"

namespace vesta {
namespace {

using test::ids;
using test::open_toy;

std::vector<float> copy(std::span<const float> x) { return {x.begin(), x.end()}; }

// Greedy tokens, and the logits of each step: equal only if every bit is.
struct Continuation {
    std::vector<int32_t> tokens;
    std::vector<std::vector<float>> logits;
    bool operator==(const Continuation&) const = default;
};
Continuation generate(Session& s, int n) {
    Continuation c;
    for (int i = 0; i < n; ++i) {
        c.logits.push_back(copy(s.logits()));
        const auto best = std::max_element(s.logits().begin(), s.logits().end()) - s.logits().begin();
        c.tokens.push_back(static_cast<int32_t>(best));
        EXPECT_TRUE(s.decode(c.tokens.back()).ok());
    }
    return c;
}

class SnapshotOf : public testing::TestWithParam<std::tuple<CacheFormat, int>> {};

// Lengths on both sides of the window (8), of complete compressed rows (4 and 8), and of the ring (8 + chunk).
TEST_P(SnapshotOf, ContinuesBitForBit) {
    const auto [format, n] = GetParam();
    const auto engine = open_toy("cpu");
    auto s = engine->new_session({.n_ctx = 128, .chunk = 6, .cache_format = format}).value();
    ASSERT_TRUE(s->prefill(ids(n)).ok());
    const auto before = s->snapshot();
    ASSERT_TRUE(before.ok());
    EXPECT_EQ(before.value().n_token(), n);
    const Continuation first = generate(*s, 30);
    ASSERT_TRUE(s->restore(before.value()).ok());
    EXPECT_EQ(s->n_token(), n);
    EXPECT_TRUE(std::ranges::equal(s->tokens(), ids(n)));
    EXPECT_EQ(generate(*s, 30), first);

    // Into a session with other room, where rows lie in other slots, after something else was there.
    auto other = engine->new_session({.n_ctx = 90, .chunk = 17, .cache_format = format}).value();
    ASSERT_TRUE(other->prefill(ids(50, 3)).ok());
    ASSERT_TRUE(other->restore(before.value()).ok());
    EXPECT_EQ(generate(*other, 30), first);
}

INSTANTIATE_TEST_SUITE_P(Lengths, SnapshotOf,
                         testing::Combine(testing::Values(CacheFormat::fp8, CacheFormat::f16, CacheFormat::f32),
                                          testing::Values(1, 3, 7, 8, 9, 13, 14, 15, 16, 31, 40)));

TEST(Snapshot, OfTheReferenceBackendAndOfADrafterToo) {
    const auto engine = open_toy("reference");
    auto s = engine->new_session({.n_ctx = 64, .chunk = 5}).value();
    ASSERT_TRUE(s->prefill(ids(21)).ok());
    const auto before = s->snapshot();
    const Continuation first = generate(*s, 10);
    ASSERT_TRUE(s->restore(before.value()).ok());
    EXPECT_EQ(generate(*s, 10), first);
}

TEST(Snapshot, OfAnEmptySessionIsEmpty) {
    const auto engine = open_toy("cpu");
    auto s = engine->new_session({.n_ctx = 64}).value();
    const auto empty = s->snapshot();
    ASSERT_TRUE(s->prefill(ids(12)).ok());
    ASSERT_TRUE(s->restore(empty.value()).ok());
    EXPECT_EQ(s->n_token(), 0);
    EXPECT_TRUE(s->logits().empty());
    ASSERT_TRUE(s->prefill(ids(12)).ok());
}

TEST(Snapshot, HoldsOnlyWhatIsInUse) {
    const auto engine = open_toy("cpu");
    auto s = engine->new_session({.n_ctx = 1 << 20, .chunk = 4096}).value();
    ASSERT_TRUE(s->prefill(ids(16)).ok());
    const int64_t plan = engine->plan({.n_ctx = 1 << 20, .chunk = 4096}).total_bytes;
    EXPECT_LT(s->snapshot().value().n_byte() * 100, plan);
    // f32 rows, layers window / ratio 4 with index / ratio 8, and the drafter's window. By hand: 16 tokens, window 8.
    auto f = engine->new_session({.n_ctx = 64, .cache_format = CacheFormat::f32}).value();
    ASSERT_TRUE(f->prefill(ids(16)).ok());
    const int64_t d = 80, i = 32;
    const int64_t rows = 4 * 8 * d + (4 * d + 4 * i) + 2 * d;             // windows; compressed and index rows
    const int64_t frontiers = 2 * 8 * 2 * d + 2 * 8 * 2 * i + 2 * 8 * d;  // c and z: 8 positions x 2 lanes; 8 x 1
    EXPECT_EQ(f->snapshot().value().n_byte(), 4 * (rows + frontiers) + 16 * 4 + 260 * 4);
}

TEST(Snapshot, OutlivesSessionAndEngine) {
    const auto engine = open_toy("cpu");
    std::vector<Snapshot> kept;
    {
        auto s = engine->new_session({.n_ctx = 64}).value();
        ASSERT_TRUE(s->prefill(ids(10)).ok());
        kept.push_back(s->snapshot().value());
    }
    auto s = engine->new_session({.n_ctx = 64}).value();
    ASSERT_TRUE(s->restore(kept[0]).ok());
    EXPECT_EQ(s->n_token(), 10);
}

TEST(Snapshot, OfAnotherEngineFormatOrSizeIsRefusedAndNothingChanges) {
    const auto engine = open_toy("cpu"), twin = open_toy("cpu");
    // Another training run of the same shape: one weight differs.
    test::ToyModel other_weights;
    other_weights.tensor("blk.1.ffn_gate_exps.weight").put(other_weights.tensor("blk.1.ffn_gate_exps.weight").n_elem() / 2, 0.123f);
    const std::vector<std::byte> other_bytes = other_weights.bytes();
    const auto foreign = Engine::open_bytes(other_bytes, "other.gguf", {.backend = "cpu", .n_thread = 2}).value();
    EXPECT_EQ(engine->fingerprint(), twin->fingerprint());
    EXPECT_NE(engine->fingerprint(), foreign->fingerprint());
    auto s = engine->new_session({.n_ctx = 32}).value();
    ASSERT_TRUE(s->prefill(ids(9)).ok());
    const Snapshot mine = s->snapshot().value();
    const Continuation expected = generate(*s, 5);
    ASSERT_TRUE(s->restore(mine).ok());

    const auto taken = [](Engine& e, SessionOptions o, int n) {
        auto other = e.new_session(o).value();
        EXPECT_TRUE(other->prefill(ids(n)).ok());
        return other->snapshot().value();
    };
    const std::pair<Snapshot, const char*> bad[] = {
        {taken(*foreign, {.n_ctx = 32}, 9), "another model"},
        {taken(*engine, {.n_ctx = 32, .cache_format = CacheFormat::f16}, 9), "the same cache format"},
        {taken(*engine, {.n_ctx = 64}, 40), "the snapshot has 40 tokens, but this session holds 32"},
    };
    for (const auto& [snapshot, message] : bad) {
        const Status status = s->restore(snapshot);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, Code::invalid_argument);
        EXPECT_NE(status.error().message.find(message), std::string::npos) << status.error().message;
    }
    EXPECT_EQ(s->n_token(), 9);
    EXPECT_EQ(generate(*s, 5), expected);
    // The same weights opened again are the same model.
    ASSERT_TRUE(s->restore(taken(*twin, {.n_ctx = 32}, 9)).ok());
    EXPECT_EQ(generate(*s, 5), expected);
}

}  // namespace
}  // namespace vesta
