// config.json: what is read, what is written, what is refused.
#include "convert/config.h"

#include <gtest/gtest.h>

#include "configs.h"
#include "gguf/file.h"

namespace vesta::convert {
namespace {

using nlohmann::json;

Result<ModelConfig> read(const json& config, const char* name) { return read_config(reparsed(config), name); }

TEST(Config, BecomesTheKeysOfTheSpecification) {
    gguf::Writer writer;
    write_config(read(published_config(false), "c").value(), "Flash", writer);
    const std::vector<std::byte> bytes = writer.header();
    const auto parsed = gguf::File::parse(bytes, "flash");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const gguf::File& f = parsed.value();
    const std::pair<const char*, uint32_t> integers[] = {
        {"block_count", 43},
        {"context_length", 1048576},
        {"embedding_length", 4096},
        {"vocab_size", 129280},
        {"attention.head_count", 64},
        {"attention.head_count_kv", 1},
        {"attention.key_length", 512},
        {"attention.value_length", 512},
        {"rope.dimension_count", 64},
        {"attention.q_lora_rank", 1024},
        {"attention.output_lora_rank", 1024},
        {"attention.output_group_count", 8},
        {"attention.sliding_window", 128},
        {"attention.indexer.head_count", 64},
        {"attention.indexer.key_length", 128},
        {"attention.indexer.top_k", 512},
        {"expert_count", 256},
        {"expert_used_count", 6},
        {"expert_shared_count", 1},
        {"expert_feed_forward_length", 2048},
        {"expert_gating_func", 4},
        {"hash_layer_count", 3},
        {"hyper_connection.count", 4},
        {"hyper_connection.sinkhorn_iterations", 20},
        {"rope.scaling.original_context_length", 65536},
        {"nextn_predict_layers", 1},
    };
    const std::pair<const char*, float> floats[] = {
        {"attention.compress_rope_freq_base", 160000.0f},
        {"attention.layer_norm_rms_epsilon", 1e-6f},
        {"expert_weights_scale", 1.5f},
        {"hyper_connection.epsilon", 1e-6f},
        {"rope.freq_base", 10000.0f},
        {"rope.scaling.factor", 16.0f},
        {"rope.scaling.yarn_beta_fast", 32.0f},
        {"rope.scaling.yarn_beta_slow", 1.0f},
    };
    const auto key = [](const char* name) { return std::string("deepseek4.") + name; };
    for (const auto& [name, value] : integers) EXPECT_EQ(f.u32(key(name)).value(), value) << name;
    for (const auto& [name, value] : floats) EXPECT_EQ(f.f32(key(name)).value(), value) << name;
    EXPECT_TRUE(f.boolean("deepseek4.expert_weights_norm").value());
    EXPECT_EQ(f.string("general.architecture").value(), "deepseek4");
    EXPECT_EQ(f.string("general.name").value(), "Flash");
    EXPECT_EQ(f.string("deepseek4.rope.scaling.type").value(), "yarn");
    const auto ratios = f.u32_array("deepseek4.attention.compress_ratios", 100).value();
    ASSERT_EQ(ratios.size(), 44u);
    EXPECT_EQ(ratios[1], 0u);
    EXPECT_EQ(ratios[2], 4u);
    EXPECT_EQ(ratios[41], 128u);
    EXPECT_EQ(ratios[42], 4u);
    EXPECT_EQ(ratios[43], 0u);
    EXPECT_EQ(f.f32_array("deepseek4.swiglu_clamp_exp", 100).value(), std::vector<float>(43, 10.0f));  // not 44: one per layer
    // 26 integers, 8 floats, 1 boolean, 2 arrays, rope type; and three general keys: nothing is left unlisted here.
    EXPECT_EQ(f.metadata().size(), std::size(integers) + std::size(floats) + 1 + 2 + 1 + 3);
}

TEST(Config, ProValuesComeFromTheFileToo) {
    const ModelConfig c = read(published_config(true), "c").value();
    EXPECT_EQ(c.n_layer, 61u);
    EXPECT_EQ(c.n_out_group, 16u);
    EXPECT_EQ(c.index_top_k, 1024u);
    EXPECT_EQ(c.routed_scale, 2.5f);
    EXPECT_EQ(c.compress_ratios.size(), 62u);
}

TEST(Config, KeysThatMayBeAbsentMayBeAbsent) {
    json config = published_config(false);
    for (const char* key : {"topk_method", "expert_dtype", "quantization_config", "architectures"}) config.erase(key);
    config["rope_scaling"]["rope_type"] = config["rope_scaling"]["type"];  // the spelling of newer transformers
    config["rope_scaling"].erase("type");
    EXPECT_TRUE(read(config, "c").ok());
}

TEST(Config, EveryRequiredKeyIsMissedByName) {
    const json original = published_config(false);
    for (const auto& [key, value] : original.items()) {
        if (key == "topk_method" || key == "expert_dtype" || key == "quantization_config" || key == "architectures")
            continue;
        for (const bool null : {false, true}) {
            json config = original;
            if (null)
                config[key] = nullptr;
            else
                config.erase(key);
            const auto c = read(config, "dir/config.json");
            ASSERT_FALSE(c.ok()) << key;
            EXPECT_NE(c.error().message.find(key), std::string::npos) << c.error().message;
            EXPECT_EQ(c.error().message.rfind("dir/config.json", 0), 0u);
        }
    }
}

TEST(Config, SenselessValuesAreRefusedByName) {
    const std::pair<const char*, json> changes[] = {
        {"num_hidden_layers", 0},
        {"num_hidden_layers", -43},
        {"num_hidden_layers", 43.5},
        {"num_hidden_layers", "43"},
        {"num_hidden_layers", 9223372036854775808u},
        {"hidden_size", 1u << 31},
        {"vocab_size", false},
        {"qk_rope_head_dim", 63},
        {"qk_rope_head_dim", 1024},
        {"o_groups", 7},
        {"num_experts_per_tok", 257},
        {"num_hash_layers", 44},
        {"index_head_dim", 96},
        {"rms_norm_eps", -1},
        {"rms_norm_eps", "1e-6"},
        {"rope_theta", 0},
        {"compress_rope_theta", 1},
        {"norm_topk_prob", 1},
        {"bos_token_id", 129280},
        {"rope_scaling", json::array()},
        {"rope_scaling", {{"type", "yarn"}, {"factor", 0}}},
        {"compress_ratios", json::array({0, 0})},
        {"compress_ratios", "x"},
        {"quantization_config", {{"weight_block_size", {128, 0}}}},
        {"quantization_config", 8},
    };
    for (const auto& [key, value] : changes) {
        json config = published_config(false);
        config[key] = value;
        const auto c = read(config, "c");
        ASSERT_FALSE(c.ok()) << key << " = " << value;
        EXPECT_EQ(c.error().code, Code::bad_file) << c.error().message;
    }
    json config = published_config(false);
    config["compress_ratios"][7] = 8;
    EXPECT_NE(read(config, "c").error().message.find("entry 7"), std::string::npos);
    config = published_config(false);
    config["compress_ratios"][43] = 4;
    EXPECT_NE(read(config, "c").error().message.find("MTP"), std::string::npos);
    EXPECT_FALSE(read(json::array(), "c").ok());
}

TEST(Config, OtherModelsAreCalledUnsupported) {
    const std::pair<const char*, json> changes[] = {
        {"model_type", "deepseek_v3"},
        {"scoring_func", "sigmoid"},
        {"topk_method", "greedy"},
        {"hidden_act", "gelu"},
        {"tie_word_embeddings", true},
        {"num_key_value_heads", 8},
        {"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
        {"quantization_config", {{"fmt", "e5m2"}}},
    };
    for (const auto& [key, value] : changes) {
        json config = published_config(false);
        config[key] = value;
        const auto c = read(config, "c");
        ASSERT_FALSE(c.ok()) << key;
        EXPECT_EQ(c.error().code, Code::unsupported) << c.error().message;
        EXPECT_NE(c.error().message.find(key), std::string::npos) << c.error().message;
    }
}

}  // namespace
}  // namespace vesta::convert
