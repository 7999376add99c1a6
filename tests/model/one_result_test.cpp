// One result on every path: on the cpu backend logits do not depend, to the last bit, on how a prompt is cut into passes,
// on the number of threads, or on what else is in the pass. tests/golden says that the result is also the right one.
#include <gtest/gtest.h>

#include <cstring>

#include "support/converted.h"
#include "support/golden.h"
#include "support/model_runner.h"

namespace vesta {
namespace {

using quant::RowFormat;
using test::ModelRunner;

struct Model {
    explicit Model(const std::string& name, int n_thread = 1) {
        const std::string dir = std::string(VESTA_TEST_DATA) + "/" + name;
        ids = test::Golden(dir + "/golden.safetensors").ints("ids");
        path = test::converted(dir, "native");
        runner = std::make_unique<ModelRunner>(path, "cpu", n_thread);
    }
    std::span<const int32_t> prefix(size_t n) const { return std::span(ids).first(n); }
    std::vector<int32_t> ids;
    std::string path;
    std::unique_ptr<ModelRunner> runner;
};

testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
    for (size_t i = 0; i < a.size(); ++i)
        if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0)
            return testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
    return testing::AssertionSuccess();
}

class OneResult : public testing::TestWithParam<const char*> {};

TEST_P(OneResult, EveryLengthTo300InOnePassEqualsTokenByToken) {
    Model m(GetParam());
    const auto n_vocab = static_cast<size_t>(m.runner->n_vocab());
    const std::vector<float> step = m.runner->logits(m.prefix(300), RowFormat::fp8, 1);
    for (size_t n = 1; n <= 300; ++n) {
        ModelRunner::Sequence s = m.runner->start(RowFormat::fp8, 300, static_cast<int64_t>(n));
        std::vector<float> last;
        m.runner->pass(s, m.prefix(n), last, false);
        ASSERT_TRUE(same_bits(last, std::span(step).subspan((n - 1) * n_vocab, n_vocab))) << "length " << n;
    }
}

TEST_P(OneResult, EveryLengthTo300EndsEqualInEveryChunking) {
    Model m(GetParam());
    const auto n_vocab = static_cast<size_t>(m.runner->n_vocab());
    const std::vector<float> step = m.runner->logits(m.prefix(300), RowFormat::fp8, 1);
    for (const size_t chunk : {2, 3, 7, 64, 127, 128, 129}) {
        const auto n_chunk = static_cast<int64_t>(chunk);
        ModelRunner::Sequence whole = m.runner->start(RowFormat::fp8, 300, n_chunk);
        ModelRunner::Sequence fork = m.runner->start(RowFormat::fp8, 300, n_chunk);
        // A prompt of any length is some full chunks and a tail. The full chunks are walked once; the tail of every
        // length is computed from a copy of the state before it.
        for (size_t first = 0; first < 300; first += chunk) {
            for (size_t n = first + 1; n <= std::min<size_t>(first + chunk, 300); ++n) {
                m.runner->copy_state(whole, fork);
                std::vector<float> last;
                m.runner->pass(fork, m.prefix(n).subspan(first), last, false);
                ASSERT_TRUE(same_bits(last, std::span(step).subspan((n - 1) * n_vocab, n_vocab)))
                    << "length " << n << ", chunk " << chunk;
            }
            m.runner->copy_state(fork, whole);
        }
    }
}

TEST_P(OneResult, ChunksOfAnySizeGiveTheSameLogitsEverywhere) {
    Model m(GetParam());
    for (const RowFormat format : {RowFormat::fp8, RowFormat::f16, RowFormat::f32}) {
        const std::vector<float> whole = m.runner->logits(m.ids, format, 700);
        for (const int64_t chunk : {1, 2, 3, 7, 64, 127, 128, 129, 512})
            EXPECT_TRUE(same_bits(m.runner->logits(m.ids, format, chunk), whole)) << "chunk " << chunk;
    }
}

TEST_P(OneResult, ThreadsDoNotMatter) {
    Model m(GetParam(), 1);
    const std::vector<float> one = m.runner->logits(m.ids, RowFormat::fp8, 128);
    for (const int n : {2, 3, 8}) {
        ModelRunner other(m.path, "cpu", n);
        EXPECT_TRUE(same_bits(other.logits(m.ids, RowFormat::fp8, 128), one)) << n << " threads";
    }
}

// Two conversations in one pass, at different positions and with their rows mixed.
TEST_P(OneResult, OtherSessionsInThePassDoNotMatter) {
    Model m(GetParam());
    ModelRunner& r = *m.runner;
    const auto n_vocab = static_cast<size_t>(r.n_vocab());
    const std::vector<int32_t> other(m.ids.rbegin(), m.ids.rend());
    const std::vector<float> want_a = r.logits(m.prefix(290), RowFormat::fp8, 290);
    const std::vector<float> want_b = r.logits(std::span(other).first(290), RowFormat::fp8, 290);

    ModelRunner::Sequence a = r.start(RowFormat::fp8, 300, 64), b = r.start(RowFormat::fp8, 300, 64);
    std::vector<float> ignored;
    r.pass(b, std::span(other).first(37), ignored, false);  // b is ahead
    kv::Cache* const caches[] = {a.cache.get(), b.cache.get()};
    while (b.cache->n_token() + 20 <= 290) {
        std::vector<ops::Row> rows;
        std::vector<int32_t> wanted;
        for (int32_t i = 0; i < 20; ++i)
            for (int32_t slot = 0; slot < 2; ++slot) {
                const auto position = static_cast<int32_t>(caches[slot]->n_token()) + i;
                const std::vector<int32_t>& ids = slot == 0 ? m.ids : other;
                wanted.push_back(static_cast<int32_t>(rows.size()));
                rows.push_back({ids[static_cast<size_t>(position)], position, slot});
            }
        std::vector<float> logits(rows.size() * n_vocab);
        const Status status = r.model().forward(
            r.ops(), *a.workspace, {.rows = rows, .cache = caches, .output_rows = wanted, .logits = logits.data()});
        ASSERT_TRUE(status.ok()) << status.error().message;
        for (size_t i = 0; i < rows.size(); ++i) {
            const std::vector<float>& want = rows[i].slot == 0 ? want_a : want_b;
            ASSERT_TRUE(same_bits(std::span(logits).subspan(i * n_vocab, n_vocab),
                                  std::span(want).subspan(static_cast<size_t>(rows[i].position) * n_vocab, n_vocab)))
                << "slot " << rows[i].slot << ", position " << rows[i].position;
        }
        for (kv::Cache* c : caches) c->advance(20);
    }
}

INSTANTIATE_TEST_SUITE_P(Tiny, OneResult, testing::Values("tiny-flash", "tiny-pro"), [](const auto& p) {
    return std::string(p.param) == "tiny-flash" ? "flash" : "pro";
});

}  // namespace
}  // namespace vesta
