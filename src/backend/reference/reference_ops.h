// The scalar definition of every primitive, in f32 as the equations say, with nothing fused and nothing rounded beyond the
// formats. Tests compare other backends with it; `--backend reference` runs it. It is written to be read: the only
// concessions to speed are a thread pool, and a matmul that walks several rows of x side by side.
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "ops/ops.h"

namespace vesta::backend {

class ReferenceOps : public ops::Ops {
 public:
    explicit ReferenceOps(int n_thread) : pool_(n_thread) {}

    const char* name() const override { return "reference"; }
    bool supports(quant::Type type) const override;
    int n_thread() const override { return pool_.n_thread(); }
    quant::RowFormat row_format(quant::RowFormat wanted) const override {
        return wanted == quant::RowFormat::fp8 ? quant::RowFormat::fp8_exact : wanted;
    }

    void embed(const ops::EmbedArgs& a) override;
    void rms_norm(const ops::RmsNormArgs& a) override;
    void matmul(const ops::MatmulArgs& a) override;
    void rope(const ops::RopeArgs& a) override;
    void swiglu(const ops::SwigluArgs& a) override;
    void hc_split(const ops::HcSplitArgs& a) override;
    void hc_collapse(const ops::HcCollapseArgs& a) override;
    void hc_mix_out(const ops::HcMixOutArgs& a) override;
    void hc_head_gate(const ops::HcHeadGateArgs& a) override;
    void append_window(const ops::AppendWindowArgs& a) override;
    void compress(const ops::CompressArgs& a) override;
    void index_select(const ops::IndexSelectArgs& a) override;
    void attend(const ops::AttendArgs& a) override;
    void route(const ops::RouteArgs& a) override;
    void combine(const ops::CombineArgs& a) override;
    void add(ops::Tensor y, ops::Tensor x) override;
    void scale(ops::Tensor x, float factor) override;
    void gather_rows(ops::Tensor y, ops::Tensor x, std::span<const int32_t> rows) override;
    void check_finite(const ops::CheckFiniteArgs& a) override;
    Status end_pass() override;

 protected:
    ThreadPool pool_;
    std::string fault_;  // first non-finite value of the pass, empty if none
};

// Shared with other CPU backends, so that these small scalar decisions exist once.

// Rotates the last n_rot of x[0, head_dim) by position * freq[i]; the angle is an f32 product, as in the reference model,
// and sin/cos are taken in f64 so that positions near a million keep their accuracy.
struct Rotation {
    float cos, sin;
};
Rotation rotation(int32_t position, float freq, bool inverse);

// The k largest of score[0..n) as ascending indices in ids; ties go to the lower index, NaN never wins over a number.
// Requires k < n. scratch [n].
void top_k_ascending(const float* score, int32_t n, int32_t k, int32_t* ids, int32_t* scratch);

void hc_split_row(const ops::HcSplitArgs& a, int64_t t);
void route_row(const ops::RouteArgs& a, int64_t t);

}  // namespace vesta::backend
