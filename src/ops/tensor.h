// Views the model and the backends exchange. None owns memory; all are borrowed for the call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace vesta::ops {

// A row-major f32 matrix [n_row, n_col]; row i starts at data + i * stride. Higher ranks are flattened into n_col and
// the argument says how: q [T, H, D] is a Tensor [T, H*D].
struct Tensor {
    float* data = nullptr;
    int64_t n_row = 0;
    int64_t n_col = 0;
    int64_t stride = 0;

    static Tensor of(float* data, int64_t n_row, int64_t n_col) { return {data, n_row, n_col, n_col}; }
    float* row(int64_t i) const { return data + i * stride; }
    Tensor rows(int64_t first, int64_t n) const { return {row(first), n, n_col, stride}; }
    Tensor cols(int64_t first, int64_t n) const { return {data + first, n_row, n, stride}; }
    // [T, H*D] seen as [T*H, D]. Requires contiguous rows.
    Tensor split_rows(int64_t n_part) const { return of(data, n_row * n_part, n_col / n_part); }
};

// A weight matrix in its file format, [n_out, n_in] per expert: y = W x. Rows hold whole blocks; experts follow each
// other. `data` is the model file's mapping (or what the backend made of it) and outlives the model.
struct Weight {
    quant::Type type = quant::Type::f32;
    const std::byte* data = nullptr;
    int64_t n_out = 0;
    int64_t n_in = 0;
    int64_t n_expert = 1;
    int64_t row_bytes = 0;

    const std::byte* row(int64_t out) const { return data + out * row_bytes; }
    Weight expert(int64_t e) const { return {type, data + e * n_out * row_bytes, n_out, n_in, 1, row_bytes}; }
    Weight outputs(int64_t first, int64_t n) const { return {type, row(first), n, n_in, 1, row_bytes}; }
    int64_t bytes() const { return n_expert * n_out * row_bytes; }
};

}  // namespace vesta::ops
