// The tiny checkpoints (random weights, official packing) against logits recorded from an independent implementation:
// `plain` without cache rounding, `sim` with the official FP8/FP4 rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/converted.h"
#include "support/golden.h"
#include "support/model_runner.h"

namespace vesta {
namespace {

using quant::RowFormat;
using test::Golden;
using test::ModelRunner;

std::string data(const std::string& name) { return std::string(VESTA_TEST_DATA) + "/" + name; }

struct Tiny {
    explicit Tiny(const std::string& name, const std::string& backend = "reference", int n_thread = 2)
        : golden(data(name) + "/golden.safetensors"), ids(golden.ints("ids")), positions(golden.ints("positions")),
          runner(test::converted(data(name), "native"), backend, n_thread) {}

    std::span<const float> row(const std::vector<float>& v, size_t i) const {
        const auto n = static_cast<size_t>(runner.n_vocab());
        return std::span(v).subspan(i * n, n);
    }

    Golden golden;
    std::vector<int32_t> ids, positions;
    ModelRunner runner;
};

float max_difference(std::span<const float> a, std::span<const float> b) {
    float worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const float d = std::fabs(a[i] - b[i]);
        if (!(d <= worst)) worst = d;  // NaN counts as worst
    }
    return worst;
}

// Whether the recorded argmax at position p appears when the embeddings are disturbed by 1e-6 of their value, about what
// f32 arithmetic leaves open: then some FP8 or FP4 value before p lies on the boundary of two codes, and either is right.
bool on_a_rounding_boundary(Tiny& t, size_t p, int32_t recorded) {
    const std::span<const int32_t> ids = std::span(t.ids).first(p + 1);
    for (uint32_t seed = 1; seed <= 40; ++seed) {
        uint32_t state = seed * 2654435761u;
        const model::TapFn disturb = [&](model::Tap where, int layer, const ops::Tensor& x, std::span<const ops::Row>) {
            if (where != model::Tap::layer_input || layer != 0) return;
            for (int64_t i = 0; i < x.n_row; ++i)
                for (int64_t j = 0; j < x.n_col; ++j) {
                    state = state * 1664525u + 1013904223u;
                    x.row(i)[j] *= 1.0f + ((state >> 31) != 0 ? 1e-6f : -1e-6f);
                }
        };
        const std::vector<float> logits = t.runner.logits(ids, RowFormat::fp8, 700, &disturb);
        if (test::argmax(t.row(logits, p)) == recorded) return true;
    }
    return false;
}

class TinyGolden : public testing::TestWithParam<const char*> {};

// Tolerances: spec §9.5. An f32 run differs from the recorded f32 run by about 5e-6; on tiny-pro a top-k gap of 8e-7 at
// query 298 may fall either way, after which 3e-4 was seen.
TEST_P(TinyGolden, PlainLogitsMatchWithF32Rows) {
    Tiny t(GetParam());
    const std::vector<float> logits = t.runner.logits(t.ids, RowFormat::f32, 700);
    const std::vector<float> want = t.golden.floats("logits.plain");
    const bool pro = std::string(GetParam()) == "tiny-pro";
    float worst = 0;
    for (size_t i = 0; i < t.positions.size(); ++i) {
        const auto p = static_cast<size_t>(t.positions[i]);
        const float d = max_difference(t.row(logits, p), t.row(want, i));
        worst = std::max(worst, d);
        EXPECT_LE(d, pro && p >= 298 ? 2e-3f : 5e-5f) << "position " << p;
    }
    const std::vector<int32_t> argmax = t.golden.ints("argmax.plain");
    for (size_t p = 0; p < t.ids.size(); ++p)
        EXPECT_EQ(test::argmax(t.row(logits, p)), argmax[p]) << "position " << p << ", margin " << test::top_margin(t.row(logits, p));
    RecordProperty("max_difference", std::to_string(worst));
    std::printf("%s plain: max |difference| %.2e\n", GetParam(), static_cast<double>(worst));
}

TEST_P(TinyGolden, StreamsAtTheInputOfEveryLayerMatch) {
    Tiny t(GetParam());
    const int32_t at[] = {0, 7, 128, 384, 699};
    const auto n_layer = static_cast<int>(t.runner.model().info().n_layer);
    std::vector<std::vector<float>> seen(static_cast<size_t>(n_layer));
    const model::TapFn tap = [&](model::Tap where, int layer, const ops::Tensor& x, std::span<const ops::Row> rows) {
        if (where != model::Tap::layer_input) return;
        for (const int32_t p : at) {
            ASSERT_EQ(rows[static_cast<size_t>(p)].position, p);
            auto& v = seen[static_cast<size_t>(layer)];
            v.insert(v.end(), x.row(p), x.row(p) + x.n_col);
        }
    };
    t.runner.logits(t.ids, RowFormat::f32, 700, &tap);
    for (int layer = 0; layer < n_layer; ++layer) {
        const std::vector<float> want = t.golden.floats(strf("streams.plain.{}", layer));
        const std::vector<float>& got = seen[static_cast<size_t>(layer)];
        ASSERT_EQ(got.size(), want.size());
        float scale = 0;
        for (const float v : want) scale = std::max(scale, std::fabs(v));
        // Streams grow with depth; f32 rounding grows with them.
        EXPECT_LE(max_difference(got, want), 2e-5f * std::max(1.0f, scale)) << "layer " << layer;
    }
}

// The default rows round as the model was trained. The excess over `plain` is rounding luck: a value next to an FP8/FP4
// tie that falls the other way.
TEST_P(TinyGolden, SimLogitsMatchWithFp8Rows) {
    Tiny t(GetParam());
    const std::vector<float> logits = t.runner.logits(t.ids, RowFormat::fp8, 700);
    const std::vector<float> want = t.golden.floats("logits.sim");
    float worst = 0;
    for (size_t i = 0; i < t.positions.size(); ++i) {
        const auto p = static_cast<size_t>(t.positions[i]);
        const float d = max_difference(t.row(logits, p), t.row(want, i));
        worst = std::max(worst, d);
        EXPECT_LE(d, 1e-2f) << "position " << p;
        if (test::top_margin(t.row(want, i)) > 2e-2f) {
            EXPECT_EQ(test::argmax(t.row(logits, p)), test::argmax(t.row(want, i))) << "position " << p;
        }
    }
    const std::vector<int32_t> argmax = t.golden.ints("argmax.sim");
    int n_same = 0;
    for (size_t p = 0; p < t.ids.size(); ++p) {
        const std::span<const float> row = t.row(logits, p);
        if (test::argmax(row) == argmax[p]) {
            ++n_same;
            continue;
        }
        // An exception must be explained: a tie of the two logits, or a rounding boundary on the way to them.
        const float behind = row[static_cast<size_t>(test::argmax(row))] - row[static_cast<size_t>(argmax[p])];
        const bool tie = behind <= 1e-3f;
        std::printf("%s sim: position %zu: argmax %d, recorded %d, which is %.1e behind: %s\n", GetParam(), p, test::argmax(row),
                    argmax[p], static_cast<double>(behind), tie ? "a tie" : "a rounding boundary");
        EXPECT_TRUE(tie || on_a_rounding_boundary(t, p, argmax[p])) << "position " << p;
    }
    EXPECT_GE(n_same, 697);  // 99.5 % of 700
    std::printf("%s sim: max |difference| %.2e, argmax equal at %d of 700\n", GetParam(), static_cast<double>(worst), n_same);
}

// The MTP block over all pairs (streams at p, token p+1) from position 0.
TEST_P(TinyGolden, DrafterLogitsMatchWithFp8Rows) {
    Tiny t(GetParam());
    ModelRunner& r = t.runner;
    const auto n = static_cast<int64_t>(t.ids.size());
    ModelRunner::Sequence s = r.start(RowFormat::fp8, n, n);
    std::vector<float> main_logits;
    r.pass(s, t.ids, main_logits, false);
    const std::span<float> final_streams = s.workspace->final_streams();
    std::vector<ops::Row> rows;
    for (size_t p = 0; p + 1 < t.ids.size(); ++p) rows.push_back({t.ids[p + 1], static_cast<int32_t>(p), 0});
    const std::vector<int32_t> wanted(t.positions.begin(), t.positions.end() - 1);
    std::vector<float> logits(wanted.size() * static_cast<size_t>(r.n_vocab()));
    kv::Cache* const caches[] = {s.cache.get()};
    const Status status = r.model().draft(r.ops(), *s.workspace, {.rows = rows, .cache = caches, .streams = final_streams.data(),
                                                                  .output_rows = wanted, .logits = logits.data()});
    ASSERT_TRUE(status.ok()) << status.error().message;
    const std::vector<float> want = t.golden.floats("mtp_logits.sim");
    ASSERT_EQ(want.size(), logits.size());
    float worst = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
        const float d = max_difference(t.row(logits, i), t.row(want, i));
        worst = std::max(worst, d);
        EXPECT_LE(d, 1e-2f) << "position " << wanted[i];
        if (test::top_margin(t.row(want, i)) > 2e-2f) {
            EXPECT_EQ(test::argmax(t.row(logits, i)), test::argmax(t.row(want, i))) << "position " << wanted[i];
        }
    }
    std::printf("%s drafter: max |difference| %.2e\n", GetParam(), static_cast<double>(worst));
}

INSTANTIATE_TEST_SUITE_P(Tiny, TinyGolden, testing::Values("tiny-flash", "tiny-pro"), [](const auto& p) {
    return std::string(p.param) == "tiny-flash" ? "flash" : "pro";
});

}  // namespace
}  // namespace vesta
