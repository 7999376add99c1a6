// The store in memory, against a list that is searched from end to end.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "store/prefix_store.h"
#include "store_helpers.h"

namespace vesta::store {
namespace {

using Ids = std::vector<int32_t>;

Snapshot snapshot_of(const Ids& tokens) {
    static const std::unique_ptr<Engine> engine = open_engine();
    static const auto session = engine->new_session({.n_ctx = 256, .rewind = 0, .checkpoint_spacing = 0}).value();
    session->clear();
    EXPECT_TRUE(session->prefill(tokens).ok());
    return session->snapshot().value();
}
Ids range(int n, int seed = 0) {
    Ids out;
    for (int i = 0; i < n; ++i) out.push_back((i * 7 + seed * 31) % 250);
    return out;
}
int64_t bytes(const Snapshot& s) { return s.n_byte() + 4 * s.n_token(); }

struct Clock {
    double now = 0;
    PrefixOptions options(int64_t budget) {
        return {.budget_bytes = budget, .half_life_seconds = 600, .clock = [this] { return now; }};
    }
};

TEST(PrefixStore, FindsTheLongestBeginning) {
    PrefixStore store;
    EXPECT_FALSE(store.find(range(5), 100));
    for (const int n : {3, 10, 20}) EXPECT_EQ(store.insert(snapshot_of(range(n))), Inserted::stored);
    EXPECT_EQ(store.find(range(2), 100).has_value(), false);
    EXPECT_EQ(store.find(range(3), 100)->n_token(), 3);
    EXPECT_EQ(store.find(range(19), 100)->n_token(), 10);
    EXPECT_EQ(store.find(range(40), 100)->n_token(), 20);
    EXPECT_EQ(store.find(range(40), 19)->n_token(), 10);           // what the session can hold
    EXPECT_EQ(store.find(range(40), 100, 20).has_value(), false);  // what the session has already
    Ids parts = range(40);
    parts[15] = 251;
    EXPECT_EQ(store.find(parts, 100)->n_token(), 10);
    EXPECT_FALSE(store.find({}, 100));
}

TEST(PrefixStore, RandomTreesAgreeWithAList) {
    std::mt19937 rng(11);
    const auto some = [&](size_t max) {
        Ids out(1 + rng() % max);
        for (int32_t& id : out) id = static_cast<int32_t>(rng() % 2);  // many common beginnings
        return out;
    };
    std::map<Ids, Snapshot> cache;  // making snapshots is what takes the time
    const auto cached = [&](const Ids& tokens) {
        auto at = cache.find(tokens);
        if (at == cache.end()) at = cache.emplace(tokens, snapshot_of(tokens)).first;
        return at->second;
    };
    for (int round = 0; round < 20; ++round) {
        Clock clock;
        const int64_t budget = round % 2 == 0 ? int64_t{1} << 40 : 8 * bytes(cached(some(7)));
        PrefixStore store(clock.options(budget));
        std::vector<Ids> list;  // what must be there while nothing is evicted
        for (int i = 0; i < 60; ++i) {
            clock.now += 1;
            const Ids tokens = some(7);
            const Inserted inserted = store.insert(cached(tokens));
            EXPECT_LE(store.used_bytes(), budget);
            if (round % 2 == 0) {
                const bool known = std::find(list.begin(), list.end(), tokens) != list.end();
                EXPECT_EQ(inserted, known ? Inserted::replaced : Inserted::stored);
                if (!known) list.push_back(tokens);
                EXPECT_EQ(store.n_snapshot(), list.size());
            }
            const Ids prompt = some(9);
            size_t longest = 0;
            for (const Ids& t : list)
                if (t.size() <= prompt.size() && std::equal(t.begin(), t.end(), prompt.begin()))
                    longest = std::max(longest, t.size());
            const auto hit = store.find(prompt, 100);
            const int64_t found = hit ? hit->n_token() : 0;
            EXPECT_TRUE(round % 2 == 1 || found == static_cast<int64_t>(longest));
            const Ids stored = hit ? Ids(hit->snapshot().tokens().begin(), hit->snapshot().tokens().end()) : Ids();
            EXPECT_TRUE(std::equal(stored.begin(), stored.end(), prompt.begin()));
        }
        int64_t total = 0;
        if (round % 2 == 0) {
            for (const Ids& t : list) total += bytes(cached(t));
            EXPECT_EQ(store.used_bytes(), total);
        }
        store.clear();
        EXPECT_EQ(store.used_bytes(), 0);
        EXPECT_FALSE(store.find(some(9), 100));
    }
}

TEST(PrefixStore, WithoutHitsTheLeastRecentlyUsedGoes) {
    const Snapshot a = snapshot_of(range(10, 1)), b = snapshot_of(range(10, 2)), c = snapshot_of(range(10, 3));
    Clock clock;
    PrefixStore store(clock.options(2 * bytes(a)));
    store.insert(a);
    clock.now = 1;
    store.insert(b);
    clock.now = 2;
    EXPECT_EQ(store.insert(a), Inserted::replaced);  // used again
    clock.now = 3;
    EXPECT_EQ(store.insert(c), Inserted::stored);
    EXPECT_TRUE(store.find(range(10, 1), 100));
    EXPECT_FALSE(store.find(range(10, 2), 100));
}

TEST(PrefixStore, HitsCountAndAreForgotten) {
    const Snapshot a = snapshot_of(range(10, 1)), b = snapshot_of(range(10, 2)), c = snapshot_of(range(10, 3));
    Clock clock;
    PrefixStore store(clock.options(2 * bytes(a)));
    store.insert(a);
    store.insert(b);
    EXPECT_TRUE(store.find(range(10, 1), 100));
    EXPECT_TRUE(store.find(range(10, 2), 100));
    clock.now = 300;  // half a half-life: (1 + 1) / sqrt(2) each, more than the newcomer's 1
    EXPECT_EQ(store.insert(c), Inserted::no_room);
    EXPECT_EQ(store.n_snapshot(), 2u);
    clock.now = 601;  // 2 / 2 and a little less
    EXPECT_EQ(store.insert(c), Inserted::stored);
    EXPECT_FALSE(store.find(range(10, 1), 100));
    EXPECT_TRUE(store.find(range(10, 2), 100));
}

TEST(PrefixStore, AnEarlierStateOfAConversationGoesFirst) {
    const Snapshot early = snapshot_of(range(10, 1)), other = snapshot_of(range(10, 2)),
                   late = snapshot_of(range(30, 1));
    Clock clock;
    PrefixStore store(clock.options(bytes(early) + bytes(other) + bytes(late) - 1));
    store.insert(other);
    clock.now = 5;
    store.insert(early);  // newer than the other, and yet
    clock.now = 6;
    EXPECT_EQ(store.insert(late), Inserted::stored);
    EXPECT_TRUE(store.find(range(10, 2), 100));
    EXPECT_EQ(store.find(range(40, 1), 100)->n_token(), 30);
    EXPECT_FALSE(store.find(range(29, 1), 100));
    // While there is room it stays: people go back.
    PrefixStore roomy(clock.options(int64_t{1} << 40));
    roomy.insert(early);
    roomy.insert(late);
    EXPECT_EQ(roomy.find(range(29, 1), 100)->n_token(), 10);
}

TEST(PrefixStore, WhatIsHeldStaysAndASnapshotOutlivesTheStore) {
    const Snapshot a = snapshot_of(range(10, 1)), b = snapshot_of(range(10, 2));
    std::optional<PrefixStore::Hit> hit;
    {
        Clock clock;
        PrefixStore store(clock.options(bytes(a)));
        store.insert(a);
        hit = store.find(range(12, 1), 100);
        ASSERT_TRUE(hit);
        clock.now = 1e6;
        EXPECT_EQ(store.insert(b), Inserted::no_room);
        const auto copy = hit;
        hit.reset();
        EXPECT_EQ(store.insert(b), Inserted::no_room);
        hit = copy;
        store.clear();
        EXPECT_EQ(store.n_snapshot(), 1u);
        EXPECT_EQ(store.insert(a), Inserted::replaced);  // its own place it can take
    }
    EXPECT_EQ(hit->n_token(), 10);
    hit.reset();
    Clock clock;
    PrefixStore store(clock.options(bytes(a)));
    store.insert(a);
    { const auto held = store.find(range(10, 1), 100); }
    clock.now = 1e6;
    EXPECT_EQ(store.insert(b), Inserted::stored);
}

TEST(PrefixStore, WhatCannotFitIsRefusedAndNothingGoes) {
    const Snapshot a = snapshot_of(range(10, 1)), large = snapshot_of(range(100, 2));
    ASSERT_GT(bytes(large), bytes(a));
    Clock clock;
    PrefixStore store(clock.options(bytes(a)));
    store.insert(a);
    EXPECT_EQ(store.insert(large), Inserted::no_room);
    EXPECT_EQ(store.insert(snapshot_of({})), Inserted::no_room);
    EXPECT_EQ(store.n_snapshot(), 1u);
    EXPECT_EQ(store.used_bytes(), bytes(a));
}

TEST(PrefixStore, ALongChainIsTakenDownWithoutRecursion) {
    PrefixStore store;
    const auto engine = open_engine();
    const auto session = engine->new_session({.n_ctx = 256, .rewind = 0, .checkpoint_spacing = 0}).value();
    for (const int32_t id : range(200)) {
        ASSERT_TRUE(session->decode(id).ok());
        EXPECT_EQ(store.insert(session->snapshot().value()), Inserted::stored);
    }
    EXPECT_EQ(store.n_snapshot(), 200u);
    EXPECT_EQ(store.find(range(250), 1000)->n_token(), 200);
}

TEST(PrefixStore, ThreadsMayUseItAtOnce) {
    std::vector<Snapshot> all;
    for (int seed = 0; seed < 6; ++seed)
        for (const int n : {8, 16, 24}) all.push_back(snapshot_of(range(n, seed)));
    PrefixStore store({.budget_bytes = 6 * bytes(all[1]), .half_life_seconds = 1e-4});
    std::vector<std::thread> threads;
    std::atomic<int> n_wrong = 0;
    for (unsigned t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            std::mt19937 rng(t);
            for (int i = 0; i < 2000; ++i) {
                store.insert(all[rng() % all.size()]);
                const Ids prompt = range(30, static_cast<int>(rng() % 6));
                const auto hit = store.find(prompt, 100);
                if (hit &&
                    !std::equal(hit->snapshot().tokens().begin(), hit->snapshot().tokens().end(), prompt.begin()))
                    ++n_wrong;
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(n_wrong, 0);
    EXPECT_LE(store.used_bytes(), 6 * bytes(all[1]));
}

}  // namespace
}  // namespace vesta::store
