// Two files of one model, quantized differently, become one: chosen layers' tensors from the donor, everything else
// from the base, byte for byte. So some layers can have more bits than others without quantizing again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "gguf/file.h"

namespace vesta::convert {

// "37:42,50" -> inclusive ranges, in the order written. invalid_argument for anything else.
struct LayerRange {
    uint32_t first, last;
};
Result<std::vector<LayerRange>> parse_layers(std::string_view text);

struct SplicedTensor {
    const gguf::TensorInfo* tensor;  // of the file it is taken from; name and shape are the same in both
    bool from_donor;
};

// Valid while both files live.
struct Splice {
    const gguf::File* base;
    const gguf::File* donor;
    std::string layers, tensors;      // as asked for, for the provenance keys
    std::vector<SplicedTensor> plan;  // in the base's order
    size_t n_from_donor = 0, n_type_changed = 0;
    uint64_t file_bytes = 0;
};

// `tensors`: "experts" (the routed ones) or "all" of a layer. Refuses files of different models, and names the first
// difference: the architecture's hyper-parameters, the vocabulary, a tensor that only one has, a shape. Formats and
// general.* may differ.
Result<Splice> plan_splice(const gguf::File& base, const gguf::File& donor, const std::string& layers,
                           const std::string& tensors);

// Writes PATH, or leaves nothing there.
Status write_splice(const Splice& splice, const std::string& path, bool overwrite, const ProgressFn& progress);

}  // namespace vesta::convert
