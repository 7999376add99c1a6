// A model file small enough to be made, damaged and loaded hundreds of times: every tensor and key of the deepseek4
// architecture in sizes of a few dozen. Written from the tables of docs/gguf.md, not from the loader.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "gguf/writer.h"
#include "quant/format.h"
#include "support/byte_vocabulary.h"
#include "support/random_blocks.h"

namespace vesta::test {

struct ToyShape {
    uint32_t n_embd = 64, n_head = 4, head_dim = 80, n_rot = 16, q_rank = 32, out_rank = 32, n_group = 2;
    uint32_t index_n_head = 2, index_dim = 32, top_k = 3, window = 8;
    uint32_t n_expert = 4, n_used = 2, n_ff = 32, n_stream = 4, n_vocab = 260, n_hash = 1;
    std::vector<uint32_t> ratio = {0, 4, 8};  // window only; overlapping and indexed; plain
    bool drafter = true;
};

// Every row a multiple of 256, so that any block format fits any matrix.
inline ToyShape wide_toy() {
    ToyShape s;
    s.n_embd = 256, s.n_head = 4, s.head_dim = 128, s.n_rot = 64, s.q_rank = 256, s.out_rank = 128;
    s.index_dim = 64, s.n_ff = 256;
    return s;
}

class ToyModel {
 public:
    using Value = std::variant<uint32_t, uint64_t, int32_t, float, double, bool, std::string, std::vector<uint32_t>,
                               std::vector<int32_t>, std::vector<float>, std::vector<std::string>>;
    struct Key {
        std::string name;
        Value value;
    };
    struct Tensor {
        std::string name;
        quant::Type type;
        std::vector<uint64_t> dims;
        std::vector<std::byte> bytes;
        int64_t n_elem() const {
            int64_t n = 1;
            for (const uint64_t d : dims) n *= static_cast<int64_t>(d);
            return n;
        }
        // Requires a type of plain floats.
        void put(int64_t i, float v) {
            const quant::Format& f = quant::format(type);
            f.encode(&v, bytes.data() + i * f.block_bytes, 1);
        }
        void put_id(int64_t i, int32_t v) { std::memcpy(bytes.data() + 4 * i, &v, 4); }
    };

    ToyShape shape;
    std::vector<Key> keys;
    std::vector<Tensor> tensors;

    explicit ToyModel(const ToyShape& s = {}) : shape(s) {
        add_keys();
        add_tokens();
        add_tensors();
    }

    // Key names without "deepseek4." unless they hold the full name.
    static std::string full(const std::string& name) {
        return name.starts_with("general.") || name.starts_with("tokenizer.") ? name : "deepseek4." + name;
    }
    void set(const std::string& name, Value value) {
        for (Key& k : keys)
            if (k.name == full(name)) {
                k.value = std::move(value);
                return;
            }
        keys.push_back({full(name), std::move(value)});
    }
    void erase(const std::string& name) {
        std::erase_if(keys, [&](const Key& k) { return k.name == full(name); });
    }
    Tensor& tensor(const std::string& name) {
        for (Tensor& t : tensors)
            if (t.name == name) return t;
        throw std::runtime_error("the toy model has no tensor " + name);
    }
    void drop(const std::string& name) {
        std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
    }
    // The same values in another format, or random ones where this build cannot encode it.
    void retype(const std::string& name, quant::Type type) {
        Tensor& t = tensor(name);
        std::vector<float> values(static_cast<size_t>(t.n_elem()));
        quant::format(t.type).decode(t.bytes.data(), values.data(), t.n_elem());
        fill(t, type, values);
    }
    void resize(const std::string& name, std::vector<uint64_t> dims) {
        Tensor& t = tensor(name);
        t.dims = std::move(dims);
        t.bytes.assign(static_cast<size_t>(quant::row_bytes(t.type, t.n_elem())), std::byte{0});
    }

    std::vector<std::byte> bytes() const {
        gguf::Writer w;
        for (const Key& k : keys) add(w, k);
        for (const Tensor& t : tensors) w.add_tensor(t.name, t.type, t.dims);
        std::vector<std::byte> out = w.header();
        for (const Tensor& t : tensors) {
            out.insert(out.end(), t.bytes.begin(), t.bytes.end());
            out.resize((out.size() + 31) / 32 * 32);
        }
        return out;
    }

    // A file under VESTA_TEST_TMP; the process removes it at exit.
    std::string write() const {
        static std::vector<std::string> made;
        static const int registered = std::atexit([] {
            for (const std::string& path : made) ::unlink(path.c_str());
        });
        (void)registered;
        const std::string path = strf("{}/toy-{}-{}.gguf", VESTA_TEST_TMP, ::getpid(), made.size());
        const std::vector<std::byte> all = bytes();
        std::FILE* f = std::fopen(path.c_str(), "wb");
        if (f == nullptr || std::fwrite(all.data(), 1, all.size(), f) != all.size())
            throw std::runtime_error("cannot write " + path);
        std::fclose(f);
        made.push_back(path);
        return path;
    }

 private:
    static void add(gguf::Writer& w, const Key& k) {
        struct Visitor {
            gguf::Writer& w;
            const std::string& key;
            void operator()(uint32_t v) const { w.add_u32(key, v); }
            void operator()(uint64_t v) const { w.add_u64(key, v); }
            void operator()(int32_t v) const { w.add_i32(key, v); }
            void operator()(float v) const { w.add_f32(key, v); }
            void operator()(double v) const {
                w.add_value(key, {gguf::ValueType::f64, gguf::ValueType::f64, 1, std::as_bytes(std::span(&v, 1))});
            }
            void operator()(bool v) const { w.add_bool(key, v); }
            void operator()(const std::string& v) const { w.add_string(key, v); }
            void operator()(const std::vector<uint32_t>& v) const { w.add_u32_array(key, v); }
            void operator()(const std::vector<int32_t>& v) const { w.add_i32_array(key, v); }
            void operator()(const std::vector<float>& v) const { w.add_f32_array(key, v); }
            void operator()(const std::vector<std::string>& v) const { w.add_strings(key, v); }
        };
        std::visit(Visitor{w, k.name}, k.value);
    }

    void add_keys() {
        const ToyShape& s = shape;
        const auto n_layer = static_cast<uint32_t>(s.ratio.size());
        set("general.architecture", std::string("deepseek4"));
        set("general.name", std::string("toy"));
        const std::pair<const char*, uint32_t> integers[] = {{"block_count", n_layer},
                                                             {"embedding_length", s.n_embd},
                                                             {"vocab_size", s.n_vocab},
                                                             {"context_length", 4096},
                                                             {"attention.head_count", s.n_head},
                                                             {"attention.head_count_kv", 1},
                                                             {"attention.key_length", s.head_dim},
                                                             {"attention.value_length", s.head_dim},
                                                             {"rope.dimension_count", s.n_rot},
                                                             {"attention.q_lora_rank", s.q_rank},
                                                             {"attention.output_lora_rank", s.out_rank},
                                                             {"attention.output_group_count", s.n_group},
                                                             {"attention.sliding_window", s.window},
                                                             {"attention.indexer.head_count", s.index_n_head},
                                                             {"attention.indexer.key_length", s.index_dim},
                                                             {"attention.indexer.top_k", s.top_k},
                                                             {"expert_count", s.n_expert},
                                                             {"expert_used_count", s.n_used},
                                                             {"expert_shared_count", 1},
                                                             {"expert_feed_forward_length", s.n_ff},
                                                             {"hash_layer_count", s.n_hash},
                                                             {"expert_gating_func", 4},
                                                             {"hyper_connection.count", s.n_stream},
                                                             {"hyper_connection.sinkhorn_iterations", 20},
                                                             {"rope.scaling.original_context_length", 1024}};
        for (const auto& [name, value] : integers) set(name, value);
        const std::pair<const char*, float> numbers[] = {{"expert_weights_scale", 1.5f},
                                                         {"hyper_connection.epsilon", 1e-6f},
                                                         {"attention.layer_norm_rms_epsilon", 1e-6f},
                                                         {"rope.freq_base", 10000.0f},
                                                         {"attention.compress_rope_freq_base", 160000.0f},
                                                         {"rope.scaling.factor", 16.0f},
                                                         {"rope.scaling.yarn_beta_fast", 32.0f},
                                                         {"rope.scaling.yarn_beta_slow", 1.0f}};
        for (const auto& [name, value] : numbers) set(name, value);
        set("expert_weights_norm", true);
        std::vector<uint32_t> ratios = s.ratio;
        ratios.push_back(0);  // the drafter's
        set("attention.compress_ratios", ratios);
        set("swiglu_clamp_exp", std::vector<float>(n_layer + 1, 10.0f));
    }

    void add_tokens() {
        std::vector<std::string> tokens = byte_tokens();
        std::vector<int32_t> types(256, 1);
        for (const char* marker :
             {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"}) {
            tokens.push_back(marker);
            types.push_back(3);
        }
        while (tokens.size() < shape.n_vocab) {
            tokens.push_back(strf("unused{}", tokens.size()));
            types.push_back(5);
        }
        set("tokenizer.ggml.tokens", tokens);
        set("tokenizer.ggml.merges", std::vector<std::string>{});
        set("tokenizer.ggml.token_type", types);
    }

    void fill(Tensor& t, quant::Type type, const std::vector<float>& values) {
        const quant::Format& f = quant::format(type);
        t.type = type;
        t.bytes.resize(static_cast<size_t>(quant::row_bytes(f, t.n_elem())));
        std::mt19937 rng(static_cast<uint32_t>(t.n_elem()));
        if (f.encode != nullptr)
            f.encode(values.data(), t.bytes.data(), t.n_elem());
        else
            random_blocks(f, t.bytes.data(), t.n_elem(), rng);
    }

    // Gaussian values around `mean`, the same for a name whatever else the model holds.
    void add(const std::string& name, std::vector<uint64_t> dims, float sigma, float mean = 0.0f) {
        uint32_t seed = 2166136261u;
        for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 16777619u;
        std::mt19937 rng(seed);
        std::normal_distribution<float> normal(mean, sigma);
        Tensor& t = tensors.emplace_back();
        t.name = name;
        t.dims = std::move(dims);
        std::vector<float> values(static_cast<size_t>(t.n_elem()));
        for (float& v : values) v = normal(rng);
        fill(t, quant::Type::f32, values);
    }
    void matrix(const std::string& name, uint64_t n_in, uint64_t n_out, uint64_t n_expert = 0) {
        std::vector<uint64_t> dims = {n_in, n_out};
        if (n_expert > 0) dims.push_back(n_expert);
        add(name, std::move(dims), 1.0f / std::sqrt(static_cast<float>(n_in)));
    }
    void vector(const std::string& name, uint64_t n, float sigma, float mean) { add(name, {n}, sigma, mean); }

    void add_tensors() {
        const ToyShape& s = shape;
        matrix("token_embd.weight", s.n_embd, s.n_vocab);
        matrix("output.weight", s.n_embd, s.n_vocab);
        vector("output_norm.weight", s.n_embd, 0.1f, 1.0f);
        matrix("output_hc_fn.weight", s.n_stream * s.n_embd, s.n_stream);
        vector("output_hc_base.weight", s.n_stream, 0.1f, 0.0f);
        vector("output_hc_scale.weight", 1, 0.1f, 1.0f);
        for (size_t i = 0; i < s.ratio.size(); ++i) add_layer(strf("blk.{}.", i), s.ratio[i], i < s.n_hash);
        if (!s.drafter) return;
        add_layer("mtp.0.", 0, false);
        matrix("mtp.0.e_proj.weight", s.n_embd, s.n_embd);
        matrix("mtp.0.h_proj.weight", s.n_embd, s.n_embd);
        vector("mtp.0.enorm.weight", s.n_embd, 0.1f, 1.0f);
        vector("mtp.0.hnorm.weight", s.n_embd, 0.1f, 1.0f);
        vector("mtp.0.norm.weight", s.n_embd, 0.1f, 1.0f);
        matrix("mtp.0.hc_head_fn.weight", s.n_stream * s.n_embd, s.n_stream);
        vector("mtp.0.hc_head_base.weight", s.n_stream, 0.1f, 0.0f);
        vector("mtp.0.hc_head_scale.weight", 1, 0.1f, 1.0f);
    }

    void add_layer(const std::string& p, uint32_t ratio, bool hash) {
        const ToyShape& s = shape;
        const uint32_t n_mix = (2 + s.n_stream) * s.n_stream;
        for (const char* half : {"hc_attn", "hc_ffn"}) {
            matrix(p + half + "_fn.weight", s.n_stream * s.n_embd, n_mix);
            vector(p + half + "_scale.weight", 3, 0.1f, 1.0f);
            vector(p + half + "_base.weight", n_mix, 0.3f, 0.0f);
        }
        vector(p + "attn_norm.weight", s.n_embd, 0.1f, 1.0f);
        vector(p + "ffn_norm.weight", s.n_embd, 0.1f, 1.0f);
        matrix(p + "attn_q_a.weight", s.n_embd, s.q_rank);
        vector(p + "attn_q_a_norm.weight", s.q_rank, 0.1f, 1.0f);
        matrix(p + "attn_q_b.weight", s.q_rank, s.n_head * s.head_dim);
        matrix(p + "attn_kv.weight", s.n_embd, s.head_dim);
        vector(p + "attn_kv_a_norm.weight", s.head_dim, 0.1f, 1.0f);
        vector(p + "attn_sinks.weight", s.n_head, 0.5f, 0.0f);
        matrix(p + "attn_output_a.weight", s.n_head / s.n_group * s.head_dim, s.n_group * s.out_rank);
        matrix(p + "attn_output_b.weight", s.n_group * s.out_rank, s.n_embd);
        const uint32_t n_lane = ratio == 4 ? 2 : 1;
        if (ratio > 0) add_compressor(p + "attn_compressor", n_lane * s.head_dim, s.head_dim, ratio);
        if (ratio == 4) {
            matrix(p + "indexer.attn_q_b.weight", s.q_rank, s.index_n_head * s.index_dim);
            matrix(p + "indexer.proj.weight", s.n_embd, s.index_n_head);
            add_compressor(p + "indexer_compressor", n_lane * s.index_dim, s.index_dim, ratio);
        }
        matrix(p + "ffn_gate_inp.weight", s.n_embd, s.n_expert);
        if (hash)
            add_hash_table(p + "ffn_gate_tid2eid.weight");
        else
            vector(p + "exp_probs_b.bias", s.n_expert, 0.2f, 0.0f);
        matrix(p + "ffn_gate_exps.weight", s.n_embd, s.n_ff, s.n_expert);
        matrix(p + "ffn_up_exps.weight", s.n_embd, s.n_ff, s.n_expert);
        matrix(p + "ffn_down_exps.weight", s.n_ff, s.n_embd, s.n_expert);
        matrix(p + "ffn_gate_shexp.weight", s.n_embd, s.n_ff);
        matrix(p + "ffn_up_shexp.weight", s.n_embd, s.n_ff);
        matrix(p + "ffn_down_shexp.weight", s.n_ff, s.n_embd);
    }

    void add_compressor(const std::string& p, uint32_t wide, uint32_t width, uint32_t ratio) {
        matrix(p + "_kv.weight", shape.n_embd, wide);
        matrix(p + "_gate.weight", shape.n_embd, wide);
        add(p + "_ape.weight", {wide, ratio}, 0.3f);
        vector(p + "_norm.weight", width, 0.1f, 1.0f);
    }

    void add_hash_table(const std::string& name) {
        Tensor& t = tensors.emplace_back();
        t.name = name;
        t.type = quant::Type::i32;
        t.dims = {shape.n_used, shape.n_vocab};
        t.bytes.resize(static_cast<size_t>(t.n_elem()) * 4);
        for (uint32_t row = 0; row < shape.n_vocab; ++row)
            for (uint32_t k = 0; k < shape.n_used; ++k)
                t.put_id(row * shape.n_used + k, static_cast<int32_t>((row + k) % shape.n_expert));
    }
};

}  // namespace vesta::test
