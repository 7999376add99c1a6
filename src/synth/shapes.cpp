#include "synth/shapes.h"

#include <algorithm>

namespace vesta::synth {
namespace {

using convert::ModelConfig;

// What all published models have in common.
ModelConfig common() {
    ModelConfig c{};
    c.n_rot = 64, c.sliding_window = 128;
    c.index_head_dim = 128;
    c.n_expert_shared = 1;
    c.n_stream = 4, c.sinkhorn_iterations = 20;
    c.n_mtp = 0;
    c.bos_token = 0, c.eos_token = 1;
    c.rms_eps = 1e-6f, c.hc_eps = 1e-6f;
    c.rope_theta = 10000.0f, c.compress_rope_theta = 160000.0f;
    c.beta_fast = 32.0f, c.beta_slow = 1.0f;
    c.swiglu_clamp = 10.0f;
    c.norm_topk = true;
    c.fp8_block_rows = c.fp8_block_cols = 128;
    return c;
}

ModelConfig flash() {
    ModelConfig c = common();
    c.n_layer = 43, c.n_embd = 4096, c.n_vocab = 129280, c.n_head = 64, c.head_dim = 512;
    c.q_lora_rank = 1024, c.o_lora_rank = 1024, c.n_out_group = 8;
    c.n_index_head = 64, c.index_top_k = 512;
    c.n_expert = 256, c.n_expert_used = 6, c.n_ff_expert = 2048, c.n_hash_layer = 3;
    c.routed_scale = 1.5f;
    c.n_ctx_train = 1048576, c.n_ctx_original = 65536, c.rope_factor = 16.0f;
    return c;
}

ModelConfig pro() {
    ModelConfig c = flash();
    c.n_layer = 61, c.n_embd = 7168, c.n_head = 128;
    c.q_lora_rank = 1536, c.n_out_group = 16;
    c.index_top_k = 1024;
    c.n_expert = 384, c.n_ff_expert = 3072;
    c.routed_scale = 2.5f;
    return c;
}

ModelConfig pocket() {
    ModelConfig c = common();
    c.n_layer = 8, c.n_embd = 512, c.n_vocab = 4096, c.n_head = 8, c.head_dim = 128;
    c.q_lora_rank = 256, c.o_lora_rank = 128, c.n_out_group = 2;
    c.n_index_head = 4, c.index_top_k = 128;
    c.n_expert = 16, c.n_expert_used = 4, c.n_ff_expert = 256, c.n_hash_layer = 2;
    c.routed_scale = 1.5f;
    c.n_ctx_train = 16384, c.n_ctx_original = 4096, c.rope_factor = 4.0f;
    return c;
}

// `head` layers of one ratio, then 4 and 128 in turn.
std::vector<uint32_t> schedule(uint32_t n_layer, uint32_t head, uint32_t head_ratio) {
    std::vector<uint32_t> ratios(n_layer, head_ratio);
    for (uint32_t i = head; i < n_layer; ++i) ratios[i] = (i - head) % 2 == 0 ? 4 : 128;
    return ratios;
}

Status in_range(const char* what, uint32_t value, uint32_t low, uint32_t high) {
    if (value >= low && value <= high) return {};
    return Error{Code::invalid_argument, strf("{} {}: expected {} to {}", value, what, low, high)};
}

}  // namespace

Result<ModelConfig> shape(const ShapeOptions& o) {
    ModelConfig c{};
    if (o.like == "flash") {
        c = flash();
    } else if (o.like == "pro") {
        c = pro();
    } else if (o.like == "pocket") {
        c = pocket();
    } else {
        return Error{Code::invalid_argument, strf("no model shape '{}'; there are flash, pro, pocket", o.like)};
    }
    const uint32_t whole = c.n_layer;
    const bool is_pro = o.like == "pro";
    if (!o.ratios.empty()) {
        for (const uint32_t r : o.ratios)
            if (r != 0 && r != 4 && r != 128)
                return Error{Code::invalid_argument, strf("compression ratio {}: expected 0, 4 or 128", r)};
        c.n_layer = static_cast<uint32_t>(std::min<size_t>(o.ratios.size(), 1u << 20));
        if (o.n_layer && *o.n_layer != o.ratios.size())
            return Error{Code::invalid_argument,
                         strf("{} layers, but {} compression ratios", *o.n_layer, o.ratios.size())};
    } else if (o.n_layer) {
        c.n_layer = *o.n_layer;
    }
    VESTA_TRY_STATUS(in_range("layers", c.n_layer, 1, 1024));
    const bool cut = c.n_layer != whole;
    c.compress_ratios = !o.ratios.empty() ? o.ratios
                        : cut             ? schedule(c.n_layer, is_pro ? 0 : 1, 0)
                                          : schedule(c.n_layer, 2, is_pro ? 128 : 0);
    if (c.n_layer < whole) c.n_hash_layer = c.n_layer > 1 ? 1 : 0;
    if (o.n_hash_layer) c.n_hash_layer = *o.n_hash_layer;
    VESTA_TRY_STATUS(in_range("hash layers", c.n_hash_layer, 0, c.n_layer));
    if (o.n_expert) c.n_expert = *o.n_expert;
    VESTA_TRY_STATUS(in_range("experts", c.n_expert, c.n_expert_used, 1 << 14));
    if (o.n_vocab) c.n_vocab = *o.n_vocab;
    VESTA_TRY_STATUS(in_range("vocabulary entries", c.n_vocab, 512, 1 << 22));
    if (o.n_ctx) c.n_ctx_train = *o.n_ctx;
    VESTA_TRY_STATUS(in_range("tokens of context", c.n_ctx_train, 1, 1u << 30));
    return c;
}

}  // namespace vesta::synth
