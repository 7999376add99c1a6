#include "model/deepseek_v4/model.h"

#include <algorithm>
#include <cmath>

namespace vesta::model::deepseek_v4 {

Result<std::unique_ptr<Model>> DeepseekV4::load(const gguf::File& file, const gguf::File* drafter,
                                                const SupportsFn& supports) {
    auto m = std::make_unique<DeepseekV4>();
    VESTA_TRY(m->h_, read_hparams(file));
    const Hparams& h = m->h_;
    VESTA_TRY(m->w_, bind_weights(file, drafter, h, supports));
    m->freq_main_ = h.rope_freq(false);
    m->freq_compress_ = h.rope_freq(true);
    m->shape_ = {.head_dim = h.head_dim, .n_rot = h.n_rot, .index_dim = h.index_head_dim, .window = h.window, .block_rows = kBlockRows, .layer = {}};
    for (const int64_t r : h.ratio)
        m->shape_.layer.push_back({.ratio = r, .n_lane = h.n_lane(r), .indexed = Hparams::overlaps(r)});
    if (!m->w_.drafter.empty()) m->shape_.layer.push_back({});
    std::string name;
    if (file.has("general.name")) {
        VESTA_TRY(const std::string_view v, file.string("general.name"));
        name = v;
    }
    m->info_ = {.architecture = "deepseek4",
                .name = std::move(name),
                .n_vocab = h.n_vocab,
                .n_embd = h.n_embd,
                .n_layer = h.n_layer,
                .n_ctx_train = h.n_ctx_train,
                .n_parameter = m->w_.n_parameter,
                .weight_bytes = m->w_.bytes,
                .n_stream = h.n_stream,
                .has_drafter = !m->w_.drafter.empty(),
                .index_top_k = h.index_top_k,
                .decoded_bytes = m->w_.decoded_bytes()};
    return std::unique_ptr<Model>(std::move(m));
}

std::unique_ptr<Workspace> DeepseekV4::new_workspace(int64_t max_rows, int64_t max_outputs, int64_t n_ctx) const {
    return std::make_unique<PassWorkspace>(h_, max_rows, max_outputs, n_ctx);
}

int64_t DeepseekV4::workspace_bytes(int64_t max_rows, int64_t max_outputs, int64_t n_ctx) const {
    return PassWorkspace::bytes(h_, max_rows, max_outputs, n_ctx);
}

ops::PassShape DeepseekV4::pass_shape(int64_t max_rows, int64_t n_ctx) const {
    ops::PassShape s{.rows = max_rows, .block_rows = std::min(max_rows, kBlockRows), .n_ctx = n_ctx,
                     .widest_input = std::max({h_.n_head * h_.head_dim, h_.n_out_group * h_.out_rank, h_.n_stream * h_.n_embd}),
                     .n_embd = h_.n_embd, .n_head = h_.n_head, .head_dim = h_.head_dim, .window = h_.window,
                     .n_ff = h_.n_ff, .n_ff_shared = h_.n_ff_shared(), .n_used = h_.n_expert_used};
    for (const int64_t ratio : h_.ratio) {
        if (ratio == 0) continue;
        int64_t& least = Hparams::overlaps(ratio) ? s.index_ratio : s.dense_ratio;
        least = least == 0 ? ratio : std::min(least, ratio);
    }
    if (s.index_ratio > 0) s.index_top_k = h_.index_top_k;
    return s;
}

void DeepseekV4::bind_caches(PassWorkspace& ws, std::span<kv::Cache* const> caches) const {
    ws.caches.resize(shape_.layer.size());
    for (size_t layer = 0; layer < ws.caches.size(); ++layer) {
        ws.caches[layer].clear();
        for (kv::Cache* c : caches) ws.caches[layer].push_back(&c->layer(static_cast<int64_t>(layer)));
    }
}

void DeepseekV4::hc_mix_in(const LayerPass& p, const HcWeights& w, const float* norm) const {
    Scratch& s = p.s;
    p.ops.hc_mix_in({.x = s.x, .pre = s.pre, .post = s.post, .comb = s.comb, .mix = s.mix, .flat = s.flat,
                     .streams = s.streams, .fn = w.fn, .scale = w.scale, .base = w.base, .norm = norm,
                     .n_stream = h_.n_stream, .n_sinkhorn = h_.n_sinkhorn, .hc_eps = h_.hc_eps, .norm_eps = h_.norm_eps});
}

// c = W_kv x, z = W_gate x; completed windows become rows of the compressed (or index) store.
void DeepseekV4::compress(const LayerPass& p, const CompressorWeights& w, int64_t width, bool to_index) const {
    const int64_t n_lane = h_.n_lane(p.ratio);
    const ops::Tensor c = ops::Tensor::of(p.s.c.data, p.s.x.n_row, n_lane * width);
    const ops::Tensor z = ops::Tensor::of(p.s.z.data, p.s.x.n_row, n_lane * width);
    p.ops.matmul({.y = c, .w = w.kv, .x = p.s.x});
    p.ops.matmul({.y = z, .w = w.gate, .x = p.s.x});
    if (to_index) check_indexer(p, c), check_indexer(p, z);
    p.ops.compress({.c = c, .z = z, .ape = w.ape, .norm = w.norm, .freq = freq_compress_.data(), .eps = h_.norm_eps,
                    .width = width, .n_lane = n_lane, .ratio = p.ratio, .n_rot = h_.n_rot, .to_index = to_index,
                    .rows = p.rows, .cache = p.cache});
}

// A NaN in the indexer changes which rows are chosen and then disappears: choosing compares, and every row is finite. So its
// inputs are looked at here; everywhere else a NaN travels on to the streams.
void DeepseekV4::check_indexer(const LayerPass& p, const ops::Tensor& x) const {
    p.ops.check_finite({.x = x, .layer = p.layer, .what = "indexer values", .rows = p.rows});
}

// Which compressed rows each query reads: the indexer's queries come from the same low-rank vector as the heads.
void DeepseekV4::select(const LayerPass& p, const LayerWeights& w) const {
    Scratch& s = p.s;
    p.ops.matmul({.y = s.index_q, .w = w.index_q, .x = s.qa});
    p.ops.rope({.x = s.index_q, .n_head = h_.index_n_head, .head_dim = h_.index_head_dim, .n_rot = h_.n_rot,
                .freq = freq_compress_.data(), .rows = p.rows});
    p.ops.matmul({.y = s.index_weight, .w = w.index_weight, .x = s.x});
    const auto scale = 1.0 / std::sqrt(static_cast<double>(h_.index_head_dim) * static_cast<double>(h_.index_n_head));
    p.ops.scale(s.index_weight, static_cast<float>(scale));
    check_indexer(p, s.index_q), check_indexer(p, s.index_weight);
    p.ops.index_select({.selected = s.selected, .q = s.index_q, .weight = s.index_weight, .n_head = h_.index_n_head,
                        .head_dim = h_.index_head_dim, .ratio = p.ratio, .top_k = h_.index_top_k, .rows = p.rows,
                        .cache = p.cache});
}

// A row's result does not depend on the rows beside it, and a block's rows are in the cache before the next block's
// queries look there: passing through in blocks is prefill in smaller chunks.
template <class F>
void DeepseekV4::each_block(const LayerPass& p, F&& f) const {
    const auto n_row = static_cast<int64_t>(p.rows.size());
    for (int64_t first = 0; first < n_row; first += kBlockRows) {
        const int64_t n = std::min(kBlockRows, n_row - first);
        f(LayerPass{p.ops, p.workspace.block(first, n), p.workspace,
                    p.rows.subspan(static_cast<size_t>(first), static_cast<size_t>(n)), p.cache, p.layer, p.ratio, p.clamp});
    }
}

// Of one block.
void DeepseekV4::attention_half(const LayerPass& p, const LayerWeights& w) const {
    Scratch& s = p.s;
    const float* freq = p.ratio > 0 ? freq_compress_.data() : freq_main_.data();
    const bool indexed = Hparams::overlaps(p.ratio);
    hc_mix_in(p, w.hc_attn, w.attn_norm);
    p.ops.latent_qkv({.q = s.q, .kv = s.kv, .qa = s.qa, .x = s.x, .q_a = w.q_a, .q_b = w.q_b, .w_kv = w.kv,
                      .q_norm = w.q_norm, .kv_norm = w.kv_norm, .freq = freq, .n_head = h_.n_head,
                      .head_dim = h_.head_dim, .n_rot = h_.n_rot, .eps = h_.norm_eps, .rows = p.rows});
    p.ops.append_window({.kv = s.kv, .n_rot = h_.n_rot, .rows = p.rows, .cache = p.cache});
    // A row completed by a token is visible to that very token: compress before attending.
    if (p.ratio > 0) compress(p, w.compressor, h_.head_dim, false);
    if (indexed) {
        compress(p, w.index_compressor, h_.index_head_dim, true);
        select(p, w);
    }
    p.ops.attend({.out = s.heads, .q = s.q, .sink = w.sink, .n_head = h_.n_head, .head_dim = h_.head_dim,
                  .n_rot = h_.n_rot, .window = h_.window, .ratio = p.ratio, .selection = indexed ? &s.selected : nullptr,
                  .rows = p.rows, .cache = p.cache});
    // Values are the rotated rows, so the result turns back by the query's own position.
    p.ops.rope({.x = s.heads, .n_head = h_.n_head, .head_dim = h_.head_dim, .n_rot = h_.n_rot, .freq = freq,
                .rows = p.rows, .inverse = true});
    p.ops.grouped_out({.y = s.y, .low = s.low, .heads = s.heads, .a = w.out_a, .b = w.out_b, .n_group = h_.n_out_group});
    p.ops.hc_mix_out({.streams = s.streams, .y = s.y, .post = s.post, .comb = s.comb});
}

void DeepseekV4::expert_half(const LayerPass& p, const LayerWeights& w) const {
    Scratch& s = p.s;
    each_block(p, [&](const LayerPass& block) { hc_mix_in(block, w.hc_ffn, w.ffn_norm); });
    p.ops.matmul({.y = s.router, .w = w.router, .x = s.x});
    p.ops.route({.expert = s.expert.data(), .weight = s.expert_weight.data(), .logits = s.router, .bias = w.router_bias,
                 .hash = w.hash, .n_used = h_.n_expert_used, .scale = h_.expert_scale, .rows = p.rows});
    p.ops.routed_experts({.parts = s.parts, .x = s.x, .expert = s.expert.data(), .weight = s.expert_weight.data(),
                          .n_used = h_.n_expert_used, .gate = w.gate, .up = w.up, .down = w.down, .xs = s.expert_xs,
                          .g = s.expert_g, .u = s.expert_u, .ys = s.expert_ys, .clamp = p.clamp});
    p.ops.shared_expert({.y = s.shared, .x = s.x, .gate = w.shared_gate, .up = w.shared_up, .down = w.shared_down,
                         .g = s.shared_g, .u = s.shared_u, .clamp = p.clamp});
    p.ops.combine({.y = s.y, .parts = s.parts, .shared = s.shared});
    p.ops.hc_mix_out({.streams = s.streams, .y = s.y, .post = s.post, .comb = s.comb});
}

void DeepseekV4::head(ops::Ops& ops, PassWorkspace& ws, const Scratch& s, const HeadWeights& w,
                      std::span<const int32_t> output_rows, float* logits) const {
    for (size_t first = 0; first < output_rows.size(); first += kOutputRows) {
        const size_t n = std::min(static_cast<size_t>(kOutputRows), output_rows.size() - first);
        const Scratch& o = ws.outputs(static_cast<int64_t>(n));
        ops.gather_rows(o.out_streams, s.streams, output_rows.subspan(first, n));
        ops.head({.logits = ops::Tensor::of(logits + static_cast<int64_t>(first) * h_.n_vocab, static_cast<int64_t>(n), h_.n_vocab),
                  .streams = o.out_streams, .flat = o.out_flat, .mix = o.out_mix, .x = o.out_x, .fn = w.fn,
                  .hc_scale = w.scale, .hc_base = w.base, .norm = w.norm, .output = w_.output, .hc_eps = h_.hc_eps,
                  .norm_eps = h_.norm_eps});
    }
}

Status DeepseekV4::forward(ops::Ops& ops, Workspace& workspace, const Pass& pass) const {
    auto& ws = static_cast<PassWorkspace&>(workspace);
    Scratch& s = ws.begin(static_cast<int64_t>(pass.rows.size()));
    bind_caches(ws, pass.cache);
    const auto tap = [&](Tap at, int layer) {
        if (pass.tap != nullptr) (*pass.tap)(at, layer, s.streams, pass.rows);
    };

    // All streams start as the embedding.
    ops.embed({.y = s.streams, .table = w_.embed, .n_copy = h_.n_stream, .rows = pass.rows});

    for (int layer = 0; layer < h_.n_layer; ++layer) {
        const auto i = static_cast<size_t>(layer);
        const LayerPass p{ops, s, ws, pass.rows, ws.caches[i], layer, h_.ratio[i], h_.swiglu_clamp[i]};
        tap(Tap::layer_input, layer);
        each_block(p, [&](const LayerPass& block) { attention_half(block, w_.layer[i]); });
        tap(Tap::after_attention, layer);
        expert_half(p, w_.layer[i]);
        tap(Tap::after_experts, layer);
        ops.check_finite({.x = s.streams, .layer = layer, .what = "streams", .rows = pass.rows});
    }
    tap(Tap::final_streams, static_cast<int>(h_.n_layer));
    head(ops, ws, s, w_.head, pass.output_rows, pass.logits);
    return ops.end_pass();
}

// e = e_proj rms_norm(embed(next token));  stream_s = e + h_proj rms_norm(h_prev_s);  then one window-only layer.
Status DeepseekV4::draft(ops::Ops& ops, Workspace& workspace, const DraftPass& pass) const {
    if (w_.drafter.empty()) return Error{Code::unsupported, "this model file has no MTP block to draft with"};
    const DrafterWeights& w = w_.drafter[0];
    auto& ws = static_cast<PassWorkspace&>(workspace);
    const auto n_row = static_cast<int64_t>(pass.rows.size());
    Scratch& s = ws.begin(n_row);
    bind_caches(ws, pass.cache);
    const auto layer = static_cast<size_t>(h_.n_layer);
    const LayerPass p{ops, s, ws, pass.rows, ws.caches[layer], static_cast<int>(layer), 0, h_.swiglu_clamp[layer]};

    ops.embed({.y = s.x, .table = w_.embed, .rows = pass.rows});
    ops.rms_norm({.y = s.x, .x = s.x, .w = w.e_norm, .eps = h_.norm_eps});
    ops.matmul({.y = s.y, .w = w.e_proj, .x = s.x});
    const ops::Tensor previous = ops::Tensor::of(pass.streams, n_row, s.streams.n_col);
    int64_t first = 0;
    each_block(p, [&](const LayerPass& block) {
        // The given streams may be the workspace's own: a block of them is read before the same memory is written.
        const ops::Tensor& streams = block.s.streams;
        const ops::Tensor flat = block.s.flat.split_rows(h_.n_stream);
        ops.rms_norm({.y = flat, .x = previous.rows(first, streams.n_row).split_rows(h_.n_stream), .w = w.h_norm,
                      .eps = h_.norm_eps});
        ops.matmul({.y = streams.split_rows(h_.n_stream), .w = w.h_proj, .x = flat});
        first += streams.n_row;
    });
    for (int64_t i = 0; i < h_.n_stream; ++i) ops.add(s.streams.cols(i * h_.n_embd, h_.n_embd), s.y);

    each_block(p, [&](const LayerPass& block) { attention_half(block, w.layer); });
    expert_half(p, w.layer);
    ops.check_finite({.x = s.streams, .layer = static_cast<int>(layer), .what = "drafter streams", .rows = pass.rows});
    head(ops, ws, s, w.head, pass.output_rows, pass.logits);
    return ops.end_pass();
}

}  // namespace vesta::model::deepseek_v4
