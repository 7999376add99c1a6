// Ops: everything a model asks of the hardware. *Primitives* are what every backend implements; *blocks* have a default
// body composed of primitives, which is their definition, and a backend makes a block fast by overriding it.
//
// Contract for all of them. Row r of a result depends only on row r of the inputs and on that row's session: never on how
// many rows the pass has, on the other rows, or on the number of threads. On the CPU this holds bit for bit; it is what
// makes prefill in any chunk, decode, and batches of several sessions give one result. Calls only enqueue; results may be
// read by the host after end_pass(). Outputs are overwritten and must not overlap inputs unless a comment allows it.
//
// Equations: DeepSeek V4 as in docs/model.md. T rows, S streams, E n_embd, H heads, D head_dim, R rotary dims.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "ops/cache.h"
#include "ops/tensor.h"

namespace vesta::ops {

// Sizes every backend takes; a model that needs more is refused when it is loaded. Each is several times what published
// models have (64 rotary values, indexer rows of 128, 4 streams, 6 or 8 experts used), and lets a backend keep one
// row's worth on the stack.
constexpr int64_t kMaxRotary = 512;
constexpr int64_t kMaxIndexDim = 256;
constexpr int64_t kMaxStreams = 16;
constexpr int64_t kMaxExpertsUsed = 64;

// y[t] = n_copy equal copies of table[rows[t].token]
struct EmbedArgs {
    Tensor y;      // [T, n_copy*E]
    Weight table;  // [n_vocab, E]
    int64_t n_copy = 1;
    std::span<const Row> rows;
};

// y[t,i] = x[t,i] * w[i] / sqrt(mean_i(x[t,i]^2) + eps)      RMSNorm (Zhang & Sennrich 2019); eps is inside the root
struct RmsNormArgs {
    Tensor y;        // [T, n]; may be x
    Tensor x;        // [T, n]
    const float* w;  // [n]; nullptr: all ones
    float eps;
};

// y[t,o] = sum_i w[o,i] * x[t,i]
struct MatmulArgs {
    Tensor y;  // [T, n_out]
    Weight w;
    Tensor x;  // [T, n_in]
};

// Rotates pairs (2i, 2i+1) of the last n_rot values of every head by the angle position * freq[i].
struct RopeArgs {
    Tensor x;  // [T, H*D], in place
    int64_t n_head, head_dim, n_rot;
    const float* freq;  // [n_rot/2]
    std::span<const Row> rows;
    bool inverse = false;
};

// y[t,i] = silu(min(g, c)) * clamp(u, -c, c) * scale[t]
struct SwigluArgs {
    Tensor y;     // [T, n]; may be gate
    Tensor gate;  // [T, n]
    Tensor up;    // [T, n]
    float clamp;  // c > 0
    const float* scale = nullptr;  // [T]; nullptr: ones
};

// Hyper-connection gates from the projected streams (mHC): pre[s], post[s] and the doubly stochastic comb [S][S].
struct HcSplitArgs {
    Tensor pre;   // [T, S]
    Tensor post;  // [T, S]
    Tensor comb;  // [T, S*S]; row = source stream, column = destination stream
    Tensor mix;   // [T, (2+S)*S]
    const float* scale;  // [3]
    const float* base;   // [(2+S)*S]
    int64_t n_stream;
    int n_sinkhorn;
    float eps;
};

// y[t,d] = sum_s gate[t,s] * streams[t,s,d]
struct HcCollapseArgs {
    Tensor y;        // [T, E]
    Tensor gate;     // [T, S]
    Tensor streams;  // [T, S*E]
};

// streams'[t,k,d] = post[t,k] * y[t,d] + sum_j comb[t,j,k] * streams[t,j,d]
struct HcMixOutArgs {
    Tensor streams;  // [T, S*E], in place
    Tensor y;        // [T, E]
    Tensor post;     // [T, S]
    Tensor comb;     // [T, S*S]
};

// Gate of the head: gate[t,s] = sigmoid(mix[t,s] * scale + base[s]) + eps
struct HcHeadGateArgs {
    Tensor gate;  // [T, S]; may be mix
    Tensor mix;   // [T, S]
    float scale;
    const float* base;  // [S]
    float eps;
};

// Encodes kv rows into the window store of each row's session, at the row's position.
struct AppendWindowArgs {
    Tensor kv;  // [T, D], rotated
    int64_t n_rot;
    std::span<const Row> rows;
    std::span<LayerCache* const> cache;  // by slot
};

// The compressor: remembers c and z of every row; whenever a row completes a window of `ratio` positions, pools the
// window with a per-channel softmax, normalises, rotates (to the window's first position) and appends the encoded row.
// One lane (ratio 128): row[j] = sum_p softmax_p(z_p[j]) * c_p[j] over the window. Two lanes (ratio 4): the softmax runs
// over the previous window's lane A and this window's lane B; the window before the first has no members.
struct CompressArgs {
    Tensor c;             // [T, n_lane * width]
    Tensor z;             // [T, n_lane * width], position bias not yet added; contents undefined afterwards
    const float* ape;     // [ratio, n_lane * width]: added to z by position inside the window
    const float* norm;    // [width]
    const float* freq;    // [n_rot/2]
    float eps;
    int64_t width, n_lane, ratio, n_rot;
    bool to_index;        // false: attention rows (compressed store); true: indexer rows (index store)
    std::span<const Row> rows;
    std::span<LayerCache* const> cache;  // by slot
};

// Chosen compressed rows per query: row t reads ids[t*stride .. t*stride + count[t]), ascending.
struct Selection {
    int32_t* ids = nullptr;
    int32_t* count = nullptr;
    int64_t stride = 0;
};

// The indexer: score[c] = sum_h weight[t,h] * max(0, q[t,h] . row_c) over the visible index rows c < (position+1)/ratio;
// keeps the top_k largest. Ties go to the lower row: the reference does the same, and another order changes which row is
// the last one kept. When no more than top_k rows are visible all are chosen and nothing is scored.
struct IndexSelectArgs {
    Selection selected;  // stride >= top_k
    Tensor q;            // [T, Hi*Di], rotated; fp8 caches round it like the rows, in place
    Tensor weight;       // [T, Hi], scaled by 1/sqrt(Di*Hi)
    int64_t n_head, head_dim, ratio, top_k;
    std::span<const Row> rows;
    std::span<LayerCache* const> cache;
};

// Attention of every head over the last `window` rows (own position included) and the visible compressed rows (all, or the
// selected ones), with a sink: a per-head logit that only enlarges the denominator. Keys and values are the same rows.
struct AttendArgs {
    Tensor out;  // [T, H*D]
    Tensor q;    // [T, H*D], rotated
    const float* sink;  // [H]
    int64_t n_head, head_dim, n_rot, window;
    int64_t ratio;               // 0: no compressed rows
    const Selection* selection;  // nullptr: all visible compressed rows
    std::span<const Row> rows;
    std::span<LayerCache* const> cache;
};

// Router: p = sqrt(softplus(logit)); picks n_used experts by p + bias (or by the hash table of the token), weights them by
// the unbiased p, normalised to sum to `scale`.
struct RouteArgs {
    int32_t* expert;  // [T, n_used]
    float* weight;    // [T, n_used]
    Tensor logits;    // [T, n_expert]
    const float* bias;        // [n_expert], nullptr in hash layers
    const int32_t* hash;      // [n_vocab, n_used], nullptr in scored layers; entries checked at load
    int64_t n_used;
    float scale;
    std::span<const Row> rows;
};

// y[t,d] = sum_k parts[t*K + k, d], in the order of k, then + shared[t,d]
struct CombineArgs {
    Tensor y;       // [T, E]
    Tensor parts;   // [T*K, E]
    Tensor shared;  // [T, E]
};

// --- blocks -------------------------------------------------------------------------------------------------------

// x = rms_norm(sum_s pre[s] * streams[s]) * norm;  mix = fn . rms_norm_plain(streams), split into pre, post, comb
struct HcMixInArgs {
    Tensor x;            // [T, E]
    Tensor pre, post, comb;  // [T, S], [T, S], [T, S*S]
    Tensor mix;          // [T, (2+S)*S] scratch
    Tensor flat;         // [T, S*E] scratch
    Tensor streams;      // [T, S*E]
    Weight fn;           // [(2+S)*S, S*E]
    const float* scale;  // [3]
    const float* base;   // [(2+S)*S]
    const float* norm;   // [E]
    int64_t n_stream;
    int n_sinkhorn;
    float hc_eps, norm_eps;
};

// qa = rms_norm(q_a x) * q_norm;  q = rope(rms_norm_plain per head(q_b qa));  kv = rope(rms_norm(w_kv x) * kv_norm)
struct LatentQkvArgs {
    Tensor q;   // [T, H*D]
    Tensor kv;  // [T, D]
    Tensor qa;  // [T, q_rank], also read by the indexer
    Tensor x;   // [T, E]
    Weight q_a, q_b, w_kv;
    const float* q_norm;   // [q_rank]
    const float* kv_norm;  // [D]
    const float* freq;
    int64_t n_head, head_dim, n_rot;
    float eps;
    std::span<const Row> rows;
};

// low[g] = a[g] . heads of group g;  y = b . concat(low)
struct GroupedOutArgs {
    Tensor y;      // [T, E]
    Tensor low;    // [T, G*rank] scratch
    Tensor heads;  // [T, H*D]
    Weight a;      // [G*rank, H*D/G]
    Weight b;      // [E, G*rank]
    int64_t n_group;
};

// parts[t*K+k] = down[e] . swiglu(gate[e] x[t], up[e] x[t]) * weight[t,k]   for e = expert[t,k]
struct RoutedExpertsArgs {
    Tensor parts;  // [T*K, E]
    Tensor x;      // [T, E]
    const int32_t* expert;  // [T, K]
    const float* weight;    // [T, K]
    int64_t n_used;         // K
    Weight gate, up, down;
    Tensor xs;     // [n, E] scratch, n >= 1: rows of one expert are taken n at a time
    Tensor g, u;   // [T*K, n_ff] scratch
    Tensor ys;     // [n, E] scratch, as xs
    float clamp;
};

// y = down . swiglu(gate x, up x)
struct SharedExpertArgs {
    Tensor y;     // [T, E]
    Tensor x;     // [T, E]
    Weight gate, up, down;
    Tensor g, u;  // [T, n_ff] scratch
    float clamp;
};

// logits = output . (rms_norm(sum_s gate[s] * streams[s]) * norm),  gate from fn . rms_norm_plain(streams)
struct HeadArgs {
    Tensor logits;   // [T, n_vocab]
    Tensor streams;  // [T, S*E]
    Tensor flat;     // [T, S*E] scratch
    Tensor mix;      // [T, S] scratch
    Tensor x;        // [T, E] scratch
    Weight fn;       // [S, S*E]
    float hc_scale;
    const float* hc_base;  // [S]
    const float* norm;     // [E]
    Weight output;         // [n_vocab, E]
    float hc_eps, norm_eps;
};

// Remembers the first row whose values are not finite; end_pass() reports it with its layer.
struct CheckFiniteArgs {
    Tensor x;
    int layer;
    const char* what;  // "streams", "indexer values"
    std::span<const Row> rows;
};

// The largest pass of a session, for saying how much memory a backend will take beside the tensors it is given.
struct PassShape {
    int64_t rows = 0;         // T: of the pass; experts see all of them
    int64_t block_rows = 0;   // in attention at a time
    int64_t n_ctx = 0;        // positions
    int64_t widest_input = 0; // of a product in attention, and of the streams
    int64_t n_embd = 0, n_head = 0, head_dim = 0, window = 0;
    int64_t n_ff = 0, n_ff_shared = 0, n_used = 0;
    int64_t index_ratio = 0, index_top_k = 0;  // 0: no indexer
    int64_t dense_ratio = 0;  // of layers whose queries see all compressed rows; 0: there are none
};

class Ops {
 public:
    virtual ~Ops() = default;
    virtual const char* name() const = 0;
    // Whether matmul and embed can read this format.
    virtual bool supports(quant::Type type) const = 0;
    virtual int n_thread() const = 0;
    // How this backend keeps rows when `wanted` is asked for: the reference keeps fp8 rows with an exact rotary part.
    virtual quant::RowFormat row_format(quant::RowFormat wanted) const { return wanted; }

    // An upper bound for such memory; it is taken when a pass needs it, and stays.
    virtual int64_t scratch_bytes(const PassShape&) const { return 0; }

    virtual void embed(const EmbedArgs& a) = 0;
    virtual void rms_norm(const RmsNormArgs& a) = 0;
    virtual void matmul(const MatmulArgs& a) = 0;
    virtual void rope(const RopeArgs& a) = 0;
    virtual void swiglu(const SwigluArgs& a) = 0;
    virtual void hc_split(const HcSplitArgs& a) = 0;
    virtual void hc_collapse(const HcCollapseArgs& a) = 0;
    virtual void hc_mix_out(const HcMixOutArgs& a) = 0;
    virtual void hc_head_gate(const HcHeadGateArgs& a) = 0;
    virtual void append_window(const AppendWindowArgs& a) = 0;
    virtual void compress(const CompressArgs& a) = 0;
    virtual void index_select(const IndexSelectArgs& a) = 0;
    virtual void attend(const AttendArgs& a) = 0;
    virtual void route(const RouteArgs& a) = 0;
    virtual void combine(const CombineArgs& a) = 0;
    virtual void add(Tensor y, Tensor x) = 0;        // y += x
    virtual void scale(Tensor x, float factor) = 0;  // x *= factor
    virtual void gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) = 0;  // y[i] = x[rows[i]]
    virtual void check_finite(const CheckFiniteArgs& a) = 0;

    virtual void hc_mix_in(const HcMixInArgs& a);
    virtual void latent_qkv(const LatentQkvArgs& a);
    virtual void grouped_out(const GroupedOutArgs& a);
    virtual void routed_experts(const RoutedExpertsArgs& a);
    virtual void shared_expert(const SharedExpertArgs& a);
    virtual void head(const HeadArgs& a);

    // Waits for everything enqueued, and says what went wrong on the way (Code::numeric for a non-finite value).
    virtual Status end_pass() = 0;
};

}  // namespace vesta::ops
