// Attention, its window and its compressed rows, on the reference backend: who is visible to whom, and the pooling of
// compressed rows against a second statement of it in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/reference/reference_ops.h"
#include "support/ops_data.h"

namespace vesta {
namespace {

using backend::ReferenceOps;
using quant::RowFormat;
using test::OwnedCache;
using test::Rows;

constexpr float kNoSink = -1e30f;

// --- the softmax with a sink --------------------

TEST(Attend, KnownWeightsOfTwoRowsAndASink) {
    // Scores 1 and 2: q picks the first value, which the scale 1/sqrt(80) is divided out of; values 1 and 2 mark the
    // rows.
    OwnedCache box(RowFormat::f32, {});
    ops::LayerCache* const caches[] = {&box.cache};
    Rows kv(std::vector<float>(160, 0.0f), 80), q(std::vector<float>(80, 0.0f), 80), out(1, 80);
    kv.v[0] = 1, kv.v[1] = 1;
    kv.v[80] = 2, kv.v[82] = 1;
    q.v[0] = std::sqrt(80.0f);
    const auto rows = test::session_rows(2);
    const float sink[] = {0.5f};
    ReferenceOps ops(1);
    ops.append_window({.kv = kv.t(), .n_rot = 16, .rows = rows, .cache = caches});
    ops.attend({.out = out.t(),
                .q = q.t(),
                .sink = sink,
                .n_head = 1,
                .head_dim = 80,
                .n_rot = 16,
                .window = 8,
                .ratio = 0,
                .selection = nullptr,
                .rows = {&rows[1], 1},
                .cache = caches});
    EXPECT_NEAR(out.v[1], 0.2312239, 1e-7);
    EXPECT_NEAR(out.v[2], 0.6285317, 1e-7);
}

TEST(Attend, AnEnormousSinkLeavesNothingAndScoresDoNotOverflow) {
    OwnedCache box(RowFormat::f32, {});
    ops::LayerCache* const caches[] = {&box.cache};
    Rows kv(std::vector<float>(80, 100.0f), 80), q(std::vector<float>(160, 100.0f), 160), out(1, 160);
    const auto rows = test::session_rows(1);
    const float sink[] = {1e30f, 0.0f};  // the score of the row is 80 * 10^4 / sqrt(80), about 9e4
    ReferenceOps ops(1);
    ops.append_window({.kv = kv.t(), .n_rot = 16, .rows = rows, .cache = caches});
    ops.attend({.out = out.t(),
                .q = q.t(),
                .sink = sink,
                .n_head = 2,
                .head_dim = 80,
                .n_rot = 16,
                .window = 8,
                .ratio = 0,
                .selection = nullptr,
                .rows = rows,
                .cache = caches});
    EXPECT_EQ(out.v[0], 0.0f);
    EXPECT_EQ(out.v[80], 100.0f);
}

// --- who is visible --------------------

// Attends with q = 0 and no sink: every visible row weighs the same, and since row i is one-hot in value i, the output
// says which rows were seen.
struct Seen {
    std::vector<bool> window, compressed;
};
class Visibility {
 public:
    static constexpr int64_t kDim = 512 + 16, kRot = 16, kFirstCompressed = 300;
    Visibility(int64_t window, int64_t ratio, int64_t n)
        : window_(window),
          ratio_(ratio),
          box_(RowFormat::f32, {.dim = kDim,
                                .n_rot = kRot,
                                .index_dim = 32,
                                .window = window,
                                .ratio = ratio > 0 ? ratio : 4,
                                .n_lane = 1,
                                .n_ctx = n,
                                .max_rows = n}) {
        Rows kv(std::vector<float>(static_cast<size_t>(n * kDim), 0.0f), kDim);
        for (int64_t p = 0; p < n; ++p) kv.v[static_cast<size_t>(p * kDim + p)] = 1;
        const auto rows = test::session_rows(n);
        ops::LayerCache* const caches[] = {&box_.cache};
        ops_.append_window({.kv = kv.t(), .n_rot = kRot, .rows = rows, .cache = caches});
        for (int64_t w = 0; ratio > 0 && w < n / ratio; ++w) {
            std::vector<float> row(kDim, 0.0f);
            row[static_cast<size_t>(kFirstCompressed + w)] = 1;
            quant::encode_attn_row(RowFormat::f32, row.data(), kDim, kRot, box_.cache.compressed.row(w));
        }
    }
    Seen at(int32_t t, const ops::Selection* selection = nullptr) {
        ops::LayerCache* const caches[] = {&box_.cache};
        Rows q(std::vector<float>(kDim, 0.0f), kDim), out(1, kDim);
        const ops::Row row{.position = t};
        ops_.attend({.out = out.t(),
                     .q = q.t(),
                     .sink = &kNoSink,
                     .n_head = 1,
                     .head_dim = kDim,
                     .n_rot = kRot,
                     .window = window_,
                     .ratio = ratio_,
                     .selection = selection,
                     .rows = {&row, 1},
                     .cache = caches});
        Seen s;
        for (int64_t i = 0; i < kFirstCompressed; ++i) s.window.push_back(out.v[static_cast<size_t>(i)] > 0);
        for (int64_t i = kFirstCompressed; i < kDim; ++i) s.compressed.push_back(out.v[static_cast<size_t>(i)] > 0);
        return s;
    }

 private:
    int64_t window_, ratio_;
    OwnedCache box_;
    ReferenceOps ops_{1};
};

TEST(Attend, TheWindowIsTheLast128PositionsWithTheOwn) {
    Visibility v(128, 0, 300);
    for (const int32_t t : {0, 1, 126, 127, 128, 129, 255, 256, 299}) {
        const Seen s = v.at(t);
        for (int32_t p = 0; p < 300; ++p)
            EXPECT_EQ(s.window[static_cast<size_t>(p)], p <= t && p >= t - 127) << "row " << p << " from " << t;
    }
}

TEST(Attend, ACompressedRowIsVisibleFromTheTokenThatCompletesIt) {
    for (const int64_t ratio : {4, 8, 128}) {
        Visibility v(16, ratio, 280);
        for (int32_t t = 0; t < 280; ++t) {
            const Seen s = v.at(t);
            for (int64_t w = 0; w < 280 / ratio; ++w)
                ASSERT_EQ(s.compressed[static_cast<size_t>(w)], w < (t + 1) / ratio) << "row " << w << " from " << t;
        }
    }
}

TEST(Attend, OnlySelectedRowsAreSeenAndRecentOnesAreNotLeftOut) {
    Visibility v(16, 4, 100);
    int32_t ids[] = {0, 7, 24}, count[] = {3};
    const ops::Selection selection{ids, count, 3};
    const Seen s = v.at(99, &selection);
    for (size_t w = 0; w < 25; ++w)
        EXPECT_EQ(s.compressed[w], w == 0 || w == 7 || w == 24) << w;  // 24: inside the window
    EXPECT_TRUE(s.window[99] && s.window[84] && !s.window[83]);
}

// --- the compressor --------------------

// The definition again, in f64 and from the whole history: row w of c, z [n, lanes * width] with ape [ratio, lanes *
// width].
std::vector<double> pooled_row(const std::vector<float>& c, const std::vector<float>& z, const std::vector<float>& ape,
                               const std::vector<float>& norm, const std::vector<float>& freq, int64_t width,
                               int64_t ratio, bool overlap, int64_t n_rot, int64_t w) {
    const int64_t wide = overlap ? 2 * width : width;
    std::vector<double> row(static_cast<size_t>(width));
    for (int64_t j = 0; j < width; ++j) {
        std::vector<double> score, value;
        const auto member = [&](int64_t p, int64_t channel) {
            score.push_back(static_cast<double>(z[static_cast<size_t>(p * wide + channel)]) +
                            static_cast<double>(ape[static_cast<size_t>(p % ratio * wide + channel)]));
            value.push_back(static_cast<double>(c[static_cast<size_t>(p * wide + channel)]));
        };
        if (overlap && w > 0)
            for (int64_t p = (w - 1) * ratio; p < w * ratio; ++p) member(p, j);
        for (int64_t p = w * ratio; p < (w + 1) * ratio; ++p) member(p, overlap ? width + j : j);
        double sum = 0;
        for (size_t i = 0; i < score.size(); ++i) {
            sum += std::exp(score[i]);
            row[static_cast<size_t>(j)] += std::exp(score[i]) * value[i];
        }
        row[static_cast<size_t>(j)] /= sum;
    }
    double square = 0;
    for (const double v : row) square += v * v;
    for (size_t j = 0; j < row.size(); ++j)
        row[j] *= static_cast<double>(norm[j]) / std::sqrt(square / static_cast<double>(width) + 1e-6);
    for (int64_t i = 0; i < n_rot / 2; ++i) {  // turned to the first position of the row's own window
        const double angle = static_cast<double>(w * ratio) * static_cast<double>(freq[static_cast<size_t>(i)]);
        double &a = row[static_cast<size_t>(width - n_rot + 2 * i)],
               &b = row[static_cast<size_t>(width - n_rot + 2 * i + 1)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
    }
    return row;
}

void expect_pooling(int64_t ratio, bool overlap, int64_t n, int64_t chunk, bool to_index) {
    const int64_t width = to_index ? 32 : 80, n_lane = overlap ? 2 : 1, wide = n_lane * width, n_rot = 16;
    const std::vector<float> c = test::gaussian(n * wide, 1), z = test::gaussian(n * wide, 2, 2.0f);
    const std::vector<float> ape = test::gaussian(ratio * wide, 3), norm = test::gaussian(width, 4, 0.2f, 1.0f);
    std::vector<float> freq;
    for (int i = 0; i < n_rot / 2; ++i) freq.push_back(std::pow(160000.0f, -static_cast<float>(2 * i) / 16.0f));
    OwnedCache box(RowFormat::f32, {.ratio = ratio, .n_lane = n_lane, .n_ctx = n, .max_rows = chunk});
    ops::LayerCache* const caches[] = {&box.cache};
    const auto rows = test::session_rows(n);
    ReferenceOps ops(1);
    for (int64_t first = 0; first < n; first += chunk) {
        const int64_t m = std::min(chunk, n - first);
        const auto slice = [&](const std::vector<float>& v) {
            return Rows({v.begin() + first * wide, v.begin() + (first + m) * wide}, wide);
        };
        Rows cs = slice(c), zs = slice(z);
        ops.compress({.c = cs.t(),
                      .z = zs.t(),
                      .ape = ape.data(),
                      .norm = norm.data(),
                      .freq = freq.data(),
                      .eps = 1e-6f,
                      .width = width,
                      .n_lane = n_lane,
                      .ratio = ratio,
                      .n_rot = n_rot,
                      .to_index = to_index,
                      .rows = std::span(rows).subspan(static_cast<size_t>(first), static_cast<size_t>(m)),
                      .cache = caches});
    }
    for (int64_t w = 0; w < n / ratio; ++w) {
        std::vector<float> got(static_cast<size_t>(width));
        if (to_index)
            quant::decode_index_row(RowFormat::f32, box.cache.index.row(w), static_cast<int>(width), got.data());
        else
            quant::decode_attn_row(RowFormat::f32, box.cache.compressed.row(w), static_cast<int>(width), 16,
                                   got.data());
        const std::vector<double> want = pooled_row(c, z, ape, norm, freq, width, ratio, overlap, n_rot, w);
        // f32 exponentials and sums of at most 128 terms: some 1e-6.
        for (size_t j = 0; j < got.size(); ++j) ASSERT_NEAR(got[j], want[j], 5e-6) << "row " << w << ", value " << j;
    }
}

TEST(Compress, TwoLanesOfRatio4PoolTwoWindows) {
    for (const int64_t chunk : {1, 3, 4, 5, 42}) expect_pooling(4, true, 42, chunk, false);
}
TEST(Compress, IndexerRowsAreTheSamePooling) {
    for (const int64_t chunk : {1, 6, 42}) expect_pooling(4, true, 42, chunk, true);
}
TEST(Compress, OneLaneOfRatio128PoolsOneWindow) {
    for (const int64_t chunk : {1, 100, 300}) expect_pooling(128, false, 300, chunk, false);
}
TEST(Compress, OneLaneOfAnotherRatio) { expect_pooling(8, false, 42, 5, false); }

// --- the indexer's choice --------------------

// Index rows with a single value each and one head of weight 1: the score of row c is max(0, value[c]).
std::vector<int32_t> select(const std::vector<float>& value, int32_t position, int64_t top_k, float weight = 1.0f) {
    OwnedCache box(RowFormat::f32, {.ratio = 4, .n_lane = 2, .n_ctx = 4 * static_cast<int64_t>(value.size()) + 8});
    for (size_t c = 0; c < value.size(); ++c) {
        std::vector<float> row(32, 0.0f);
        row[5] = value[c];
        quant::encode_index_row(RowFormat::f32, row.data(), 32, box.cache.index.row(static_cast<int64_t>(c)));
    }
    ops::LayerCache* const caches[] = {&box.cache};
    Rows q(std::vector<float>(32, 0.0f), 32), w(std::vector<float>{weight}, 1);
    q.v[5] = 1;
    std::vector<int32_t> ids(static_cast<size_t>(top_k), -1);
    int32_t count = -1;
    const ops::Row row{.position = position};
    ReferenceOps ops(1);
    ops.index_select({.selected = {ids.data(), &count, top_k},
                      .q = q.t(),
                      .weight = w.t(),
                      .n_head = 1,
                      .head_dim = 32,
                      .ratio = 4,
                      .top_k = top_k,
                      .rows = {&row, 1},
                      .cache = caches});
    ids.resize(static_cast<size_t>(count));
    return ids;
}

TEST(IndexSelect, KeepsTheLargestInAscendingOrder) {
    EXPECT_EQ(select({1, 5, 3, 9, 2, 8}, 23, 3), (std::vector<int32_t>{1, 3, 5}));
}

TEST(IndexSelect, TiesGoToTheLowerRow) {
    EXPECT_EQ(select({1, 2, 2, 2, 2, 1}, 23, 2), (std::vector<int32_t>{1, 2}));
    // Negative products count as zero, and zeros are equal.
    EXPECT_EQ(select({-1, -5, -2, 0, 7, -3}, 23, 3), (std::vector<int32_t>{0, 1, 4}));
}

TEST(IndexSelect, ANegativeWeightTurnsTheOrderRound) {
    EXPECT_EQ(select({1, 5, 3, 9, 2, 8}, 23, 2, -1.0f), (std::vector<int32_t>{0, 4}));
}

TEST(IndexSelect, SeesOnlyCompleteRowsAndTakesAllWhileTheyAreFew) {
    const std::vector<float> value = {1, 5, 3, 9, 2, 8};
    EXPECT_EQ(select(value, 2, 3), (std::vector<int32_t>{}));
    EXPECT_EQ(select(value, 3, 3), (std::vector<int32_t>{0}));
    EXPECT_EQ(select(value, 10, 3), (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(select(value, 11, 3), (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(select(value, 14, 3), (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(select(value, 15, 3), (std::vector<int32_t>{1, 2, 3}));
    EXPECT_EQ(select(value, 22, 3), (std::vector<int32_t>{1, 2, 3}));  // 8 is not complete yet
}

TEST(TopK, NanNeverWinsOverANumber) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
    const auto top = [](std::vector<float> score, int32_t k) {
        std::vector<int32_t> ids(static_cast<size_t>(k)), scratch(score.size());
        backend::top_k_ascending(score.data(), static_cast<int32_t>(score.size()), k, ids.data(), scratch.data());
        return ids;
    };
    EXPECT_EQ(top({kNan, 1, kNan, -2, 0}, 2), (std::vector<int32_t>{1, 4}));
    EXPECT_EQ(top({kNan, 1, kNan, -2, 0}, 4), (std::vector<int32_t>{0, 1, 3, 4}));  // then the lower NaN
    EXPECT_EQ(top({kNan, kNan, kNan}, 2), (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(top({-kInf, kInf, kNan, 3}, 2), (std::vector<int32_t>{1, 3}));
    EXPECT_EQ(top({4, 4, 4, 4}, 3), (std::vector<int32_t>{0, 1, 2}));
}

// Against sorting, with many ties.
TEST(TopK, EqualsSorting) {
    std::mt19937 rng(9);
    for (int round = 0; round < 200; ++round) {
        const auto n = static_cast<int32_t>(2 + rng() % 60),
                   k = static_cast<int32_t>(1 + rng() % static_cast<uint32_t>(n - 1));
        std::vector<float> score(static_cast<size_t>(n));
        for (float& s : score) s = static_cast<float>(rng() % 7);
        std::vector<int32_t> want(static_cast<size_t>(n)), ids(static_cast<size_t>(k)), scratch(static_cast<size_t>(n));
        std::iota(want.begin(), want.end(), 0);
        std::stable_sort(want.begin(), want.end(), [&](int32_t a, int32_t b) {
            return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
        });
        want.resize(static_cast<size_t>(k));
        std::sort(want.begin(), want.end());
        backend::top_k_ascending(score.data(), n, k, ids.data(), scratch.data());
        ASSERT_EQ(ids, want);
    }
}

}  // namespace
}  // namespace vesta
