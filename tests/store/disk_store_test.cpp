// The disk store with a toy model: what is found, that what is restored is exactly what was saved, and who goes first.
// Rows of the list of known failures have their number in the test's comment.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "store_helpers.h"

namespace vesta::store {
namespace {

using snapshot::Reason;
using Ids = std::vector<int32_t>;

// Headers carry the time of the system, so the clock of a test begins there and is moved by hand.
int64_t system_seconds() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

class Disk : public testing::Test {
 protected:
    DiskOptions options() {
        DiskOptions o;
        o.dir = folder_.path();
        o.policy = {
            .min_tokens = 4, .cold_max_tokens = 300, .continued_interval = 20, .boundary_trim = 2, .boundary_align = 0};
        o.lock_wait_ms = 2000;
        o.clock = [this] { return now_; };
        o.log = [this](const std::string& line) { log_ += line + "\n"; };
        return o;
    }
    std::unique_ptr<DiskStore> open(const Engine& engine, const DiskOptions& o) {
        auto store = DiskStore::open(engine, o);
        EXPECT_TRUE(store.ok()) << store.error().message;
        return std::move(store).value();
    }
    std::unique_ptr<DiskStore> open() { return open(*engine_, options()); }
    std::unique_ptr<Session> new_session(Engine& engine, CacheFormat format = CacheFormat::fp8) {
        return engine.new_session({.n_ctx = 320, .cache_format = format}).value();
    }
    std::vector<float> logits_of(const Ids& tokens) {
        const auto s = new_session(*engine_);
        EXPECT_TRUE(s->prefill(tokens).ok());
        return {s->logits().begin(), s->logits().end()};
    }
    Snapshot snapshot_of(const Ids& tokens) {
        const auto s = new_session(*engine_);
        EXPECT_TRUE(s->prefill(tokens).ok());
        return s->snapshot().value();
    }
    Saved save(DiskStore& store, const Ids& tokens, Reason reason = Reason::continued) {
        auto saved = store.save(snapshot_of(tokens), reason);
        EXPECT_TRUE(saved.ok()) << saved.error().message;
        return std::move(saved).value();
    }
    SaveOutcome outcome(DiskStore& store, const Ids& tokens, Reason reason = Reason::continued) {
        return save(store, tokens, reason).outcome;
    }
    // Resumes, computes what is missing, and holds the result against a session that computed everything. How many
    // tokens the file gave; 0: none was used.
    int64_t resume_and_compare(DiskStore& store, const Ids& prompt) {
        const auto s = new_session(*engine_);
        const auto resumed = store.resume(*s, prompt);
        const Ids tokens = resumed ? resumed->tokens : prompt;
        const auto report = s->sync(tokens);
        EXPECT_TRUE(report.ok());
        const int64_t n = resumed ? resumed->n_token : 0;
        EXPECT_EQ(report.value().reused, n);
        EXPECT_EQ(report.value().computed, static_cast<int64_t>(tokens.size()) - n);
        EXPECT_EQ(units(tokens), units(prompt));
        const std::vector<float> expected = logits_of(tokens);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), s->logits().begin(), s->logits().end()));
        return n;
    }
    uint64_t size_of(const Ids& tokens) {  // of its file
        const TemporaryFolder t;
        EXPECT_TRUE(engine_
                        ->write_snapshot(snapshot_of(tokens), t / "x.kv",
                                         {Reason::cold, key_of(toy_tokenizer(), tokens).value().bytes, ""}, {})
                        .ok());
        return std::filesystem::file_size(t / "x.kv");
    }
    size_t n_file() { return folder_.names(".kv").size(); }

    TemporaryFolder folder_;
    std::unique_ptr<Engine> engine_ = open_engine();
    int64_t now_ = system_seconds();
    std::string log_;
};

Ids letters(size_t n, int seed = 0) {  // text without merges: a token per byte
    std::string text;
    for (size_t i = 0; i < n; ++i)
        text += static_cast<char>('A' + (i * 7 + static_cast<size_t>(seed) * 11 + i / 26) % 26);
    return byte_tokens(text);
}
Ids conversation(size_t n, int seed = 0) {
    Ids out = joined(Ids{kBos, kUser}, letters(n, seed));
    out.resize(n);
    return out;
}
Ids first(const Ids& tokens, size_t n) { return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n)}; }

// known-failures D8: as many tokens are reused after a restart as were saved.
TEST_F(Disk, WhatWasSavedIsReusedAfterARestartBitForBit) {
    const Ids prompt = conversation(90);
    for (const size_t n : {5u, 8u, 31u, 64u, 90u}) ASSERT_EQ(outcome(*open(), first(prompt, n)), SaveOutcome::written);
    const auto restarted = open_engine();  // nothing in common but the folder
    engine_ = open_engine();
    EXPECT_EQ(restarted->fingerprint(), engine_->fingerprint());
    const auto store = open();
    for (const auto& [n, reused] : {std::pair{90u, 90}, {89u, 64}, {64u, 64}, {50u, 31}, {8u, 8}, {7u, 5}, {4u, 0}})
        EXPECT_EQ(resume_and_compare(*store, first(prompt, n)), reused) << n;
    EXPECT_EQ(folder_.names(".bad").size(), 0u);
}

TEST_F(Disk, EveryCacheFormatHasItsOwnFiles) {
    const Ids prompt = conversation(30);
    for (const CacheFormat format : {CacheFormat::f16, CacheFormat::f32, CacheFormat::fp8}) {
        DiskOptions o = options();
        o.cache_format = format;
        const auto store = open(*engine_, o);
        EXPECT_FALSE(store->find(prompt, 300));  // those of the formats before are not seen
        const auto s = new_session(*engine_, format);
        ASSERT_TRUE(s->prefill(prompt).ok());
        EXPECT_EQ(store->save(s->snapshot().value(), Reason::evict).value().outcome, SaveOutcome::written);
        const auto other = new_session(*engine_, format);
        ASSERT_TRUE(store->resume(*other, prompt));
        EXPECT_TRUE(std::ranges::equal(other->logits(), s->logits()));
    }
    EXPECT_EQ(n_file(), 3u);
}

TEST_F(Disk, ATextIsFoundHoweverItWasTokenized) {
    const Ids by_byte = joined(Ids{kBos, kUser}, byte_tokens("hello world")),
              merged = joined(Ids{kBos, kUser}, encode("hello world"));
    ASSERT_NE(by_byte, merged);
    const auto store = open();
    ASSERT_EQ(outcome(*store, by_byte), SaveOutcome::written);
    EXPECT_EQ(outcome(*store, merged), SaveOutcome::already_stored);  // no second file for one text
    const Ids prompt = joined(merged, Ids{kAssistant});
    const auto match = store->find(prompt, 300);
    ASSERT_TRUE(match);
    EXPECT_EQ(match->n_token, static_cast<int64_t>(by_byte.size()));
    EXPECT_EQ(match->rest, Ids{kAssistant});
    EXPECT_FALSE(match->retokenized);
    EXPECT_EQ(resume_and_compare(*store, prompt), static_cast<int64_t>(by_byte.size()));
}

TEST_F(Disk, AFileMayEndInsideATokenOfThePrompt) {
    const auto store = open();
    const Ids stored = joined(Ids{kBos, kUser}, byte_tokens("say hel"));
    ASSERT_EQ(outcome(*store, stored), SaveOutcome::written);
    const Ids prompt = joined(joined(Ids{kBos, kUser}, encode("say hello world")), Ids{kAssistant});
    const auto match = store->find(prompt, 300);
    ASSERT_TRUE(match);
    EXPECT_TRUE(match->retokenized);
    EXPECT_EQ(match->rest, joined(encode("lo world"), Ids{kAssistant}));
    EXPECT_EQ(resume_and_compare(*store, prompt), static_cast<int64_t>(stored.size()));
}

TEST_F(Disk, SpelledMarkersAndControlTokensDoNotFindEachOther) {
    const auto store = open();
    const Ids control = joined(Ids{kBos, kUser}, byte_tokens("hi there"));
    const Ids spelled = joined(Ids{kBos}, joined(encode("<｜User｜>"), byte_tokens("hi there")));
    EXPECT_EQ(toy_tokenizer().decode(control).value(), toy_tokenizer().decode(spelled).value());
    ASSERT_EQ(outcome(*store, control), SaveOutcome::written);
    EXPECT_FALSE(store->find(spelled, 300));
    ASSERT_EQ(outcome(*store, spelled), SaveOutcome::written);
    EXPECT_EQ(store->find(spelled, 300)->n_token, static_cast<int64_t>(spelled.size()));
    EXPECT_EQ(store->find(control, 300)->n_token, static_cast<int64_t>(control.size()));
}

TEST_F(Disk, FilesThatAreNotForThisPromptModelOrSessionAreNotFound) {
    const auto store = open();
    const Ids prompt = conversation(50);
    const auto write = [&](const char* name, HandMade h) { write_by_hand(folder_ / name, h); };
    write("model.kv", {.tokens = first(prompt, 40), .model = 77});
    write("format.kv", {.tokens = first(prompt, 40), .row_format = engine_->row_format_number(CacheFormat::f32)});
    write("short.kv", {.tokens = first(prompt, 3)});
    Ids other = first(prompt, 40);
    other[39] = kAssistant;
    write("other.kv", {.tokens = other});
    EXPECT_FALSE(store->find(prompt, 300));
    write("asked.kv", {.tokens = first(prompt, 3), .reason = Reason::manual});  // short, but somebody wanted it
    EXPECT_EQ(store->find(prompt, 300)->n_token, 3);
    write("right.kv", {.tokens = first(prompt, 40)});
    EXPECT_EQ(store->find(prompt, 300)->n_token, 40);
    EXPECT_EQ(store->find(prompt, 50)->n_token, 40);
    EXPECT_FALSE(store->find(prompt, 49));  // the session does not hold the prompt at all
    EXPECT_EQ(store->find(first(prompt, 40), 300)->rest, Ids{});
    EXPECT_FALSE(store->find(Ids{1, 99999}, 300));
    EXPECT_EQ(folder_.names(".bad").size(), 0u);
}

TEST_F(Disk, ALookupHashesThePromptOnceAndMeetsManyFiles) {
    const auto store = open();
    const Ids prompt = conversation(300);
    for (int i = 0; i < 40; ++i) {
        write_by_hand(folder_ / strf("a{}.kv", i), {.tokens = first(prompt, static_cast<size_t>(10 + 5 * i))});
        write_by_hand(folder_ / strf("b{}.kv", i), {.tokens = conversation(static_cast<size_t>(10 + 5 * i), 1 + i)});
    }
    EXPECT_EQ(store->find(prompt, 300)->n_token, 10 + 5 * 39);
    EXPECT_EQ(store->find(first(prompt, 100), 300)->n_token, 100);
    EXPECT_EQ(store->find(first(prompt, 99), 300)->n_token, 95);
}

// known-failures D2: every kind of damage is noticed, the file is not tried again, and the request is served cold.
TEST_F(Disk, ADamagedFileIsSetAsideAndTheAnswerIsRight) {
    const Ids prompt = conversation(48), saved = first(prompt, 40);
    ASSERT_EQ(outcome(*open(), saved), SaveOutcome::written);
    const std::string name = folder_.names(".kv").at(0);
    const auto read_all = [&] {
        std::ifstream in(folder_ / name, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(in), {});
    };
    const std::string good = read_all();
    struct Damage {
        std::string what, bytes;
    };
    std::vector<Damage> all;
    for (size_t at = 0; at < good.size(); at += at < 600 ? 7 : 977) {
        std::string bytes = good;
        bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
        all.push_back({strf("byte {} flipped", at), bytes});
    }
    for (size_t n = 0; n < good.size(); n += 2047) all.push_back({strf("cut to {}", n), good.substr(0, n)});
    all.push_back({"the last byte is missing", good.substr(0, good.size() - 1)});
    all.push_back({"a byte more", good + "x"});
    int n_refused = 0;
    const auto store = open();
    for (const Damage& d : all) {
        std::filesystem::remove(folder_ / name);
        std::ofstream(folder_ / name, std::ios::binary) << d.bytes;
        const int64_t reused = resume_and_compare(*store, prompt);  // the comparison is the point
        if (reused != 0) {  // bytes outside every checksum: usage slots and padding
            EXPECT_EQ(reused, 40) << d.what;
            continue;
        }
        ++n_refused;
        EXPECT_EQ(n_file(), 0u) << d.what << "\n" << log_;
        EXPECT_LE(folder_.names(".bad").size(), 4u);
    }
    EXPECT_GT(n_refused, 100);
    // A good file in the same place is used again.
    std::filesystem::remove(folder_ / name);
    ASSERT_EQ(outcome(*store, saved), SaveOutcome::written);
    EXPECT_EQ(resume_and_compare(*store, prompt), 40);
}

TEST_F(Disk, TheLongestFileBeingDamagedTheNextOneServes) {
    const Ids prompt = conversation(60);
    const auto store = open();
    ASSERT_EQ(outcome(*store, first(prompt, 20)), SaveOutcome::written);
    const std::string path = save(*store, first(prompt, 50)).path;
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 10);
    EXPECT_EQ(resume_and_compare(*store, prompt), 20);
    EXPECT_EQ(folder_.names(".bad").size(), 1u);
}

TEST_F(Disk, AFileWhoseTextIsNotThatOfItsTokensIsSetAside) {
    const Ids prompt = conversation(30), lie = conversation(30, 5);
    const auto store = open();
    ASSERT_TRUE(engine_
                    ->write_snapshot(snapshot_of(lie), folder_ / "lie.kv",
                                     {Reason::cold, key_of(toy_tokenizer(), prompt).value().bytes, ""}, {})
                    .ok());
    EXPECT_EQ(resume_and_compare(*store, prompt), 0);
    EXPECT_EQ(folder_.names(".bad"), std::vector<std::string>{"lie.kv.bad"});
}

// known-failures D1: a file that loads and then lets prefill fail must not be met by the retry.
TEST_F(Disk, AfterAFailedPrefillTheFileIsGone) {
    const Ids prompt = conversation(60);
    const auto store = open();
    ASSERT_EQ(outcome(*store, first(prompt, 50)), SaveOutcome::written);
    const auto s = new_session(*engine_);
    auto resumed = store->resume(*s, prompt);
    ASSERT_TRUE(resumed);
    const Status failed = s->prefill(Ids{99999});  // stands for whatever fails after a hit
    ASSERT_FALSE(failed.ok());
    store->drop_failed(resumed->path, failed.error().message);
    EXPECT_EQ(n_file(), 0u);
    EXPECT_EQ(resume_and_compare(*store, prompt), 0);
    EXPECT_EQ(resume_and_compare(*open(), prompt), 0);
    store->drop_failed(resumed->path, "once more");  // it is gone: nothing to do
}

TEST_F(Disk, AFileThatVanishesBetweenFindAndLoadIsAMiss) {
    const Ids prompt = conversation(40);
    const auto store = open();
    ASSERT_EQ(outcome(*store, prompt), SaveOutcome::written);
    auto match = store->find(prompt, 300);
    ASSERT_TRUE(match);
    std::filesystem::remove(match->path);
    EXPECT_FALSE(store->load(*match));
    EXPECT_EQ(folder_.names("").size(), 1u);  // the lock
    // And one that became another conversation.
    ASSERT_EQ(outcome(*store, prompt), SaveOutcome::written);
    match = store->find(prompt, 300);
    std::filesystem::remove(match->path);
    const Ids other = conversation(30, 3);
    ASSERT_TRUE(engine_
                    ->write_snapshot(snapshot_of(other), match->path,
                                     {Reason::cold, key_of(toy_tokenizer(), other).value().bytes, ""}, {})
                    .ok());
    EXPECT_FALSE(store->load(*match));
    EXPECT_EQ(folder_.names(".bad").size(), 0u);
}

TEST_F(Disk, RowsOfTheReferenceBackendAreOfAnotherFormatAndKept) {
    const Ids prompt = conversation(30);
    const auto reference = open_engine("reference");
    ASSERT_EQ(reference->fingerprint(), engine_->fingerprint());
    ASSERT_NE(reference->row_format_number(CacheFormat::fp8), engine_->row_format_number(CacheFormat::fp8));
    const auto s = new_session(*reference);
    ASSERT_TRUE(s->prefill(prompt).ok());
    const auto of_reference = open(*reference, options());
    ASSERT_EQ(of_reference->save(s->snapshot().value(), Reason::cold).value().outcome, SaveOutcome::written);
    const auto store = open();
    EXPECT_EQ(resume_and_compare(*store, prompt), 0);
    EXPECT_EQ(outcome(*store, prompt), SaveOutcome::written);
    EXPECT_EQ(resume_and_compare(*store, prompt), 30);
    EXPECT_EQ(n_file(), 2u);
    EXPECT_TRUE(of_reference->resume(*s, prompt));
}

TEST_F(Disk, ASessionOfAnotherFormatThanTheStoresIsLeftAlone) {
    const Ids prompt = conversation(30);
    const auto store = open();
    ASSERT_EQ(outcome(*store, prompt), SaveOutcome::written);
    const auto s = new_session(*engine_, CacheFormat::f32);
    ASSERT_TRUE(s->prefill(first(prompt, 3)).ok());
    EXPECT_FALSE(store->resume(*s, prompt));
    EXPECT_EQ(s->n_token(), 3);
    EXPECT_EQ(resume_and_compare(*store, prompt), 30);
}

TEST_F(Disk, HitsAreCountedInTheFile) {
    const Ids prompt = conversation(40);
    const auto store = open();
    const std::string path = save(*store, prompt).path;
    now_ += 500;
    for (int i = 1; i <= 3; ++i) {
        EXPECT_EQ(resume_and_compare(*store, prompt), 40);
        const auto summary = snapshot::read_summary(path);
        EXPECT_EQ(summary.value().usage.hits, static_cast<uint64_t>(i));
        EXPECT_EQ(summary.value().usage.last_used, now_);
    }
}

TEST_F(Disk, NothingIsStoredTwiceButWhatWasAskedFor) {
    const Ids prompt = conversation(40);
    const auto store = open(), second = open();
    EXPECT_EQ(outcome(*store, first(prompt, 3)), SaveOutcome::too_short);
    EXPECT_EQ(outcome(*store, {}, Reason::manual), SaveOutcome::too_short);
    EXPECT_EQ(outcome(*store, prompt, Reason::cold), SaveOutcome::written);
    for (const Reason r : {Reason::cold, Reason::continued, Reason::evict, Reason::shutdown})
        EXPECT_EQ(outcome(*second, prompt, r), SaveOutcome::already_stored);
    EXPECT_EQ(outcome(*store, prompt, Reason::manual), SaveOutcome::written);  // the same file, of more weight
    EXPECT_EQ(n_file(), 1u);
    EXPECT_EQ(snapshot::read_summary(folder_ / folder_.names(".kv")[0]).value().header.reason, Reason::manual);
    EXPECT_EQ(outcome(*store, prompt, Reason::manual), SaveOutcome::already_stored);
    EXPECT_EQ(outcome(*store, prompt, Reason::evict), SaveOutcome::already_stored);
    EXPECT_EQ(outcome(*store, first(prompt, 3), Reason::manual), SaveOutcome::written);
}

TEST_F(Disk, ASnapshotKeepsItsToolCalls) {
    const Ids prompt = conversation(40);
    const auto store = open();
    ASSERT_TRUE(store->save(snapshot_of(prompt), Reason::evict, R"({"call_1":"x"})").ok());
    const auto s = new_session(*engine_);
    EXPECT_EQ(store->resume(*s, prompt)->tool_calls, R"({"call_1":"x"})");
    EXPECT_FALSE(store->resume(*s, prompt, 40));  // the session has as much already
}

// known-failures D4: room for one file and a long prompt. Every file that is written is still there when the next one
// comes, none is written twice, and the last one is what the retry uses.
TEST_F(Disk, WithRoomForOneFileALongPromptWritesNothingInVain) {
    const Ids prompt = conversation(310);
    DiskOptions o = options();
    o.budget_bytes = size_of(prompt) + (8 << 10);  // one, with the allowance an estimate makes
    const auto store = open(*engine_, o);
    const auto s = new_session(*engine_);
    const std::vector<Stop> stops = prefill_stops(o.policy, 0, 310);  // above cold_max_tokens: every 20
    ASSERT_EQ(stops.size(), 15u);
    int n_written = 0;
    std::string last;
    for (const Stop& stop : stops) {
        const Ids part(prompt.begin() + s->n_token(), prompt.begin() + stop.position);
        ASSERT_TRUE(s->prefill(part).ok());
        EXPECT_TRUE(last.empty() || std::filesystem::exists(last));
        const auto saved = store->save(s->snapshot().value(), stop.reason);
        ASSERT_TRUE(saved.ok());
        if (saved.value().outcome != SaveOutcome::written) continue;
        ++n_written;
        last = saved.value().path;
        EXPECT_TRUE(std::filesystem::exists(last));
        EXPECT_LE(store->used_bytes(), o.budget_bytes);
        EXPECT_EQ(store->find(prompt, 310)->n_token, stop.position);
    }
    EXPECT_EQ(n_written, 15);
    EXPECT_EQ(resume_and_compare(*store, prompt), 300);
    // The request repeated: it begins at 300, passes no stop, and what could be saved at its end is there.
    EXPECT_EQ(prefill_stops(o.policy, 300, 310), std::vector<Stop>{});
    // Another client's long prompt does not take turns with the first file: used a moment ago, it stays.
    EXPECT_EQ(outcome(*store, conversation(200, 4)), SaveOutcome::no_room);
    EXPECT_EQ(n_file(), 1u);
    const Ids another = conversation(200, 4);
    EXPECT_EQ(store->would_save(another, snapshot_of(another).n_byte(), Reason::cold).value(), SaveOutcome::no_room);
    now_ += 24 * 3600;
    EXPECT_EQ(outcome(*store, conversation(200, 4)), SaveOutcome::written);
    EXPECT_EQ(n_file(), 1u);
    // What is larger than the budget is not tried, whatever is there.
    o.budget_bytes = 100;
    EXPECT_EQ(outcome(*open(*engine_, o), conversation(50, 9)), SaveOutcome::no_room);
}

// known-failures D5: deliberate saves against routine ones, with the files' real sizes.
TEST_F(Disk, ADeliberateSaveSurvivesRoutineOnes) {
    const Ids kept = conversation(60, 1);
    DiskOptions o = options();
    o.budget_bytes = 3 * size_of(conversation(300)) + (8 << 10);
    const auto store = open(*engine_, o);
    const std::string path = save(*store, kept, Reason::manual).path;
    int n_written = 0;
    for (int i = 0; i < 12; ++i) {
        now_ += 3600;  // half a day of other clients, each with a longer and denser file
        n_written += outcome(*store, conversation(300, 2 + i)) == SaveOutcome::written ? 1 : 0;
    }
    EXPECT_EQ(n_written, 12);
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_EQ(resume_and_compare(*store, kept), 60);
}

TEST_F(Disk, HitsKeepAFileAndFadeInSixHours) {
    const uint64_t size = size_of(conversation(100));
    DiskOptions o = options();
    o.budget_bytes = 2 * size + (8 << 10);
    const auto store = open(*engine_, o);
    const std::string used = save(*store, conversation(100, 1)).path, idle = save(*store, conversation(100, 2)).path;
    now_ += 60;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(resume_and_compare(*store, conversation(100, 1)), 100);
    now_ += 3600;
    EXPECT_EQ(outcome(*store, conversation(100, 3)), SaveOutcome::written);
    EXPECT_TRUE(std::filesystem::exists(used));
    EXPECT_FALSE(std::filesystem::exists(idle));
    now_ += 5 * 24 * 3600;  // all uses long ago: now the order is by last use, and number 3 was written in real time
    EXPECT_EQ(outcome(*store, conversation(100, 4)), SaveOutcome::written);
    EXPECT_EQ(n_file(), 2u);
}

TEST_F(Disk, ALongerFileOfAConversationTakesThePlaceOfItsShorterOnes) {
    const Ids a = conversation(200, 1), b = conversation(100, 2);
    DiskOptions o = options();
    o.budget_bytes = size_of(first(a, 100)) + size_of(b) + size_of(a) + (8 << 10) - 20000;  // all but one
    const auto store = open(*engine_, o);
    const std::string other = save(*store, b).path;
    const std::string early = save(*store, first(a, 100)).path;
    EXPECT_EQ(resume_and_compare(*store, b), 100);
    const Saved late = save(*store, a);
    EXPECT_EQ(late.outcome, SaveOutcome::written);
    EXPECT_EQ(late.n_evicted, 1);
    EXPECT_TRUE(std::filesystem::exists(other));
    EXPECT_FALSE(std::filesystem::exists(early));
}

TEST_F(Disk, APinnedFileIsNotEvictedByAnyStoreOnTheFolder) {
    const uint64_t size = size_of(conversation(100));
    DiskOptions o = options();
    o.budget_bytes = size + (8 << 10);
    const auto store = open(*engine_, o), other = open(*engine_, o);
    const std::string path = save(*store, conversation(100, 1)).path;
    const auto s = new_session(*engine_);
    auto resumed = store->resume(*s, conversation(100, 1));
    ASSERT_TRUE(resumed);
    now_ += 30 * 24 * 3600;
    EXPECT_EQ(outcome(*other, conversation(100, 2)), SaveOutcome::no_room);
    EXPECT_EQ(outcome(*store, conversation(100, 2)), SaveOutcome::no_room);
    EXPECT_TRUE(std::filesystem::exists(path));
    resumed->pin.release();
    EXPECT_EQ(outcome(*other, conversation(100, 2)), SaveOutcome::written);
    EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(Disk, WouldSaveSaysWhatSaveDoes) {
    DiskOptions o = options();
    o.budget_bytes = 2 * size_of(conversation(100)) + (30 << 10);
    const auto store = open(*engine_, o);
    for (int i = 0; i < 12; ++i) {
        const Ids tokens = conversation(static_cast<size_t>(3 + 17 * (i % 5)), i % 3);
        const Snapshot s = snapshot_of(tokens);
        const auto said = store->would_save(tokens, s.n_byte(), Reason::continued);
        EXPECT_EQ(said.value(), store->save(s, Reason::continued).value().outcome) << i;
    }
}

TEST_F(Disk, DamagedFilesGoBeforeSoundOnes) {
    const uint64_t size = size_of(conversation(100));
    DiskOptions o = options();
    o.budget_bytes = 2 * size + (8 << 10);
    const auto store = open(*engine_, o);
    ASSERT_EQ(outcome(*store, conversation(100, 1)), SaveOutcome::written);
    const std::string bad = save(*store, conversation(100, 2)).path;
    store->drop_failed(bad, "a test");
    EXPECT_EQ(folder_.names(".bad").size(), 1u);
    EXPECT_EQ(outcome(*store, conversation(100, 3)), SaveOutcome::written);
    EXPECT_EQ(n_file(), 2u);
    EXPECT_EQ(folder_.names(".bad").size(), 0u);
}

TEST_F(Disk, AFolderOverItsBudgetIsTrimmedWhenItIsOpened) {
    for (int i = 0; i < 5; ++i) ASSERT_EQ(outcome(*open(), conversation(100, i)), SaveOutcome::written);
    const auto precious = save(*open(), conversation(20, 9), Reason::manual).path;
    DiskOptions o = options();
    o.budget_bytes = 2 * size_of(conversation(100));
    const auto store = open(*engine_, o);
    EXPECT_LE(store->used_bytes(), o.budget_bytes);
    EXPECT_GE(n_file(), 2u);
    EXPECT_TRUE(std::filesystem::exists(precious));
}

TEST_F(Disk, AFailedWriteLeavesNothingAndIsAnError) {
    const auto store = open();
    // A folder under the name the file would get: rename cannot replace it.
    const std::string path = save(*store, conversation(40)).path;
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    const auto saved = store->save(snapshot_of(conversation(40)), Reason::evict);
    EXPECT_FALSE(saved.ok());
    std::filesystem::remove(path);
    EXPECT_EQ(folder_.names("").size(), 1u);  // the lock
}

TEST_F(Disk, NonsenseOptionsAndForbiddenFoldersAreRefused) {
    DiskOptions o = options();
    o.policy.cold_max_tokens = 2;
    EXPECT_EQ(DiskStore::open(*engine_, o).error().code, Code::invalid_argument);
    o = options();
    std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
    EXPECT_EQ(DiskStore::open(*engine_, o).error().code, Code::invalid_argument);
}

TEST_F(Disk, ABusyFolderIsNoReasonToWaitForEver) {
    DiskOptions o = options();
    o.lock_wait_ms = 20;
    const auto store = open(*engine_, o);
    const auto lock = Directory::open(folder_.path(), false).value().lock(0);
    EXPECT_EQ(outcome(*store, conversation(40)), SaveOutcome::busy);
    EXPECT_FALSE(store->find(conversation(40), 300));
    // A damaged file cannot be set aside now, but it is not tried again either.
    std::ofstream(folder_ / "damaged.kv") << "x";
    EXPECT_FALSE(store->find(conversation(40), 300));
    EXPECT_EQ(folder_.names(".kv").size(), 1u);
    log_.clear();
    EXPECT_FALSE(store->find(conversation(40), 300));
    EXPECT_EQ(log_, "");
}

}  // namespace
}  // namespace vesta::store
