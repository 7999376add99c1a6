// The list of tensors against numbers that do not come from this code: counts, parameter totals and file sizes of the
// published models (spec 1.1, 5.3, 7, 9).
#include "convert/names.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "configs.h"
#include "convert/recipe.h"

namespace vesta::convert {
namespace {

ModelConfig config_of(bool pro) { return read_config(reparsed(published_config(pro)), "config").value(); }
bool is_mtp(const ExpectedTensor& t) { return t.gguf_name.starts_with("mtp."); }

uint64_t n_value(const ExpectedTensor& t) {
    uint64_t n = t.sources.size();
    for (const uint64_t d : t.shape) n *= d;
    return n;
}

struct Count {
    size_t gguf = 0, gguf_mtp = 0, checkpoint = 0, checkpoint_mtp = 0;
    uint64_t parameters = 0;  // without MTP and without integer tables
};

Count count(bool pro) {
    Count c;
    std::set<std::string> gguf_names, official_names;
    for (const ExpectedTensor& t : expected_tensors(config_of(pro))) {
        EXPECT_TRUE(gguf_names.insert(t.gguf_name).second) << t.gguf_name;
        ++(is_mtp(t) ? c.gguf_mtp : c.gguf);
        for (const std::string& s : t.sources) {
            EXPECT_TRUE(official_names.insert(s).second) << s;
            const bool scaled = t.packing == Packing::fp8 || t.packing == Packing::fp4;
            (is_mtp(t) ? c.checkpoint_mtp : c.checkpoint) += scaled ? 2 : 1;
        }
        if (!is_mtp(t) && t.packing != Packing::ids) c.parameters += n_value(t);
    }
    return c;
}

TEST(Names, FlashHas69187CheckpointTensorsAnd1328Plus32InTheModelFile) {
    const Count c = count(false);
    EXPECT_EQ(c.checkpoint + c.checkpoint_mtp, 69'187u);
    EXPECT_EQ(c.checkpoint_mtp, 1'575u);
    EXPECT_EQ(c.gguf, 1'328u);
    EXPECT_EQ(c.gguf_mtp, 32u);
    EXPECT_NEAR(static_cast<double>(c.parameters) / 1e9, 284.33, 0.005);
}

TEST(Names, ProHas1894TensorsInTheModelFile) {
    const Count c = count(true);
    EXPECT_EQ(c.gguf, 1'894u);
    EXPECT_EQ(c.gguf_mtp, 32u);
    EXPECT_NEAR(static_cast<double>(c.parameters) / 1e9, 1573.0, 0.05);
}

// The published Flash file with MXFP4 experts has 155 971 123 548 bytes of tensor data; our recipe of the same formats
// must come to the same sum, which checks every shape and every rule at once.
TEST(Names, FlashShapesAndRecipeGiveThePublishedFileSize) {
    const Recipe recipe = find_recipe("pocket").value();
    uint64_t bytes = 0;
    for (const ExpectedTensor& t : expected_tensors(config_of(false))) {
        if (is_mtp(t)) continue;
        quant::Type type = quant::Type::f32;
        if (t.packing == Packing::ids)
            type = quant::Type::i32;
        else if (t.shape.size() > 1)
            type = recipe.type_for(t.gguf_name).value_or(quant::Type::mxfp4);
        bytes += static_cast<uint64_t>(quant::row_bytes(type, static_cast<int64_t>(n_value(t))));
    }
    EXPECT_EQ(bytes, 155'971'123'548u);
}

// Spec 5.3 read as a list: [out, in] of the checkpoint for one layer of each kind.
TEST(Names, LayersHaveTheTensorsAndShapesOfTheSpecification) {
    std::map<std::string, ExpectedTensor> by_name;
    for (const ExpectedTensor& t : expected_tensors(config_of(false))) by_name.emplace(t.gguf_name, t);
    const auto expect = [&](const std::string& gguf, const std::string& official, std::vector<uint64_t> shape,
                            size_t n_source = 1) {
        ASSERT_TRUE(by_name.contains(gguf)) << gguf;
        EXPECT_EQ(by_name.at(gguf).shape, shape) << gguf;
        EXPECT_EQ(by_name.at(gguf).sources.front(), official);
        EXPECT_EQ(by_name.at(gguf).sources.size(), n_source) << gguf;
    };
    expect("token_embd.weight", "embed.weight", {129280, 4096});
    expect("output.weight", "head.weight", {129280, 4096});
    expect("output_norm.weight", "norm.weight", {4096});
    expect("output_hc_fn.weight", "hc_head_fn", {4, 16384});
    expect("output_hc_base.weight", "hc_head_base", {4});
    expect("output_hc_scale.weight", "hc_head_scale", {1});
    expect("blk.0.hc_attn_fn.weight", "layers.0.hc_attn_fn", {24, 16384});
    expect("blk.0.hc_ffn_scale.weight", "layers.0.hc_ffn_scale", {3});
    expect("blk.0.hc_ffn_base.weight", "layers.0.hc_ffn_base", {24});
    expect("blk.0.attn_norm.weight", "layers.0.attn_norm.weight", {4096});
    expect("blk.0.attn_q_a.weight", "layers.0.attn.wq_a.weight", {1024, 4096});
    expect("blk.0.attn_q_a_norm.weight", "layers.0.attn.q_norm.weight", {1024});
    expect("blk.0.attn_q_b.weight", "layers.0.attn.wq_b.weight", {32768, 1024});
    expect("blk.0.attn_kv.weight", "layers.0.attn.wkv.weight", {512, 4096});
    expect("blk.0.attn_kv_a_norm.weight", "layers.0.attn.kv_norm.weight", {512});
    expect("blk.0.attn_sinks.weight", "layers.0.attn.attn_sink", {64});
    expect("blk.0.attn_output_a.weight", "layers.0.attn.wo_a.weight", {8192, 4096});
    expect("blk.0.attn_output_b.weight", "layers.0.attn.wo_b.weight", {4096, 8192});
    expect("blk.2.ffn_gate_tid2eid.weight", "layers.2.ffn.gate.tid2eid", {129280, 6});
    expect("blk.3.exp_probs_b.bias", "layers.3.ffn.gate.bias", {256});
    expect("blk.3.ffn_gate_inp.weight", "layers.3.ffn.gate.weight", {256, 4096});
    expect("blk.2.attn_compressor_kv.weight", "layers.2.attn.compressor.wkv.weight", {1024, 4096});
    expect("blk.2.attn_compressor_ape.weight", "layers.2.attn.compressor.ape", {4, 1024});
    expect("blk.3.attn_compressor_gate.weight", "layers.3.attn.compressor.wgate.weight", {512, 4096});
    expect("blk.3.attn_compressor_ape.weight", "layers.3.attn.compressor.ape", {128, 512});
    expect("blk.3.attn_compressor_norm.weight", "layers.3.attn.compressor.norm.weight", {512});
    expect("blk.2.indexer.attn_q_b.weight", "layers.2.attn.indexer.wq_b.weight", {8192, 1024});
    expect("blk.2.indexer.proj.weight", "layers.2.attn.indexer.weights_proj.weight", {64, 4096});
    expect("blk.2.indexer_compressor_kv.weight", "layers.2.attn.indexer.compressor.wkv.weight", {256, 4096});
    expect("blk.2.indexer_compressor_ape.weight", "layers.2.attn.indexer.compressor.ape", {4, 256});
    expect("blk.2.indexer_compressor_norm.weight", "layers.2.attn.indexer.compressor.norm.weight", {128});
    expect("blk.5.ffn_gate_exps.weight", "layers.5.ffn.experts.0.w1.weight", {2048, 4096}, 256);
    expect("blk.5.ffn_up_exps.weight", "layers.5.ffn.experts.0.w3.weight", {2048, 4096}, 256);
    expect("blk.5.ffn_down_exps.weight", "layers.5.ffn.experts.0.w2.weight", {4096, 2048}, 256);
    expect("blk.5.ffn_gate_shexp.weight", "layers.5.ffn.shared_experts.w1.weight", {2048, 4096});
    expect("blk.5.ffn_down_shexp.weight", "layers.5.ffn.shared_experts.w2.weight", {4096, 2048});
    expect("mtp.0.e_proj.weight", "mtp.0.e_proj.weight", {4096, 4096});
    expect("mtp.0.hc_head_fn.weight", "mtp.0.hc_head_fn", {4, 16384});
    expect("mtp.0.norm.weight", "mtp.0.norm.weight", {4096});
    expect("mtp.0.exp_probs_b.bias", "mtp.0.ffn.gate.bias", {256});
    expect("mtp.0.ffn_down_exps.weight", "mtp.0.ffn.experts.0.w2.weight", {4096, 2048}, 256);
    EXPECT_EQ(by_name.at("blk.5.ffn_up_exps.weight").sources.back(), "layers.5.ffn.experts.255.w3.weight");

    for (const char* absent : {"blk.0.attn_compressor_kv.weight", "blk.3.indexer.proj.weight", "blk.2.exp_probs_b.bias",
                               "blk.3.ffn_gate_tid2eid.weight", "blk.43.attn_norm.weight", "mtp.1.norm.weight",
                               "mtp.0.ffn_gate_tid2eid.weight", "mtp.0.attn_compressor_kv.weight"})
        EXPECT_FALSE(by_name.contains(absent)) << absent;
}

TEST(Names, TransformersStyleNamesMeanTheSame) {
    const std::pair<const char*, const char*> pairs[] = {
        {"model.embed_tokens.weight", "embed.weight"},
        {"lm_head.weight", "head.weight"},
        {"model.norm.weight", "norm.weight"},
        {"model.hc_head_fn", "hc_head_fn"},
        {"model.layers.3.input_layernorm.weight", "layers.3.attn_norm.weight"},
        {"model.layers.3.post_attention_layernorm.weight", "layers.3.ffn_norm.weight"},
        {"model.layers.3.self_attn.wq_a.weight", "layers.3.attn.wq_a.weight"},
        {"model.layers.3.self_attn.wq_a.weight_scale_inv", "layers.3.attn.wq_a.scale"},
        {"model.layers.3.mlp.gate.e_score_correction_bias", "layers.3.ffn.gate.bias"},
        {"model.layers.3.mlp.experts.12.gate_proj.weight", "layers.3.ffn.experts.12.w1.weight"},
        {"model.layers.3.mlp.experts.12.up_proj.weight", "layers.3.ffn.experts.12.w3.weight"},
        {"model.layers.3.mlp.experts.12.down_proj.weight_scale_inv", "layers.3.ffn.experts.12.w2.scale"},
        {"layers.0.attn.indexer.compressor.ape", "layers.0.attn.indexer.compressor.ape"},
        {"", ""},
        {"..", ".."},
    };
    for (const auto& [other, official] : pairs) EXPECT_EQ(official_name(other), official);
}

}  // namespace
}  // namespace vesta::convert
