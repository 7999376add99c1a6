// The weights of a DeepSeek V4 model, bound to the bytes of a model file. Matrices stay where they are, in their format;
// short vectors (norms, gates, biases) are decoded to f32 once. Binding checks every name, shape, type and index table.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "model/deepseek_v4/hparams.h"
#include "ops/tensor.h"

namespace vesta::model::deepseek_v4 {

struct CompressorWeights {
    ops::Weight kv, gate;  // [n_lane*width, E]
    const float* ape;      // [ratio, n_lane*width]
    const float* norm;     // [width]
};

struct HcWeights {
    ops::Weight fn;      // [(2+S)*S, S*E]
    const float* scale;  // [3]
    const float* base;   // [(2+S)*S]
};

struct LayerWeights {
    HcWeights hc_attn, hc_ffn;
    const float* attn_norm;  // [E]
    const float* ffn_norm;   // [E]
    ops::Weight q_a, q_b, kv;
    const float* q_norm;   // [q_rank]
    const float* kv_norm;  // [D]
    const float* sink;     // [H]
    ops::Weight out_a, out_b;
    CompressorWeights compressor;        // ratio > 0
    ops::Weight index_q, index_weight;   // ratio 4
    CompressorWeights index_compressor;  // ratio 4
    ops::Weight router;                  // [n_expert, E]
    const float* router_bias = nullptr;  // [n_expert], scored layers
    const int32_t* hash = nullptr;       // [n_vocab, n_expert_used], hash layers
    ops::Weight gate, up, down;          // routed, n_expert each
    ops::Weight shared_gate, shared_up, shared_down;
};

struct HeadWeights {
    ops::Weight fn;      // [S, S*E]
    float scale;
    const float* base;   // [S]
    const float* norm;   // [E]
};

struct DrafterWeights {
    LayerWeights layer;
    ops::Weight e_proj, h_proj;  // [E, E]
    const float* e_norm;         // [E]
    const float* h_norm;         // [E]
    HeadWeights head;
};

struct Weights {
    ops::Weight embed, output;
    std::vector<LayerWeights> layer;
    HeadWeights head;
    std::vector<DrafterWeights> drafter;  // empty or one
    int64_t n_parameter = 0;              // main model
    int64_t bytes = 0;                    // everything bound

    // Owns the decoded vectors and copied tables the pointers above lead to. A deque: growing it moves nothing.
    std::deque<std::vector<float>> vectors;
    std::deque<std::vector<int32_t>> tables;
    int64_t decoded_bytes() const {
        size_t n = 0;
        for (const std::vector<float>& v : vectors) n += v.size() * sizeof(float);
        for (const std::vector<int32_t>& t : tables) n += t.size() * sizeof(int32_t);
        return static_cast<int64_t>(n);
    }
};

using SupportsFn = std::function<bool(quant::Type)>;

// `drafter` is a separate file holding mtp.0.* tensors, or nullptr; tensors of the main file come first.
// Errors: not_found names the first missing tensor and its expected shape, and says when the file looks like a side file;
// bad_file for wrong shapes and index entries; unsupported for a type `supports` refuses.
Result<Weights> bind_weights(const gguf::File& file, const gguf::File* drafter, const Hparams& h,
                             const SupportsFn& supports);

}  // namespace vesta::model::deepseek_v4
