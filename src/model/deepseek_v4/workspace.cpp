#include "model/deepseek_v4/workspace.h"

#include <algorithm>

namespace vesta::model::deepseek_v4 {
namespace {

constexpr int64_t kAlign = 16;  // floats: one cache line

// Sizes that are not those of a pass.
struct Counts {
    int64_t block;    // rows in attention at a time
    int64_t output;   // rows in the head at a time
    int64_t n_pair;   // (row, expert) pairs
    int64_t top_k;    // chosen rows per query
    int64_t index_rows;
};
Counts counts(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx) {
    // Without an indexed layer no weight vouches for the indexer's sizes, and nothing needs them.
    const bool indexed = std::any_of(h.ratio.begin(), h.ratio.end(), Hparams::overlaps);
    const int64_t block = std::min(max_rows, kBlockRows);
    // A row never selects more rows than the context can hold.
    return {block, std::min(max_outputs, kOutputRows), max_rows * h.n_expert_used, std::min(h.index_top_k, n_ctx / 4 + 1),
            indexed ? block : 0};
}

using S = Scratch;
constexpr ops::Tensor Scratch::*kPassRows[] = {&S::streams, &S::pre, &S::post, &S::comb, &S::x, &S::y, &S::shared,
                                               &S::router, &S::expert_xs, &S::expert_ys, &S::shared_g, &S::shared_u};
constexpr ops::Tensor Scratch::*kPairRows[] = {&S::parts, &S::expert_g, &S::expert_u};
constexpr ops::Tensor Scratch::*kBlock[] = {&S::flat, &S::mix, &S::qa, &S::q, &S::heads, &S::kv, &S::low, &S::c, &S::z,
                                            &S::index_q, &S::index_weight};
constexpr ops::Tensor Scratch::*kOutput[] = {&S::out_streams, &S::out_flat, &S::out_mix, &S::out_x};

// Every tensor of the scratch with its size: one list for taking memory and for saying how much.
struct Part {
    ops::Tensor Scratch::*tensor;
    int64_t n_row, n_col;
    int64_t n_float() const { return (n_row * n_col + kAlign - 1) / kAlign * kAlign; }
};
std::vector<Part> parts(const Hparams& h, int64_t t, const Counts& n) {
    const int64_t s = h.n_stream, e = h.n_embd, wide = 2 * std::max(h.head_dim, h.index_head_dim), b = n.block, o = n.output;
    return {
        {&S::streams, t, s * e},
        {&S::pre, t, s},
        {&S::post, t, s},
        {&S::comb, t, s * s},
        {&S::x, t, e},
        {&S::y, t, e},
        {&S::shared, t, e},
        {&S::router, t, h.n_expert},
        {&S::parts, n.n_pair, e},
        {&S::expert_xs, t, e},
        {&S::expert_ys, t, e},
        {&S::expert_g, n.n_pair, h.n_ff},
        {&S::expert_u, n.n_pair, h.n_ff},
        {&S::shared_g, t, h.n_ff_shared()},
        {&S::shared_u, t, h.n_ff_shared()},
        {&S::flat, b, s * e},
        {&S::mix, b, h.n_mix()},
        {&S::qa, b, h.q_rank},
        {&S::q, b, h.n_head * h.head_dim},
        {&S::heads, b, h.n_head * h.head_dim},
        {&S::kv, b, h.head_dim},
        {&S::low, b, h.n_out_group * h.out_rank},
        {&S::c, b, wide},
        {&S::z, b, wide},
        {&S::index_q, n.index_rows, h.index_n_head * h.index_head_dim},
        {&S::index_weight, n.index_rows, h.index_n_head},
        {&S::out_streams, o, s * e},
        {&S::out_flat, o, s * e},
        {&S::out_mix, o, s},
        {&S::out_x, o, e},
    };
}

}  // namespace

int64_t PassWorkspace::bytes(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx) {
    const Counts n = counts(h, max_rows, max_outputs, n_ctx);
    // Experts and their weights; chosen rows and their counts. 4 bytes each.
    int64_t total = (2 * n.n_pair + n.index_rows * n.top_k + n.block) * 4;
    for (const Part& p : parts(h, max_rows, n)) total += p.n_float() * static_cast<int64_t>(sizeof(float));
    return total;
}

PassWorkspace::PassWorkspace(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx) : max_rows_(max_rows) {
    const Counts n = counts(h, max_rows, max_outputs, n_ctx);
    const std::vector<Part> list = parts(h, max_rows, n);
    int64_t total = 0;
    for (const Part& p : list) total += p.n_float();
    memory_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(total));
    Scratch& f = full_;
    float* at = memory_.get();
    for (const Part& p : list) {
        f.*p.tensor = ops::Tensor::of(at, p.n_row, p.n_col);
        at += p.n_float();
    }
    selected_ids_.resize(static_cast<size_t>(n.index_rows * n.top_k));
    selected_count_.resize(static_cast<size_t>(n.block));
    f.selected = {selected_ids_.data(), selected_count_.data(), n.top_k};
    narrow_ = block_ = f;
    narrow_.expert.resize(static_cast<size_t>(n.n_pair));
    narrow_.expert_weight.resize(static_cast<size_t>(n.n_pair));
}

Scratch& PassWorkspace::begin(int64_t n_row) {
    VESTA_CHECK(n_row >= 1 && n_row <= max_rows_);
    n_row_ = n_row;
    for (const auto member : kPassRows) narrow_.*member = (full_.*member).rows(0, n_row);
    for (const auto member : kPairRows) {
        const ops::Tensor& whole = full_.*member;
        narrow_.*member = whole.rows(0, whole.n_row / max_rows_ * n_row);
    }
    return narrow_;
}

Scratch& PassWorkspace::block(int64_t first, int64_t n) {
    VESTA_CHECK(first + n <= n_row_ && n <= kBlockRows);
    for (const auto member : kPassRows) block_.*member = (full_.*member).rows(first, n);
    // Only when the model has an indexer do its tensors have rows.
    for (const auto member : kBlock) block_.*member = (full_.*member).rows(0, std::min(n, (full_.*member).n_row));
    return block_;
}

Scratch& PassWorkspace::outputs(int64_t n) {
    VESTA_CHECK(n <= full_.out_x.n_row);
    for (const auto member : kOutput) narrow_.*member = (full_.*member).rows(0, n);
    return narrow_;
}

}  // namespace vesta::model::deepseek_v4
