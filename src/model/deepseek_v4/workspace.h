// Scratch of a DeepSeek V4 pass: every intermediate, taken once. Experts want all rows of a pass together, because
// each expert's weights are read once for all of its rows. Attention gains nothing from more than a hundred rows, and
// its intermediates are the widest of all (64 heads of 512: 128 KiB a row), so it takes the rows block by block.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/deepseek_v4/hparams.h"
#include "model/model.h"
#include "ops/ops.h"

namespace vesta::model::deepseek_v4 {

// T rows of the pass, B of a block, O of the head's; S streams, E n_embd, H heads, D head_dim, K experts used. Letters
// as in ops.h.
struct Scratch {
    ops::Tensor streams;            // [T, S*E]
    ops::Tensor pre, post, comb;    // [T, S], [T, S], [T, S*S]
    ops::Tensor x, y, shared;       // [T, E]
    ops::Tensor router;             // [T, n_expert]
    std::vector<int32_t> expert;    // [T, K]
    std::vector<float> expert_weight;
    ops::Tensor parts;                        // [T*K, E]
    ops::Tensor expert_xs, expert_ys;         // [T, E]
    ops::Tensor expert_g, expert_u;           // [T*K, n_ff]
    ops::Tensor shared_g, shared_u;           // [T, n_ff_shared]
    // One block of rows at a time.
    ops::Tensor flat;               // [B, S*E]
    ops::Tensor mix;                // [B, (2+S)*S]
    ops::Tensor qa;                 // [B, q_rank]
    ops::Tensor q, heads;           // [B, H*D]
    ops::Tensor kv;                 // [B, D]
    ops::Tensor low;                // [B, G*out_rank]
    ops::Tensor c, z;               // [B, widest compressor]
    ops::Tensor index_q;            // [B, Hi*Di]
    ops::Tensor index_weight;       // [B, Hi]
    ops::Selection selected;        // top_k ids per row
    // The head runs on the wanted rows only, O at a time.
    ops::Tensor out_streams, out_flat;  // [O, S*E]
    ops::Tensor out_mix, out_x;         // [O, S], [O, E]
};

// Rows that go through attention together. More would not be faster: kernels keep 64 rows of x in cache.
constexpr int64_t kBlockRows = 128;
// Rows whose logits are computed together: each such group reads the output matrix once.
constexpr int64_t kOutputRows = 64;

class PassWorkspace : public Workspace {
 public:
    PassWorkspace(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx);

    std::span<float> final_streams() override {
        return {full_.streams.data, static_cast<size_t>(n_row_ * full_.streams.n_col)};
    }
    // Bytes such a workspace takes, exactly, without taking them (the lists handed to the ops, a few KB, not counted).
    static int64_t bytes(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx);
    // The scratch narrowed to a pass of n_row rows. Valid until the next call.
    Scratch& begin(int64_t n_row);
    // The same narrowed to rows [first, first + n) of that pass, n <= kBlockRows: what both halves of a layer work on.
    // Experts' tensors are those of the whole pass. Valid until the next call of begin() or block().
    Scratch& block(int64_t first, int64_t n);
    // And to a group of n <= kOutputRows rows for the head.
    Scratch& outputs(int64_t n);

    // Lists handed to the ops, one entry per slot of the pass.
    std::vector<std::vector<ops::LayerCache*>> caches;  // [layer][slot]

    // How many rows a tensor of the scratch has: of the pass, (row, expert) pairs, a block, a block if there is an
    // indexer, the head's.
    enum class Rows { pass, pair, block, index, output };

 private:
    void narrow(Scratch& s, Rows rows, int64_t first, int64_t n) const;

    int64_t max_rows_, n_used_, n_row_ = 0;
    std::unique_ptr<float[]> memory_;
    std::vector<int32_t> selected_ids_, selected_count_;
    Scratch full_, narrow_, block_;
};

}  // namespace vesta::model::deepseek_v4
