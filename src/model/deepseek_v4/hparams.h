// The numbers that make a DeepSeek V4 model, read from GGUF metadata. A value: no other file holds a constant of Flash,
// Pro or the pocket model.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"

namespace vesta::model::deepseek_v4 {

struct Hparams {
    int64_t n_layer, n_embd, n_vocab;
    int64_t n_head, head_dim, n_rot;          // query heads; width of a head and of a kv row; rotary values at its end
    int64_t q_rank, out_rank, n_out_group;    // low-rank widths of query and (per group) output
    int64_t window;                           // raw rows a query sees, its own included
    int64_t index_n_head, index_head_dim, index_top_k;
    std::vector<int64_t> ratio;               // [n_layer]: 0 window only, 4 overlapping + indexed, else plain pooling
    int64_t n_expert, n_expert_used, n_expert_shared, n_ff;  // n_ff: width of one expert
    int64_t n_hash_layer;                     // the first layers route by token id
    float expert_scale;
    std::vector<float> swiglu_clamp;          // [n_layer + 1]; the last one is the drafter's
    int64_t n_stream;
    int n_sinkhorn;
    float hc_eps, norm_eps;
    float rope_base, compress_rope_base;
    float yarn_factor, yarn_beta_fast, yarn_beta_slow;
    int64_t yarn_original_ctx;
    int64_t n_ctx_train;                      // 0: not stated

    // Windows of ratio 4 overlap (two lanes) and carry an indexer; longer ones do neither. No metadata says so: it is the
    // architecture's rule.
    static bool overlaps(int64_t r) { return r == 4; }
    int64_t n_lane(int64_t r) const { return overlaps(r) ? 2 : 1; }
    int64_t n_mix() const { return (2 + n_stream) * n_stream; }
    int64_t n_ff_shared() const { return n_expert_shared * n_ff; }
    bool is_hash(int64_t layer) const { return layer < n_hash_layer; }

    // [n_rot/2] angle per position of each rotary pair. Window-only layers turn at rope_base; layers with compressed rows
    // at compress_rope_base stretched by YaRN (Peng et al. 2023) at every position.
    std::vector<float> rope_freq(bool compressed) const;
};

// Errors: not_found for a missing key, bad_file for a value outside what a model can have, unsupported for a variant this
// family does not cover. Messages name the key.
Result<Hparams> read_hparams(const gguf::File& file);

}  // namespace vesta::model::deepseek_v4
