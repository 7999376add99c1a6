#include "model/deepseek_v4/hparams.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/utf8.h"
#include "ops/ops.h"

namespace vesta::model::deepseek_v4 {
namespace {

// Upper limits are far above any published model and small enough that no product of two of them overflows.
constexpr int64_t kMaxLayers = 1024, kMaxWidth = 1 << 20, kMaxVocab = 1 << 24, kMaxExperts = 1 << 14;

class Reader {
 public:
    explicit Reader(const gguf::File& file) : file_(file) {}

    Result<int64_t> integer(const char* key, int64_t low, int64_t high) const {
        VESTA_TRY(const uint64_t v, file_.u64(full(key)));
        if (v < static_cast<uint64_t>(low) || v > static_cast<uint64_t>(high))
            return Error{Code::bad_file, strf("{}: {} is {}, expected {} to {}", file_.name(), full(key), v, low, high)};
        return static_cast<int64_t>(v);
    }
    Result<float> number(const char* key, float low, float high) const {
        VESTA_TRY(const float v, file_.f32(full(key)));
        if (!(v >= low && v <= high))
            return Error{Code::bad_file, strf("{}: {} is {}, expected {} to {}", file_.name(), full(key), v, low, high)};
        return v;
    }
    bool has(const char* key) const { return file_.has(full(key)); }
    static std::string full(const char* key) { return std::string("deepseek4.") + key; }

 private:
    const gguf::File& file_;
};

Error refuse(const gguf::File& file, const std::string& why) {
    return Error{Code::unsupported, strf("{}: {}", file.name(), why)};
}

Status check_consistency(const gguf::File& f, const Hparams& h) {
    if (h.n_head % h.n_out_group != 0)
        return refuse(f, strf("{} heads do not divide into {} output groups", h.n_head, h.n_out_group));
    if (h.n_rot % 2 != 0 || h.n_rot >= h.head_dim || (h.head_dim - h.n_rot) % 64 != 0)
        return refuse(f, strf("head width {} with {} rotary values: the rest must be a positive multiple of 64", h.head_dim, h.n_rot));
    if (h.n_expert_used > h.n_expert)
        return refuse(f, strf("{} experts used of {}", h.n_expert_used, h.n_expert));
    const bool indexed = std::any_of(h.ratio.begin(), h.ratio.end(), Hparams::overlaps);
    const int64_t d = h.index_head_dim;
    if (indexed && (d % 32 != 0 || (d & (d - 1)) != 0 || h.n_rot > d))
        return refuse(f, strf("indexer width {}: expected a power of two, at least 32 and at least the {} rotary values", d,
                              h.n_rot));
    return {};
}

}  // namespace

Result<Hparams> read_hparams(const gguf::File& file) {
    const Reader r(file);
    VESTA_TRY(const std::string_view architecture, file.string("general.architecture"));
    if (architecture != "deepseek4")
        return refuse(file, strf("general.architecture is '{}', expected 'deepseek4'", printable(architecture)));
    Hparams h{};
    VESTA_TRY(h.n_layer, r.integer("block_count", 1, kMaxLayers));
    VESTA_TRY(h.n_embd, r.integer("embedding_length", 1, kMaxWidth));
    VESTA_TRY(h.n_vocab, r.integer("vocab_size", 1, kMaxVocab));
    VESTA_TRY(h.n_head, r.integer("attention.head_count", 1, 4096));
    VESTA_TRY(const int64_t n_head_kv, r.integer("attention.head_count_kv", 1, 4096));
    if (n_head_kv != 1) return refuse(file, strf("{} kv heads, expected 1 (one latent row for all heads)", n_head_kv));
    VESTA_TRY(h.head_dim, r.integer("attention.key_length", 2, 1 << 14));
    VESTA_TRY(const int64_t value_dim, r.integer("attention.value_length", 2, 1 << 14));
    if (value_dim != h.head_dim)
        return refuse(file, strf("key length {} and value length {} differ, expected one row for both", h.head_dim, value_dim));
    VESTA_TRY(h.n_rot, r.integer("rope.dimension_count", 2, ops::kMaxRotary));
    VESTA_TRY(h.q_rank, r.integer("attention.q_lora_rank", 1, kMaxWidth));
    VESTA_TRY(h.out_rank, r.integer("attention.output_lora_rank", 1, kMaxWidth));
    VESTA_TRY(h.n_out_group, r.integer("attention.output_group_count", 1, 4096));
    VESTA_TRY(h.window, r.integer("attention.sliding_window", 1, 1 << 16));
    VESTA_TRY(h.index_n_head, r.integer("attention.indexer.head_count", 1, 4096));
    VESTA_TRY(h.index_head_dim, r.integer("attention.indexer.key_length", 2, ops::kMaxIndexDim));
    VESTA_TRY(h.index_top_k, r.integer("attention.indexer.top_k", 1, 1 << 20));
    VESTA_TRY(h.n_expert, r.integer("expert_count", 1, kMaxExperts));
    VESTA_TRY(h.n_expert_used, r.integer("expert_used_count", 1, ops::kMaxExpertsUsed));
    VESTA_TRY(h.n_expert_shared, r.integer("expert_shared_count", 1, 64));
    VESTA_TRY(h.n_ff, r.integer("expert_feed_forward_length", 1, kMaxWidth));
    VESTA_TRY(h.n_hash_layer, r.integer("hash_layer_count", 0, kMaxLayers));
    VESTA_TRY(h.expert_scale, r.number("expert_weights_scale", 1e-6f, 1e6f));
    VESTA_TRY(const bool norm, file.boolean("deepseek4.expert_weights_norm"));
    if (!norm) return refuse(file, "expert_weights_norm is false, expected true");
    for (const char* key : {"expert_group_count", "expert_group_used_count"}) {
        if (!r.has(key)) continue;
        VESTA_TRY(const uint64_t n, file.u64(Reader::full(key)));
        if (n > 1) return refuse(file, strf("{} is {}: grouped routing is not part of this architecture", key, n));
    }
    if (r.has("expert_gating_func")) {
        VESTA_TRY(const uint64_t gating, file.u64("deepseek4.expert_gating_func"));
        if (gating != 4) return refuse(file, strf("expert_gating_func is {}, expected 4 (sqrt of softplus)", gating));
    }
    VESTA_TRY(h.n_stream, r.integer("hyper_connection.count", 1, ops::kMaxStreams));
    VESTA_TRY(const int64_t n_sinkhorn, r.integer("hyper_connection.sinkhorn_iterations", 1, 1000));
    h.n_sinkhorn = static_cast<int>(n_sinkhorn);
    VESTA_TRY(h.hc_eps, r.number("hyper_connection.epsilon", 0.0f, 1.0f));
    VESTA_TRY(h.norm_eps, r.number("attention.layer_norm_rms_epsilon", 0.0f, 1.0f));
    VESTA_TRY(h.rope_base, r.number("rope.freq_base", 1.0f, 1e12f));
    VESTA_TRY(h.compress_rope_base, r.number("attention.compress_rope_freq_base", 1.0f, 1e12f));
    VESTA_TRY(h.yarn_factor, r.number("rope.scaling.factor", 1.0f, 1e6f));
    VESTA_TRY(h.yarn_original_ctx, r.integer("rope.scaling.original_context_length", 1, int64_t{1} << 32));
    VESTA_TRY(h.yarn_beta_fast, r.number("rope.scaling.yarn_beta_fast", 1e-3f, 1e6f));
    VESTA_TRY(h.yarn_beta_slow, r.number("rope.scaling.yarn_beta_slow", 1e-3f, 1e6f));
    if (r.has("context_length")) {
        VESTA_TRY(h.n_ctx_train, r.integer("context_length", 0, int64_t{1} << 32));
    }

    const auto n_layer = static_cast<size_t>(h.n_layer);
    VESTA_TRY(const std::vector<uint32_t> ratios, file.u32_array("deepseek4.attention.compress_ratios", kMaxLayers + 64));
    if (ratios.size() < n_layer)
        return Error{Code::bad_file, strf("{}: compress_ratios has {} entries, expected at least {} (one per layer)",
                                          file.name(), ratios.size(), n_layer)};
    for (size_t i = 0; i < n_layer; ++i) {
        // A ratio of 1 would compress nothing, and 2 or 3 would need rules the architecture does not give.
        if (ratios[i] != 0 && (ratios[i] < 4 || ratios[i] > 65536))
            return refuse(file, strf("compress ratio {} in layer {}: expected 0, 4 or more", ratios[i], i));
        h.ratio.push_back(ratios[i]);
    }
    if (ratios.size() > n_layer && ratios[n_layer] != 0)
        return refuse(file, strf("compress ratio {} for the drafter: expected 0 (window only)", ratios[n_layer]));
    VESTA_TRY(h.swiglu_clamp, file.f32_array("deepseek4.swiglu_clamp_exp", kMaxLayers + 64));
    if (h.swiglu_clamp.size() < n_layer)
        return Error{Code::bad_file, strf("{}: swiglu_clamp_exp has {} entries, expected at least {} (one per layer)",
                                          file.name(), h.swiglu_clamp.size(), n_layer)};
    for (size_t i = 0; i < std::min(h.swiglu_clamp.size(), n_layer + 1); ++i)
        if (!(h.swiglu_clamp[i] > 0))
            return Error{Code::bad_file, strf("{}: swiglu_clamp_exp of layer {} is {}, expected more than 0", file.name(),
                                              i, h.swiglu_clamp[i])};
    h.swiglu_clamp.resize(n_layer + 1, h.swiglu_clamp[n_layer - 1]);
    VESTA_TRY_STATUS(check_consistency(file, h));
    return h;
}

std::vector<float> Hparams::rope_freq(bool compressed) const {
    const auto n = static_cast<size_t>(n_rot / 2);
    const double width = static_cast<double>(n_rot);
    const double base = static_cast<double>(compressed ? compress_rope_base : rope_base);
    std::vector<float> freq(n);
    // Pairs that turn more than beta_fast times over the original context keep their speed, those that turn less than
    // beta_slow times are slowed down by the factor, and a ramp lies between.
    const auto pair_of = [&](double turns) {
        return width * std::log(static_cast<double>(yarn_original_ctx) / (turns * 2 * std::numbers::pi)) /
               (2 * std::log(base));
    };
    const double low = std::max(0.0, std::floor(pair_of(static_cast<double>(yarn_beta_fast))));
    const double high = std::min(width - 1, std::ceil(pair_of(static_cast<double>(yarn_beta_slow))));
    for (size_t i = 0; i < n; ++i) {
        const double g = std::pow(base, -2.0 * static_cast<double>(i) / width);
        // Equal ends would divide by zero: the ramp is then a step.
        const double ramp = std::clamp((static_cast<double>(i) - low) / std::max(high - low, 1e-3), 0.0, 1.0);
        freq[i] = static_cast<float>(compressed ? g / static_cast<double>(yarn_factor) * ramp + g * (1 - ramp) : g);
    }
    return freq;
}

}  // namespace vesta::model::deepseek_v4
