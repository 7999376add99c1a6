// The cpu backend against the reference, operation by operation: the same numbers within what rounding explains, and
// its own numbers bit for bit however the rows are cut into passes, on any number of threads, and whatever else is in
// the pass.
//
// Every case runs the same 64 rows of three sessions in passes of a given size; the inputs of a row depend on its
// session and position only. So one description serves all questions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "backend/cpu/cpu_ops.h"
#include "backend/reference/reference_ops.h"
#include "support/ops_data.h"

namespace vesta::backend {
namespace {

using ops::Ops;
using ops::Row;
using quant::RowFormat;
using quant::Type;
using test::OwnedCache;
using test::OwnedWeight;
using test::Rows;

// Sizes that no vector width divides where the format allows it: tails are part of the question.
constexpr int64_t kEmbd = 256, kHead = 6, kDim = 80, kRot = 16, kStream = 4, kMix = 24, kExpert = 5, kUsed = 3,
                  kFf = 256, kIndexHead = 3, kIndexDim = 32, kTopK = 5, kWindow = 11, kVocab = 101, kSlot = 3;

using RowSpan = std::span<const Row>;
std::vector<int64_t> pass_sizes() { return {1, 2, 7, 64}; }

// Rows of three sessions, mixed, each in order of position.
std::vector<Row> mixed_rows() {
    std::vector<Row> rows;
    int32_t next[kSlot] = {};
    std::mt19937 rng(3);
    while (rows.size() < 64) {
        const auto slot = static_cast<int32_t>(rng() % kSlot);
        rows.push_back({.token = static_cast<int32_t>(rng() % kVocab), .position = next[slot]++, .slot = slot});
    }
    return rows;
}

// The input of a row: its own random numbers, whatever stands beside it.
Rows input(RowSpan rows, int64_t n_col, uint32_t seed, float sigma = 1.0f) {
    Rows x(static_cast<int64_t>(rows.size()), n_col);
    for (size_t t = 0; t < rows.size(); ++t) {
        const auto id = static_cast<uint32_t>(rows[t].slot * 1000 + rows[t].position);
        const std::vector<float> v = test::gaussian(n_col, seed * 100003u + id, sigma);
        std::copy(v.begin(), v.end(), x.v.begin() + static_cast<std::ptrdiff_t>(t) * n_col);
    }
    return x;
}

// Caches of the sessions and the output of one run.
struct Run {
    Ops& ops;
    std::vector<std::unique_ptr<OwnedCache>> boxes;
    std::vector<ops::LayerCache*> caches;
};

struct Case {
    std::string name;
    // How far cpu may be from the reference, relative to the largest value of the result; 0: not at all.
    double tolerance;
    std::function<Rows(Run&, RowSpan)> pass;  // one pass: [rows, any width]
    RowFormat format = RowFormat::f32;
    OwnedCache::Sizes sizes = {};
};

Rows run(const Case& c, Ops& ops, RowSpan rows, int64_t pass_size) {
    Run r{ops, {}, {}};
    for (int64_t s = 0; s < kSlot; ++s) {
        r.boxes.push_back(std::make_unique<OwnedCache>(c.format, c.sizes));
        r.caches.push_back(&r.boxes.back()->cache);
    }
    Rows all(0, 1);
    for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(pass_size)) {
        const Rows out = c.pass(r, rows.subspan(first, std::min(static_cast<size_t>(pass_size), rows.size() - first)));
        all.n_col = out.n_col;
        all.v.insert(all.v.end(), out.v.begin(), out.v.end());
    }
    return all;
}

// --- the cases --------------------

const std::vector<float>& freq() {
    static const std::vector<float> f = [] {
        std::vector<float> v;
        for (int i = 0; i < kRot / 2; ++i) v.push_back(std::pow(10000.0f, -static_cast<float>(2 * i) / kRot));
        return v;
    }();
    return f;
}
template <class T>
std::shared_ptr<const T> keep(T v) {
    return std::make_shared<const T>(std::move(v));
}
std::shared_ptr<const std::vector<float>> floats(int64_t n, uint32_t seed, float sigma = 0.3f, float mean = 0.0f) {
    return keep(test::gaussian(n, seed, sigma, mean));
}
// A weight that is made when it is first used: ctest starts a process for every test.
class LazyWeight {
 public:
    explicit LazyWeight(std::function<OwnedWeight()> make)
        : state_(std::make_shared<State>(State{std::move(make), {}})) {}
    const OwnedWeight* operator->() const {
        if (state_->made == nullptr) state_->made = std::make_unique<OwnedWeight>(state_->make());
        return state_->made.get();
    }

 private:
    struct State {
        std::function<OwnedWeight()> make;
        std::unique_ptr<OwnedWeight> made;
    };
    std::shared_ptr<State> state_;
};
LazyWeight weight(Type type, int64_t n_out, int64_t n_in, uint32_t seed, int64_t n_expert = 1) {
    return LazyWeight([=] { return OwnedWeight(type, n_out, n_in, seed, n_expert); });
}

// f32 arithmetic in another order: a sum of n terms moves by some sqrt(n)·2^-24 of its size; n is at most 1024 here,
// the result is relative to the largest of many values, and a block is up to four such steps.
constexpr double kOrder = 5e-6;
// Block-quantised weights read activations of 16 bits: each value is off by up to 2^-16 of the largest of its 32, at
// random, so a product by some 2^-17 of its size; a block rounds up to three times, and a clamp or norm may enlarge it.
constexpr double kA16 = 1e-4;
double matmul_tolerance(Type type) { return reads_a16(type) ? kA16 : kOrder; }
// Random q4_k blocks are weights of one sign, some twenty times larger than 1/sqrt(n): products come out far from zero,
// where norms of unequal rows and the exponentials of the streams' gates make relative errors larger.
double steep_tolerance(Type type) { return matmul_tolerance(type) * (type == Type::q4_k ? 8 : 1); }

std::vector<Type> kernel_types() {
    return {Type::f32, Type::f16, Type::bf16, Type::q8_0, Type::mxfp4, Type::q4_k, Type::iq2_xxs};
}

void add_products(std::vector<Case>& cases, Type type) {
    const std::string suffix = std::string(".") + quant::format(type).name;
    const double tolerance = matmul_tolerance(type);
    const auto w = weight(type, 37, kEmbd, 1);
    cases.push_back({"matmul" + suffix, tolerance, [w](Run& r, RowSpan rows) {
                         Rows x = input(rows, kEmbd, 1), y(x.n_row(), 37);
                         r.ops.matmul({.y = y.t(), .w = w->w, .x = x.t()});
                         return y;
                     }});
    const auto table = weight(type, kVocab, kEmbd, 2);
    cases.push_back({"embed" + suffix, 0, [table](Run& r, RowSpan rows) {
                         Rows y(static_cast<int64_t>(rows.size()), kStream * kEmbd);
                         r.ops.embed({.y = y.t(), .table = table->w, .n_copy = kStream, .rows = rows});
                         return y;
                     }});
    const auto q_a = weight(type, 256, kEmbd, 3), q_b = weight(type, kHead * kDim, 256, 4),
               w_kv = weight(type, kDim, kEmbd, 5);
    const auto q_norm = floats(256, 6, 0.1f, 1), kv_norm = floats(kDim, 7, 0.1f, 1);
    cases.push_back({"latent_qkv" + suffix, steep_tolerance(type), [=](Run& r, RowSpan rows) {
                         Rows x = input(rows, kEmbd, 2), q(x.n_row(), kHead * kDim), kv(x.n_row(), kDim),
                              qa(x.n_row(), 256);
                         r.ops.latent_qkv({.q = q.t(),
                                           .kv = kv.t(),
                                           .qa = qa.t(),
                                           .x = x.t(),
                                           .q_a = q_a->w,
                                           .q_b = q_b->w,
                                           .w_kv = w_kv->w,
                                           .q_norm = q_norm->data(),
                                           .kv_norm = kv_norm->data(),
                                           .freq = freq().data(),
                                           .n_head = kHead,
                                           .head_dim = kDim,
                                           .n_rot = kRot,
                                           .eps = 1e-6f,
                                           .rows = rows});
                         q.v.insert(q.v.end(), kv.v.begin(), kv.v.end());  // the two side by side, row by row
                         Rows out(x.n_row(), (kHead + 1) * kDim);
                         for (int64_t t = 0; t < x.n_row(); ++t) {
                             std::copy_n(q.v.begin() + t * kHead * kDim, kHead * kDim, out.v.begin() + t * out.n_col);
                             std::copy_n(kv.v.begin() + t * kDim, kDim, out.v.begin() + t * out.n_col + kHead * kDim);
                         }
                         return out;
                     }});
    const auto out_a = weight(type, 2 * 128, 512, 8), out_b = weight(type, kEmbd, 2 * 128, 9);
    cases.push_back(
        {"grouped_out" + suffix, tolerance, [=](Run& r, RowSpan rows) {
             Rows heads = input(rows, 2 * 512, 3), low(heads.n_row(), 2 * 128), y(heads.n_row(), kEmbd);
             r.ops.grouped_out(
                 {.y = y.t(), .low = low.t(), .heads = heads.t(), .a = out_a->w, .b = out_b->w, .n_group = 2});
             return y;
         }});
    const auto gate = weight(type, kFf, kEmbd, 10, kExpert), up = weight(type, kFf, kEmbd, 11, kExpert),
               down = weight(type, kEmbd, kFf, 12, kExpert);
    cases.push_back({"routed_experts" + suffix, tolerance, [=](Run& r, RowSpan rows) {
                         Rows x = input(rows, kEmbd, 4);
                         const int64_t n = x.n_row() * kUsed;
                         // Scratch for fewer rows than some experts have: they come in pieces.
                         const int64_t piece = (x.n_row() + 2) / 3;
                         Rows parts(n, kEmbd), xs(piece, kEmbd), ys(piece, kEmbd), g(n, kFf), u(n, kFf);
                         std::vector<int32_t> expert;
                         std::vector<float> share;
                         for (const Row& row : rows)
                             for (int32_t k = 0; k < kUsed; ++k) {
                                 expert.push_back((row.position * 3 + row.slot + k) % kExpert);
                                 share.push_back(0.2f + 0.3f * static_cast<float>(k));
                             }
                         r.ops.routed_experts({.parts = parts.t(),
                                               .x = x.t(),
                                               .expert = expert.data(),
                                               .weight = share.data(),
                                               .n_used = kUsed,
                                               .gate = gate->w,
                                               .up = up->w,
                                               .down = down->w,
                                               .xs = xs.t(),
                                               .g = g.t(),
                                               .u = u.t(),
                                               .ys = ys.t(),
                                               .clamp = 1.5f});
                         return Rows(std::move(parts.v), kUsed * kEmbd);
                     }});
    cases.push_back({"shared_expert" + suffix, tolerance, [=](Run& r, RowSpan rows) {
                         Rows x = input(rows, kEmbd, 5), y(x.n_row(), kEmbd), g(x.n_row(), kFf), u(x.n_row(), kFf);
                         r.ops.shared_expert({.y = y.t(),
                                              .x = x.t(),
                                              .gate = gate->w.expert(1),
                                              .up = up->w.expert(1),
                                              .down = down->w.expert(1),
                                              .g = g.t(),
                                              .u = u.t(),
                                              .clamp = 1.5f});
                         return y;
                     }});
    const auto fn = weight(type, kMix, kStream * kEmbd, 13), head_fn = weight(type, kStream, kStream * kEmbd, 14),
               output = weight(type, kVocab, kEmbd, 15);
    const auto scale = floats(3, 16, 0.1f, 1), base = floats(kMix, 17), norm = floats(kEmbd, 18, 0.1f, 1);
    cases.push_back({"hc_mix_in" + suffix, steep_tolerance(type), [=](Run& r, RowSpan rows) {
                         Rows h = input(rows, kStream * kEmbd, 6), flat(h.n_row(), kStream * kEmbd),
                              mix(h.n_row(), kMix);
                         Rows x(h.n_row(), kEmbd), pre(h.n_row(), 4), post(h.n_row(), 4), comb(h.n_row(), 16);
                         r.ops.hc_mix_in({.x = x.t(),
                                          .pre = pre.t(),
                                          .post = post.t(),
                                          .comb = comb.t(),
                                          .mix = mix.t(),
                                          .flat = flat.t(),
                                          .streams = h.t(),
                                          .fn = fn->w,
                                          .scale = scale->data(),
                                          .base = base->data(),
                                          .norm = norm->data(),
                                          .n_stream = kStream,
                                          .n_sinkhorn = 20,
                                          .hc_eps = 1e-6f,
                                          .norm_eps = 1e-6f});
                         Rows out(h.n_row(), kEmbd + 4 + 16);
                         for (int64_t t = 0; t < h.n_row(); ++t) {
                             std::copy_n(x.v.begin() + t * kEmbd, kEmbd, out.v.begin() + t * out.n_col);
                             std::copy_n(post.v.begin() + t * 4, 4, out.v.begin() + t * out.n_col + kEmbd);
                             std::copy_n(comb.v.begin() + t * 16, 16, out.v.begin() + t * out.n_col + kEmbd + 4);
                         }
                         return out;
                     }});
    cases.push_back({"head" + suffix, tolerance, [=](Run& r, RowSpan rows) {
                         Rows h = input(rows, kStream * kEmbd, 7), flat(h.n_row(), kStream * kEmbd),
                              mix(h.n_row(), kStream);
                         Rows x(h.n_row(), kEmbd), logits(h.n_row(), kVocab);
                         r.ops.head({.logits = logits.t(),
                                     .streams = h.t(),
                                     .flat = flat.t(),
                                     .mix = mix.t(),
                                     .x = x.t(),
                                     .fn = head_fn->w,
                                     .hc_scale = 1.1f,
                                     .hc_base = base->data(),
                                     .norm = norm->data(),
                                     .output = output->w,
                                     .hc_eps = 1e-6f,
                                     .norm_eps = 1e-6f});
                         return logits;
                     }});
}

void add_small(std::vector<Case>& cases) {
    const auto w = floats(77, 20, 0.1f, 1);
    cases.push_back({"rms_norm", kOrder, [w](Run& r, RowSpan rows) {
                         Rows x = input(rows, 77, 8), y(x.n_row(), 77);
                         r.ops.rms_norm({.y = y.t(), .x = x.t(), .w = w->data(), .eps = 1e-6f});
                         return y;
                     }});
    for (const bool inverse : {false, true})
        cases.push_back({inverse ? "rope.inverse" : "rope", 0, [inverse](Run& r, RowSpan rows) {
                             Rows x = input(rows, kHead * kDim, 9);
                             r.ops.rope({.x = x.t(),
                                         .n_head = kHead,
                                         .head_dim = kDim,
                                         .n_rot = kRot,
                                         .freq = freq().data(),
                                         .rows = rows,
                                         .inverse = inverse});
                             return x;
                         }});
    // An exponential of the vector kernels is within two units of the last place of the library's.
    cases.push_back({"swiglu", kOrder, [](Run& r, RowSpan rows) {
                         Rows g = input(rows, 77, 10, 6.0f), u = input(rows, 77, 11, 6.0f);
                         r.ops.swiglu({.y = g.t(), .gate = g.t(), .up = u.t(), .clamp = 7.0f});
                         return g;
                     }});
    const auto scale = floats(3, 21, 0.1f, 1), base = floats(kMix, 22);
    cases.push_back({"hc_split", 0, [=](Run& r, RowSpan rows) {
                         Rows mix = input(rows, kMix, 12), pre(mix.n_row(), 4), post(mix.n_row(), 4),
                              comb(mix.n_row(), 16);
                         r.ops.hc_split({.pre = pre.t(),
                                         .post = post.t(),
                                         .comb = comb.t(),
                                         .mix = mix.t(),
                                         .scale = scale->data(),
                                         .base = base->data(),
                                         .n_stream = 4,
                                         .n_sinkhorn = 20,
                                         .eps = 1e-6f});
                         return comb;
                     }});
    cases.push_back({"hc_collapse", kOrder, [](Run& r, RowSpan rows) {
                         Rows h = input(rows, 4 * 77, 13), gate = input(rows, 4, 14), y(h.n_row(), 77);
                         r.ops.hc_collapse({.y = y.t(), .gate = gate.t(), .streams = h.t()});
                         return y;
                     }});
    cases.push_back({"hc_mix_out", kOrder, [](Run& r, RowSpan rows) {
                         Rows h = input(rows, 4 * 301, 15), y = input(rows, 301, 16), post = input(rows, 4, 17),
                              comb = input(rows, 16, 18);
                         r.ops.hc_mix_out({.streams = h.t(), .y = y.t(), .post = post.t(), .comb = comb.t()});
                         return h;
                     }});
    cases.push_back({"hc_head_gate", 0, [base](Run& r, RowSpan rows) {
                         Rows mix = input(rows, 4, 19);
                         r.ops.hc_head_gate(
                             {.gate = mix.t(), .mix = mix.t(), .scale = 1.2f, .base = base->data(), .eps = 1e-6f});
                         return mix;
                     }});
    cases.push_back({"combine", kOrder, [](Run& r, RowSpan rows) {
                         Rows parts = input(rows, kUsed * 77, 20), shared = input(rows, 77, 21), y(shared.n_row(), 77);
                         r.ops.combine({.y = y.t(), .parts = parts.t().split_rows(kUsed), .shared = shared.t()});
                         return y;
                     }});
    const auto bias = floats(kExpert, 23);
    for (const bool hashed : {false, true})
        cases.push_back({hashed ? "route.hash" : "route", 0, [=](Run& r, RowSpan rows) {
                             Rows logits = input(rows, kExpert, 22, 3.0f), out(logits.n_row(), 2 * kUsed);
                             std::vector<int32_t> expert(rows.size() * kUsed), table;
                             std::vector<float> share(rows.size() * kUsed);
                             for (int32_t t = 0; t < kVocab; ++t)
                                 for (int32_t k = 0; k < kUsed; ++k) table.push_back((t + 2 * k) % kExpert);
                             r.ops.route({.expert = expert.data(),
                                          .weight = share.data(),
                                          .logits = logits.t(),
                                          .bias = hashed ? nullptr : bias->data(),
                                          .hash = hashed ? table.data() : nullptr,
                                          .n_used = kUsed,
                                          .scale = 1.5f,
                                          .rows = rows});
                             for (size_t i = 0; i < expert.size(); ++i) {
                                 out.v[2 * i] = static_cast<float>(expert[i]);
                                 out.v[2 * i + 1] = share[i];
                             }
                             return out;
                         }});
}

// The output of compress is what it stored: after every row, the newest compressed row of its session, decoded.
Case compress_case(int64_t ratio, int64_t n_lane, bool to_index, RowFormat format) {
    const int64_t width = to_index ? kIndexDim : kDim, wide = width * n_lane;
    const auto ape = floats(ratio * wide, 30), norm = floats(width, 31, 0.1f, 1);
    Case c{strf("compress.{}.{}.{}", ratio, to_index ? "index" : "attn", quant::is_fp8(format) ? "fp8" : "plain"),
           kOrder,
           [=](Run& r, RowSpan rows) {
               Rows cs = input(rows, wide, 30), zs = input(rows, wide, 31), out(cs.n_row(), width);
               r.ops.compress({.c = cs.t(),
                               .z = zs.t(),
                               .ape = ape->data(),
                               .norm = norm->data(),
                               .freq = freq().data(),
                               .eps = 1e-6f,
                               .width = width,
                               .n_lane = n_lane,
                               .ratio = ratio,
                               .n_rot = kRot,
                               .to_index = to_index,
                               .rows = rows,
                               .cache = r.caches});
               for (size_t t = 0; t < rows.size(); ++t) {
                   float* to = out.v.data() + static_cast<int64_t>(t) * width;
                   const ops::LayerCache& cache = *r.caches[static_cast<size_t>(rows[t].slot)];
                   const int64_t w = (rows[t].position + 1) / ratio - 1;
                   if (w < 0)
                       std::fill_n(to, width, 0.0f);
                   else if (to_index)
                       quant::decode_index_row(format, cache.index.row(w), static_cast<int>(width), to);
                   else
                       quant::decode_attn_row(format, cache.compressed.row(w), static_cast<int>(width), kRot, to);
               }
               return out;
           },
           format,
           {.dim = kDim, .n_rot = kRot, .index_dim = kIndexDim, .window = kWindow, .ratio = ratio, .n_lane = n_lane}};
    // A value on a rounding boundary may fall either way: the rounded rows are compared with themselves only.
    if (quant::is_fp8(format)) c.tolerance = INFINITY;
    return c;
}

// Fills the compressed or index rows that a pass completes, encoded from the row's own random numbers.
void complete_rows(Run& r, RowSpan rows, int64_t ratio, bool index, RowFormat format) {
    for (const Row& row : rows) {
        if ((row.position + 1) % ratio != 0) continue;
        ops::LayerCache& cache = *r.caches[static_cast<size_t>(row.slot)];
        const int64_t w = row.position / ratio;
        if (index)
            quant::encode_index_row(format, input({&row, 1}, kIndexDim, 40).v.data(), kIndexDim, cache.index.row(w));
        else
            quant::encode_attn_row(format, input({&row, 1}, kDim, 41).v.data(), kDim, kRot, cache.compressed.row(w));
    }
}

Case select_case(RowFormat format) {
    return {strf("index_select.{}", quant::is_fp8(format) ? "fp8" : "plain"),
            0,
            [=](Run& r, RowSpan rows) {
                complete_rows(r, rows, 2, true, format);
                Rows q = input(rows, kIndexHead * kIndexDim, 42), w = input(rows, kIndexHead, 43),
                     out(q.n_row(), kTopK);
                std::vector<int32_t> ids(rows.size() * kTopK, -1), count(rows.size());
                r.ops.index_select({.selected = {ids.data(), count.data(), kTopK},
                                    .q = q.t(),
                                    .weight = w.t(),
                                    .n_head = kIndexHead,
                                    .head_dim = kIndexDim,
                                    .ratio = 2,
                                    .top_k = kTopK,
                                    .rows = rows,
                                    .cache = r.caches});
                for (size_t i = 0; i < ids.size(); ++i)
                    out.v[i] = static_cast<int32_t>(i % kTopK) < count[i / kTopK] ? static_cast<float>(ids[i]) : -1.0f;
                return out;
            },
            format,
            {.dim = kDim, .n_rot = kRot, .index_dim = kIndexDim, .window = kWindow, .ratio = 2}};
}

enum class Rest { none, all, selected };
Case attend_case(Rest rest, RowFormat format) {
    const char* names[] = {"window", "all", "selected"};
    const char* formats[] = {"f32", "f16", "fp8", "fp8_exact"};
    const auto sink = floats(kHead, 50);
    return {strf("attend.{}.{}", names[static_cast<int>(rest)], formats[static_cast<int>(format)]),
            kOrder,
            [=](Run& r, RowSpan rows) {
                complete_rows(r, rows, 2, false, format);
                Rows kv = input(rows, kDim, 51), q = input(rows, kHead * kDim, 52, 2.0f), out(q.n_row(), kHead * kDim);
                r.ops.append_window({.kv = kv.t(), .n_rot = kRot, .rows = rows, .cache = r.caches});
                std::vector<int32_t> ids, count;
                for (const Row& row : rows) {
                    const int32_t visible = (row.position + 1) / 2;
                    count.push_back(0);
                    ids.resize(ids.size() + kTopK, -1);
                    for (int32_t w = row.position % 2; w < visible && count.back() < kTopK; w += 2)
                        ids[ids.size() - kTopK + static_cast<size_t>(count.back()++)] = w;
                }
                const ops::Selection selection{ids.data(), count.data(), kTopK};
                r.ops.attend({.out = out.t(),
                              .q = q.t(),
                              .sink = sink->data(),
                              .n_head = kHead,
                              .head_dim = kDim,
                              .n_rot = kRot,
                              .window = kWindow,
                              .ratio = rest == Rest::none ? 0 : 2,
                              .selection = rest == Rest::selected ? &selection : nullptr,
                              .rows = rows,
                              .cache = r.caches});
                return out;
            },
            format,
            {.dim = kDim, .n_rot = kRot, .index_dim = kIndexDim, .window = kWindow, .ratio = 2}};
}

const std::vector<Case>& cases() {
    static const std::vector<Case> all = [] {
        std::vector<Case> v;
        for (const Type type : kernel_types()) add_products(v, type);
        add_small(v);
        for (const RowFormat format : {RowFormat::f32, RowFormat::fp8}) {
            v.push_back(compress_case(4, 2, false, format));
            v.push_back(compress_case(4, 2, true, format));
            v.push_back(compress_case(6, 1, false, format));
            v.push_back(select_case(format));
        }
        for (const RowFormat format : {RowFormat::f32, RowFormat::f16, RowFormat::fp8, RowFormat::fp8_exact})
            for (const Rest rest : {Rest::none, Rest::all, Rest::selected}) v.push_back(attend_case(rest, format));
        return v;
    }();
    return all;
}

std::vector<const Kernels*> tables() { return usable_kernels(); }

testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
    for (size_t i = 0; i < a.size(); ++i)
        if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0)
            return testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
    return testing::AssertionSuccess();
}

class Conformance : public testing::TestWithParam<size_t> {
 protected:
    const Case& c() const { return cases()[GetParam()]; }
    const std::vector<Row> rows_ = mixed_rows();
};

TEST_P(Conformance, CpuEqualsTheReference) {
    for (const int64_t size : pass_sizes()) {
        ReferenceOps reference(1);
        const std::vector<float> want = run(c(), reference, rows_, size).v;
        double largest = 0;
        for (const float v : want) {
            ASSERT_TRUE(std::isfinite(v));
            largest = std::max(largest, std::fabs(static_cast<double>(v)));
        }
        for (const Kernels* k : tables()) {
            CpuOps cpu(2, *k);
            const std::vector<float> got = run(c(), cpu, rows_, size).v;
            ASSERT_EQ(got.size(), want.size());
            double worst = 0;
            for (size_t i = 0; i < got.size(); ++i)
                worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
            EXPECT_TRUE(worst <= c().tolerance * largest)
                << k->name << ", passes of " << size << ": off by " << worst << ", largest value " << largest;
        }
    }
}

TEST_P(Conformance, APassOfAnySizeGivesTheSameBits) {
    for (const Kernels* k : tables()) {
        CpuOps cpu(1, *k);
        const std::vector<float> want = run(c(), cpu, rows_, 64).v;
        for (const int64_t size : pass_sizes())
            EXPECT_TRUE(same_bits(run(c(), cpu, rows_, size).v, want)) << k->name << ", passes of " << size;
    }
}

TEST_P(Conformance, ThreadsDoNotMatter) {
    for (const Kernels* k : tables()) {
        CpuOps one(1, *k);
        for (const int64_t size : {int64_t{1}, int64_t{7}, int64_t{64}}) {
            const std::vector<float> want = run(c(), one, rows_, size).v;
            for (const int n_thread : {2, 3}) {
                CpuOps many(n_thread, *k);
                EXPECT_TRUE(same_bits(run(c(), many, rows_, size).v, want))
                    << k->name << ", " << n_thread << " threads";
            }
        }
    }
}

TEST_P(Conformance, OtherSessionsInThePassDoNotMatter) {
    std::vector<ops::Ops*> all;
    std::vector<std::unique_ptr<ops::Ops>> owned;
    owned.push_back(std::make_unique<ReferenceOps>(1));
    for (const Kernels* k : tables()) owned.push_back(std::make_unique<CpuOps>(1, *k));
    for (const auto& ops : owned) {
        const Rows mixed = run(c(), *ops, rows_, 64);
        for (int32_t slot = 0; slot < kSlot; ++slot) {
            std::vector<Row> alone;
            std::vector<float> want;
            for (size_t t = 0; t < rows_.size(); ++t) {
                if (rows_[t].slot != slot) continue;
                alone.push_back(rows_[t]);
                want.insert(want.end(), mixed.v.begin() + static_cast<std::ptrdiff_t>(t) * mixed.n_col,
                            mixed.v.begin() + static_cast<std::ptrdiff_t>(t + 1) * mixed.n_col);
            }
            EXPECT_TRUE(same_bits(run(c(), *ops, alone, 64).v, want)) << ops->name() << ", session " << slot;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Ops, Conformance, testing::Range(size_t{0}, cases().size()), [](const auto& p) {
    std::string name = cases()[p.param].name;
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
});

}  // namespace
}  // namespace vesta::backend
