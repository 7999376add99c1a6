// Sessions of the engine on a toy model: what is refused, what a failure leaves behind, and that starting again is
// starting from nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "support/toy_run.h"
#include "vesta/engine.h"

namespace vesta {
namespace {

using test::ToyModel;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kPoison = 7;  // the token whose embedding is NaN in poisoned()

std::unique_ptr<Engine> open(const ToyModel& toy, const std::string& backend = "cpu") {
    auto engine = Engine::open(toy.write(), {.backend = backend, .n_thread = 2, .drafter_path = {}});
    if (!engine.ok()) throw std::runtime_error(engine.error().message);
    return std::move(engine).value();
}

std::unique_ptr<Session> start(Engine& engine, int64_t n_ctx = 256, int64_t chunk = 16) {
    auto session = engine.new_session({.n_ctx = n_ctx, .chunk = chunk, .cache_format = CacheFormat::fp8});
    if (!session.ok()) throw std::runtime_error(session.error().message);
    return std::move(session).value();
}

ToyModel poisoned() {
    ToyModel toy;
    for (int64_t i = 0; i < toy.shape.n_embd; ++i)
        toy.tensor("token_embd.weight").put(kPoison * toy.shape.n_embd + i, kNan);
    return toy;
}

// Token ids without kPoison.
std::vector<int32_t> ids(size_t n, size_t first = 20) {
    std::vector<int32_t> v;
    for (size_t i = 0; i < n; ++i) v.push_back(static_cast<int32_t>(20 + (first + i * 13) % 200));
    return v;
}

std::vector<float> logits_of(const Session& s) { return {s.logits().begin(), s.logits().end()}; }

testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.empty() || a.size() != b.size())
        return testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
    if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "they differ";
}

testing::AssertionResult fails(const Status& status, Code code, std::initializer_list<const char*> parts) {
    if (status.ok()) return testing::AssertionFailure() << "it succeeded";
    if (status.error().code != code) return testing::AssertionFailure() << status.error().message;
    for (const char* part : parts)
        if (status.error().message.find(part) == std::string::npos)
            return testing::AssertionFailure() << "'" << part << "' is not in: " << status.error().message;
    return testing::AssertionSuccess();
}

TEST(Engine, TheVocabularyMustHaveAsManyTokensAsTheModel) {
    ToyModel toy;
    std::vector<std::string> tokens;
    for (const ToyModel::Key& k : toy.keys)
        if (k.name == "tokenizer.ggml.tokens") tokens = std::get<std::vector<std::string>>(k.value);
    tokens.push_back("extra");
    toy.set("tokenizer.ggml.tokens", tokens);
    toy.set("tokenizer.ggml.token_type", std::vector<int32_t>(261, 1));
    const auto engine = Engine::open(toy.write(), {});
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.error().code, Code::bad_file);
    EXPECT_NE(engine.error().message.find("261 tokens"), std::string::npos) << engine.error().message;
    EXPECT_NE(engine.error().message.find("260"), std::string::npos) << engine.error().message;
}

TEST(Engine, AnUnknownBackendAndAMissingFileAreNamed) {
    const std::string path = ToyModel().write();
    auto engine = Engine::open(path, {.backend = "abacus", .n_thread = 1, .drafter_path = {}});
    ASSERT_FALSE(engine.ok());
    EXPECT_NE(engine.error().message.find("abacus"), std::string::npos);
    engine = Engine::open(path + ".nowhere", {});
    ASSERT_FALSE(engine.ok());
    EXPECT_NE(engine.error().message.find(".nowhere"), std::string::npos);
}

// The MTP block may come in a file of its own, which then is the one that messages name.
TEST(Engine, ASeparateDrafterFileIsBoundAndChecked) {
    ToyModel main_file, side;
    std::erase_if(main_file.tensors, [](const ToyModel::Tensor& t) { return t.name.starts_with("mtp."); });
    std::erase_if(side.tensors, [](const ToyModel::Tensor& t) { return !t.name.starts_with("mtp."); });
    const std::string path = main_file.write();
    auto engine = Engine::open(path, {.backend = "cpu", .n_thread = 1, .drafter_path = side.write()});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    EXPECT_TRUE(engine.value()->info().has_drafter);

    side.drop("mtp.0.e_proj.weight");
    const std::string incomplete = side.write();
    engine = Engine::open(path, {.backend = "cpu", .n_thread = 1, .drafter_path = incomplete});
    ASSERT_FALSE(engine.ok());
    EXPECT_NE(engine.error().message.find(incomplete), std::string::npos) << engine.error().message;
    EXPECT_NE(engine.error().message.find("mtp.0.e_proj.weight is missing"), std::string::npos)
        << engine.error().message;
}

TEST(Session, BadOptionsAreRefused) {
    const auto engine = open(ToyModel());
    for (const SessionOptions& o :
         {SessionOptions{.n_ctx = 0}, SessionOptions{.n_ctx = -5}, SessionOptions{.n_ctx = 1 << 30},
          SessionOptions{.n_ctx = std::numeric_limits<int64_t>::max()}, SessionOptions{.n_ctx = 16, .chunk = 0},
          SessionOptions{.n_ctx = 16, .chunk = -1}}) {
        const auto s = engine->new_session(o);
        ASSERT_FALSE(s.ok()) << o.n_ctx << ", " << o.chunk;
        EXPECT_EQ(s.error().code, Code::invalid_argument) << s.error().message;
    }
    EXPECT_TRUE(engine->new_session({.n_ctx = 16, .chunk = std::numeric_limits<int64_t>::max()}).ok());
}

TEST(Session, ATokenOutsideTheVocabularyIsNamedAndNothingIsComputed) {
    const auto engine = open(ToyModel());
    const auto s = start(*engine);
    for (const int32_t bad : {260, -1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
        const std::vector<int32_t> tokens = {1, 2, bad, 3};
        EXPECT_TRUE(fails(s->prefill(tokens), Code::invalid_argument,
                          {"outside the vocabulary", strf("{}", bad).c_str(), "260"}));
        EXPECT_EQ(s->n_token(), 0);
    }
    EXPECT_TRUE(s->decode(259).ok());
}

TEST(Session, AFullContextIsReportedWithItsNumbersAndNothingIsComputed) {
    const auto engine = open(ToyModel());
    const auto s = start(*engine, 20);
    ASSERT_TRUE(s->prefill(ids(15)).ok());
    const std::vector<float> before = logits_of(*s);
    EXPECT_TRUE(fails(s->prefill(ids(6)), Code::invalid_argument, {"15", "6", "20"}));
    EXPECT_EQ(s->n_token(), 15);
    EXPECT_TRUE(same_bits(logits_of(*s), before));
    EXPECT_TRUE(s->prefill(ids(5)).ok());
    EXPECT_TRUE(fails(s->decode(1), Code::invalid_argument, {"20"}));
}

TEST(Session, StoppingBetweenChunksKeepsWhatIsDone) {
    const auto engine = open(ToyModel());
    const auto s = start(*engine, 256, 16);
    const std::vector<int32_t> tokens = ids(60);
    const Status status = s->prefill(tokens, [](const Progress& p) { return p.done < 32; });
    EXPECT_TRUE(fails(status, Code::cancelled, {"32", "60"}));
    EXPECT_EQ(s->n_token(), 32);
    ASSERT_EQ(s->tokens().size(), 32u);
    EXPECT_TRUE(s->logits().empty());
    ASSERT_TRUE(s->prefill(std::span(tokens).subspan(32)).ok());
    const auto whole = start(*engine);
    ASSERT_TRUE(whole->prefill(tokens).ok());
    EXPECT_TRUE(same_bits(logits_of(*s), logits_of(*whole)));
}

TEST(Session, ClearedIsAsGoodAsNew) {
    const auto engine = open(ToyModel());
    const auto s = start(*engine);
    ASSERT_TRUE(s->prefill(ids(101, 3)).ok());
    s->clear();
    EXPECT_EQ(s->n_token(), 0);
    EXPECT_TRUE(s->logits().empty());
    EXPECT_TRUE(s->tokens().empty());
    const auto fresh = start(*engine);
    for (const size_t n : {size_t{1}, size_t{30}, size_t{5}}) {
        ASSERT_TRUE(s->prefill(ids(n)).ok());
        ASSERT_TRUE(fresh->prefill(ids(n)).ok());
        EXPECT_TRUE(same_bits(logits_of(*s), logits_of(*fresh)));
    }
}

TEST(Session, EvaluateGivesTheLogitsThatDecodingGives) {
    const auto engine = open(ToyModel());
    const std::vector<int32_t> tokens = ids(50);
    std::vector<float> all(tokens.size() * 260);
    const auto s = start(*engine);
    ASSERT_TRUE(s->evaluate(tokens, all).ok());
    const auto step = start(*engine);
    for (size_t i = 0; i < tokens.size(); ++i) {
        ASSERT_TRUE(step->decode(tokens[i]).ok());
        ASSERT_EQ(std::memcmp(step->logits().data(), &all[i * 260], 260 * sizeof(float)), 0) << i;
    }
    EXPECT_TRUE(same_bits(logits_of(*s), logits_of(*step)));
    EXPECT_TRUE(fails(s->evaluate(tokens, std::span(all).first(7)), Code::invalid_argument, {"7", "13000"}));
}

TEST(Session, TwoSessionsDoNotSeeEachOther) {
    const auto engine = open(ToyModel());
    const auto a = start(*engine), b = start(*engine), alone = start(*engine);
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(a->prefill(ids(7)).ok());
        ASSERT_TRUE(b->prefill(ids(11, 40)).ok());
        ASSERT_TRUE(alone->prefill(ids(7)).ok());
    }
    EXPECT_TRUE(same_bits(logits_of(*a), logits_of(*alone)));
}

TEST(Session, ThreadsWithASessionEachTakeTurns) {
    const auto engine = open(ToyModel());
    const auto alone = start(*engine);
    ASSERT_TRUE(alone->prefill(ids(50)).ok());
    ASSERT_TRUE(alone->prefill(ids(9, 77)).ok());
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) sessions.push_back(start(*engine, 256, 4 + i));
    for (const auto& s : sessions)
        threads.emplace_back([&s] {
            EXPECT_TRUE(s->prefill(ids(50)).ok());
            for (const int32_t id : ids(9, 77)) EXPECT_TRUE(s->decode(id).ok());
        });
    for (std::thread& t : threads) t.join();
    for (const auto& s : sessions) EXPECT_TRUE(same_bits(logits_of(*s), logits_of(*alone)));
}

// --- failures --------------------

TEST(Session, ANanIsReportedWithLayerAndTokenAndTheSessionGoesOn) {
    for (const char* backend : {"cpu", "reference"}) {
        const auto engine = open(poisoned(), backend);
        const auto s = start(*engine);
        ASSERT_TRUE(s->prefill(ids(21)).ok());
        EXPECT_TRUE(fails(s->decode(kPoison), Code::numeric, {"layer 0", "position 21", "token 7"}));
        EXPECT_EQ(s->n_token(), 21);
        EXPECT_EQ(s->tokens().size(), 21u);
        EXPECT_TRUE(s->logits().empty());
        ASSERT_TRUE(s->prefill(ids(30, 50)).ok());
        const auto fresh = start(*engine);
        ASSERT_TRUE(fresh->prefill(ids(21)).ok());
        ASSERT_TRUE(fresh->prefill(ids(30, 50)).ok());
        EXPECT_TRUE(same_bits(logits_of(*s), logits_of(*fresh))) << backend;
    }
}

// A failing pass of many rows has already written its rows over the compressors' unfinished windows, for every number
// of tokens before it and every length.
TEST(Session, AFailedChunkLeavesNoTrace) {
    const auto engine = open(poisoned());
    for (const size_t before : {1u, 5u, 8u, 13u, 20u, 31u}) {
        for (const size_t failing : {2u, 3u, 9u, 16u}) {
            const auto s = start(*engine), fresh = start(*engine);
            ASSERT_TRUE(s->prefill(ids(before)).ok());
            std::vector<int32_t> bad = ids(failing, 60);
            bad.back() = kPoison;
            EXPECT_TRUE(fails(s->prefill(bad), Code::numeric, {"token 7"}));
            ASSERT_EQ(s->n_token(), static_cast<int64_t>(before));
            ASSERT_TRUE(s->prefill(ids(20, 90)).ok());
            ASSERT_TRUE(fresh->prefill(ids(before)).ok());
            ASSERT_TRUE(fresh->prefill(ids(20, 90)).ok());
            EXPECT_TRUE(same_bits(logits_of(*s), logits_of(*fresh))) << before << " tokens, then " << failing;
        }
    }
}

TEST(Session, TheChunksBeforeAFailingOneAreKept) {
    const auto engine = open(poisoned());
    const auto s = start(*engine, 256, 16);
    std::vector<int32_t> tokens = ids(60);
    tokens[40] = kPoison;
    EXPECT_TRUE(fails(s->prefill(tokens), Code::numeric, {"position 40"}));
    EXPECT_EQ(s->n_token(), 32);
}

TEST(Session, ANanInTheOutputMatrixIsReportedAndTheTokensAreNotKept) {
    ToyModel toy;
    toy.tensor("output.weight").put(17 * toy.shape.n_embd, kNan);
    const auto engine = open(toy);
    const auto s = start(*engine);
    EXPECT_TRUE(fails(s->prefill(ids(10)), Code::numeric, {"token 17", "position 9"}));
    EXPECT_EQ(s->n_token(), 0);
    EXPECT_TRUE(s->logits().empty());
    std::vector<float> all(3 * 260);
    EXPECT_TRUE(fails(s->evaluate(ids(3), all), Code::numeric, {"token 17", "position 0"}));
}

// The MTP block may come in a file of its own, as published side files do.
TEST(Engine, ReadsTheDrafterFromASeparateFile) {
    ToyModel whole, main_part, side;
    const auto is_drafter = [](const ToyModel::Tensor& t) { return t.name.starts_with("mtp."); };
    std::erase_if(main_part.tensors, is_drafter);
    std::erase_if(side.tensors, [&](const ToyModel::Tensor& t) { return !is_drafter(t); });
    const std::string path = main_part.write(), side_path = side.write();
    EXPECT_FALSE(Engine::open(path, {.backend = "cpu", .n_thread = 1, .drafter_path = {}}).value()->info().has_drafter);
    auto with_side = Engine::open(path, {.backend = "cpu", .n_thread = 1, .drafter_path = side_path});
    ASSERT_TRUE(with_side.ok()) << with_side.error().message;
    EXPECT_TRUE(with_side.value()->info().has_drafter);

    side.tensors.pop_back();
    const auto refused = Engine::open(path, {.backend = "cpu", .n_thread = 1, .drafter_path = side.write()});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("mtp.0."), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace vesta
