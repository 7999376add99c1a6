// config.json of a DeepSeek V4 checkpoint as a value, and the GGUF metadata that says the same thing. Every number is
// checked here for presence, type and sense, because everything after it (tensor shapes, cache sizes) multiplies them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/writer.h"

namespace vesta::convert {

struct ModelConfig {
    uint32_t n_layer, n_embd, n_vocab, n_head, head_dim, n_rot;
    uint32_t q_lora_rank, o_lora_rank, n_out_group, sliding_window;
    uint32_t n_index_head, index_head_dim, index_top_k;
    uint32_t n_expert, n_expert_used, n_expert_shared, n_ff_expert, n_hash_layer;
    uint32_t n_stream, sinkhorn_iterations;
    uint32_t n_mtp;                        // MTP blocks: 0 or 1
    uint32_t n_ctx_train, n_ctx_original;  // declared context; context before YaRN
    uint32_t bos_token, eos_token;
    float rms_eps, hc_eps, rope_theta, compress_rope_theta, rope_factor, beta_fast, beta_slow;
    float routed_scale, swiglu_clamp;
    bool norm_topk;
    std::vector<uint32_t> compress_ratios;    // n_layer + n_mtp entries: 0 (window only), 4 or 128
    uint32_t fp8_block_rows, fp8_block_cols;  // FP8 weights have one scale per block of this shape
};

// `name` is used in messages.
Result<ModelConfig> read_config(const nlohmann::json& config, const std::string& name);

// general.* and deepseek4.* keys.
void write_config(const ModelConfig& config, const std::string& model_name, gguf::Writer& writer);

}  // namespace vesta::convert
