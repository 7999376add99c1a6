// The configurations of the two published models, typed from the specification (spec 1.1 and 1.2), as config.json.
#pragma once

#include <nlohmann/json.hpp>

namespace vesta::convert {

// As if read from a file: the parser tells unsigned from signed numbers, C++ literals do not.
inline nlohmann::json reparsed(const nlohmann::json& j) { return nlohmann::json::parse(j.dump()); }

inline nlohmann::json published_config(bool pro) {
    nlohmann::json ratios = nlohmann::json::array();
    ratios.push_back(pro ? 128 : 0);
    ratios.push_back(pro ? 128 : 0);
    for (int i = 0; i < (pro ? 29 : 20); ++i) ratios.push_back(4), ratios.push_back(128);
    ratios.push_back(4);
    ratios.push_back(0);  // MTP
    return {
        {"model_type", "deepseek_v4"},
        {"architectures", {"DeepseekV4ForCausalLM"}},
        {"num_hidden_layers", pro ? 61 : 43},
        {"hidden_size", pro ? 7168 : 4096},
        {"vocab_size", 129280},
        {"num_attention_heads", pro ? 128 : 64},
        {"num_key_value_heads", 1},
        {"head_dim", 512},
        {"qk_rope_head_dim", 64},
        {"q_lora_rank", pro ? 1536 : 1024},
        {"o_groups", pro ? 16 : 8},
        {"o_lora_rank", 1024},
        {"sliding_window", 128},
        {"index_n_heads", 64},
        {"index_head_dim", 128},
        {"index_topk", pro ? 1024 : 512},
        {"n_routed_experts", pro ? 384 : 256},
        {"n_shared_experts", 1},
        {"num_experts_per_tok", 6},
        {"moe_intermediate_size", pro ? 3072 : 2048},
        {"num_hash_layers", 3},
        {"scoring_func", "sqrtsoftplus"},
        {"norm_topk_prob", true},
        {"topk_method", "noaux_tc"},
        {"routed_scaling_factor", pro ? 2.5 : 1.5},
        {"swiglu_limit", 10.0},
        {"hc_mult", 4},
        {"hc_sinkhorn_iters", 20},
        {"hc_eps", 1e-6},
        {"rms_norm_eps", 1e-6},
        {"rope_theta", 10000},
        {"compress_rope_theta", 160000},
        {"rope_scaling",
         {{"type", "yarn"},
          {"factor", 16},
          {"original_max_position_embeddings", 65536},
          {"beta_fast", 32},
          {"beta_slow", 1}}},
        {"max_position_embeddings", 1048576},
        {"num_nextn_predict_layers", 1},
        {"tie_word_embeddings", false},
        {"hidden_act", "silu"},
        {"bos_token_id", 0},
        {"eos_token_id", 1},
        {"expert_dtype", "fp4"},
        {"quantization_config",
         {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"scale_fmt", "ue8m0"}, {"weight_block_size", {128, 128}}}},
        {"compress_ratios", ratios},
    };
}

}  // namespace vesta::convert
