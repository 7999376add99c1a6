// The definitions of the blocks: compositions of primitives. A backend may fuse; tests compare it with these.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/ops.h"

namespace vesta::ops {

void Ops::hc_mix_in(const HcMixInArgs& a) {
    rms_norm({.y = a.flat, .x = a.streams, .w = nullptr, .eps = a.norm_eps});
    matmul({.y = a.mix, .w = a.fn, .x = a.flat});
    hc_split({.pre = a.pre, .post = a.post, .comb = a.comb, .mix = a.mix, .scale = a.scale, .base = a.base,
              .n_stream = a.n_stream, .n_sinkhorn = a.n_sinkhorn, .eps = a.hc_eps});
    hc_collapse({.y = a.x, .gate = a.pre, .streams = a.streams});
    rms_norm({.y = a.x, .x = a.x, .w = a.norm, .eps = a.norm_eps});
}

void Ops::latent_qkv(const LatentQkvArgs& a) {
    matmul({.y = a.qa, .w = a.q_a, .x = a.x});
    rms_norm({.y = a.qa, .x = a.qa, .w = a.q_norm, .eps = a.eps});
    matmul({.y = a.q, .w = a.q_b, .x = a.qa});
    const Tensor heads = a.q.split_rows(a.n_head);
    rms_norm({.y = heads, .x = heads, .w = nullptr, .eps = a.eps});
    rope({.x = a.q, .n_head = a.n_head, .head_dim = a.head_dim, .n_rot = a.n_rot, .freq = a.freq, .rows = a.rows});
    matmul({.y = a.kv, .w = a.w_kv, .x = a.x});
    rms_norm({.y = a.kv, .x = a.kv, .w = a.kv_norm, .eps = a.eps});
    rope({.x = a.kv, .n_head = 1, .head_dim = a.head_dim, .n_rot = a.n_rot, .freq = a.freq, .rows = a.rows});
}

void Ops::grouped_out(const GroupedOutArgs& a) {
    const int64_t rank = a.a.n_out / a.n_group, width = a.a.n_in;
    for (int64_t g = 0; g < a.n_group; ++g)
        matmul({.y = a.low.cols(g * rank, rank), .w = a.a.outputs(g * rank, rank), .x = a.heads.cols(g * width, width)});
    matmul({.y = a.y, .w = a.b, .x = a.low});
}

void Ops::routed_experts(const RoutedExpertsArgs& a) {
    const int64_t n_pair = a.x.n_row * a.n_used;
    std::vector<int64_t> pairs;  // (t, k) pairs of one expert, in order
    std::vector<float> weights;
    for (int64_t e = 0; e < a.gate.n_expert; ++e) {
        pairs.clear();
        weights.clear();
        for (int64_t p = 0; p < n_pair; ++p) {
            if (a.expert[p] != e) continue;
            pairs.push_back(p);
            weights.push_back(a.weight[p]);
        }
        const size_t row = static_cast<size_t>(a.x.n_col) * sizeof(float);
        const auto n_all = static_cast<int64_t>(pairs.size());
        for (int64_t first = 0; first < n_all; first += a.xs.n_row) {
            const int64_t n = std::min(a.xs.n_row, n_all - first);
            const int64_t* pair = pairs.data() + first;
            for (int64_t i = 0; i < n; ++i) std::memcpy(a.xs.row(i), a.x.row(pair[i] / a.n_used), row);
            const Tensor xs = a.xs.rows(0, n), g = a.g.rows(0, n), u = a.u.rows(0, n), ys = a.ys.rows(0, n);
            matmul({.y = g, .w = a.gate.expert(e), .x = xs});
            matmul({.y = u, .w = a.up.expert(e), .x = xs});
            swiglu({.y = g, .gate = g, .up = u, .clamp = a.clamp, .scale = weights.data() + first});
            matmul({.y = ys, .w = a.down.expert(e), .x = g});
            for (int64_t i = 0; i < n; ++i) std::memcpy(a.parts.row(pair[i]), ys.row(i), row);
        }
    }
}

void Ops::shared_expert(const SharedExpertArgs& a) {
    matmul({.y = a.g, .w = a.gate, .x = a.x});
    matmul({.y = a.u, .w = a.up, .x = a.x});
    swiglu({.y = a.g, .gate = a.g, .up = a.u, .clamp = a.clamp});
    matmul({.y = a.y, .w = a.down, .x = a.g});
}

void Ops::head(const HeadArgs& a) {
    rms_norm({.y = a.flat, .x = a.streams, .w = nullptr, .eps = a.norm_eps});
    matmul({.y = a.mix, .w = a.fn, .x = a.flat});
    hc_head_gate({.gate = a.mix, .mix = a.mix, .scale = a.hc_scale, .base = a.hc_base, .eps = a.hc_eps});
    hc_collapse({.y = a.x, .gate = a.mix, .streams = a.streams});
    rms_norm({.y = a.x, .x = a.x, .w = a.norm, .eps = a.norm_eps});
    matmul({.y = a.logits, .w = a.output, .x = a.x});
}

}  // namespace vesta::ops
