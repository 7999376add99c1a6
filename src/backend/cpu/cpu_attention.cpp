// Attention on the cpu: pooling completed windows, choosing compressed rows, and the weighted sum over rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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
    constexpr int64_t kTile = 64;  // keys decoded together: 64 x 128 f32 = 32 KB, half of L1
    const int64_t n_tile = (most + kTile - 1) / kTile;
    const auto visible = [&](int64_t t) { return static_cast<int32_t>((a.rows[static_cast<size_t>(t)].position + 1) / a.ratio); };
    const auto scored = [&](int64_t t) { return visible(t) > a.top_k; };

    parallel(n_row, a.n_head * a.head_dim * 4, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t) {
            if (!scored(t)) {
                a.selected.count[t] = visible(t);
                std::iota(a.selected.ids + t * a.selected.stride, a.selected.ids + t * a.selected.stride + visible(t), 0);
            } else if (quant::is_fp8(a.cache[static_cast<size_t>(a.rows[static_cast<size_t>(t)].slot)]->format)) {
                for (int64_t h = 0; h < a.n_head; ++h)
                    quant::round_index_query(a.q.row(t) + h * a.head_dim, static_cast<int>(a.head_dim));
            }
        }
    });

    // Some queries at a time, so that the score matrix stays small at long contexts.
    const int64_t block = std::clamp<int64_t>((1 << 22) / std::max<int64_t>(1, most), 1, n_row);
    scores_.resize(static_cast<size_t>(block * most));
    order_.resize(static_cast<size_t>(block * most));
    for (int64_t t0 = 0; t0 < n_row; t0 += block) {
        const int64_t n = std::min(block, n_row - t0);
        pool_.run(n_tile, [&](int64_t tile) {
            float keys[kTile * ops::kMaxIndexDim], dots[kTile];
            VESTA_CHECK(a.head_dim <= ops::kMaxIndexDim);
            const ops::LayerCache* decoded = nullptr;
            int64_t n_decoded = 0;
            for (int64_t t = t0; t < t0 + n; ++t) {
                const int64_t c0 = tile * kTile, c1 = std::min<int64_t>(visible(t), c0 + kTile);
                if (!scored(t) || c1 <= c0) continue;
                const ops::LayerCache* cache = a.cache[static_cast<size_t>(a.rows[static_cast<size_t>(t)].slot)];
                if (cache != decoded) n_decoded = 0, decoded = cache;
                for (; c0 + n_decoded < c1; ++n_decoded)
                    decode_index(cache->format, cache->index.row(c0 + n_decoded), a.head_dim, keys + n_decoded * a.head_dim);
                float* score = scores_.data() + (t - t0) * most + c0;
                std::fill_n(score, c1 - c0, 0.0f);
                for (int64_t h = 0; h < a.n_head; ++h) {
                    MatmulTask m;
                    m.w = reinterpret_cast<const std::byte*>(keys);
                    m.w_stride = a.head_dim * static_cast<int64_t>(sizeof(float));
                    m.n_out = c1 - c0;
                    m.n_in = a.head_dim;
                    m.x = a.q.row(t) + h * a.head_dim;
                    m.n_row = 1;
                    m.y = dots;
                    k_.matmul_f32(m);
                    const float w = a.weight.row(t)[h];
                    for (int64_t c = 0; c < c1 - c0; ++c) score[c] += w * std::max(0.0f, dots[c]);
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

void CpuOps::attend(const ops::AttendArgs& a) {
    const int64_t n_row = a.q.n_row, dim = a.head_dim;
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim));

    // 1. Decode what several queries share: each session's window rows, and its compressed rows when all are visible.
    const size_t n_slot = a.cache.size();
    slot_low_.assign(n_slot, std::numeric_limits<int64_t>::max());
    slot_high_.assign(n_slot, -1);
    for (const ops::Row& r : a.rows) {
        const auto s = static_cast<size_t>(r.slot);
        slot_low_[s] = std::min<int64_t>(slot_low_[s], std::max<int64_t>(0, r.position - a.window + 1));
        slot_high_[s] = std::max<int64_t>(slot_high_[s], r.position);
    }
    const bool all_visible = a.ratio > 0 && a.selection == nullptr;
    slot_window_at_.assign(n_slot + 1, 0);
    slot_compressed_at_.assign(n_slot + 1, 0);
    for (size_t s = 0; s < n_slot; ++s) {
        const bool used = slot_high_[s] >= 0;
        slot_window_at_[s + 1] = slot_window_at_[s] + (used ? slot_high_[s] - slot_low_[s] + 1 : 0);
        slot_compressed_at_[s + 1] = slot_compressed_at_[s] + (used && all_visible ? (slot_high_[s] + 1) / a.ratio : 0);
    }
    const int64_t n_window = slot_window_at_[n_slot], n_compressed = slot_compressed_at_[n_slot];
    window_rows_.resize(static_cast<size_t>(n_window * dim));
    compressed_rows_.resize(static_cast<size_t>(n_compressed * dim));
    const auto slot_of = [](const std::vector<int64_t>& at, int64_t i) {
        return static_cast<size_t>(std::upper_bound(at.begin(), at.end(), i) - at.begin()) - 1;
    };
    parallel(n_window + n_compressed, 2 * dim, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            const bool in_window = i < n_window;
            const int64_t j = in_window ? i : i - n_window;
            const size_t s = slot_of(in_window ? slot_window_at_ : slot_compressed_at_, j);
            const ops::LayerCache& cache = *a.cache[s];
            const std::byte* row = in_window ? cache.window.row(slot_low_[s] + j - slot_window_at_[s])
                                             : cache.compressed.row(j - slot_compressed_at_[s]);
            decode_attn(cache.format, row, dim, a.n_rot, (in_window ? window_rows_ : compressed_rows_).data() + j * dim);
        }
    });

    // 2. Queries in blocks: their chosen rows are decoded, then every (query, group of heads) is one task.
    constexpr int64_t kBlock = 16;
    const int64_t most_chosen = a.selection != nullptr ? a.selection->stride : n_compressed;
    const int64_t most = a.window + most_chosen;
    const int64_t n_task_wanted = 4 * pool_.n_thread();
    for (int64_t t0 = 0; t0 < n_row; t0 += kBlock) {
        const int64_t n = std::min(kBlock, n_row - t0);
        if (a.selection != nullptr) {
            selected_rows_.resize(static_cast<size_t>(kBlock * most_chosen * dim));
            constexpr int64_t kRows = 16;  // decoded per task
            const int64_t n_piece = (most_chosen + kRows - 1) / kRows;
            pool_.run(n * n_piece, [&](int64_t task) {
                const int64_t t = t0 + task / n_piece, first = task % n_piece * kRows;
                const int64_t last = std::min<int64_t>(first + kRows, a.selection->count[t]);
                const ops::LayerCache& cache = *a.cache[static_cast<size_t>(a.rows[static_cast<size_t>(t)].slot)];
                for (int64_t i = first; i < last; ++i)
                    decode_attn(cache.format, cache.compressed.row(a.selection->ids[t * a.selection->stride + i]), dim,
                                a.n_rot, selected_rows_.data() + ((t - t0) * most_chosen + i) * dim);
            });
        }
        constexpr int64_t kMaxHeads = 256;  // of one task
        const int64_t n_group = std::clamp<int64_t>((n_task_wanted + n - 1) / n, 1, a.n_head);
        const int64_t heads_per_group = std::min(kMaxHeads, (a.n_head + n_group - 1) / n_group);
        const int64_t groups = (a.n_head + heads_per_group - 1) / heads_per_group;
        scores_.resize(static_cast<size_t>(kBlock * a.n_head * most));
        pool_.run(n * groups, [&](int64_t task) {
            const int64_t t = t0 + task / groups, h0 = task % groups * heads_per_group;
            const int64_t n_head = std::min(heads_per_group, a.n_head - h0);
            const ops::Row& row = a.rows[static_cast<size_t>(t)];
            const auto slot = static_cast<size_t>(row.slot);
            struct Piece {
                const float* rows;
                int64_t n;
            };
            const int64_t first = std::max<int64_t>(0, row.position - a.window + 1);
            Piece pieces[2] = {{window_rows_.data() + (slot_window_at_[slot] + first - slot_low_[slot]) * dim,
                                row.position - first + 1},
                               {nullptr, 0}};
            if (all_visible)
                pieces[1] = {compressed_rows_.data() + slot_compressed_at_[slot] * dim, (row.position + 1) / a.ratio};
            else if (a.selection != nullptr)
                pieces[1] = {selected_rows_.data() + (t - t0) * most_chosen * dim, a.selection->count[t]};
            const int64_t total = pieces[0].n + pieces[1].n;
            float* s = scores_.data() + ((t - t0) * a.n_head + h0) * most;  // [n_head, most]
            int64_t at = 0;
            for (const Piece& piece : pieces) {
                MatmulTask m;
                m.w = reinterpret_cast<const std::byte*>(piece.rows);
                m.w_stride = dim * static_cast<int64_t>(sizeof(float));
                m.n_out = piece.n;
                m.n_in = dim;
                m.x = a.q.row(t) + h0 * dim;
                m.x_stride = dim;
                m.n_row = n_head;
                m.y = s + at;
                m.y_stride = most;
                if (piece.n > 0) k_.matmul_f32(m);
                at += piece.n;
            }
            float sum[kMaxHeads];
            for (int64_t h = 0; h < n_head; ++h) {
                float* p = s + h * most;
                k_.scale_mul(p, p, scale, nullptr, total);
                const float sink = a.sink[h0 + h], top = std::max(sink, k_.max(p, total));
                sum[h] = std::exp(sink - top) + k_.exp_sum(p, total, top);
            }
            float* out = a.out.row(t) + h0 * dim;
            at = 0;
            for (const Piece& piece : pieces) {
                if (piece.n > 0)
                    k_.mix({.p = s + at, .p_stride = most, .n_mix = n_head, .rows = piece.rows, .row_stride = dim,
                            .n_row = piece.n, .n_col = dim, .y = out, .y_stride = dim, .accumulate = at > 0});
                at += piece.n;
            }
            for (int64_t h = 0; h < n_head; ++h) k_.scale_mul(out + h * dim, out + h * dim, 1.0f / sum[h], nullptr, dim);
        });
    }
}

}  // namespace vesta::backend
