#include "convert/names.h"

#include <utility>

namespace vesta::convert {
namespace {

struct Builder {
    std::vector<ExpectedTensor> out;
    std::string official_prefix, gguf_prefix;

    void add(const char* official, const char* gguf, std::vector<uint64_t> shape, Packing packing = Packing::plain) {
        out.push_back({gguf_prefix + gguf, {official_prefix + official}, std::move(shape), packing, false});
    }
    // experts.<e>.<w>.weight for all e, stacked
    void add_experts(const char* w, const char* gguf, std::vector<uint64_t> shape, uint32_t n_expert) {
        ExpectedTensor t{gguf_prefix + gguf, {}, std::move(shape), Packing::fp4, true};
        for (uint32_t e = 0; e < n_expert; ++e)
            t.sources.push_back(strf("{}ffn.experts.{}.{}.weight", official_prefix, e, w));
        out.push_back(std::move(t));
    }
};

// A main layer, or the layer inside the MTP block: the same tensors under other prefixes. Shapes are [out, in] as the
// checkpoint has them; GGUF lists them the other way round.
void add_layer(Builder& b, const ModelConfig& c, uint32_t ratio, bool hash_layer) {
    constexpr Packing fp8 = Packing::fp8;
    const uint64_t E = c.n_embd, H = c.n_head, D = c.head_dim, S = c.n_stream, G = c.n_out_group, F = c.n_ff_expert;
    const uint64_t n_mix = (2 + S) * S;  // pre, post and the S x S mixing matrix of a hyper-connection
    for (const auto& [hf, gguf] : {std::pair{"hc_attn_", "hc_attn_"}, std::pair{"hc_ffn_", "hc_ffn_"}}) {
        b.add(strf("{}fn", hf).c_str(), strf("{}fn.weight", gguf).c_str(), {n_mix, S * E});
        b.add(strf("{}scale", hf).c_str(), strf("{}scale.weight", gguf).c_str(), {3});
        b.add(strf("{}base", hf).c_str(), strf("{}base.weight", gguf).c_str(), {n_mix});
    }
    b.add("attn_norm.weight", "attn_norm.weight", {E});
    b.add("attn.wq_a.weight", "attn_q_a.weight", {c.q_lora_rank, E}, fp8);
    b.add("attn.q_norm.weight", "attn_q_a_norm.weight", {c.q_lora_rank});
    b.add("attn.wq_b.weight", "attn_q_b.weight", {H * D, c.q_lora_rank}, fp8);
    b.add("attn.wkv.weight", "attn_kv.weight", {D, E}, fp8);
    b.add("attn.kv_norm.weight", "attn_kv_a_norm.weight", {D});
    b.add("attn.attn_sink", "attn_sinks.weight", {H});
    b.add("attn.wo_a.weight", "attn_output_a.weight", {G * c.o_lora_rank, H / G * D}, fp8);
    b.add("attn.wo_b.weight", "attn_output_b.weight", {E, G * c.o_lora_rank}, fp8);

    if (ratio != 0) {
        const uint64_t overlap = ratio == 4 ? 2 : 1;  // ratio-4 windows overlap: two lanes side by side
        b.add("attn.compressor.wkv.weight", "attn_compressor_kv.weight", {overlap * D, E});
        b.add("attn.compressor.wgate.weight", "attn_compressor_gate.weight", {overlap * D, E});
        b.add("attn.compressor.ape", "attn_compressor_ape.weight", {ratio, overlap * D});
        b.add("attn.compressor.norm.weight", "attn_compressor_norm.weight", {D});
    }
    if (ratio == 4) {
        const uint64_t I = c.index_head_dim;
        b.add("attn.indexer.wq_b.weight", "indexer.attn_q_b.weight", {c.n_index_head * I, c.q_lora_rank}, fp8);
        b.add("attn.indexer.weights_proj.weight", "indexer.proj.weight", {c.n_index_head, E});
        b.add("attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight", {2 * I, E});
        b.add("attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight", {2 * I, E});
        b.add("attn.indexer.compressor.ape", "indexer_compressor_ape.weight", {4, 2 * I});
        b.add("attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight", {I});
    }

    b.add("ffn_norm.weight", "ffn_norm.weight", {E});
    b.add("ffn.gate.weight", "ffn_gate_inp.weight", {c.n_expert, E});
    if (hash_layer)
        b.add("ffn.gate.tid2eid", "ffn_gate_tid2eid.weight", {c.n_vocab, c.n_expert_used}, Packing::ids);
    else
        b.add("ffn.gate.bias", "exp_probs_b.bias", {c.n_expert});
    b.add_experts("w1", "ffn_gate_exps.weight", {F, E}, c.n_expert);
    b.add_experts("w3", "ffn_up_exps.weight", {F, E}, c.n_expert);
    b.add_experts("w2", "ffn_down_exps.weight", {E, F}, c.n_expert);
    const uint64_t shared = F * c.n_expert_shared;
    b.add("ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight", {shared, E}, fp8);
    b.add("ffn.shared_experts.w3.weight", "ffn_up_shexp.weight", {shared, E}, fp8);
    b.add("ffn.shared_experts.w2.weight", "ffn_down_shexp.weight", {E, shared}, fp8);
}

void add_hc_head(Builder& b, const ModelConfig& c, const char* gguf_prefix) {
    const uint64_t S = c.n_stream;
    b.add("hc_head_fn", strf("{}_fn.weight", gguf_prefix).c_str(), {S, S * c.n_embd});
    b.add("hc_head_scale", strf("{}_scale.weight", gguf_prefix).c_str(), {1});
    b.add("hc_head_base", strf("{}_base.weight", gguf_prefix).c_str(), {S});
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& c) {
    const uint64_t E = c.n_embd;
    Builder b;
    b.add("embed.weight", "token_embd.weight", {c.n_vocab, E});
    for (uint32_t layer = 0; layer < c.n_layer; ++layer) {
        b.official_prefix = strf("layers.{}.", layer);
        b.gguf_prefix = strf("blk.{}.", layer);
        add_layer(b, c, c.compress_ratios[layer], layer < c.n_hash_layer);
    }
    b.official_prefix = b.gguf_prefix = "";
    add_hc_head(b, c, "output_hc");
    b.add("norm.weight", "output_norm.weight", {E});
    b.add("head.weight", "output.weight", {c.n_vocab, E});
    for (uint32_t i = 0; i < c.n_mtp; ++i) {
        b.official_prefix = b.gguf_prefix = strf("mtp.{}.", i);
        b.add("enorm.weight", "enorm.weight", {E});
        b.add("hnorm.weight", "hnorm.weight", {E});
        b.add("e_proj.weight", "e_proj.weight", {E, E}, Packing::fp8);
        b.add("h_proj.weight", "h_proj.weight", {E, E}, Packing::fp8);
        add_layer(b, c, /*ratio=*/0, /*hash_layer=*/false);
        add_hc_head(b, c, "hc_head");
        b.add("norm.weight", "norm.weight", {E});
    }
    return std::move(b.out);
}

std::string scale_name(std::string_view weight_name) {
    VESTA_CHECK(weight_name.ends_with(".weight"));
    weight_name.remove_suffix(std::string_view(".weight").size());
    return std::string(weight_name) + ".scale";
}

std::string official_name(std::string_view name) {
    static constexpr std::pair<std::string_view, std::string_view> kParts[] = {
        {"self_attn", "attn"},
        {"mlp", "ffn"},
        {"e_score_correction_bias", "bias"},
        {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", "ffn_norm"},
        {"gate_proj", "w1"},
        {"up_proj", "w3"},
        {"down_proj", "w2"},
        {"embed_tokens", "embed"},
        {"lm_head", "head"},
        {"weight_scale_inv", "scale"},
    };
    if (name.starts_with("model.")) name.remove_prefix(6);
    std::string out;
    while (true) {
        const size_t dot = name.find('.');
        std::string_view part = name.substr(0, dot);
        for (const auto& [other, ours] : kParts)
            if (part == other) {
                part = ours;
                break;
            }
        out += part;
        if (dot == std::string_view::npos) return out;
        out += '.';
        name.remove_prefix(dot + 1);
    }
}

}  // namespace vesta::convert
