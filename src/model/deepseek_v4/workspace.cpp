#include "model/deepseek_v4/workspace.h"

#include <algorithm>

namespace vesta::model::deepseek_v4 {
namespace {

constexpr int64_t kAlign = 16;  // floats: one cache line

// Sizes that are not tensors of f32.
struct Counts {
    int64_t n_pair;  // (row, expert) pairs
    int64_t top_k;   // chosen rows per query
    int64_t index_rows;
};
Counts counts(const Hparams& h, int64_t max_rows, int64_t n_ctx) {
    // Without an indexed layer no weight vouches for the indexer's sizes, and nothing needs them.
    const bool indexed = std::any_of(h.ratio.begin(), h.ratio.end(), Hparams::overlaps);
    // A row never selects more rows than the context can hold.
    return {max_rows * h.n_expert_used, std::min(h.index_top_k, n_ctx / 4 + 1), indexed ? max_rows : 0};
}

// Every tensor of the scratch with its size: one list for taking memory and for saying how much.
struct Part {
    ops::Tensor Scratch::*tensor;
    int64_t n_row, n_col;
    int64_t n_float() const { return (n_row * n_col + kAlign - 1) / kAlign * kAlign; }
};
std::vector<Part> parts(const Hparams& h, int64_t t, int64_t o, const Counts& n) {
    using S = Scratch;
    const int64_t s = h.n_stream, e = h.n_embd, wide = 2 * std::max(h.head_dim, h.index_head_dim);
    return {
        {&S::streams, t, s * e},
        {&S::flat, t, s * e},
        {&S::mix, t, h.n_mix()},
        {&S::pre, t, s},
        {&S::post, t, s},
        {&S::comb, t, s * s},
        {&S::x, t, e},
        {&S::y, t, e},
        {&S::shared, t, e},
        {&S::qa, t, h.q_rank},
        {&S::q, t, h.n_head * h.head_dim},
        {&S::heads, t, h.n_head * h.head_dim},
        {&S::kv, t, h.head_dim},
        {&S::low, t, h.n_out_group * h.out_rank},
        {&S::c, t, wide},
        {&S::z, t, wide},
        {&S::index_q, n.index_rows, h.index_n_head * h.index_head_dim},
        {&S::index_weight, n.index_rows, h.index_n_head},
        {&S::router, t, h.n_expert},
        {&S::parts, n.n_pair, e},
        {&S::expert_xs, n.n_pair, e},
        {&S::expert_ys, n.n_pair, e},
        {&S::expert_g, n.n_pair, h.n_ff},
        {&S::expert_u, n.n_pair, h.n_ff},
        {&S::shared_g, t, h.n_ff_shared()},
        {&S::shared_u, t, h.n_ff_shared()},
        {&S::out_streams, o, s * e},
        {&S::out_flat, o, s * e},
        {&S::out_mix, o, s},
        {&S::out_x, o, e},
    };
}

}  // namespace

int64_t PassWorkspace::bytes(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx) {
    const Counts n = counts(h, max_rows, n_ctx);
    // Experts and their weights, in the whole and in the narrowed scratch; chosen rows and their counts. 4 bytes each.
    int64_t total = (4 * n.n_pair + n.index_rows * n.top_k + max_rows) * 4;
    for (const Part& p : parts(h, max_rows, max_outputs, n)) total += p.n_float() * static_cast<int64_t>(sizeof(float));
    return total;
}

PassWorkspace::PassWorkspace(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx)
    : max_rows_(max_rows), max_outputs_(max_outputs) {
    const Counts n = counts(h, max_rows, n_ctx);
    const std::vector<Part> list = parts(h, max_rows, max_outputs, n);
    int64_t total = 0;
    for (const Part& p : list) total += p.n_float();
    memory_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(total));
    Scratch& f = full_;
    float* at = memory_.get();
    for (const Part& p : list) {
        f.*p.tensor = ops::Tensor::of(at, p.n_row, p.n_col);
        at += p.n_float();
    }
    f.expert.resize(static_cast<size_t>(n.n_pair));
    f.expert_weight.resize(static_cast<size_t>(n.n_pair));
    selected_ids_.resize(static_cast<size_t>(n.index_rows * n.top_k));
    selected_count_.resize(static_cast<size_t>(max_rows));
    f.selected = {selected_ids_.data(), selected_count_.data(), n.top_k};
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
