// When to save, what a file is worth and what goes first: arithmetic, with times that stand still.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "store/policy.h"

namespace vesta::store {
namespace {

using snapshot::Reason;
constexpr int64_t kHour = 3600;

TEST(SavePolicy, ColdPositionIsTrimmedThenAligned) {
    const SavePolicy p;
    // By hand: below the minimum; trimmed below it; too short to align; aligned; one token more or less; the limit.
    const std::pair<int64_t, int64_t> table[] = {
        {0, 0},         {511, 0},       {512, 0},     {543, 0},     {544, 512},   {1000, 968},
        {2079, 2047},   {2080, 2048},   {2081, 2048}, {4127, 2048}, {4128, 4096}, {20000, 18432},
        {29999, 28672}, {30000, 28672}, {30001, 0},   {1000000, 0},
    };
    for (const auto& [n_prompt, position] : table) EXPECT_EQ(cold_position(p, n_prompt), position) << n_prompt;
    EXPECT_EQ(cold_position({.boundary_trim = 0, .boundary_align = 0}, 512), 512);
    EXPECT_EQ(cold_position({.cold_max_tokens = 0}, 5000), 0);
    EXPECT_EQ(cold_position({.min_tokens = 0, .boundary_trim = 10, .boundary_align = 0}, 10), 0);
}

TEST(SavePolicy, ContinuedPositionsAreTheSameWhoeverComesBy) {
    const SavePolicy p;  // 10000 rounded up to a multiple of 2048
    EXPECT_EQ(next_continued(p, 0), 10240);
    EXPECT_EQ(next_continued(p, 10239), 10240);
    EXPECT_EQ(next_continued(p, 10240), 20480);
    EXPECT_EQ(next_continued(p, 25000), 30720);
    EXPECT_EQ(next_continued({.continued_interval = 0}, 25000), 0);
    EXPECT_EQ(next_continued({.continued_interval = 1000, .boundary_align = 0}, 1999), 2000);
    EXPECT_EQ(next_continued({.min_tokens = 512, .continued_interval = 100, .boundary_align = 0}, 0), 600);
}

TEST(SavePolicy, AColdPromptStopsOnceAndALongerOneAtEveryInterval) {
    const SavePolicy p;
    EXPECT_EQ(prefill_stops(p, 0, 25000), (std::vector<Stop>{{24576, Reason::cold}}));
    EXPECT_EQ(prefill_stops(p, 0, 400), std::vector<Stop>{});
    EXPECT_EQ(prefill_stops(p, 0, 45000), (std::vector<Stop>{{10240, Reason::continued},
                                                             {20480, Reason::continued},
                                                             {30720, Reason::continued},
                                                             {40960, Reason::continued}}));
    // With something reused, only what is passed; a frontier that was reached before is not passed again.
    EXPECT_EQ(prefill_stops(p, 10240, 25000), (std::vector<Stop>{{20480, Reason::continued}}));
    EXPECT_EQ(prefill_stops(p, 20480, 25000), std::vector<Stop>{});
    EXPECT_EQ(prefill_stops(p, 1, 20480), (std::vector<Stop>{{10240, Reason::continued}, {20480, Reason::continued}}));
}

TEST(SavePolicy, EveryStopLiesInThePartThatIsComputed) {
    std::mt19937 rng(3);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
    for (int i = 0; i < 2000; ++i) {
        const SavePolicy p{.min_tokens = below(600),
                           .cold_max_tokens = 600 + below(5000),
                           .continued_interval = below(3000),
                           .boundary_trim = below(50),
                           .boundary_align = below(300)};
        ASSERT_TRUE(check(p).ok());
        const int64_t n_prompt = 1 + below(9000), n_reused = below(2) * below(n_prompt);
        int64_t last = n_reused;
        for (const Stop& s : prefill_stops(p, n_reused, n_prompt)) {
            EXPECT_GT(s.position, last);
            EXPECT_GE(s.position, p.min_tokens);
            EXPECT_LE(s.position, n_prompt);
            const bool aligned = p.boundary_align == 0 || s.position % p.boundary_align == 0;
            EXPECT_TRUE(s.reason == Reason::cold || aligned);
            last = s.position;
        }
    }
}

TEST(SavePolicy, AtTheEndOnlyWhatIsNotThere) {
    const SavePolicy p;
    EXPECT_FALSE(save_at_end(p, 511, 0));
    EXPECT_TRUE(save_at_end(p, 512, 0));
    EXPECT_TRUE(save_at_end(p, 3000, 2048));
    EXPECT_FALSE(save_at_end(p, 3000, 3000));
}

TEST(SavePolicy, ImpossibleNumbersAreRefusedByName) {
    const auto message = [](const SavePolicy& p) { return check(p).error().message; };
    EXPECT_NE(message({.min_tokens = -1}).find("min_tokens is -1"), std::string::npos);
    EXPECT_NE(message({.cold_max_tokens = 100}).find("cold_max_tokens is 100 and min_tokens 512"), std::string::npos);
    EXPECT_TRUE(check({.cold_max_tokens = 0}).ok());
    EXPECT_TRUE(check({}).ok());
}

TEST(Value, HalvesEverySixHours) {
    const Worth w{.tokens = 1000, .bytes = 100, .hits = 3, .last_used = 0};
    for (const int64_t hours : {0, 6, 12, 18, 60})
        EXPECT_DOUBLE_EQ(value(w, hours * kHour),
                         1000.0 / 100 * (0.125 + (1 + 3) * std::pow(0.5, static_cast<double>(hours) / 6)));
    EXPECT_DOUBLE_EQ(value(w, -1000), value(w, 0));  // a clock that was set back
    const Worth lie{.tokens = 1, .bytes = 0, .hits = ~uint64_t{0}, .last_used = std::numeric_limits<int64_t>::min()};
    EXPECT_TRUE(std::isfinite(value(lie, std::numeric_limits<int64_t>::max())));
}

TEST(Value, OfASupersededFileIsItsHits) {
    Worth w{.tokens = 10, .bytes = 10, .hits = 0, .last_used = 0, .superseded = true};
    EXPECT_EQ(value(w, 0), 0);
    w.hits = 2;
    EXPECT_DOUBLE_EQ(value(w, 6 * kHour), 1);
}

// known-failures D5: a long session was saved on purpose, then another client's prefill wants the place.
TEST(Value, AManualSaveOutlivesRoutineOnesHoweverDenseAndNew) {
    const int64_t weeks = 21 * 24 * kHour;
    const Worth manual{.tokens = 20000, .bytes = 80 << 20, .hits = 0, .last_used = 0, .manual = true};
    const Worth routine{.tokens = 20000, .bytes = 27 << 20, .hits = 0, .last_used = weeks};  // three times as dense
    EXPECT_GT(value(manual, weeks), value(routine, weeks));
    const auto room = make_room(std::vector<Candidate>{{manual, false}}, 1, value(routine, weeks), weeks);
    EXPECT_FALSE(room.has_value());
}

// A folder full of longer, denser files must not keep newcomers out for good.
TEST(Value, ANewFileWinsOverOldOnesThatNobodyUsed) {
    const Worth old{.tokens = 100000, .bytes = 347 << 20, .hits = 2, .last_used = 0};
    const Worth fresh{.tokens = 2048, .bytes = 10 << 20, .hits = 0, .last_used = 3 * 24 * kHour};
    EXPECT_GT(value(fresh, fresh.last_used), value(old, fresh.last_used));
    EXPECT_LT(value({.tokens = 2048, .bytes = 10 << 20, .last_used = 0}, 0), value(old, 0));  // but not at once
}

std::vector<Candidate> three() {
    return {{{.tokens = 10, .bytes = 100, .last_used = 5}, false},
            {{.tokens = 10, .bytes = 100, .last_used = 3}, false},
            {{.tokens = 90, .bytes = 100, .last_used = 1}, false}};
}

TEST(MakeRoom, TakesTheLeastValuableFirstAndTheOlderOfEquals) {
    const int64_t later = 400 * 24 * kHour;  // all recency gone: values 10, 10, 90 times the base
    auto c = three();
    EXPECT_EQ(make_room(c, 1, 1e9, later), (std::vector<size_t>{1}));
    EXPECT_EQ(make_room(c, 101, 1e9, later), (std::vector<size_t>{1, 0}));
    EXPECT_EQ(make_room(c, 300, 1e9, later), (std::vector<size_t>{1, 0, 2}));
    EXPECT_EQ(make_room(c, 301, 1e9, later), std::nullopt);
    EXPECT_EQ(make_room(c, 0, 1e9, later), std::vector<size_t>{});
    c[1].pinned = true;
    EXPECT_EQ(make_room(c, 1, 1e9, later), (std::vector<size_t>{0}));
    EXPECT_EQ(make_room(c, 300, 1e9, later), std::nullopt);
}

TEST(MakeRoom, NothingWorthMoreThanTheNewcomerGoes) {
    const int64_t later = 400 * 24 * kHour;
    const auto c = three();
    const double small = value(c[0].worth, later), large = value(c[2].worth, later);
    EXPECT_EQ(make_room(c, 200, (small + large) / 2, later), (std::vector<size_t>{1, 0}));
    EXPECT_EQ(make_room(c, 201, (small + large) / 2, later), std::nullopt);
    EXPECT_EQ(make_room(c, 1, small / 2, later), std::nullopt);
}

TEST(MakeRoom, KeepsWhatIsNotNeededInTheEnd) {
    const std::vector<Candidate> c = {{{.tokens = 1, .bytes = 10}, false},
                                      {{.tokens = 3, .bytes = 20}, false},
                                      {{.tokens = 400, .bytes = 1000}, false}};
    EXPECT_EQ(make_room(c, 500, 1e9, 0), (std::vector<size_t>{2}));
    EXPECT_EQ(make_room(c, 1005, 1e9, 0), (std::vector<size_t>{0, 2}));
}

TEST(MakeRoom, FreesEnoughAndNoVictimIsSpare) {
    std::mt19937 rng(5);
    for (int i = 0; i < 500; ++i) {
        std::vector<Candidate> c(1 + rng() % 8);
        for (Candidate& x : c)
            x = {{.tokens = 1 + rng() % 50,
                  .bytes = 1 + rng() % 50,
                  .hits = rng() % 3,
                  .last_used = static_cast<int64_t>(rng() % 50000),
                  .manual = rng() % 5 == 0,
                  .superseded = false},
                 rng() % 4 == 0};
        const uint64_t need = 1 + rng() % 120;
        const double newcomer = 0.01 * static_cast<double>(rng() % 400);
        const auto victims = make_room(c, need, newcomer, 50000);
        uint64_t all = 0, freed = 0;
        for (const Candidate& x : c)
            if (!x.pinned && value(x.worth, 50000) <= newcomer) all += x.worth.bytes;
        ASSERT_EQ(victims.has_value(), all >= need);
        if (!victims) continue;
        for (const size_t v : *victims) {
            EXPECT_FALSE(c[v].pinned);
            EXPECT_LE(value(c[v].worth, 50000), newcomer);
            freed += c[v].worth.bytes;
        }
        EXPECT_GE(freed, need);
        for (const size_t v : *victims) EXPECT_LT(freed - c[v].worth.bytes, need);
    }
}

}  // namespace
}  // namespace vesta::store
