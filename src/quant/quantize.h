// Quantizing: from f32 rows to a block format, choosing scales and codes by search. The encoders of format.h round each
// value to the nearest code of an obvious scale; these look for the scales that make the decoded row best:
//
//   minimise  E = sum_i  importance[i] · (x[i] − decode(encode(x))[i])^2
//
// importance[i] is how much column i matters: the mean squared activation that meets it (imatrix). Without one E is the
// plain sum of squares; IQ2_XXS cannot do without and takes the weights' own energy (column_energy below).
//
// One result: the bytes depend on the row and its importance only, never on other rows, the number of threads or the
// instruction set (the AVX2 loops compute, lane by lane, what the scalar ones define).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/format.h"

namespace vesta::quant {

// Whether quantize_rows can write this format, and the list of those, from the most bits per weight to the fewest.
bool can_quantize(Type type);
std::span<const Type> quantizable_types();

// src: [n_row, n_col] f32, all finite; importance: [n_col], finite and >= 0, or nullptr; a column of weight 0 may take
// any value, a row whose importance is all zero is treated as if it had none. dst: n_row · row_bytes(type, n_col).
// Requires: can_quantize(type), n_col a multiple of the block, values within the format's range (a block its format
// cannot hold reads back as NaN, as in codecs.h). Runs on the calling thread.
void quantize_rows(Type type, const float* src, int64_t n_row, int64_t n_col, const float* importance, std::byte* dst);

// What IQ2_XXS uses when no importance is given: energy[c] = sum over rows of src[r, c]^2 (added to what is there).
void column_energy(const float* src, int64_t n_row, int64_t n_col, double* energy);

// E of the definition above for rows already encoded, and the same sum over x^2 (for a relative error); both added to.
struct ErrorSum {
    double error = 0, energy = 0;
};
void add_error(Type type, const float* src, const std::byte* encoded, int64_t n_row, int64_t n_col,
               const float* importance, ErrorSum& sum);

}  // namespace vesta::quant
