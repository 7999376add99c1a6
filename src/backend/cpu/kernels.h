// The inner loops of the cpu backend: one table of functions per instruction set, chosen once at run time. Knows rows
// of numbers; knows nothing of models, passes or threads. Every function runs on the calling thread, allocates nothing,
// and accepts unaligned pointers.
//
// One result, one order. Within a table, an output value is always summed in the same order, whatever the number of
// rows of x, the position in a tile, or the cut of the work: matmul keeps eight running sums per output (element i goes
// to sum i mod 8), adds blocks in order, and folds the eight at the end in a fixed tree. So prefill equals decode bit
// for bit. Tables differ from each other in the last bits.
//
// Activations against block-quantised weights are rounded once per row to "a16": int16 with one f32 scale per 32
// values, q = round(x · 32767/amax). Products with the integer codes of the weights are then exact in int32 (at most 4
// · 128 · 32767 < 2^24 per running sum and block, so the conversion to f32 is exact too). The choice not taken is int8,
// the usual one: half the bytes and fewer multiplications, but steps 258 times coarser. This backend is to agree with
// the f32 definition, and with one row it waits for the weights in any case.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace vesta::backend {

constexpr int64_t kA16Block = 32;

// y[t, o] = sum_i w[o, i] · x[t, i]   for t < n_row, o < n_out
struct MatmulTask {
    const std::byte* w = nullptr;  // n_out rows in their file format
    int64_t w_stride = 0;          // bytes from one row to the next
    int64_t n_out = 0;
    int64_t n_in = 0;
    const float* x = nullptr;  // [*, n_in], row t at x + t·x_stride; unused by a16 kernels
    int64_t x_stride = 0;
    const int16_t* q = nullptr;      // a16 kernels: [*, n_in], contiguous rows
    const float* q_scale = nullptr;  //              [*, n_in/32], contiguous rows
    const int32_t* pick = nullptr;   // row t reads row pick[t] of x (or q); nullptr: row t
    int64_t n_row = 0;
    float* y = nullptr;  // y[t, o] at y + t·y_stride + o
    int64_t y_stride = 0;
};

// y[h, d] = sum_i p[h, i] · rows[i, d], added in the order of i   (the value half of attention)
struct MixTask {
    const float* p = nullptr;  // [n_mix, n_row]
    int64_t p_stride = 0;
    int64_t n_mix = 0;
    const float* rows = nullptr;  // [n_row, n_col]
    int64_t row_stride = 0;
    int64_t n_row = 0;
    int64_t n_col = 0;
    float* y = nullptr;  // [n_mix, n_col]
    int64_t y_stride = 0;
    bool accumulate = false;  // start from y instead of zero: a long sum may come in pieces, in order
};

using MatmulFn = void (*)(const MatmulTask& task);

struct Kernels {
    const char* name;  // "avx2"

    // Rounds one row. n % 32 == 0. A block with a non-finite value gets a NaN scale, so the results show it; a block
    // whose largest magnitude is below 1e-30 becomes zero.
    void (*quantize_a16)(const float* x, int64_t n, int16_t* q, float* scale);

    MatmulFn matmul_f32, matmul_f16, matmul_bf16;  // read x; any n_in
    MatmulFn matmul_q8_0, matmul_mxfp4;            // read q and q_scale
    // Any format with a decoder, through f32, 256 elements at a time. Reads x.
    void (*matmul_decoded)(const MatmulTask& task, const quant::Format& format);

    void (*mix)(const MixTask& task);
    double (*sum_squares)(const float* x, int64_t n);
    void (*scale_mul)(float* y, const float* x, float s, const float* w,
                      int64_t n);                                // y = x·s·w; w may be null; y may be x
    void (*axpy)(float* y, float a, const float* x, int64_t n);  // y += a·x
    float (*max)(const float* x, int64_t n);                     // -inf for n = 0
    float (*exp_sum)(float* x, int64_t n,
                     float top);  // x <- exp(x - top); returns the sum. exp within 2 units of the last place
    void (*swiglu)(float* y, const float* gate, const float* up, float clamp, float scale,
                   int64_t n);  // see ops::SwigluArgs

    // The values of quant::decode_attn_row and decode_index_row in RowFormat::fp8 (an index row's -0 may read as 0).
    void (*decode_attn_fp8)(const std::byte* src, int dim, int n_rot, float* dst);
    void (*decode_index_fp8)(const std::byte* src, int dim, float* dst);
};

const Kernels& scalar_kernels();
const Kernels* avx2_kernels();  // nullptr when this build or this processor lacks AVX2, FMA and F16C
const Kernels& best_kernels();

// Whether matmul() below reads q and q_scale (true) or x for weights of this type.
bool reads_a16(quant::Type type);
// Requires: the format has a decoder; n_in is a whole number of blocks.
void matmul(const Kernels& kernels, quant::Type type, const MatmulTask& task);

}  // namespace vesta::backend
