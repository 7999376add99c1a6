// DeepSeek V4: the forward pass, written once against Ops for one row or a thousand. docs/model.md has the mathematics.
#pragma once

#include <memory>
#include <vector>

#include "model/deepseek_v4/hparams.h"
#include "model/deepseek_v4/weights.h"
#include "model/deepseek_v4/workspace.h"
#include "model/model.h"

namespace vesta::model::deepseek_v4 {

class DeepseekV4 : public Model {
 public:
    static Result<std::unique_ptr<Model>> load(const gguf::File& file, const gguf::File* drafter,
                                               const SupportsFn& supports);

    const Info& info() const override { return info_; }
    const kv::Shape& cache_shape() const override { return shape_; }
    const Hparams& hparams() const { return h_; }
    std::unique_ptr<Workspace> new_workspace(int64_t max_rows, int64_t max_outputs, int64_t n_ctx) const override;
    int64_t workspace_bytes(int64_t max_rows, int64_t max_outputs, int64_t n_ctx) const override;
    ops::PassShape pass_shape(int64_t max_rows, int64_t n_ctx) const override;
    Status forward(ops::Ops& ops, Workspace& workspace, const Pass& pass) const override;
    Status draft(ops::Ops& ops, Workspace& workspace, const DraftPass& pass) const override;

 private:
    // What the two halves of a layer work on: all rows of a pass, or one block of them.
    struct LayerPass {
        ops::Ops& ops;
        Scratch& s;
        PassWorkspace& workspace;
        std::span<const ops::Row> rows;
        std::span<ops::LayerCache* const> cache;  // this layer's, by slot
        int layer;  // for messages
        int64_t ratio;
        float clamp;
    };

    // f(LayerPass) for every block of rows, in order.
    template <class F>
    void each_block(const LayerPass& p, F&& f) const;
    void attention_half(const LayerPass& p, const LayerWeights& w) const;
    void compress(const LayerPass& p, const CompressorWeights& w, int64_t width, bool to_index) const;
    void select(const LayerPass& p, const LayerWeights& w) const;
    void check_indexer(const LayerPass& p, const ops::Tensor& x) const;
    void expert_half(const LayerPass& p, const LayerWeights& w) const;
    void hc_mix_in(const LayerPass& p, const HcWeights& w, const float* norm) const;
    void head(ops::Ops& ops, PassWorkspace& ws, const Scratch& s, const HeadWeights& w, std::span<const int32_t> output_rows,
              float* logits) const;
    void bind_caches(PassWorkspace& ws, std::span<kv::Cache* const> caches) const;

    Info info_;
    Hparams h_;
    Weights w_;
    kv::Shape shape_;
    std::vector<float> freq_main_, freq_compress_;
};

}  // namespace vesta::model::deepseek_v4
