// One tensor of a checkpoint or of a model file, whatever way it is packed, as numbers. Packings of checkpoints
// (docs/convert.md has the equations):
//   F32, F16, BF16               w as stored
//   F8_E4M3 + scale              w[o,i] = e4m3(b[o,i]) · s[o/128, i/128]       s F8_E8M0 (2^(e-127)) or F32
//   I8 (two e2m1 codes) + scale  w[o,i] = e2m1(code[o,i]) · 2^(e[o, i/32] - 127)
// A matrix of a model file (one expert of it, when experts are stacked) is rows of blocks of one of the formats of
// quant/format.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "convert/config.h"
#include "convert/names.h"
#include "quant/format.h"
#include "quant/quantize.h"
#include "safetensors/file.h"

namespace vesta::convert {

enum class Encoding { f32, f16, bf16, fp8, fp4, ids, blocks };
const char* encoding_name(Encoding encoding);

// Views into the checkpoint or model file; valid while it lives. Encoding blocks has neither weight nor scale. Vectors
// have one row.
struct Source {
    Encoding encoding;
    const safetensors::TensorInfo* weight;
    const safetensors::TensorInfo* scale;  // nullptr unless fp8, fp4
    uint64_t n_row, n_col;                 // in values
    uint64_t block_rows, block_cols;       // of fp8 scales
    std::span<const std::byte> blocks{};   // encoding blocks: all rows, in format `stored`
    quant::Type stored = quant::Type::f32;
};

// Checkpoint tensors by official name, each with whether something has used it.
class SourceIndex {
 public:
    static Result<SourceIndex> build(const safetensors::Checkpoint& checkpoint);
    // The tensor and, where its packing has one, its scale: present, of an accepted dtype and exactly the expected
    // shape.
    Result<Source> find(const std::string& official, const ExpectedTensor& expected, const ModelConfig& config);
    bool has_prefix(std::string_view prefix) const;
    std::vector<std::string> unused() const;  // names as the checkpoint has them, sorted

 private:
    struct Entry {
        const safetensors::TensorInfo* tensor;
        bool used;
    };
    explicit SourceIndex(const safetensors::Checkpoint& checkpoint) : checkpoint_(&checkpoint) {}
    const safetensors::Checkpoint* checkpoint_;
    std::unordered_map<std::string, Entry> entries_;
};

// What went wrong inside a slice, without strings, so that workers can report cheaply.
enum class Fault {
    none,
    not_finite,    // NaN or infinity, in the source or after its scale
    not_exact,     // the target format cannot hold the value, and the recipe asked for every bit
    does_not_fit,  // larger than the target format's largest value
    bad_scale,     // an e8m0 scale that is NaN, or so large that no weight of the block fits a float
    id_range,      // an expert id outside the model
};

// Rows [row, row + n_row) as f32. Requires encoding != ids, and for blocks a format with a decoder. not_exact is
// reported when f32 cannot hold a product. On not_finite the value itself is the last one written.
Fault decode_rows(const Source& source, uint64_t row, uint64_t n_row, float* out);

// Same rows in the target's bytes. `exact`: the values must survive unchanged. FP4 to MXFP4 is a repacking of codes and
// never goes through floats. Requires: n_col is a multiple of the target's block, or the whole tensor when it is not.
// `importance`: [n_col] or nullptr, as quant::quantize_rows. `error`: what the rounding cost is added to it; nullptr:
// not measured.
Fault encode_rows(const Source& source, uint64_t row, uint64_t n_row, quant::Type target, bool exact, uint32_t id_limit,
                  std::byte* out, const float* importance = nullptr, quant::ErrorSum* error = nullptr);

// The row and column of the first value that is not finite. Requires that there is one.
struct Place {
    uint64_t row, col;
};
Place find_not_finite(const Source& source);

// The bytes of rows [row, row + n_row), scales not included.
std::span<const std::byte> stored_bytes(const Source& source, uint64_t row, uint64_t n_row);

}  // namespace vesta::convert
