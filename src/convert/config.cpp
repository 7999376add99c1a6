#include "convert/config.h"

#include <bit>

#include "safetensors/strict_json.h"

namespace vesta::convert {
namespace {

using nlohmann::json;

// Reads members of one JSON object and remembers the first thing that is wrong, so that the list of keys below reads
// like a list.
class Reader {
 public:
    Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

    uint32_t count(const char* key, uint64_t low, uint64_t high) {
        const json* v = require(key);
        if (v == nullptr) return 0;
        if (!v->is_number_unsigned()) return complain(key, strf("expected an integer, found {}", shown(*v))), 0;
        const auto n = v->get<uint64_t>();
        if (n < low || n > high) return complain(key, strf("{} is outside {} to {}", n, low, high)), 0;
        return static_cast<uint32_t>(n);
    }
    float number(const char* key, double low, double high) {
        const json* v = require(key);
        if (v == nullptr) return 0;
        if (!v->is_number()) return complain(key, strf("expected a number, found {}", shown(*v))), 0.0f;
        const double x = v->get<double>();
        if (!(x >= low && x <= high)) return complain(key, strf("{} is outside {} to {}", x, low, high)), 0.0f;
        return static_cast<float>(x);
    }
    bool flag(const char* key) {
        const json* v = require(key);
        if (v == nullptr) return false;
        if (!v->is_boolean()) return complain(key, strf("expected true or false, found {}", shown(*v))), false;
        return v->get<bool>();
    }
    // The value decides which program is meant; anything but `expected` is a different model.
    void must_be(const char* key, const json& expected, bool optional = false) {
        if (optional && !present(key)) return;
        const json* v = require(key);
        if (v != nullptr && *v != expected)
            complain(key, strf("this converter knows only {}, found {}", expected.dump(), shown(*v)),
                     Code::unsupported);
    }
    const json* require(const char* key) {
        const auto it = object_.find(key);
        if (it != object_.end() && !it->is_null()) return &*it;
        complain(key, "is missing");
        return nullptr;
    }
    bool present(const char* key) const {
        const auto it = object_.find(key);
        return it != object_.end() && !it->is_null();
    }
    void complain(const char* key, const std::string& what, Code code = Code::bad_file) {
        if (!failed_) error_ = Error{code, strf("{}: {}: {}", where_, key, what)};
        failed_ = true;
    }
    bool failed() const { return failed_; }
    Error error() const { return error_; }

 private:
    static std::string shown(const json& v) {
        return safetensors::shown(v.dump(-1, ' ', true, json::error_handler_t::replace), 60);
    }
    const json& object_;
    std::string where_;
    bool failed_ = false;
    Error error_{Code::bad_file, {}};
};

void read_rope(const json& config, const std::string& name, Reader& r, ModelConfig& c) {
    const json* scaling = r.require("rope_scaling");
    if (scaling == nullptr) return;
    if (!scaling->is_object()) return r.complain("rope_scaling", "expected an object");
    Reader s(config["rope_scaling"], name + ": rope_scaling");
    s.must_be(s.present("type") ? "type" : "rope_type", "yarn");
    c.rope_factor = s.number("factor", 1, 1e6);
    c.n_ctx_original = s.count("original_max_position_embeddings", 1, 1u << 30);
    c.beta_fast = s.number("beta_fast", 1e-3, 1e6);
    c.beta_slow = s.number("beta_slow", 1e-3, 1e6);
    if (s.failed()) r.complain("rope_scaling", s.error().message, s.error().code);
}

void read_quantization(const json& config, const std::string& name, Reader& r, ModelConfig& c) {
    c.fp8_block_rows = c.fp8_block_cols = 128;
    if (!r.present("quantization_config")) return;  // a checkpoint of BF16 weights
    const json& q = config["quantization_config"];
    if (!q.is_object()) return r.complain("quantization_config", "expected an object");
    Reader s(q, name + ": quantization_config");
    s.must_be("quant_method", "fp8", /*optional=*/true);
    s.must_be("fmt", "e4m3", /*optional=*/true);
    if (s.present("weight_block_size")) {
        const json& b = q["weight_block_size"];
        const auto size_ok = [](const json& v) { return v.is_number_unsigned() && v > 0 && v <= 65536; };
        if (!b.is_array() || b.size() != 2 || !size_ok(b[0]) || !size_ok(b[1]))
            s.complain("weight_block_size", "expected [rows, columns]");
        else
            c.fp8_block_rows = b[0].get<uint32_t>(), c.fp8_block_cols = b[1].get<uint32_t>();
    }
    if (s.failed()) r.complain("quantization_config", s.error().message, s.error().code);
}

void read_compress_ratios(Reader& r, ModelConfig& c) {
    const json* ratios = r.require("compress_ratios");
    if (ratios == nullptr || r.failed()) return;
    const size_t n = size_t{c.n_layer} + c.n_mtp;
    if (!ratios->is_array() || ratios->size() != n)
        return r.complain("compress_ratios", strf("expected {} entries (num_hidden_layers + num_nextn_predict_layers), "
                                                  "found {}",
                                                  n, ratios->size()));
    for (size_t i = 0; i < n; ++i) {
        const json& v = (*ratios)[i];
        if (!v.is_number_unsigned() || (v != 0 && v != 4 && v != 128))
            return r.complain("compress_ratios", strf("entry {} is {}, expected 0, 4 or 128", i, v.dump()));
        c.compress_ratios.push_back(v.get<uint32_t>());
        if (i >= c.n_layer && v != 0)
            return r.complain("compress_ratios", strf("the MTP block has ratio {}, expected 0", v.dump()));
    }
}

// What must hold between the numbers for the shapes of the model to exist at all.
void check_relations(Reader& r, const ModelConfig& c) {
    if (c.n_rot % 2 != 0 || c.n_rot > c.head_dim)
        r.complain("qk_rope_head_dim", strf("{} must be even and at most head_dim {}", c.n_rot, c.head_dim));
    if (c.n_head % c.n_out_group != 0)
        r.complain("o_groups", strf("{} heads do not divide into {} groups", c.n_head, c.n_out_group));
    if (c.n_expert_used > c.n_expert)
        r.complain("num_experts_per_tok", strf("{} of {} experts", c.n_expert_used, c.n_expert));
    if (c.n_hash_layer > c.n_layer) r.complain("num_hash_layers", strf("{} of {} layers", c.n_hash_layer, c.n_layer));
    if (!std::has_single_bit(c.index_head_dim) || c.index_head_dim < c.n_rot)
        r.complain("index_head_dim",
                   strf("{} must be a power of two (Hadamard transform) and at least {}", c.index_head_dim, c.n_rot));
    if (c.bos_token >= c.n_vocab || c.eos_token >= c.n_vocab)
        r.complain("vocab_size", strf("bos {} and eos {} must be below {}", c.bos_token, c.eos_token, c.n_vocab));
}

}  // namespace

Result<ModelConfig> read_config(const json& config, const std::string& name) {
    if (!config.is_object()) return Error{Code::bad_file, strf("{}: not a JSON object", name)};
    Reader r(config, name);
    r.must_be("model_type", "deepseek_v4");
    if (r.failed()) return r.error();

    ModelConfig c{};
    // Upper limits are generous (Pro: 61 layers, 7168 wide, 384 experts) and keep every product of three below 2^63.
    c.n_layer = r.count("num_hidden_layers", 1, 4096);
    c.n_embd = r.count("hidden_size", 1, 1 << 20);
    c.n_vocab = r.count("vocab_size", 1, 1 << 24);
    c.n_head = r.count("num_attention_heads", 1, 1 << 14);
    r.must_be("num_key_value_heads", 1);
    c.head_dim = r.count("head_dim", 1, 1 << 16);
    c.n_rot = r.count("qk_rope_head_dim", 2, 1 << 16);
    c.q_lora_rank = r.count("q_lora_rank", 1, 1 << 20);
    c.n_out_group = r.count("o_groups", 1, 1 << 14);
    c.o_lora_rank = r.count("o_lora_rank", 1, 1 << 20);
    c.sliding_window = r.count("sliding_window", 1, 1 << 24);
    c.n_index_head = r.count("index_n_heads", 1, 1 << 14);
    c.index_head_dim = r.count("index_head_dim", 1, 1 << 16);
    c.index_top_k = r.count("index_topk", 1, 1 << 24);
    c.n_expert = r.count("n_routed_experts", 1, 1 << 16);
    c.n_expert_shared = r.count("n_shared_experts", 1, 64);
    c.n_expert_used = r.count("num_experts_per_tok", 1, 1024);
    c.n_ff_expert = r.count("moe_intermediate_size", 1, 1 << 20);
    c.n_hash_layer = r.count("num_hash_layers", 0, 4096);
    r.must_be("scoring_func", "sqrtsoftplus");
    r.must_be("topk_method", "noaux_tc", /*optional=*/true);
    r.must_be("hidden_act", "silu");
    r.must_be("tie_word_embeddings", false);
    c.norm_topk = r.flag("norm_topk_prob");
    c.routed_scale = r.number("routed_scaling_factor", 1e-6, 1e6);
    c.swiglu_clamp = r.number("swiglu_limit", 1e-6, 1e30);
    c.n_stream = r.count("hc_mult", 1, 64);
    c.sinkhorn_iterations = r.count("hc_sinkhorn_iters", 1, 10'000);
    c.hc_eps = r.number("hc_eps", 0, 1);
    c.rms_eps = r.number("rms_norm_eps", 0, 1);
    c.rope_theta = r.number("rope_theta", 1, 1e12);
    c.compress_rope_theta = r.number("compress_rope_theta", 1.0001, 1e12);  // its logarithm divides (YaRN)
    c.n_ctx_train = r.count("max_position_embeddings", 1, 1u << 31);
    c.n_mtp = r.count("num_nextn_predict_layers", 0, 1);
    c.bos_token = r.count("bos_token_id", 0, 1 << 24);
    c.eos_token = r.count("eos_token_id", 0, 1 << 24);
    read_rope(config, name, r, c);
    read_quantization(config, name, r, c);
    read_compress_ratios(r, c);
    if (!r.failed()) check_relations(r, c);
    if (r.failed()) return r.error();
    return c;
}

void write_config(const ModelConfig& c, const std::string& model_name, gguf::Writer& w) {
    w.add_string("general.architecture", "deepseek4");
    w.add_string("general.name", model_name);
    w.add_u32("general.quantization_version", 2);

    w.add_u32("deepseek4.block_count", c.n_layer);
    w.add_u32("deepseek4.context_length", c.n_ctx_train);
    w.add_u32("deepseek4.embedding_length", c.n_embd);
    w.add_u32("deepseek4.vocab_size", c.n_vocab);
    w.add_u32("deepseek4.nextn_predict_layers", c.n_mtp);

    w.add_u32("deepseek4.attention.head_count", c.n_head);
    w.add_u32("deepseek4.attention.head_count_kv", 1);
    w.add_u32("deepseek4.attention.key_length", c.head_dim);
    w.add_u32("deepseek4.attention.value_length", c.head_dim);
    w.add_u32("deepseek4.attention.q_lora_rank", c.q_lora_rank);
    w.add_u32("deepseek4.attention.output_lora_rank", c.o_lora_rank);
    w.add_u32("deepseek4.attention.output_group_count", c.n_out_group);
    w.add_u32("deepseek4.attention.sliding_window", c.sliding_window);
    w.add_u32("deepseek4.attention.indexer.head_count", c.n_index_head);
    w.add_u32("deepseek4.attention.indexer.key_length", c.index_head_dim);
    w.add_u32("deepseek4.attention.indexer.top_k", c.index_top_k);
    w.add_u32_array("deepseek4.attention.compress_ratios", c.compress_ratios);
    w.add_f32("deepseek4.attention.compress_rope_freq_base", c.compress_rope_theta);
    w.add_f32("deepseek4.attention.layer_norm_rms_epsilon", c.rms_eps);

    w.add_u32("deepseek4.rope.dimension_count", c.n_rot);
    w.add_f32("deepseek4.rope.freq_base", c.rope_theta);
    w.add_string("deepseek4.rope.scaling.type", "yarn");
    w.add_f32("deepseek4.rope.scaling.factor", c.rope_factor);
    w.add_u32("deepseek4.rope.scaling.original_context_length", c.n_ctx_original);
    w.add_f32("deepseek4.rope.scaling.yarn_beta_fast", c.beta_fast);
    w.add_f32("deepseek4.rope.scaling.yarn_beta_slow", c.beta_slow);

    w.add_u32("deepseek4.expert_count", c.n_expert);
    w.add_u32("deepseek4.expert_used_count", c.n_expert_used);
    w.add_u32("deepseek4.expert_shared_count", c.n_expert_shared);
    w.add_u32("deepseek4.expert_feed_forward_length", c.n_ff_expert);
    w.add_f32("deepseek4.expert_weights_scale", c.routed_scale);
    w.add_bool("deepseek4.expert_weights_norm", c.norm_topk);
    w.add_u32("deepseek4.expert_gating_func", 4);  // sqrt(softplus(x))
    w.add_u32("deepseek4.hash_layer_count", c.n_hash_layer);
    // Exactly one per layer: other readers refuse a longer array. The drafter takes the last one.
    w.add_f32_array("deepseek4.swiglu_clamp_exp", std::vector<float>(c.n_layer, c.swiglu_clamp));

    w.add_u32("deepseek4.hyper_connection.count", c.n_stream);
    w.add_u32("deepseek4.hyper_connection.sinkhorn_iterations", c.sinkhorn_iterations);
    w.add_f32("deepseek4.hyper_connection.epsilon", c.hc_eps);
}

}  // namespace vesta::convert
