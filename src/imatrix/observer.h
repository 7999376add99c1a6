// A backend seen from outside: every primitive goes to the backend it wraps, and before a matrix is multiplied the
// squares of what meets its columns are added up. Blocks are not forwarded: their default bodies compose primitives,
// and these pass here; so any backend is observed, in every matrix it multiplies, without knowing it. The price is the
// speed of fused blocks. (Not taken: taps in the model. They see streams, not the inputs of each matrix, and experts
// not at all.)
//
// Which matrix is meant is found by address: weights point into the mapped file, and so do the experts and the slices
// of outputs that a block cuts out of them. What meets an expert's gate and up is the normalised input; what meets its
// down is the SwiGLU row with the routing weight in it, since routed_experts applies the weight there.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "imatrix/dat.h"
#include "ops/ops.h"

namespace vesta::imatrix {

class Observer : public ops::Ops {
 public:
    // Adds to the entries of `matrix`, creating those that are missing. Entries that are there must come from the same
    // tensors and have sums (else bad_file). All arguments outlive the observer. Requires a backend whose tensors the
    // host can read at once: the rows are read when matmul is called.
    static Result<std::unique_ptr<Observer>> create(ops::Ops& inner, std::span<const gguf::File* const> files,
                                                    Matrix& matrix);

    // An entry's n_call grows by one per sequence in which it was met.
    void begin_sequence() { ++sequence_; }
    // Multiplications by weights that lie in none of the files: a backend that keeps copies cannot be observed.
    uint64_t n_unknown() const { return n_unknown_; }

    const char* name() const override { return inner_.name(); }
    bool supports(quant::Type type) const override { return inner_.supports(type); }
    int n_thread() const override { return inner_.n_thread(); }
    quant::RowFormat row_format(quant::RowFormat wanted) const override { return inner_.row_format(wanted); }
    int64_t scratch_bytes(const ops::PassShape& s) const override { return inner_.scratch_bytes(s); }

    void matmul(const ops::MatmulArgs& a) override {
        record(a.w, a.x);
        inner_.matmul(a);
    }
    void embed(const ops::EmbedArgs& a) override { inner_.embed(a); }
    void rms_norm(const ops::RmsNormArgs& a) override { inner_.rms_norm(a); }
    void rope(const ops::RopeArgs& a) override { inner_.rope(a); }
    void swiglu(const ops::SwigluArgs& a) override { inner_.swiglu(a); }
    void hc_split(const ops::HcSplitArgs& a) override { inner_.hc_split(a); }
    void hc_collapse(const ops::HcCollapseArgs& a) override { inner_.hc_collapse(a); }
    void hc_mix_out(const ops::HcMixOutArgs& a) override { inner_.hc_mix_out(a); }
    void hc_head_gate(const ops::HcHeadGateArgs& a) override { inner_.hc_head_gate(a); }
    void append_window(const ops::AppendWindowArgs& a) override { inner_.append_window(a); }
    void compress(const ops::CompressArgs& a) override { inner_.compress(a); }
    void index_select(const ops::IndexSelectArgs& a) override { inner_.index_select(a); }
    void attend(const ops::AttendArgs& a) override { inner_.attend(a); }
    void route(const ops::RouteArgs& a) override { inner_.route(a); }
    void combine(const ops::CombineArgs& a) override { inner_.combine(a); }
    void add(ops::Tensor y, ops::Tensor x) override { inner_.add(y, x); }
    void scale(ops::Tensor x, float factor) override { inner_.scale(x, factor); }
    void gather_rows(ops::Tensor y, ops::Tensor x, std::span<const int32_t> rows) override {
        inner_.gather_rows(y, x, rows);
    }
    void check_finite(const ops::CheckFiniteArgs& a) override { inner_.check_finite(a); }
    Status end_pass() override { return inner_.end_pass(); }

 private:
    struct Watched {
        const std::byte* begin;
        const std::byte* end;
        std::string_view name;
        int64_t n_in, n_vector;
        Entry* entry = nullptr;  // nullptr until it is met
        uint64_t last_sequence = 0;
    };
    Observer(ops::Ops& inner, Matrix& matrix) : inner_(inner), matrix_(matrix) {}
    void record(const ops::Weight& w, const ops::Tensor& x);
    Watched* find(const std::byte* p);

    ops::Ops& inner_;
    Matrix& matrix_;
    std::vector<Watched> watched_;  // by address
    uint64_t sequence_ = 0, n_unknown_ = 0;
};

// Matrices of these files that have no data in `matrix`: never multiplied (embeddings), or not run (a drafter). Vectors
// and index tables are no matrices.
std::vector<std::string> not_covered(std::span<const gguf::File* const> files, const Matrix& matrix);

}  // namespace vesta::imatrix
