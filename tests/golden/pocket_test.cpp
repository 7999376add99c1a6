// The trained pocket model with its exact weights against recorded logits, greedy continuations and the likelihood of
// its validation text. `plain`: no cache rounding (f32 rows); `sim`: the official rounding (fp8 rows).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/golden.h"
#include "support/model_runner.h"
#include "support/pocket_fixture.h"

namespace vesta {
namespace {

using quant::RowFormat;
using test::Golden;
using test::ModelRunner;

std::string data(const std::string& name) { return std::string(VESTA_TEST_DATA) + "/pocket-v0/" + name; }

std::string native_model() {
    auto path = test::pocket_native_model(VESTA_TEST_TMP);
    if (!path.ok()) throw std::runtime_error(path.error().message);
    return path.value();
}

struct Case {
    std::vector<int32_t> ids, positions;
};
constexpr int kCases = 38;

Case load_case(const Golden& golden, int i) {
    return {golden.ints(strf("{}.ids", i)), golden.ints(strf("{}.positions", i))};
}

std::span<const float> row(std::span<const float> v, size_t i, int64_t n) {
    return v.subspan(i * static_cast<size_t>(n), static_cast<size_t>(n));
}

// Natural-log probability of `token`.
double log_probability(std::span<const float> logits, int32_t token) {
    double top = -1e30, sum = 0;
    for (const float x : logits) top = std::max(top, static_cast<double>(x));
    for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
    return static_cast<double>(logits[static_cast<size_t>(token)]) - top - std::log(sum);
}

void expect_case_logits(const std::string& kind, RowFormat format) {
    const Golden golden(data("golden.safetensors"));
    ModelRunner runner(native_model(), "reference", 2);
    const int64_t n_vocab = runner.n_vocab();
    float worst = 0;
    int n_position = 0, n_same = 0;
    for (int i = 0; i < kCases; ++i) {
        const Case c = load_case(golden, i);
        const std::vector<float> logits = runner.logits(c.ids, format, 256);
        const std::vector<float> want = golden.floats(strf("{}.logits.{}", i, kind));
        for (size_t k = 0; k < c.positions.size(); ++k) {
            const auto p = static_cast<size_t>(c.positions[k]);
            for (int64_t v = 0; v < n_vocab; ++v) {
                const float d = std::fabs(row(logits, p, n_vocab)[static_cast<size_t>(v)] - row(want, k, n_vocab)[static_cast<size_t>(v)]);
                worst = d <= worst ? worst : d;
                // Recorded as f16: half a step is 2^-11 of the value, 8e-3 for a logit of 16.
                ASSERT_LE(d, 2e-2f) << "case " << i << ", position " << p << ", token " << v;
            }
        }
        if (!golden.has(strf("{}.argmax.{}", i, kind))) continue;
        const std::vector<int32_t> argmax = golden.ints(strf("{}.argmax.{}", i, kind));
        for (size_t p = 0; p < c.ids.size(); ++p) {
            ++n_position;
            const std::span<const float> ours = row(logits, p, n_vocab);
            if (test::argmax(ours) == argmax[p]) {
                ++n_same;
                continue;
            }
            const float behind = ours[static_cast<size_t>(test::argmax(ours))] - ours[static_cast<size_t>(argmax[p])];
            std::printf("pocket %s: case %d position %zu: recorded argmax is %.1e behind ours\n", kind.c_str(), i, p,
                        static_cast<double>(behind));
            EXPECT_LE(behind, 1e-2f) << "case " << i << ", position " << p;
        }
    }
    std::printf("pocket %s: max |difference| %.2e, argmax equal at %d of %d\n", kind.c_str(), static_cast<double>(worst), n_same, n_position);
}

TEST(PocketGolden, SimLogitsMatch) { expect_case_logits("sim", RowFormat::fp8); }
TEST(PocketGolden, PlainLogitsMatch) { expect_case_logits("plain", RowFormat::f32); }

TEST(PocketGolden, DrafterLogitsMatch) {
    const Golden golden(data("golden.safetensors"));
    ModelRunner runner(native_model(), "reference", 2);
    const int64_t n_vocab = runner.n_vocab();
    float worst = 0;
    for (int i = 0; i < kCases; i += 4) {
        const Case c = load_case(golden, i);
        const auto n = static_cast<int64_t>(c.ids.size());
        ModelRunner::Sequence s = runner.start(RowFormat::fp8, n, n);
        std::vector<float> ignored;
        runner.pass(s, c.ids, ignored, false);
        std::vector<ops::Row> rows;
        for (size_t p = 0; p + 1 < c.ids.size(); ++p) rows.push_back({c.ids[p + 1], static_cast<int32_t>(p), 0});
        const std::vector<int32_t> wanted(c.positions.begin(), c.positions.end() - 1);
        std::vector<float> logits(wanted.size() * static_cast<size_t>(n_vocab));
        kv::Cache* const caches[] = {s.cache.get()};
        const Status status = runner.model().draft(runner.ops(), *s.workspace,
                                                   {.rows = rows, .cache = caches, .streams = s.workspace->final_streams().data(),
                                                    .output_rows = wanted, .logits = logits.data()});
        ASSERT_TRUE(status.ok()) << status.error().message;
        const std::vector<float> want = golden.floats(strf("{}.mtp_logits.sim", i));
        ASSERT_EQ(logits.size(), want.size()) << "case " << i;
        for (size_t v = 0; v < want.size(); ++v) {
            const float d = std::fabs(logits[v] - want[v]);
            worst = d <= worst ? worst : d;
            ASSERT_LE(d, 2e-2f) << "case " << i << ", value " << v;
        }
    }
    std::printf("pocket drafter: max |difference| %.2e\n", static_cast<double>(worst));
}

TEST(PocketGolden, GreedyContinuationsAreReproduced) {
    const Golden golden(data("golden.safetensors"));
    ModelRunner runner(native_model(), "reference", 2);
    int n_token = 0;
    for (int i = 0; i < kCases; ++i) {
        const Case c = load_case(golden, i);
        const std::vector<int32_t> want = golden.ints(strf("{}.greedy.sim", i));
        ModelRunner::Sequence s = runner.start(RowFormat::fp8, static_cast<int64_t>(c.ids.size() + want.size()), 256);
        std::vector<float> logits;
        for (size_t first = 0; first < c.ids.size(); first += 256) {
            logits.clear();
            runner.pass(s, std::span(c.ids).subspan(first, std::min<size_t>(256, c.ids.size() - first)), logits, false);
        }
        for (size_t k = 0; k < want.size(); ++k) {
            const int32_t ours = test::argmax(logits);
            if (ours != want[k]) {
                // Only a tie may end the comparison of a case.
                const float behind = logits[static_cast<size_t>(ours)] - logits[static_cast<size_t>(want[k])];
                EXPECT_LE(behind, 1e-3f) << "case " << i << ", step " << k;
                std::printf("case %d step %zu: a tie, %.1e apart\n", i, k, static_cast<double>(behind));
                break;
            }
            ++n_token;
            if (k + 1 == want.size()) break;
            logits.clear();
            runner.pass(s, {&ours, 1}, logits, false);
        }
    }
    std::printf("greedy: %d tokens reproduced\n", n_token);
}

// Mean negative log-likelihood over sequences of 2048 tokens.
void expect_validation_nll(const std::string& backend, const std::string& kind, RowFormat format, size_t n_sequence) {
    const Golden golden(data("valid_nll.safetensors"));
    const std::vector<int32_t> ids = golden.ints("ids");
    const std::vector<float> want = golden.floats("nll." + kind);
    ModelRunner runner(native_model(), backend, 2);
    const size_t length = 2048;
    double ours_sum = 0, want_sum = 0, worst = 0;
    for (size_t s = 0; s < n_sequence; ++s) {
        const std::span<const int32_t> seq = std::span(ids).subspan(s * length, length);
        const std::vector<float> logits = runner.logits(seq, format, 512);
        for (size_t p = 0; p + 1 < length; ++p) {
            const double nll = -log_probability(row(logits, p, runner.n_vocab()), seq[p + 1]);
            const double recorded = static_cast<double>(want[s * (length - 1) + p]);
            ours_sum += nll;
            want_sum += recorded;
            worst = std::max(worst, std::fabs(nll - recorded));
        }
    }
    const double n = static_cast<double>(n_sequence * (length - 1));
    std::printf("%s %s: mean NLL %.6f, recorded %.6f, worst single token %.3f\n", backend.c_str(), kind.c_str(), ours_sum / n,
                want_sum / n, worst);
    EXPECT_NEAR(ours_sum / n, want_sum / n, 1e-3);
}

TEST(PocketGolden, ReferenceNllPlain) { expect_validation_nll("reference", "plain", RowFormat::f32, 2); }
TEST(PocketGolden, ReferenceNllSim) { expect_validation_nll("reference", "sim", RowFormat::fp8, 2); }
TEST(PocketGolden, CpuNllPlain) { expect_validation_nll("cpu", "plain", RowFormat::f32, 16); }
TEST(PocketGolden, CpuNllSim) { expect_validation_nll("cpu", "sim", RowFormat::fp8, 16); }

}  // namespace
}  // namespace vesta
