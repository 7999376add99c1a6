// Importance matrices: for every weight matrix, the mean square of the activations that meet each of its columns,
// in the legacy .dat format that other engines read and write too (docs/quantization.md has the bytes).
//
//   i32 n_entry;  per entry: i32 name_bytes, name, i32 n_call, i32 n_value, f32 value[n_value];
//   then, optionally: i32 n_chunk, i32 dataset_bytes, dataset
//
// A value in the file is a sum over n_call calls; a reader divides when n_call > 0. An entry of a stacked expert tensor
// packs one vector per expert, in order.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace vesta::imatrix {

struct Entry {
    int32_t n_call = 0;
    std::vector<float> sum;  // as in the file; mean = sum / n_call
};

struct Matrix {
    std::map<std::string, Entry> entries;  // by GGUF tensor name
    int32_t n_chunk = 0;
    std::string dataset;

    // Importance for expert `expert` (0 for a plain matrix) of tensor `name` with n_col columns and n_expert experts
    // (1 for a plain matrix): n_col means. not_found without an entry; bad_file when the entry's length is neither
    // n_col · n_expert nor n_col (one vector for all experts), or a value is negative, NaN or infinite.
    Result<std::vector<float>> importance(const std::string& name, int64_t n_col, int64_t n_expert,
                                          int64_t expert) const;
};

Result<Matrix> read_dat(const std::string& path);
Result<Matrix> parse_dat(std::span<const std::byte> bytes, const std::string& name);
Status write_dat(const Matrix& matrix, const std::string& path, bool overwrite);

}  // namespace vesta::imatrix
