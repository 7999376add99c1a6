#include "model/deepseek_v4/workspace.h"

#include <algorithm>

namespace vesta::model::deepseek_v4 {
namespace {

constexpr int64_t kAlign = 16;  // floats: one cache line

using S = Scratch;
using H = const Hparams&;
using Rows = PassWorkspace::Rows;

// Every tensor of the scratch: one list for taking memory, for saying how much, and for narrowing to a pass.
struct Part {
    ops::Tensor Scratch::*tensor;
    Rows rows;
    int64_t (*n_col)(H);
};
int64_t embd(H h) { return h.n_embd; }
int64_t streams(H h) { return h.n_stream; }
int64_t flat_streams(H h) { return h.n_stream * h.n_embd; }
int64_t heads(H h) { return h.n_head * h.head_dim; }
int64_t widest_compressor(H h) { return 2 * std::max(h.head_dim, h.index_head_dim); }
int64_t ff(H h) { return h.n_ff; }
int64_t ff_shared(H h) { return h.n_ff_shared(); }
constexpr Part kParts[] = {
    {&S::streams, Rows::pass, flat_streams},
    {&S::pre, Rows::pass, streams},
    {&S::post, Rows::pass, streams},
    {&S::comb, Rows::pass, [](H h) { return h.n_stream * h.n_stream; }},
    {&S::x, Rows::pass, embd},
    {&S::y, Rows::pass, embd},
    {&S::shared, Rows::pass, embd},
    {&S::router, Rows::pass, [](H h) { return h.n_expert; }},
    {&S::parts, Rows::pair, embd},
    {&S::expert_xs, Rows::pass, embd},
    {&S::expert_ys, Rows::pass, embd},
    {&S::expert_g, Rows::pair, ff},
    {&S::expert_u, Rows::pair, ff},
    {&S::shared_g, Rows::pass, ff_shared},
    {&S::shared_u, Rows::pass, ff_shared},
    {&S::flat, Rows::block, flat_streams},
    {&S::mix, Rows::block, [](H h) { return h.n_mix(); }},
    {&S::qa, Rows::block, [](H h) { return h.q_rank; }},
    {&S::q, Rows::block, heads},
    {&S::heads, Rows::block, heads},
    {&S::kv, Rows::block, [](H h) { return h.head_dim; }},
    {&S::low, Rows::block, [](H h) { return h.n_out_group * h.out_rank; }},
    {&S::c, Rows::block, widest_compressor},
    {&S::z, Rows::block, widest_compressor},
    {&S::index_q, Rows::index, [](H h) { return h.index_n_head * h.index_head_dim; }},
    {&S::index_weight, Rows::index, [](H h) { return h.index_n_head; }},
    {&S::out_streams, Rows::output, flat_streams},
    {&S::out_flat, Rows::output, flat_streams},
    {&S::out_mix, Rows::output, streams},
    {&S::out_x, Rows::output, embd},
};

// The largest pass: rows of every kind, and what else is sized by them.
struct Sizes {
    int64_t pass, pair, block, index, output;
    int64_t top_k;  // chosen rows per query

    Sizes(H h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx)
        : pass(max_rows),
          pair(max_rows * h.n_expert_used),
          block(std::min(max_rows, kBlockRows)),
          // Without an indexed layer no weight vouches for the indexer's sizes, and nothing needs them.
          index(std::any_of(h.ratio.begin(), h.ratio.end(), Hparams::overlaps) ? block : 0),
          output(std::min(max_outputs, kOutputRows)),
          // A row never selects more rows than the context can hold.
          top_k(std::min(h.index_top_k, n_ctx / 4 + 1)) {}
    int64_t rows(Rows r) const {
        switch (r) {
            case Rows::pass: return pass;
            case Rows::pair: return pair;
            case Rows::block: return block;
            case Rows::index: return index;
            case Rows::output: return output;
        }
        return 0;
    }
    int64_t floats(const Part& p, H h) const { return (rows(p.rows) * p.n_col(h) + kAlign - 1) / kAlign * kAlign; }
};

}  // namespace

int64_t PassWorkspace::bytes(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx) {
    const Sizes n(h, max_rows, max_outputs, n_ctx);
    // Experts and their weights; chosen rows and their counts. 4 bytes each.
    int64_t total = (2 * n.pair + n.index * n.top_k + n.block) * 4;
    for (const Part& p : kParts) total += n.floats(p, h) * static_cast<int64_t>(sizeof(float));
    return total;
}

PassWorkspace::PassWorkspace(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx)
    : max_rows_(max_rows), n_used_(h.n_expert_used) {
    const Sizes n(h, max_rows, max_outputs, n_ctx);
    int64_t total = 0;
    for (const Part& p : kParts) total += n.floats(p, h);
    memory_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(total));
    Scratch& f = full_;
    float* at = memory_.get();
    for (const Part& p : kParts) {
        f.*p.tensor = ops::Tensor::of(at, n.rows(p.rows), p.n_col(h));
        at += n.floats(p, h);
    }
    selected_ids_.resize(static_cast<size_t>(n.index * n.top_k));
    selected_count_.resize(static_cast<size_t>(n.block));
    f.selected = {selected_ids_.data(), selected_count_.data(), n.top_k};
    narrow_ = block_ = f;
    narrow_.expert.resize(static_cast<size_t>(n.pair));
    narrow_.expert_weight.resize(static_cast<size_t>(n.pair));
}

void PassWorkspace::narrow(Scratch& s, Rows rows, int64_t first, int64_t n) const {
    for (const Part& p : kParts)
        if (p.rows == rows) s.*p.tensor = (full_.*p.tensor).rows(first, n);
}

Scratch& PassWorkspace::begin(int64_t n_row) {
    VESTA_CHECK(n_row >= 1 && n_row <= max_rows_);
    n_row_ = n_row;
    narrow(narrow_, Rows::pass, 0, n_row);
    narrow(narrow_, Rows::pair, 0, n_row * n_used_);
    return narrow_;
}

Scratch& PassWorkspace::block(int64_t first, int64_t n) {
    VESTA_CHECK(first + n <= n_row_ && n <= kBlockRows);
    narrow(block_, Rows::pass, first, n);
    narrow(block_, Rows::block, 0, n);
    // Only when the model has an indexer do its tensors have rows.
    narrow(block_, Rows::index, 0, std::min(n, full_.index_q.n_row));
    return block_;
}

Scratch& PassWorkspace::outputs(int64_t n) {
    VESTA_CHECK(n <= full_.out_x.n_row);
    narrow(narrow_, Rows::output, 0, n);
    return narrow_;
}

}  // namespace vesta::model::deepseek_v4
