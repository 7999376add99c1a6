// Attention and indexer at Flash's shapes: 64 heads of 512 over a window of 128 rows and compressed rows, 64 indexer
// heads of 128. Argument: context length, rows of the pass. Counter MAC/s: multiply-adds of scores and weighted sums.
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "backend/cpu/cpu_ops.h"
#include "base/thread_pool.h"
#include "quant/kv_row.h"

namespace vesta::backend {
namespace {

constexpr int64_t kHead = 64, kDim = 512, kRot = 64, kWindow = 128, kTopK = 512, kIndexDim = 128;
constexpr auto kFormat = quant::RowFormat::fp8;

std::vector<float> random_floats(size_t n, uint32_t seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    std::vector<float> v(n);
    for (float& x : v) x = normal(rng);
    return v;
}

struct Layer {
    std::vector<std::byte> window, compressed, index;
    ops::LayerCache cache;
    ops::LayerCache* pointer = &cache;

    Layer(int64_t context, int64_t n_row, int64_t ratio) {
        const int64_t row = quant::attn_row_bytes(kFormat, kDim, kRot),
                      key = quant::index_row_bytes(kFormat, kIndexDim);
        const int64_t n_window = kWindow - 1 + n_row, n_compressed = context / ratio + 1;
        window.resize(static_cast<size_t>(n_window * row));
        compressed.resize(static_cast<size_t>(n_compressed * row));
        index.resize(static_cast<size_t>(n_compressed * key));
        cache.format = kFormat;
        cache.window = {window.data(), row, n_window};
        cache.compressed = {compressed.data(), row, n_compressed};
        cache.index = {index.data(), key, n_compressed};
        const std::vector<float> x = random_floats(kDim * 64, 7);
        for (int64_t i = 0; i < n_window; ++i)
            quant::encode_attn_row(kFormat, &x[static_cast<size_t>(i % 64 * kDim)], kDim, kRot, cache.window.row(i));
        for (int64_t i = 0; i < n_compressed; ++i) {
            quant::encode_attn_row(kFormat, &x[static_cast<size_t>(i % 61 * kDim)], kDim, kRot,
                                   cache.compressed.row(i));
            quant::encode_index_row(kFormat, &x[static_cast<size_t>(i % 251 * kIndexDim)], kIndexDim,
                                    cache.index.row(i));
        }
    }
};

std::vector<ops::Row> rows_at(int64_t context, int64_t n_row) {
    std::vector<ops::Row> rows;
    for (int64_t t = 0; t < n_row; ++t) rows.push_back({0, static_cast<int32_t>(context - n_row + t), 0});
    return rows;
}

void attend(benchmark::State& state, int64_t ratio, bool select) {
    const int64_t context = state.range(0), n_row = state.range(1);
    CpuOps ops(ThreadPool::available_cores());
    Layer layer(context, n_row, ratio);
    const std::vector<ops::Row> rows = rows_at(context, n_row);
    std::vector<float> q = random_floats(static_cast<size_t>(n_row * kHead * kDim), 1), out(q.size()),
                       sink(kHead, 0.0f);
    std::vector<int32_t> ids(static_cast<size_t>(n_row * kTopK)), count(static_cast<size_t>(n_row));
    int64_t n_seen = 0;
    for (int64_t t = 0; t < n_row; ++t) {
        const int64_t visible = (rows[static_cast<size_t>(t)].position + 1) / ratio, n = std::min(kTopK, visible);
        count[static_cast<size_t>(t)] = static_cast<int32_t>(n);
        for (int64_t i = 0; i < n; ++i) ids[static_cast<size_t>(t * kTopK + i)] = static_cast<int32_t>(i * visible / n);
        n_seen += kWindow + (select ? n : visible);
    }
    const ops::Selection selection{ids.data(), count.data(), kTopK};
    for (auto _ : state)
        ops.attend({.out = ops::Tensor::of(out.data(), n_row, kHead * kDim),
                    .q = ops::Tensor::of(q.data(), n_row, kHead * kDim),
                    .sink = sink.data(),
                    .n_head = kHead,
                    .head_dim = kDim,
                    .n_rot = kRot,
                    .window = kWindow,
                    .ratio = ratio,
                    .selection = select ? &selection : nullptr,
                    .rows = rows,
                    .cache = {&layer.pointer, 1}});
    state.counters["MAC/s"] = benchmark::Counter(static_cast<double>(2 * n_seen * kHead * kDim * state.iterations()),
                                                 benchmark::Counter::kIsRate);
    state.counters["us/row"] = benchmark::Counter(static_cast<double>(state.iterations() * n_row) / 1e6,
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void selected(benchmark::State& state) { attend(state, 4, true); }
void all_visible(benchmark::State& state) { attend(state, 128, false); }

void indexer(benchmark::State& state) {
    const int64_t context = state.range(0), n_row = state.range(1);
    CpuOps ops(ThreadPool::available_cores());
    Layer layer(context, n_row, 4);
    const std::vector<ops::Row> rows = rows_at(context, n_row);
    const std::vector<float> q = random_floats(static_cast<size_t>(n_row * kHead * kIndexDim), 1);
    std::vector<float> copy = q, weight = random_floats(static_cast<size_t>(n_row * kHead), 2);
    std::vector<int32_t> ids(static_cast<size_t>(n_row * kTopK)), count(static_cast<size_t>(n_row));
    for (auto _ : state) {
        copy = q;
        ops.index_select({.selected = {ids.data(), count.data(), kTopK},
                          .q = ops::Tensor::of(copy.data(), n_row, kHead * kIndexDim),
                          .weight = ops::Tensor::of(weight.data(), n_row, kHead),
                          .n_head = kHead,
                          .head_dim = kIndexDim,
                          .ratio = 4,
                          .top_k = kTopK,
                          .rows = rows,
                          .cache = {&layer.pointer, 1}});
    }
    state.counters["MAC/s"] =
        benchmark::Counter(static_cast<double>(n_row * (context / 4) * kHead * kIndexDim * state.iterations()),
                           benchmark::Counter::kIsRate);
    state.counters["us/row"] = benchmark::Counter(static_cast<double>(state.iterations() * n_row) / 1e6,
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void shapes(benchmark::internal::Benchmark* b) {
    b->Args({2048, 1})->Args({65536, 1})->Args({1 << 20, 1})->Args({2048, 64})->Args({65536, 64})->UseRealTime();
}
BENCHMARK(selected)->Apply(shapes)->Unit(benchmark::kMicrosecond);
BENCHMARK(all_visible)->Apply(shapes)->Unit(benchmark::kMicrosecond);
BENCHMARK(indexer)->Apply(shapes)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace vesta::backend

BENCHMARK_MAIN();
