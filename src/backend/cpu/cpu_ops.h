// The cpu backend: every operation that costs time, cut into tasks for a thread pool and run by the kernels of this
// processor (kernels.h). Knows tensors, rows and caches; leaves instructions to the kernels. Small decisions (routing,
// Sinkhorn, top-k) are the reference's own code.
//
// Results do not depend on the cut: a task computes whole output values, each in the kernel's fixed order. Scratch
// grows to the largest pass seen and stays, so the token loop allocates nothing.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/reference/reference_ops.h"

namespace vesta::backend {

class CpuOps : public ReferenceOps {
 public:
    explicit CpuOps(int n_thread) : CpuOps(n_thread, best_kernels()) {}
    CpuOps(int n_thread, const Kernels& kernels) : ReferenceOps(n_thread), k_(kernels) {}

    const char* name() const override { return "cpu"; }
    quant::RowFormat row_format(quant::RowFormat wanted) const override { return wanted; }
    int64_t scratch_bytes(const ops::PassShape& s) const override;
    // Bytes held now.
    int64_t scratch_held() const;

    void rms_norm(const ops::RmsNormArgs& a) override;
    void matmul(const ops::MatmulArgs& a) override;
    void rope(const ops::RopeArgs& a) override;
    void swiglu(const ops::SwigluArgs& a) override;
    void hc_collapse(const ops::HcCollapseArgs& a) override;
    void hc_mix_out(const ops::HcMixOutArgs& a) override;
    void combine(const ops::CombineArgs& a) override;
    void check_finite(const ops::CheckFiniteArgs& a) override;

    void compress(const ops::CompressArgs& a) override;
    void index_select(const ops::IndexSelectArgs& a) override;
    void attend(const ops::AttendArgs& a) override;

    void latent_qkv(const ops::LatentQkvArgs& a) override;
    void grouped_out(const ops::GroupedOutArgs& a) override;
    void routed_experts(const ops::RoutedExpertsArgs& a) override;
    void shared_expert(const ops::SharedExpertArgs& a) override;

 private:
    // Attention over tiles of rows (cpu_attention.cpp).
    enum class Store { window, compressed, selected };
    struct Running {
        float top, sum;  // the largest score so far, and the sum of exponentials against it
    };
    struct AttendPass;
    struct TileTask {
        int64_t query;
        Store store;
        int64_t first, last;
    };
    // Rows of x rounded for the kernels of block formats (kernels_a16.h), on cache lines of their own.
    struct Activations {
        struct alignas(64) Line {
            std::byte bytes[64];
        };
        std::vector<Line> lines;
        void reserve(int64_t n_bytes) {
            const auto n = static_cast<size_t>((n_bytes + 63) / 64);
            if (lines.size() < n) lines.resize(n);
        }
        const std::byte* bytes() const { return lines.data()->bytes; }
        std::byte* bytes() { return lines.data()->bytes; }
    };
    // A product over some rows: several weights may share x, and several products one parallel loop.
    struct Product {
        ops::Tensor y;
        ops::Weight w;
        ops::Tensor x;
        const Activations* activations = nullptr;
        int64_t activation_row = 0;     // where x's rows start in the activations
        const int32_t* pick = nullptr;  // row t of y comes from row pick[t] of x and of the activations
        int64_t n_row = 0;
    };
    // Cuts [0, n) into tasks of about `cost` units of work in all, and runs body(first, last).
    template <class F>
    void parallel(int64_t n, int64_t cost_each, F&& body);
    void round(ops::Tensor x, Activations& out);
    void run_products(std::span<const Product> products);
    // Rows of h = swiglu(...), also rounded into h_rounded_ when the product after reads that.
    void swiglu_and_round(const ops::SwigluArgs& a, bool rounded);
    // y_i = W_i x for every pair, x rounded once.
    void matmul_shared_input(ops::Tensor x, std::initializer_list<std::pair<ops::Tensor, ops::Weight>> outputs);

    void decode_attn(quant::RowFormat format, const std::byte* row, int64_t dim, int64_t n_rot, float* dst) const;
    void decode_index(quant::RowFormat format, const std::byte* row, int64_t dim, float* dst) const;

    void decode_tile(const AttendPass& p, int64_t t, Store store, int64_t first, int64_t last, float* rows) const;
    void attend_tile(const AttendPass& p, int64_t t, int64_t h0, int64_t n_head, const float* rows, int64_t n,
                     float* part, Running* state) const;
    void merge_part(float* out, Running& state, const float* part, const Running& other, int64_t dim) const;
    void finish_attention(float* out, const Running& state, float sink, int64_t dim) const;
    void attend_block(const AttendPass& p, int64_t t0, int64_t n) const;
    void attend_tiles(const AttendPass& p);

    const Kernels& k_;
    Activations x_rounded_, h_rounded_;
    std::vector<Product> products_;
    std::vector<int64_t> product_first_task_;
    std::vector<int32_t> sorted_pair_, sorted_token_;  // (row, expert) pairs by expert
    std::vector<int32_t> waiting_;                     // pairs whose results are in ys
    std::vector<int64_t> expert_first_;
    std::vector<float> pair_weight_;
    std::vector<float> scores_, pooled_, parts_;
    std::vector<Running> states_;
    std::vector<int32_t> order_;
    std::vector<TileTask> tiles_;
    std::vector<int64_t> query_first_tile_, block_first_;
};

// Work below this many multiply-adds is not worth waking another thread for (about 10 µs on one core).
constexpr int64_t kTaskWork = 1 << 16;
constexpr int64_t kIndexScores = 1 << 22;  // of the indexer at a time: 16 MB
constexpr int64_t kTileRows = 64;          // of attention: 64 x 512 f32 = 128 KB, the largest that leaves room in an L2 of 512 KB
// The same for products, whose kernels are faster: one or two µs of one row of x. And a task's most work with one row:
// 256 outputs of 4096, some 20 µs. Outputs are computed in tiles of 8, 16 or 32.
constexpr int64_t kProductWork = 1 << 16, kStreamWork = 1 << 20, kTileOutputs = 32;

template <class F>
void CpuOps::parallel(int64_t n, int64_t cost_each, F&& body) {
    const int64_t per_task = std::max<int64_t>(1, kTaskWork / std::max<int64_t>(1, cost_each));
    const int64_t n_task = (n + per_task - 1) / per_task;
    pool_.run(n_task, [&](int64_t task) { body(task * per_task, std::min(n, (task + 1) * per_task)); });
}

}  // namespace vesta::backend
