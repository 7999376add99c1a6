// Matrix products, experts and the element-wise operations. Attention is in cpu_attention.cpp.
#include "backend/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace vesta::backend {

using ops::Tensor;
using ops::Weight;

int64_t CpuOps::scratch_bytes(const ops::PassShape& s) const {
    const int64_t rounded_x = std::max(s.rows * a16::row_bytes(s.n_embd), s.block_rows * a16::row_bytes(s.widest_input));
    const int64_t rounded_h = s.rows * std::max(s.n_used * a16::row_bytes(s.n_ff), a16::row_bytes(s.n_ff_shared));
    const int64_t pairs = s.rows * s.n_used * 5 * 4;
    // Scores of the indexer and the order of its choice.
    const int64_t scored = s.index_ratio > 0 ? s.n_ctx / s.index_ratio + 1 : 0;
    const int64_t index = 8 * std::min(s.block_rows * scored, std::max<int64_t>(kIndexScores, scored));
    // A part per tile of rows and query, when queries are few.
    const int64_t seen = s.window + std::max(s.index_top_k, s.dense_ratio > 0 ? s.n_ctx / s.dense_ratio + 1 : 0);
    const int64_t tiles = (seen / kTileRows + 3) * std::min<int64_t>(s.block_rows, 2 * pool_.n_thread());
    const int64_t parts = tiles * s.n_head * (s.head_dim * 4 + static_cast<int64_t>(sizeof(Running)));
    const int64_t per_thread = pool_.n_thread() * (kTileRows + 16) * s.head_dim * 4;
    return rounded_x + rounded_h + pairs + index + parts + per_thread;
}

int64_t CpuOps::scratch_held() const {
    const auto bytes = [](const auto& v) { return static_cast<int64_t>(v.capacity() * sizeof(v[0])); };
    return bytes(x_rounded_.lines) + bytes(h_rounded_.lines) + bytes(sorted_pair_) + bytes(sorted_token_) + bytes(waiting_) +
           bytes(pair_weight_) + bytes(scores_) + bytes(pooled_) + bytes(parts_) + bytes(states_) + bytes(order_);
}

void CpuOps::rms_norm(const ops::RmsNormArgs& a) {
    parallel(a.x.n_row, 4 * a.x.n_col, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t) {
            const double mean = k_.sum_squares(a.x.row(t), a.x.n_col) / static_cast<double>(a.x.n_col);
            const auto r = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(a.eps)));
            k_.scale_mul(a.y.row(t), a.x.row(t), r, a.w, a.x.n_col);
        }
    });
}

void CpuOps::round(Tensor x, Activations& out) {
    const int64_t stride = a16::row_bytes(x.n_col);
    out.reserve(x.n_row * stride);
    parallel(x.n_row, 4 * x.n_col, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t) k_.a16.quantize(x.row(t), x.n_col, out.bytes() + t * stride);
    });
}

void CpuOps::run_products(std::span<const Product> products) {
    // Tasks are runs of outputs of one product: about eight per thread, unless that is too little work to hand over, or
    // one row of x, for which kernels fetch the next weights while they work on these: a cut costs a wait for memory.
    int64_t total = 0;
    for (const Product& p : products) total += p.n_row * p.w.n_in * p.w.n_out;
    const int64_t share = total / (8 * pool_.n_thread());
    const auto outputs_per_task = [share](const Product& p) {
        const int64_t each = std::max<int64_t>(1, p.n_row * p.w.n_in), most = p.n_row < 4 ? kStreamWork : share;
        return std::clamp<int64_t>(std::clamp(share, kProductWork, std::max(kProductWork, most)) / each / kTileOutputs * kTileOutputs,
                                   kTileOutputs, 256);
    };
    product_first_task_.clear();
    int64_t n_task = 0;
    for (const Product& p : products) {
        product_first_task_.push_back(n_task);
        const int64_t step = outputs_per_task(p);
        n_task += (p.w.n_out + step - 1) / step;
    }
    pool_.run(n_task, [&](int64_t task) {
        const auto at = std::upper_bound(product_first_task_.begin(), product_first_task_.end(), task);
        const auto index = static_cast<size_t>(at - product_first_task_.begin()) - 1;
        const Product& p = products[index];
        const int64_t step = outputs_per_task(p), first = (task - product_first_task_[index]) * step;
        MatmulTask m;
        m.w = p.w.row(first);
        m.w_stride = p.w.row_bytes;
        m.n_out = std::min(step, p.w.n_out - first);
        m.n_in = p.w.n_in;
        m.x = p.x.data;
        m.x_stride = p.x.stride;
        if (p.activations != nullptr) m.a16 = p.activations->bytes() + p.activation_row * a16::row_bytes(p.w.n_in);
        m.pick = p.pick;
        m.n_row = p.n_row;
        m.y = p.y.data + first;
        m.y_stride = p.y.stride;
        backend::matmul(k_, p.w.type, m);
    });
}

void CpuOps::matmul_shared_input(Tensor x, std::initializer_list<std::pair<Tensor, Weight>> outputs) {
    const bool rounded = std::any_of(outputs.begin(), outputs.end(), [](const auto& o) { return reads_a16(o.second.type); });
    if (rounded) round(x, x_rounded_);
    products_.clear();
    for (const auto& [y, w] : outputs)
        products_.push_back({.y = y, .w = w, .x = x, .activations = rounded ? &x_rounded_ : nullptr, .n_row = x.n_row});
    run_products(products_);
}

void CpuOps::matmul(const ops::MatmulArgs& a) {
    VESTA_CHECK(a.x.n_col == a.w.n_in && a.y.n_col == a.w.n_out && a.y.n_row == a.x.n_row);
    matmul_shared_input(a.x, {{a.y, a.w}});
}

void CpuOps::rope(const ops::RopeArgs& a) {
    const int64_t n_pair = a.n_rot / 2;
    parallel(a.x.n_row, 64 * n_pair + 4 * a.n_head * a.n_rot, [&](int64_t first, int64_t last) {
        VESTA_CHECK(a.n_rot <= ops::kMaxRotary);
        Rotation turn[ops::kMaxRotary / 2];
        for (int64_t t = first; t < last; ++t) {
            for (int64_t i = 0; i < n_pair; ++i)
                turn[i] = rotation(a.rows[static_cast<size_t>(t)].position, a.freq[i], a.inverse);
            for (int64_t h = 0; h < a.n_head; ++h) {
                float* r = a.x.row(t) + (h + 1) * a.head_dim - a.n_rot;
                for (int64_t i = 0; i < n_pair; ++i) {
                    const float p = r[2 * i], q = r[2 * i + 1];
                    r[2 * i] = p * turn[i].cos - q * turn[i].sin;
                    r[2 * i + 1] = p * turn[i].sin + q * turn[i].cos;
                }
            }
        }
    });
}

void CpuOps::swiglu(const ops::SwigluArgs& a) {
    parallel(a.y.n_row, 16 * a.y.n_col, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t)
            k_.swiglu(a.y.row(t), a.gate.row(t), a.up.row(t), a.clamp, a.scale == nullptr ? 1.0f : a.scale[t], a.y.n_col);
    });
}

void CpuOps::hc_collapse(const ops::HcCollapseArgs& a) {
    const int64_t n_embd = a.y.n_col, n_stream = a.gate.n_col;
    parallel(a.y.n_row, n_stream * n_embd, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t)
            k_.mix({.p = a.gate.row(t), .p_stride = n_stream, .n_mix = 1, .rows = a.streams.row(t), .row_stride = n_embd,
                    .n_row = n_stream, .n_col = n_embd, .y = a.y.row(t), .y_stride = n_embd});
    });
}

void CpuOps::hc_mix_out(const ops::HcMixOutArgs& a) {
    // streams'[k] = post[k] y + sum_j comb[j][k] streams[j], a piece of the width at a time: all streams of a piece are
    // read before any is written.
    constexpr int64_t kPiece = 128;
    const int64_t n_embd = a.y.n_col, n = a.post.n_col;
    VESTA_CHECK(n <= ops::kMaxStreams);
    parallel(a.y.n_row, (n + 1) * n * n_embd, [&](int64_t first, int64_t last) {
        float mixed[ops::kMaxStreams * kPiece];
        for (int64_t t = first; t < last; ++t) {
            for (int64_t at = 0; at < n_embd; at += kPiece) {
                const int64_t width = std::min(kPiece, n_embd - at);
                const float* y = a.y.row(t) + at;
                float* streams = a.streams.row(t) + at;
                for (int64_t k = 0; k < n; ++k) {
                    float* m = mixed + k * kPiece;
                    k_.scale_mul(m, y, a.post.row(t)[k], nullptr, width);
                    for (int64_t j = 0; j < n; ++j) k_.axpy(m, a.comb.row(t)[j * n + k], streams + j * n_embd, width);
                }
                for (int64_t k = 0; k < n; ++k)
                    std::memcpy(streams + k * n_embd, mixed + k * kPiece, static_cast<size_t>(width) * sizeof(float));
            }
        }
    });
}

void CpuOps::combine(const ops::CombineArgs& a) {
    const int64_t n_used = a.parts.n_row / a.y.n_row, n_embd = a.y.n_col;
    parallel(a.y.n_row, (n_used + 1) * n_embd, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t) {
            float* y = a.y.row(t);
            std::memcpy(y, a.parts.row(t * n_used), static_cast<size_t>(n_embd) * sizeof(float));
            for (int64_t k = 1; k < n_used; ++k) k_.axpy(y, 1.0f, a.parts.row(t * n_used + k), n_embd);
            k_.axpy(y, 1.0f, a.shared.row(t), n_embd);
        }
    });
}

void CpuOps::check_finite(const ops::CheckFiniteArgs& a) {
    // The sum of squares is finite exactly when every value is: f64 holds the square of any f32 and any sum of them.
    for (int64_t t = 0; t < a.x.n_row; ++t) {
        if (std::isfinite(k_.sum_squares(a.x.row(t), a.x.n_col))) continue;
        ReferenceOps::check_finite(a);
        return;
    }
}

void CpuOps::latent_qkv(const ops::LatentQkvArgs& a) {
    matmul_shared_input(a.x, {{a.qa, a.q_a}, {a.kv, a.w_kv}});
    rms_norm({.y = a.qa, .x = a.qa, .w = a.q_norm, .eps = a.eps});
    matmul({.y = a.q, .w = a.q_b, .x = a.qa});
    const Tensor heads = a.q.split_rows(a.n_head);
    rms_norm({.y = heads, .x = heads, .w = nullptr, .eps = a.eps});
    rope({.x = a.q, .n_head = a.n_head, .head_dim = a.head_dim, .n_rot = a.n_rot, .freq = a.freq, .rows = a.rows});
    rms_norm({.y = a.kv, .x = a.kv, .w = a.kv_norm, .eps = a.eps});
    rope({.x = a.kv, .n_head = 1, .head_dim = a.head_dim, .n_rot = a.n_rot, .freq = a.freq, .rows = a.rows});
}

void CpuOps::grouped_out(const ops::GroupedOutArgs& a) {
    // All groups in one loop. Rounding works on blocks of 32 values, so rounding [T, G*width] once and reading it as
    // [T*G, width] gives each group its own rows: group g of row t is row t*G + g.
    const int64_t rank = a.a.n_out / a.n_group, width = a.a.n_in, n_row = a.heads.n_row;
    if (!reads_a16(a.a.type) || width % a16::kBlock != 0) {
        Ops::grouped_out(a);
        return;
    }
    round(a.heads.split_rows(a.n_group), x_rounded_);
    order_.resize(static_cast<size_t>(n_row * a.n_group));
    products_.clear();
    for (int64_t g = 0; g < a.n_group; ++g) {
        int32_t* pick = order_.data() + g * n_row;
        for (int64_t t = 0; t < n_row; ++t) pick[t] = static_cast<int32_t>(t * a.n_group + g);
        products_.push_back({.y = a.low.cols(g * rank, rank), .w = a.a.outputs(g * rank, rank), .x = a.heads,
                             .activations = &x_rounded_, .pick = pick, .n_row = n_row});
    }
    run_products(products_);
    matmul({.y = a.y, .w = a.b, .x = a.low});
}

void CpuOps::swiglu_and_round(const ops::SwigluArgs& a, bool rounded) {
    const int64_t n = a.y.n_col, stride = a16::row_bytes(n);
    if (rounded) h_rounded_.reserve(a.y.n_row * stride);
    parallel(a.y.n_row, 20 * n, [&](int64_t first, int64_t last) {
        for (int64_t t = first; t < last; ++t) {
            k_.swiglu(a.y.row(t), a.gate.row(t), a.up.row(t), a.clamp, a.scale == nullptr ? 1.0f : a.scale[t], n);
            if (rounded) k_.a16.quantize(a.y.row(t), n, h_rounded_.bytes() + t * stride);
        }
    });
}

void CpuOps::shared_expert(const ops::SharedExpertArgs& a) {
    matmul_shared_input(a.x, {{a.g, a.gate}, {a.u, a.up}});
    const bool rounded = reads_a16(a.down.type);
    swiglu_and_round({.y = a.g, .gate = a.g, .up = a.u, .clamp = a.clamp}, rounded);
    products_.clear();
    products_.push_back({.y = a.y, .w = a.down, .x = a.g, .activations = rounded ? &h_rounded_ : nullptr, .n_row = a.g.n_row});
    run_products(products_);
}

void CpuOps::routed_experts(const ops::RoutedExpertsArgs& a) {
    const int64_t n_pair = a.x.n_row * a.n_used, n_expert = a.gate.n_expert;
    // (row, k) pairs sorted by expert, in order within one: rows of an expert are then neighbours in g, u and ys.
    expert_first_.assign(static_cast<size_t>(n_expert) + 1, 0);
    for (int64_t p = 0; p < n_pair; ++p) ++expert_first_[static_cast<size_t>(a.expert[p]) + 1];
    for (size_t e = 0; e < static_cast<size_t>(n_expert); ++e) expert_first_[e + 1] += expert_first_[e];
    sorted_pair_.resize(static_cast<size_t>(n_pair));
    sorted_token_.resize(static_cast<size_t>(n_pair));
    pair_weight_.resize(static_cast<size_t>(n_pair));
    for (int64_t p = 0; p < n_pair; ++p) {
        const auto to = static_cast<size_t>(expert_first_[static_cast<size_t>(a.expert[p])]++);
        sorted_pair_[to] = static_cast<int32_t>(p);
        sorted_token_[to] = static_cast<int32_t>(p / a.n_used);
        pair_weight_[to] = a.weight[p];
    }
    // expert_first_[e] has moved to the end of e: the start is the end of e-1.
    const auto begin = [&](int64_t e) { return e == 0 ? int64_t{0} : expert_first_[static_cast<size_t>(e) - 1]; };
    const auto end = [&](int64_t e) { return expert_first_[static_cast<size_t>(e)]; };

    const bool rounded = reads_a16(a.gate.type);
    if (rounded) round(a.x, x_rounded_);
    products_.clear();
    for (int64_t e = 0; e < n_expert; ++e) {
        const int64_t first = begin(e), n = end(e) - first;
        if (n == 0) continue;
        Product p{.y = a.g.rows(first, n), .w = a.gate.expert(e), .x = a.x, .activations = rounded ? &x_rounded_ : nullptr,
                  .pick = sorted_token_.data() + first, .n_row = n};
        products_.push_back(p);
        p.y = a.u.rows(first, n);
        p.w = a.up.expert(e);
        products_.push_back(p);
    }
    run_products(products_);
    const bool down_rounded = reads_a16(a.down.type);
    swiglu_and_round({.y = a.g.rows(0, n_pair), .gate = a.g.rows(0, n_pair), .up = a.u.rows(0, n_pair), .clamp = a.clamp,
                      .scale = pair_weight_.data()}, down_rounded);

    // An expert with one row, as all are when decoding, writes to its place. Rows of the others are computed together
    // in ys and moved: as many experts at a time as ys has room for.
    int64_t n_waiting = 0;
    const auto finish = [&] {
        run_products(products_);
        products_.clear();
        if (n_waiting == 0) return;
        parallel(n_waiting, a.ys.n_col, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i)
                std::memcpy(a.parts.row(waiting_[static_cast<size_t>(i)]), a.ys.row(i),
                            static_cast<size_t>(a.ys.n_col) * sizeof(float));
        });
        n_waiting = 0;
        waiting_.clear();
    };
    products_.clear();
    waiting_.clear();
    for (int64_t e = 0; e < n_expert; ++e) {
        for (int64_t first = begin(e); first < end(e);) {
            const int64_t n = std::min(end(e) - first, a.ys.n_row);
            const int32_t* pair = sorted_pair_.data() + first;
            Product p{.y = a.parts.rows(pair[0], 1), .w = a.down.expert(e), .x = a.g.rows(first, n),
                      .activations = down_rounded ? &h_rounded_ : nullptr, .activation_row = first, .n_row = n};
            if (n > 1) {
                if (n_waiting + n > a.ys.n_row) finish();
                p.y = a.ys.rows(n_waiting, n);
                waiting_.insert(waiting_.end(), pair, pair + n);
                n_waiting += n;
            }
            products_.push_back(p);
            first += n;
        }
    }
    finish();
}

}  // namespace vesta::backend
