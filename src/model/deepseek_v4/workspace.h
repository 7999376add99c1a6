// Scratch of a DeepSeek V4 pass: every intermediate, sized for max_rows rows, taken once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/deepseek_v4/hparams.h"
#include "model/model.h"
#include "ops/ops.h"

namespace vesta::model::deepseek_v4 {

// T rows, S streams, E n_embd, H heads, D head_dim, K experts used. Letters as in ops.h.
struct Scratch {
    ops::Tensor streams;            // [T, S*E]
    ops::Tensor flat;               // [T, S*E]
    ops::Tensor mix;                // [T, (2+S)*S]
    ops::Tensor pre, post, comb;    // [T, S], [T, S], [T, S*S]
    ops::Tensor x, y, shared;       // [T, E]
    ops::Tensor qa;                 // [T, q_rank]
    ops::Tensor q, heads;           // [T, H*D]
    ops::Tensor kv;                 // [T, D]
    ops::Tensor low;                // [T, G*out_rank]
    ops::Tensor c, z;               // [T, widest compressor]
    ops::Tensor index_q;            // [T, Hi*Di]
    ops::Tensor index_weight;       // [T, Hi]
    ops::Selection selected;        // top_k ids per row
    ops::Tensor router;             // [T, n_expert]
    std::vector<int32_t> expert;    // [T, K]
    std::vector<float> expert_weight;
    ops::Tensor parts, expert_xs, expert_ys;  // [T*K, E]
    ops::Tensor expert_g, expert_u;           // [T*K, n_ff]
    ops::Tensor shared_g, shared_u;           // [T, n_ff_shared]
    // The head runs on the wanted rows only.
    ops::Tensor out_streams, out_flat;  // [O, S*E]
    ops::Tensor out_mix, out_x;         // [O, S], [O, E]
};

class PassWorkspace : public Workspace {
 public:
    PassWorkspace(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx);

    std::span<float> final_streams() override {
        return {full_.streams.data, static_cast<size_t>(n_row_ * full_.streams.n_col)};
    }
    // Bytes such a workspace takes, exactly, without taking them (the lists handed to the ops, a few KB, not counted).
    static int64_t bytes(const Hparams& h, int64_t max_rows, int64_t max_outputs, int64_t n_ctx);
    int64_t max_rows() const { return max_rows_; }
    int64_t max_outputs() const { return max_outputs_; }

    // The scratch narrowed to a pass of n_row rows of which n_output want logits. Valid until the next call.
    Scratch& begin(int64_t n_row, int64_t n_output);

    // Lists handed to the ops, one entry per slot of the pass.
    std::vector<std::vector<ops::LayerCache*>> caches;  // [layer][slot]

 private:
    int64_t max_rows_, max_outputs_, n_row_ = 0;
    std::unique_ptr<float[]> memory_;
    std::vector<int32_t> selected_ids_, selected_count_;
    Scratch full_, narrow_;
};

}  // namespace vesta::model::deepseek_v4
