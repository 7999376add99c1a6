#include "model/deepseek_v4/workspace.h"

#include <algorithm>

namespace vesta::model::deepseek_v4 {
namespace {

constexpr int64_t kAlign = 16;  // floats: one cache line

}  // namespace

PassWorkspace::PassWorkspace(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx)
    : max_rows_(max_rows), max_outputs_(max_outputs) {
    const int64_t t = max_rows, o = max_outputs, s = h.n_stream, e = h.n_embd, k = h.n_expert_used;
    // A row never selects more rows than the context can hold.
    const int64_t top_k = std::min(h.index_top_k, n_ctx / 4 + 1);
    // Without an indexed layer no weight vouches for the indexer's sizes, and nothing needs them.
    const bool indexed = std::any_of(h.ratio.begin(), h.ratio.end(), Hparams::overlaps);
    const int64_t index_rows = indexed ? t : 0;
    Scratch& f = full_;
    struct Part {
        ops::Tensor* tensor;
        int64_t n_row, n_col;
    };
    const int64_t wide = 2 * std::max(h.head_dim, h.index_head_dim);
    const Part parts[] = {
        {&f.streams, t, s * e}, {&f.flat, t, s * e}, {&f.mix, t, h.n_mix()},
        {&f.pre, t, s}, {&f.post, t, s}, {&f.comb, t, s * s},
        {&f.x, t, e}, {&f.y, t, e}, {&f.shared, t, e},
        {&f.qa, t, h.q_rank}, {&f.q, t, h.n_head * h.head_dim}, {&f.heads, t, h.n_head * h.head_dim},
        {&f.kv, t, h.head_dim}, {&f.low, t, h.n_out_group * h.out_rank}, {&f.c, t, wide}, {&f.z, t, wide},
        {&f.index_q, index_rows, h.index_n_head * h.index_head_dim},
        {&f.index_weight, index_rows, h.index_n_head},
        {&f.router, t, h.n_expert}, {&f.parts, t * k, e}, {&f.expert_xs, t * k, e}, {&f.expert_ys, t * k, e},
        {&f.expert_g, t * k, h.n_ff}, {&f.expert_u, t * k, h.n_ff},
        {&f.shared_g, t, h.n_ff_shared()}, {&f.shared_u, t, h.n_ff_shared()},
        {&f.out_streams, o, s * e}, {&f.out_flat, o, s * e}, {&f.out_mix, o, s}, {&f.out_x, o, e},
    };
    int64_t total = 0;
    for (const Part& p : parts) total += (p.n_row * p.n_col + kAlign - 1) / kAlign * kAlign;
    memory_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(total));
    float* at = memory_.get();
    for (const Part& p : parts) {
        *p.tensor = ops::Tensor::of(at, p.n_row, p.n_col);
        at += (p.n_row * p.n_col + kAlign - 1) / kAlign * kAlign;
    }
    f.expert.resize(static_cast<size_t>(t * k));
    f.expert_weight.resize(static_cast<size_t>(t * k));
    selected_ids_.resize(static_cast<size_t>(index_rows * top_k));
    selected_count_.resize(static_cast<size_t>(t));
    f.selected = {selected_ids_.data(), selected_count_.data(), top_k};
    narrow_ = f;
}

Scratch& PassWorkspace::begin(int64_t n_row, int64_t n_output) {
    VESTA_CHECK(n_row <= max_rows_ && n_output <= max_outputs_);
    n_row_ = n_row;
    // Tensors are sized per row (or per row and expert): only the counts change.
    ops::Tensor Scratch::*const per_row[] = {
        &Scratch::streams, &Scratch::flat, &Scratch::mix, &Scratch::pre, &Scratch::post, &Scratch::comb, &Scratch::x,
        &Scratch::y, &Scratch::shared, &Scratch::qa, &Scratch::q, &Scratch::heads, &Scratch::kv, &Scratch::low,
        &Scratch::c, &Scratch::z, &Scratch::index_q, &Scratch::index_weight, &Scratch::router, &Scratch::parts,
        &Scratch::expert_xs, &Scratch::expert_ys, &Scratch::expert_g, &Scratch::expert_u, &Scratch::shared_g,
        &Scratch::shared_u};
    for (const auto member : per_row) {
        const ops::Tensor& whole = full_.*member;
        narrow_.*member = whole.rows(0, whole.n_row / max_rows_ * n_row);
    }
    ops::Tensor Scratch::*const per_output[] = {&Scratch::out_streams, &Scratch::out_flat, &Scratch::out_mix, &Scratch::out_x};
    for (const auto member : per_output) narrow_.*member = (full_.*member).rows(0, n_output);
    return narrow_;
}

}  // namespace vesta::model::deepseek_v4
