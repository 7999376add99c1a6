// Attention on the cpu: pooling completed windows, choosing compressed rows, and the weighted sum over rows.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "backend/cpu/cpu_ops.h"
#include "quant/kv_row.h"

namespace vesta::backend {

using ops::Tensor;

void CpuOps::decode_attn(quant::RowFormat format, const std::byte* row, int64_t dim, int64_t n_rot, float* dst) const {
    if (format == quant::RowFormat::fp8)
        k_.decode_attn_fp8(row, static_cast<int>(dim), static_cast<int>(n_rot), dst);
    else
        quant::decode_attn_row(format, row, static_cast<int>(dim), static_cast<int>(n_rot), dst);
}

void CpuOps::decode_index(quant::RowFormat format, const std::byte* row, int64_t dim, float* dst) const {
    if (format == quant::RowFormat::fp8)
        k_.decode_index_fp8(row, static_cast<int>(dim), dst);
    else
        quant::decode_index_row(format, row, static_cast<int>(dim), dst);
}

void CpuOps::compress(const ops::CompressArgs& a) {
    const int64_t wide = a.n_lane * a.width;
    struct Emission {
        int32_t row, index;  // of the pass; of the compressed row
    };
    const auto completes = [&](const ops::Row& r) { return (r.position + 1) % a.ratio == 0; };
    const auto n_emitted = static_cast<size_t>(std::count_if(a.rows.begin(), a.rows.end(), completes));
    pooled_.resize(n_emitted * static_cast<size_t>(a.width));

    // Channels are independent: each task takes some of them through all rows in order of position.
    constexpr int64_t kChannels = 32;
    pool_.run((a.width + kChannels - 1) / kChannels, [&](int64_t task) {
        const int64_t first_channel = task * kChannels, n_channel = std::min(kChannels, a.width - first_channel);
        int64_t emitted = 0;
        for (int64_t t = 0; t < a.c.n_row; ++t) {
            const ops::Row& row = a.rows[static_cast<size_t>(t)];
            ops::LayerCache& cache = *a.cache[static_cast<size_t>(row.slot)];
            const ops::Frontier& f = a.to_index ? cache.index_frontier : cache.attn_frontier;
            const int64_t p = row.position, phase = p % a.ratio;
            for (int64_t lane = 0; lane < a.n_lane; ++lane) {
                const int64_t at = lane * a.width + first_channel;
                for (int64_t j = 0; j < n_channel; ++j) {
                    f.c_row(p)[at + j] = a.c.row(t)[at + j];
                    f.z_row(p)[at + j] = a.z.row(t)[at + j] + a.ape[phase * wide + at + j];
                }
            }
            if (!completes(row)) continue;
            const int64_t first = p + 1 - a.ratio, begin = a.n_lane == 2 && first > 0 ? first - a.ratio : first;
            float top[kChannels], sum[kChannels] = {}, value[kChannels] = {};
            std::fill_n(top, n_channel, -std::numeric_limits<float>::infinity());
            const auto lane_at = [&](int64_t q) { return (a.n_lane == 2 && q >= first ? a.width : 0) + first_channel; };
            for (int64_t q = begin; q <= p; ++q) {
                const float* z = f.z_row(q) + lane_at(q);
                for (int64_t j = 0; j < n_channel; ++j) top[j] = std::max(top[j], z[j]);
            }
            for (int64_t q = begin; q <= p; ++q) {
                const float* z = f.z_row(q) + lane_at(q);
                const float* c = f.c_row(q) + lane_at(q);
                for (int64_t j = 0; j < n_channel; ++j) {
                    const float e = std::exp(z[j] - top[j]);
                    sum[j] += e;
                    value[j] += e * c[j];
                }
            }
            float* out = pooled_.data() + emitted * a.width + first_channel;
            for (int64_t j = 0; j < n_channel; ++j) out[j] = value[j] / sum[j];
            ++emitted;
        }
    });

    int64_t emitted = 0;
    for (const ops::Row& row : a.rows) {
        if (!completes(row)) continue;
        float* x = pooled_.data() + emitted++ * a.width;
        const Tensor one = Tensor::of(x, 1, a.width);
        rms_norm({.y = one, .x = one, .w = a.norm, .eps = a.eps});
        const int64_t w = row.position / a.ratio;
        const ops::Row start{.token = row.token, .position = static_cast<int32_t>(w * a.ratio), .slot = row.slot};
        rope({.x = one, .n_head = 1, .head_dim = a.width, .n_rot = a.n_rot, .freq = a.freq, .rows = {&start, 1}});
        ops::LayerCache& cache = *a.cache[static_cast<size_t>(row.slot)];
        if (a.to_index)
            quant::encode_index_row(cache.format, x, static_cast<int>(a.width), cache.index.row(w));
        else
            quant::encode_attn_row(cache.format, x, static_cast<int>(a.width), static_cast<int>(a.n_rot),
                                   cache.compressed.row(w));
    }
}

void CpuOps::index_select(const ops::IndexSelectArgs& a) {
    const int64_t n_row = a.q.n_row;
    int64_t most = 0;
    for (const ops::Row& r : a.rows) most = std::max<int64_t>(most, (r.position + 1) / a.ratio);
    constexpr int64_t kKeys = 64;   // decoded together: 64 x 128 f32 = 32 KB
    constexpr int64_t kHeads = 16;  // scored together
    const int64_t n_tile = (most + kKeys - 1) / kKeys;
    const auto visible = [&](int64_t t) {
        return static_cast<int32_t>((a.rows[static_cast<size_t>(t)].position + 1) / a.ratio);
    };
    const auto scored = [&](int64_t t) { return visible(t) > a.top_k; };

    parallel(n_row, a.n_head * a.head_dim * 4, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t) {
            if (!scored(t)) {
                a.selected.count[t] = visible(t);
                std::iota(a.selected.ids + t * a.selected.stride, a.selected.ids + t * a.selected.stride + visible(t),
                          0);
            } else if (quant::is_fp8(a.cache[static_cast<size_t>(a.rows[static_cast<size_t>(t)].slot)]->format)) {
                for (int64_t h = 0; h < a.n_head; ++h)
                    quant::round_index_query(a.q.row(t) + h * a.head_dim, static_cast<int>(a.head_dim));
            }
        }
    });

    // Some queries at a time, so that the score matrix stays small at long contexts.
    const int64_t block = std::clamp<int64_t>(kIndexScores / std::max<int64_t>(1, most), 1, n_row);
    scores_.resize(static_cast<size_t>(block * most));
    order_.resize(static_cast<size_t>(block * most));
    for (int64_t t0 = 0; t0 < n_row; t0 += block) {
        const int64_t n = std::min(block, n_row - t0);
        pool_.run(n_tile, [&](int64_t tile) {
            float keys[kKeys * ops::kMaxIndexDim], dots[kHeads * kKeys];
            VESTA_CHECK(a.head_dim <= ops::kMaxIndexDim);
            const ops::LayerCache* decoded = nullptr;
            int64_t n_decoded = 0;
            for (int64_t t = t0; t < t0 + n; ++t) {
                const int64_t c0 = tile * kKeys, c1 = std::min<int64_t>(visible(t), c0 + kKeys);
                if (!scored(t) || c1 <= c0) continue;
                const ops::LayerCache* cache = a.cache[static_cast<size_t>(a.rows[static_cast<size_t>(t)].slot)];
                if (cache != decoded) n_decoded = 0, decoded = cache;
                for (; c0 + n_decoded < c1; ++n_decoded)
                    decode_index(cache->format, cache->index.row(c0 + n_decoded), a.head_dim,
                                 keys + n_decoded * a.head_dim);
                float* score = scores_.data() + (t - t0) * most + c0;
                std::fill_n(score, c1 - c0, 0.0f);
                MatmulTask m;
                m.w = reinterpret_cast<const std::byte*>(keys);
                m.w_stride = a.head_dim * static_cast<int64_t>(sizeof(float));
                m.n_out = c1 - c0;
                m.n_in = a.head_dim;
                m.x_stride = a.head_dim;
                m.y = dots;
                m.y_stride = kKeys;
                for (int64_t h0 = 0; h0 < a.n_head; h0 += kHeads) {
                    m.x = a.q.row(t) + h0 * a.head_dim;
                    m.n_row = std::min(kHeads, a.n_head - h0);
                    k_.matmul_f32(m);
                    for (int64_t h = 0; h < m.n_row; ++h) {
                        const float w = a.weight.row(t)[h0 + h];
                        const float* dot = dots + h * kKeys;
                        for (int64_t c = 0; c < c1 - c0; ++c) score[c] += w * std::max(0.0f, dot[c]);
                    }
                }
            }
        });
        pool_.run(n, [&](int64_t i) {
            const int64_t t = t0 + i;
            if (!scored(t)) return;
            const auto k = static_cast<int32_t>(a.top_k);
            a.selected.count[t] = k;
            top_k_ascending(scores_.data() + i * most, visible(t), k, a.selected.ids + t * a.selected.stride,
                            order_.data() + i * most);
        });
    }
}

// Attention streams over a query's rows in tiles of kTile: decode, score, exponentiate against the tile's own maximum,
// weigh, and merge into what is there (online softmax; Milakov & Gimelshein 2018). Tiles are cut at multiples of kTile
// of the absolute row number (position in the window, index among the compressed rows, place in the selection), so a
// query's tiles depend on its position alone, and its result on nothing else: prefill shares a decoded tile between
// neighbouring queries, decode gives tiles to different threads and merges afterwards, in the same order by the same
// code.
namespace {

constexpr int64_t kTile = kTileRows;
constexpr int64_t kHeadGroup = 16;  // heads scored together: their queries and their part of the result are 32 KB each
constexpr int64_t kBlock = 16;      // neighbouring queries that share decoded tiles

// One allocation per thread, kept.
float* thread_scratch(size_t n) {
    static thread_local std::vector<float> scratch;
    if (scratch.size() < n) scratch.resize(n);
    return scratch.data();
}

int64_t first_in_window(int64_t position, int64_t window) { return std::max<int64_t>(0, position - window + 1); }

}  // namespace

struct CpuOps::AttendPass {
    // Rows [first, last) of one kind, within one tile.
    struct Tile {
        Store store;
        int64_t first, last;
    };
    const ops::AttendArgs& a;
    float scale;

    const ops::Row& row(int64_t t) const { return a.rows[static_cast<size_t>(t)]; }
    const ops::LayerCache& cache(int64_t t) const { return *a.cache[static_cast<size_t>(row(t).slot)]; }
    int64_t n_visible(int64_t t) const { return a.ratio > 0 ? (row(t).position + 1) / a.ratio : 0; }
    // A selection of everything is the list 0, 1, 2, ...
    bool picks(int64_t t) const { return a.selection != nullptr && a.selection->count[t] < n_visible(t); }

    // Calls f(Tile) for every tile of query t, in the order of the sum.
    template <class F>
    void each_tile(int64_t t, F&& f) const {
        const auto cut = [&](Store store, int64_t first, int64_t last) {
            for (int64_t at = first; at < last;) {
                const int64_t end = std::min(last, (at / kTile + 1) * kTile);
                f(Tile{store, at, end});
                at = end;
            }
        };
        cut(Store::window, first_in_window(row(t).position, a.window), row(t).position + 1);
        if (picks(t))
            cut(Store::selected, 0, a.selection->count[t]);
        else
            cut(Store::compressed, 0, n_visible(t));
    }
    int64_t n_tile(int64_t t) const {
        int64_t n = 0;
        each_tile(t, [&](const Tile&) { ++n; });
        return n;
    }
};

void CpuOps::decode_tile(const AttendPass& p, int64_t t, Store store, int64_t first, int64_t last, float* rows) const {
    const ops::LayerCache& cache = p.cache(t);
    for (int64_t i = first; i < last; ++i) {
        const std::byte* row = store == Store::window ? cache.window.row(i)
                               : store == Store::compressed
                                   ? cache.compressed.row(i)
                                   : cache.compressed.row(p.a.selection->ids[t * p.a.selection->stride + i]);
        decode_attn(cache.format, row, p.a.head_dim, p.a.n_rot, rows + (i - first) * p.a.head_dim);
    }
}

// Heads [h0, h0 + n_head) of query t over n rows: part [n_head, D] = sum_i exp(s_i - top) row_i, and top and sum.
void CpuOps::attend_tile(const AttendPass& p, int64_t t, int64_t h0, int64_t n_head, const float* rows, int64_t n,
                         float* part, Running* state) const {
    const int64_t dim = p.a.head_dim;
    float s[kHeadGroup * kTile];
    MatmulTask m;
    m.w = reinterpret_cast<const std::byte*>(rows);
    m.w_stride = dim * static_cast<int64_t>(sizeof(float));
    m.n_out = n;
    m.n_in = dim;
    m.x = p.a.q.row(t) + h0 * dim;
    m.x_stride = dim;
    m.n_row = n_head;
    m.y = s;
    m.y_stride = kTile;
    k_.matmul_f32(m);
    for (int64_t h = 0; h < n_head; ++h) {
        float* e = s + h * kTile;
        k_.scale_mul(e, e, p.scale, nullptr, n);
        state[h].top = k_.max(e, n);
        state[h].sum = k_.exp_sum(e, n, state[h].top);
    }
    k_.mix({.p = s,
            .p_stride = kTile,
            .n_mix = n_head,
            .rows = rows,
            .row_stride = dim,
            .n_row = n,
            .n_col = dim,
            .y = part,
            .y_stride = dim});
}

void CpuOps::merge_part(float* out, Running& state, const float* part, const Running& other, int64_t dim) const {
    const float top = std::max(state.top, other.top);
    const float mine = std::exp(state.top - top), theirs = std::exp(other.top - top);
    state.sum = state.sum * mine + other.sum * theirs;
    state.top = top;
    k_.scale_mul(out, out, mine, nullptr, dim);
    k_.axpy(out, theirs, part, dim);
}

// The sink joins the denominator only.
void CpuOps::finish_attention(float* out, const Running& state, float sink, int64_t dim) const {
    const float top = std::max(state.top, sink);
    const float mine = std::exp(state.top - top);
    k_.scale_mul(out, out, mine / (state.sum * mine + std::exp(sink - top)), nullptr, dim);
}

// Queries [t0, t0 + n) of one session on one thread: every shared tile is decoded once.
void CpuOps::attend_block(const AttendPass& p, int64_t t0, int64_t n) const {
    const int64_t dim = p.a.head_dim, n_head = p.a.n_head;
    static thread_local std::vector<Running> running;
    if (running.size() < static_cast<size_t>(n * n_head)) running.resize(static_cast<size_t>(n * n_head));
    Running* state = running.data();  // [n, n_head]
    float* rows = thread_scratch(static_cast<size_t>((kTile + kHeadGroup) * dim));
    float* part = rows + kTile * dim;
    std::array<bool, kBlock> begun{};

    // Rows [first, last) of the decoded tile that starts at `at`, for all heads of query t.
    const auto add = [&](int64_t t, int64_t at, int64_t first, int64_t last) {
        for (int64_t h0 = 0; h0 < n_head; h0 += kHeadGroup) {
            const int64_t heads = std::min(kHeadGroup, n_head - h0);
            float* out = p.a.out.row(t) + h0 * dim;
            Running* before = state + (t - t0) * n_head + h0;
            const float* tile = rows + (first - at) * dim;
            if (!begun[static_cast<size_t>(t - t0)]) {
                attend_tile(p, t, h0, heads, tile, last - first, out, before);
                continue;
            }
            Running now[kHeadGroup];
            attend_tile(p, t, h0, heads, tile, last - first, part, now);
            for (int64_t h = 0; h < heads; ++h) merge_part(out + h * dim, before[h], part + h * dim, now[h], dim);
        }
        begun[static_cast<size_t>(t - t0)] = true;
    };
    // `bounds` says which rows of a store query t sees; empty when it does not read that store.
    const auto shared = [&](Store store, auto bounds) {
        int64_t low = std::numeric_limits<int64_t>::max(), high = 0;
        for (int64_t t = t0; t < t0 + n; ++t) {
            const auto [first, last] = bounds(t);
            if (first < last) low = std::min(low, first), high = std::max(high, last);
        }
        for (int64_t tile = low == std::numeric_limits<int64_t>::max() ? high : low / kTile * kTile; tile < high;
             tile += kTile) {
            const int64_t at = std::max(tile, low), end = std::min(tile + kTile, high);
            decode_tile(p, t0, store, at, end, rows);
            for (int64_t t = t0; t < t0 + n; ++t) {
                const auto [first, last] = bounds(t);
                if (std::max(at, first) < std::min(end, last)) add(t, at, std::max(at, first), std::min(end, last));
            }
        }
    };
    using Bounds = std::pair<int64_t, int64_t>;
    shared(Store::window, [&](int64_t t) {
        return Bounds{first_in_window(p.row(t).position, p.a.window), p.row(t).position + 1};
    });
    shared(Store::compressed, [&](int64_t t) { return Bounds{0, p.picks(t) ? 0 : p.n_visible(t)}; });
    for (int64_t t = t0; t < t0 + n; ++t) {
        if (p.picks(t)) {
            for (int64_t at = 0; at < p.a.selection->count[t]; at += kTile) {
                const int64_t end = std::min<int64_t>(at + kTile, p.a.selection->count[t]);
                decode_tile(p, t, Store::selected, at, end, rows);
                add(t, at, at, end);
            }
        }
        for (int64_t h = 0; h < n_head; ++h)
            finish_attention(p.a.out.row(t) + h * dim, state[(t - t0) * n_head + h], p.a.sink[h], dim);
    }
}

// Few queries: every tile is a task, the merge follows.
void CpuOps::attend_tiles(const AttendPass& p) {
    const int64_t dim = p.a.head_dim, n_head = p.a.n_head, n_row = p.a.q.n_row;
    tiles_.clear();
    query_first_tile_.clear();
    for (int64_t t = 0; t < n_row; ++t) {
        query_first_tile_.push_back(static_cast<int64_t>(tiles_.size()));
        p.each_tile(t, [&](const AttendPass::Tile& tile) { tiles_.push_back({t, tile.store, tile.first, tile.last}); });
    }
    query_first_tile_.push_back(static_cast<int64_t>(tiles_.size()));
    const auto n_tile = static_cast<int64_t>(tiles_.size());
    const int64_t n_group = (n_head + kHeadGroup - 1) / kHeadGroup;
    // Head groups of one tile go to different tasks only when there are too few tiles for the threads: each decodes
    // anew.
    const int64_t split = std::min(n_group, (2 * pool_.n_thread() + n_tile - 1) / n_tile);
    const int64_t groups_per_task = (n_group + split - 1) / split;
    parts_.resize(static_cast<size_t>(n_tile * n_head * dim));
    states_.resize(static_cast<size_t>(n_tile * n_head));
    Running* states = states_.data();
    pool_.run(n_tile * split, [&](int64_t task) {
        const int64_t index = task / split, g0 = task % split * groups_per_task;
        const TileTask& tile = tiles_[static_cast<size_t>(index)];
        if (g0 >= n_group) return;
        float* rows = thread_scratch(static_cast<size_t>(kTile * dim));
        decode_tile(p, tile.query, tile.store, tile.first, tile.last, rows);
        for (int64_t g = g0; g < std::min(n_group, g0 + groups_per_task); ++g) {
            const int64_t h0 = g * kHeadGroup, heads = std::min(kHeadGroup, n_head - h0);
            attend_tile(p, tile.query, h0, heads, rows, tile.last - tile.first,
                        parts_.data() + (index * n_head + h0) * dim, states + index * n_head + h0);
        }
    });
    parallel(n_row * n_head, 3 * dim * (1 + n_tile / n_row), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            const int64_t t = i / n_head, h = i % n_head;
            float* out = p.a.out.row(t) + h * dim;
            const int64_t begin = query_first_tile_[static_cast<size_t>(t)];
            Running state = states[begin * n_head + h];
            std::memcpy(out, parts_.data() + (begin * n_head + h) * dim, static_cast<size_t>(dim) * sizeof(float));
            for (int64_t j = begin + 1; j < query_first_tile_[static_cast<size_t>(t) + 1]; ++j)
                merge_part(out, state, parts_.data() + (j * n_head + h) * dim, states[j * n_head + h], dim);
            finish_attention(out, state, p.a.sink[h], dim);
        }
    });
}

void CpuOps::attend(const ops::AttendArgs& a) {
    const AttendPass pass{a, 1.0f / std::sqrt(static_cast<float>(a.head_dim))};
    const int64_t n_row = a.q.n_row;
    if (n_row < 2 * pool_.n_thread()) {
        attend_tiles(pass);
        return;
    }
    // Blocks of neighbours: rows of one session, in order of position, stand together or not (batches of sessions).
    const int64_t wanted = std::clamp<int64_t>(n_row / (2 * pool_.n_thread()), 1, kBlock);
    block_first_.clear();
    for (int64_t t = 0; t < n_row;) {
        block_first_.push_back(t);
        int64_t end = t + 1;
        while (end < n_row && end - t < wanted && pass.row(end).slot == pass.row(t).slot &&
               pass.row(end).position == pass.row(end - 1).position + 1)
            ++end;
        t = end;
    }
    block_first_.push_back(n_row);
    pool_.run(static_cast<int64_t>(block_first_.size()) - 1, [&](int64_t b) {
        const int64_t t0 = block_first_[static_cast<size_t>(b)];
        attend_block(pass, t0, block_first_[static_cast<size_t>(b) + 1] - t0);
    });
}

}  // namespace vesta::backend
