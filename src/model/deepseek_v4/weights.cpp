#include "model/deepseek_v4/weights.h"

#include <cstring>

namespace vesta::model::deepseek_v4 {
namespace {

std::string shape_text(const uint64_t* dims, uint32_t n_dim) {
    std::string s = "[";
    for (uint32_t i = 0; i < n_dim; ++i) s += strf("{}{}", i == 0 ? "" : ", ", dims[i]);
    return s + "]";
}

// Finds tensors of one file by prefix + name, checks them and turns them into weights. The first failure is kept and
// everything after it is skipped, so that the layer lists below read like the table in the specification.
class Binder {
 public:
    Binder(const gguf::File& file, const SupportsFn& supports, Weights& out)
        : file_(file), supports_(supports), out_(out) {}

    void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }
    bool failed() const { return !status_.ok(); }
    Status status() const { return status_; }

    ops::Weight matrix(const char* name, int64_t n_in, int64_t n_out, int64_t n_expert = 0) {
        const gguf::TensorInfo* t = find(name, {n_in, n_out, n_expert});
        if (t == nullptr) return {};
        if (!supports_(t->type)) {
            fail(Code::unsupported, strf("{}: tensor {} is {}, which this backend cannot multiply", file_.name(), t->name,
                                         quant::format(t->type).name));
            return {};
        }
        out_.bytes += static_cast<int64_t>(t->bytes.size());
        return {t->type, t->bytes.data(), n_out, n_in, n_expert == 0 ? 1 : n_expert, quant::row_bytes(t->type, n_in)};
    }

    const float* vector(const char* name, int64_t n, int64_t n_row = 0) {
        const gguf::TensorInfo* t = find(name, {n, n_row, 0});
        if (t == nullptr) return nullptr;
        if (t->type != quant::Type::f32 && t->type != quant::Type::f16 && t->type != quant::Type::bf16) {
            fail(Code::unsupported, strf("{}: tensor {} is {}, expected f32, f16 or bf16", file_.name(), t->name,
                                         quant::format(t->type).name));
            return nullptr;
        }
        const auto count = static_cast<int64_t>(t->n_elem());
        std::vector<float>& v = out_.vectors.emplace_back(static_cast<size_t>(count));
        quant::format(t->type).decode(t->bytes.data(), v.data(), count);
        for (const float x : v)
            if (!(x - x == 0.0f)) {
                fail(Code::bad_file, strf("{}: tensor {} holds a value that is not finite", file_.name(), t->name));
                return nullptr;
            }
        out_.bytes += static_cast<int64_t>(t->bytes.size());
        return v.data();
    }

    float number(const char* name) {
        const float* v = vector(name, 1);
        return v == nullptr ? 0.0f : *v;
    }

    // The hash table [n_vocab, n_used] of expert ids: each in range, and distinct within a row, as top-k would give them.
    const int32_t* expert_table(const char* name, int64_t n_used, int64_t n_vocab, int64_t n_expert) {
        const gguf::TensorInfo* t = find(name, {n_used, n_vocab, 0});
        if (t == nullptr) return nullptr;
        if (t->type != quant::Type::i32) {
            fail(Code::bad_file, strf("{}: tensor {} is {}, expected i32", file_.name(), t->name, quant::format(t->type).name));
            return nullptr;
        }
        std::vector<int32_t>& v = out_.tables.emplace_back(static_cast<size_t>(t->n_elem()));
        std::memcpy(v.data(), t->bytes.data(), t->bytes.size());
        for (int64_t row = 0; row < n_vocab; ++row) {
            const int32_t* ids = v.data() + row * n_used;
            for (int64_t k = 0; k < n_used; ++k) {
                bool repeated = false;
                for (int64_t j = 0; j < k; ++j) repeated = repeated || ids[j] == ids[k];
                if (ids[k] < 0 || ids[k] >= n_expert || repeated) {
                    fail(Code::bad_file,
                         strf("{}: tensor {} names expert {} for token {}{}, expected {} different ids from 0 to {}",
                              file_.name(), t->name, ids[k], row, repeated ? " twice" : "", n_used, n_expert - 1));
                    return nullptr;
                }
            }
        }
        out_.bytes += static_cast<int64_t>(t->bytes.size());
        return v.data();
    }

    void require_same_type(const ops::Weight& a, const ops::Weight& b, const char* what) {
        if (!failed() && a.type != b.type)
            fail(Code::unsupported, strf("{}: {}{}: gate is {} and up is {}, expected one type", file_.name(), prefix_, what,
                                         quant::format(a.type).name, quant::format(b.type).name));
    }

 private:
    struct Shape {
        int64_t dim[3];  // 0: absent
    };

    const gguf::TensorInfo* find(const char* name, Shape want) {
        if (failed()) return nullptr;
        const std::string full = prefix_ + name;
        uint64_t dims[3];
        uint32_t n_dim = 0;
        for (const int64_t d : want.dim)
            if (d > 0) dims[n_dim++] = static_cast<uint64_t>(d);
        const gguf::TensorInfo* t = file_.find_tensor(full);
        if (t == nullptr) {
            fail(Code::not_found, strf("{}: tensor {} is missing, expected shape {}; the file holds {} tensors and may be "
                                       "incomplete or a part of a split model",
                                       file_.name(), full, shape_text(dims, n_dim), file_.tensors().size()));
            return nullptr;
        }
        // Trailing dimensions of 1 say nothing: (n, 1) is (n).
        bool same = true;
        for (uint32_t i = 0; i < 4; ++i) same = same && t->dims[i] == (i < n_dim ? dims[i] : 1);
        if (!same) {
            fail(Code::bad_file, strf("{}: tensor {} has shape {}, expected {}", file_.name(), full,
                                      shape_text(t->dims, t->n_dim), shape_text(dims, n_dim)));
            return nullptr;
        }
        return t;
    }

    void fail(Code code, std::string message) {
        if (status_.ok()) status_ = Error{code, std::move(message)};
    }

    const gguf::File& file_;
    const SupportsFn& supports_;
    Weights& out_;
    std::string prefix_;
    Status status_;
};

HcWeights bind_hc(Binder& b, const Hparams& h, const char* fn, const char* scale, const char* base) {
    HcWeights w;
    w.fn = b.matrix(fn, h.n_stream * h.n_embd, h.n_mix());
    w.scale = b.vector(scale, 3);
    w.base = b.vector(base, h.n_mix());
    return w;
}

// ratio 0: window only. hash: routed by token id.
LayerWeights bind_layer(Binder& b, const Hparams& h, int64_t ratio, bool hash) {
    const int64_t n_embd = h.n_embd;
    LayerWeights w;
    w.hc_attn = bind_hc(b, h, "hc_attn_fn.weight", "hc_attn_scale.weight", "hc_attn_base.weight");
    w.hc_ffn = bind_hc(b, h, "hc_ffn_fn.weight", "hc_ffn_scale.weight", "hc_ffn_base.weight");
    w.attn_norm = b.vector("attn_norm.weight", n_embd);
    w.ffn_norm = b.vector("ffn_norm.weight", n_embd);
    w.q_a = b.matrix("attn_q_a.weight", n_embd, h.q_rank);
    w.q_norm = b.vector("attn_q_a_norm.weight", h.q_rank);
    w.q_b = b.matrix("attn_q_b.weight", h.q_rank, h.n_head * h.head_dim);
    w.kv = b.matrix("attn_kv.weight", n_embd, h.head_dim);
    w.kv_norm = b.vector("attn_kv_a_norm.weight", h.head_dim);
    w.sink = b.vector("attn_sinks.weight", h.n_head);
    w.out_a = b.matrix("attn_output_a.weight", h.n_head / h.n_out_group * h.head_dim, h.n_out_group * h.out_rank);
    w.out_b = b.matrix("attn_output_b.weight", h.n_out_group * h.out_rank, n_embd);
    if (ratio > 0) {
        const int64_t wide = h.n_lane(ratio) * h.head_dim;
        w.compressor.kv = b.matrix("attn_compressor_kv.weight", n_embd, wide);
        w.compressor.gate = b.matrix("attn_compressor_gate.weight", n_embd, wide);
        w.compressor.ape = b.vector("attn_compressor_ape.weight", wide, ratio);
        w.compressor.norm = b.vector("attn_compressor_norm.weight", h.head_dim);
    }
    if (Hparams::overlaps(ratio)) {
        const int64_t wide = h.n_lane(ratio) * h.index_head_dim;
        w.index_q = b.matrix("indexer.attn_q_b.weight", h.q_rank, h.index_n_head * h.index_head_dim);
        w.index_weight = b.matrix("indexer.proj.weight", n_embd, h.index_n_head);
        w.index_compressor.kv = b.matrix("indexer_compressor_kv.weight", n_embd, wide);
        w.index_compressor.gate = b.matrix("indexer_compressor_gate.weight", n_embd, wide);
        w.index_compressor.ape = b.vector("indexer_compressor_ape.weight", wide, ratio);
        w.index_compressor.norm = b.vector("indexer_compressor_norm.weight", h.index_head_dim);
    }
    w.router = b.matrix("ffn_gate_inp.weight", n_embd, h.n_expert);
    if (hash)
        w.hash = b.expert_table("ffn_gate_tid2eid.weight", h.n_expert_used, h.n_vocab, h.n_expert);
    else
        w.router_bias = b.vector("exp_probs_b.bias", h.n_expert);
    w.gate = b.matrix("ffn_gate_exps.weight", n_embd, h.n_ff, h.n_expert);
    w.up = b.matrix("ffn_up_exps.weight", n_embd, h.n_ff, h.n_expert);
    w.down = b.matrix("ffn_down_exps.weight", h.n_ff, n_embd, h.n_expert);
    b.require_same_type(w.gate, w.up, "ffn_{gate,up}_exps.weight");
    w.shared_gate = b.matrix("ffn_gate_shexp.weight", n_embd, h.n_ff_shared());
    w.shared_up = b.matrix("ffn_up_shexp.weight", n_embd, h.n_ff_shared());
    w.shared_down = b.matrix("ffn_down_shexp.weight", h.n_ff_shared(), n_embd);
    return w;
}

DrafterWeights bind_drafter(Binder& b, const Hparams& h) {
    DrafterWeights w;
    b.set_prefix("mtp.0.");
    w.layer = bind_layer(b, h, 0, false);
    w.e_proj = b.matrix("e_proj.weight", h.n_embd, h.n_embd);
    w.h_proj = b.matrix("h_proj.weight", h.n_embd, h.n_embd);
    w.e_norm = b.vector("enorm.weight", h.n_embd);
    w.h_norm = b.vector("hnorm.weight", h.n_embd);
    w.head.fn = b.matrix("hc_head_fn.weight", h.n_stream * h.n_embd, h.n_stream);
    w.head.scale = b.number("hc_head_scale.weight");
    w.head.base = b.vector("hc_head_base.weight", h.n_stream);
    w.head.norm = b.vector("norm.weight", h.n_embd);
    return w;
}

bool has_drafter(const gguf::File& file) {
    for (const gguf::TensorInfo& t : file.tensors())
        if (t.name.starts_with("mtp.0.")) return true;
    return false;
}

}  // namespace

Result<Weights> bind_weights(const gguf::File& file, const gguf::File* drafter, const Hparams& h,
                             const SupportsFn& supports) {
    Weights w;
    Binder b(file, supports, w);
    w.embed = b.matrix("token_embd.weight", h.n_embd, h.n_vocab);
    w.output = b.matrix("output.weight", h.n_embd, h.n_vocab);
    w.head.norm = b.vector("output_norm.weight", h.n_embd);
    w.head.fn = b.matrix("output_hc_fn.weight", h.n_stream * h.n_embd, h.n_stream);
    w.head.scale = b.number("output_hc_scale.weight");
    w.head.base = b.vector("output_hc_base.weight", h.n_stream);
    for (int64_t i = 0; i < h.n_layer && !b.failed(); ++i) {
        b.set_prefix(strf("blk.{}.", i));
        w.layer.push_back(bind_layer(b, h, h.ratio[static_cast<size_t>(i)], h.is_hash(i)));
    }
    VESTA_TRY_STATUS(b.status());
    for (const gguf::TensorInfo& t : file.tensors())
        if (!t.name.starts_with("mtp.") && t.type != quant::Type::i32) w.n_parameter += static_cast<int64_t>(t.n_elem());
    const gguf::File* source = has_drafter(file) ? &file : drafter;
    if (source != nullptr) {
        Binder d(*source, supports, w);
        w.drafter.push_back(bind_drafter(d, h));
        VESTA_TRY_STATUS(d.status());
    }
    return w;
}

}  // namespace vesta::model::deepseek_v4
