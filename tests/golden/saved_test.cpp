// A conversation is a file: saved in one process, loaded in another and continued, it gives bit for bit the logits of a
// run that was never interrupted. Every length to 300 and around the sizes where something wraps or completes; every row
// format; three models. And back again: a session that takes tokens back equals one that never saw them.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "snapshot/file.h"
#include "support/converted.h"
#include "support/with_vocabulary.h"
#include "vesta/engine.h"

namespace vesta {
namespace {

constexpr int64_t kMost = 130;  // tokens a session is continued by

struct Case {
    const char* model;
    CacheFormat format;
    const char* name;
};

std::vector<int64_t> lengths() {
    std::vector<int64_t> out;
    for (int64_t n = 1; n <= 300; ++n) out.push_back(n);
    for (const int64_t at : {384, 512, 640, 1024, 2048})
        for (int64_t n = at - 3; n <= at + 3; ++n) out.push_back(n);
    return out;
}

testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
    if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "the bits differ";
}

class Saved : public testing::TestWithParam<Case> {
 protected:
    void SetUp() override {
        dir_ = std::string(VESTA_TEST_TMP) + "/saved-" + GetParam().name;
        ::mkdir(dir_.c_str(), 0700);
        const std::string name = GetParam().model;
        path_ = name == "pocket" ? std::string(VESTA_SOURCE_DIR) + "/models/pocket.gguf"
                                 : test::with_vocabulary(test::converted(std::string(VESTA_TEST_DATA) + "/" + name, "native"));
    }
    void TearDown() override {
        for (const int64_t n : lengths()) ::unlink(file(n).c_str());
        ::rmdir(dir_.c_str());
        if (path_.ends_with(".with-vocabulary")) ::unlink(path_.c_str());
    }
    std::string file(int64_t n) const { return strf("{}/{}.vkv", dir_, n); }
    std::unique_ptr<Engine> open() const {
        auto engine = Engine::open(path_, {.backend = "cpu", .n_thread = 2});
        if (!engine.ok()) throw std::runtime_error(engine.error().message);
        return std::move(engine).value();
    }
    // Tokens like no text: any id can follow any other.
    static std::vector<int32_t> tokens(int64_t n, int64_t n_vocab, uint32_t seed) {
        std::vector<int32_t> out;
        uint32_t x = seed;
        for (int64_t i = 0; i < n; ++i) {
            x = x * 1664525 + 1013904223;
            out.push_back(static_cast<int32_t>((x >> 8) % static_cast<uint32_t>(n_vocab)));
        }
        return out;
    }
    SessionOptions options(int64_t n_ctx, int64_t chunk) const {
        return {.n_ctx = n_ctx, .chunk = chunk, .cache_format = GetParam().format};
    }

    std::string dir_, path_;
};

TEST_P(Saved, LoadedInAnotherProcessItContinuesAsIfNeverInterrupted) {
    const int64_t longest = lengths().back();
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {  // the process that saves; it says what went wrong by its exit code
        const auto engine = open();
        const std::vector<int32_t> ids = tokens(longest + kMost, engine->info().n_vocab, 1);
        auto s = engine->new_session(options(longest, 37)).value();
        for (const int64_t n : lengths()) {
            const auto more = std::span(ids).subspan(static_cast<size_t>(s->n_token()), static_cast<size_t>(n - s->n_token()));
            if (!s->prefill(more).ok()) ::_exit(2);
            if (!engine->write_snapshot(s->snapshot().value(), file(n), {}, {.compress = n % 5 == 0}).ok()) ::_exit(3);
        }
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);

    const auto engine = open();
    const auto n_vocab = static_cast<size_t>(engine->info().n_vocab);
    const std::vector<int32_t> ids = tokens(longest + kMost, engine->info().n_vocab, 1);
    // Never interrupted: one pass over everything.
    std::vector<float> whole(ids.size() * n_vocab);
    ASSERT_TRUE(engine->new_session(options(longest + kMost, 512)).value()->evaluate(ids, whole).ok());
    const auto after = [&](int64_t n) { return std::span(whole).subspan(static_cast<size_t>(n - 1) * n_vocab, n_vocab); };

    auto s = engine->new_session(options(longest + kMost, 64)).value();
    for (const int64_t n : lengths()) {
        auto saved = engine->read_snapshot(file(n));
        ASSERT_TRUE(saved.ok()) << saved.error().message;
        ASSERT_TRUE(s->restore(saved.value().snapshot).ok());
        ASSERT_EQ(s->n_token(), n);
        ASSERT_TRUE(same_bits(s->logits(), after(n))) << "length " << n;
        int64_t at = n;
        for (const int64_t k : {int64_t{1}, int64_t{3}, kMost}) {
            ASSERT_TRUE(s->prefill(std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(n + k - at))).ok());
            at = n + k;
            ASSERT_TRUE(same_bits(s->logits(), after(at))) << "length " << n << ", continued by " << k;
        }
    }
}

// Back by every distance to 300, then on with other tokens.
TEST_P(Saved, TakingTokensBackLeavesNoTrace) {
    const auto engine = open();
    constexpr int64_t kLength = 300;
    const int64_t n_vocab = engine->info().n_vocab;
    const std::vector<int32_t> first = tokens(kLength + 8, n_vocab, 2), other = tokens(kMost, n_vocab, 3);
    const auto others = [&](int64_t from, int64_t to) { return std::span(other).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)); };
    auto walker = engine->new_session(options(600, 64)).value();  // never goes back: at `n`, forked by a snapshot
    auto s = engine->new_session(options(600, 64)).value();
    for (int64_t n = 0; n < kLength; ++n) {
        ASSERT_TRUE(s->sync(first).ok());
        ASSERT_TRUE(s->rewind(n).ok());
        auto fork = engine->new_session(options(600, 512)).value();
        ASSERT_TRUE(fork->restore(walker->snapshot().value()).ok());
        int64_t at = 0;
        for (const int64_t k : {int64_t{1}, int64_t{3}, kMost}) {
            if (k == kMost && n % 10 != 0) continue;  // past every window and ring: now and then will do
            ASSERT_TRUE(s->prefill(others(at, k)).ok());
            ASSERT_TRUE(fork->prefill(others(at, k)).ok());
            at = k;
            ASSERT_TRUE(same_bits(s->logits(), fork->logits())) << "back to " << n << ", then " << k;
        }
        ASSERT_TRUE(walker->decode(first[static_cast<size_t>(n)]).ok());
    }
}

const Case kCases[] = {
    {"tiny-flash", CacheFormat::fp8, "flash_fp8"}, {"tiny-flash", CacheFormat::f16, "flash_f16"},
    {"tiny-flash", CacheFormat::f32, "flash_f32"}, {"tiny-pro", CacheFormat::fp8, "pro_fp8"},
    {"tiny-pro", CacheFormat::f16, "pro_f16"},     {"tiny-pro", CacheFormat::f32, "pro_f32"},
    {"pocket", CacheFormat::fp8, "pocket_fp8"},    {"pocket", CacheFormat::f16, "pocket_f16"},
    {"pocket", CacheFormat::f32, "pocket_f32"},
};
INSTANTIATE_TEST_SUITE_P(Models, Saved, testing::ValuesIn(kCases), [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace vesta
