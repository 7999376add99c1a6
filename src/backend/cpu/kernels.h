// The inner loops of the cpu backend: one table of functions per instruction set, chosen once at run time. Knows rows
// of numbers; knows nothing of models, passes or threads. Every function runs on the calling thread, allocates nothing,
// and accepts unaligned pointers.
//
// One result, one order. Within a table, an output value is always summed in the same order, whatever the number of
// rows of x, the position in a tile, or the cut of the work. So prefill equals decode bit for bit. Products with block
// formats are defined down to the last bit (kernels_a16.h) and equal in all tables; for f32, f16 and bf16 weights each
// table has its own number of running sums (element i goes to sum i mod 8, or mod 16 with AVX-512, folded at the end
// in a fixed tree), so these differ from table to table in the last bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels_a16.h"
#include "quant/format.h"

namespace vesta::backend {

// y[t, o] = sum_i w[o, i] · x[t, i]   for t < n_row, o < n_out
struct MatmulTask {
    const std::byte* w = nullptr;  // n_out rows in their file format
    int64_t w_stride = 0;          // bytes from one row to the next
    int64_t n_out = 0;
    int64_t n_in = 0;
    const float* x = nullptr;  // [*, n_in], row t at x + t·x_stride; unused by a16 kernels
    int64_t x_stride = 0;
    const std::byte* a16 = nullptr;  // a16 kernels: rows of a16::row_bytes(n_in), contiguous
    const int32_t* pick = nullptr;   // row t reads row pick[t] of x (or a16); nullptr: row t
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

// Products with block formats, read from the file's bytes and a16 rows.
struct A16Kernels {
    bool split;  // the order of codes in a16 rows, see kernels_a16.h
    // Rounds one row. n % 32 == 0. A block with a non-finite value gets a NaN scale, so the results show it; a block
    // whose largest magnitude is below 1e-30 becomes zero.
    void (*quantize)(const float* x, int64_t n, std::byte* row);
    MatmulFn q8_0, mxfp4, q2_k, q3_k, q4_k, q5_k, q6_k, iq2_xxs;
};

struct Kernels {
    const char* name;  // "avx2"

    MatmulFn matmul_f32, matmul_f16, matmul_bf16;  // read x; any n_in
    A16Kernels a16;
    // Any other format with a decoder, through f32, 256 elements at a time. Reads x.
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
const Kernels* avx2_kernels();          // nullptr when this build or this processor lacks AVX2, FMA and F16C
const Kernels* avx512_kernels();        // likewise: AVX-512 F, BW, DQ, VL, VNNI and VBMI
const Kernels* neon_kernels();          // nullptr where this is not a 64-bit Arm
const Kernels* neon_dotprod_kernels();  // likewise: with FEAT_DotProd
const Kernels* neon_i8mm_kernels();     // likewise: with FEAT_DotProd and FEAT_I8MM
const Kernels& best_kernels();
// All that run here, slowest first; the last is the best.
std::vector<const Kernels*> usable_kernels();

// The function for a block format that has one, and nullptr.
MatmulFn a16_kernel(const Kernels& kernels, quant::Type type);
// Whether matmul() below reads a16 rows (true) or x for weights of this type.
bool reads_a16(quant::Type type);
// Requires: the format has a decoder; n_in is a whole number of blocks.
void matmul(const Kernels& kernels, quant::Type type, const MatmulTask& task);

}  // namespace vesta::backend
