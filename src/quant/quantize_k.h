// Between quantize_k.cpp (files' bytes) and the searches (scales and codes): one super-block, or up to eight blocks of
// 32, laid out so that eight sub-blocks lie side by side. A search works on the eight at once, one per lane, and never
// sums across lanes inside a sub-block; so the eight-lane form is the definition, a loop over lanes and an AVX2
// register compute the same bits, and no partial sums have to be folded. Internal to the room.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace vesta::quant {

// 256 numbers. With N elements per sub-block (16 or 32): element i of sub-block 8g + lane is number 8·(N·g + i) + lane.
// x is divided by a power of two (`unit`) that brings the largest magnitude to [1, 2), w by one that does the same to
// the largest weight: sums of squares neither overflow nor vanish, and nothing is rounded.
struct SearchInput {
    alignas(32) float x[256];
    alignas(32) float w[256];      // > 0
    alignas(32) float unit[8];     // K formats: all the same, blocks of 32: each its own
    alignas(32) float obvious[8];  // MXFP4: the smallest scale that clips nothing, in units; else unused
};

// In the same layout. Scales and d are what the file will hold, codes were rounded with them.
struct SearchResult {
    alignas(32) float code[256];
    alignas(32) float scale[16], min[16];  // integers: the sub-blocks' 4- or 6-bit (q6_k: 8-bit) factors
    alignas(32) float d[8];                // f16 values, in the units of the file; K formats: d[0]
    float dmin = 0;
};

// If the obvious d is beyond f16, d comes back infinite.
using SearchFn = void (*)(const SearchInput& in, SearchResult& out);

struct SearchKernels {
    const char* name;
    SearchFn q2_k, q3_k, q4_k, q5_k, q6_k;
    SearchFn q8_0;
    SearchFn mxfp4;  // d = scale in units; no codes
};

const SearchKernels& scalar_search();
const SearchKernels* avx2_search();  // nullptr: not in this build or not on this processor

// quantize_k.cpp. Contracts as quantize_rows, for these formats; `kernels` for tests.
void quantize_rows_searching(const SearchKernels& kernels, Type type, const float* src, int64_t n_row, int64_t n_col,
                             const float* importance, std::byte* dst);

}  // namespace vesta::quant
