// The searching encoder of IQ2_XXS; what it minimises and its contracts are in quantize.h. The decoder is iq2xxs.cpp.
//
// A super-block of 256 values has one f16 scale d, eight 4-bit codes c (one for 32 values, s = d·(2c+1)/8), and for
// every 8 values one of 256 grid points and 7 signs. Points and signs are never guessed: for a given s all 256 points
// are tried, each with its cheapest legal signs, so what remains to be searched is nine numbers, d and the codes.
//
// Weights: importance[i] as it is, and 1 without any. Nothing here looks past a super-block, so a caller that has no
// imatrix and wants the energies of the columns as importance (column_energy) computes them over the whole tensor.
// Columns of weight 0 cost nothing; 32 columns that are all zero have no say in d, and then take the code that
// suits them under equal weights (calibration that never met them should not turn them into noise).
#pragma once

#include <cstddef>
#include <cstdint>

namespace vesta::quant {

// As quantize_rows in quantize.h.
void quantize_iq2_xxs(const float* src, int64_t n_row, int64_t n_col, const float* importance, std::byte* dst);

}  // namespace vesta::quant
