// The one table from official checkpoint names to GGUF names, as a list of what a model with a given configuration must
// have: each GGUF tensor, the checkpoint tensors it is made of, and their shape. The list is complete in both
// directions, so a missing, misshapen or unknown tensor is found before anything is written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convert/config.h"

namespace vesta::convert {

// How the official checkpoint packs a tensor. A converter must not rely on it (other releases pack differently, the
// dtype in the file decides); it says which tensors may have a scale and which are integers.
enum class Packing {
    plain,  // BF16 or F32
    fp8,    // F8_E4M3 with a scale per 128 x 128 block, in a sibling tensor
    fp4,    // two e2m1 codes per byte with a scale per 32 columns, in a sibling tensor
    ids,    // integers
};

struct ExpectedTensor {
    std::string gguf_name;
    std::vector<std::string> sources;  // official names; more than one: the experts, stacked in this order
    std::vector<uint64_t> shape;       // of one source, in values: [n] or [out, in]
    Packing packing;
    bool stacked;  // the GGUF tensor has a third dimension, sources.size()
};

// Everything a model of this configuration has, in the order it gets in the file.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

// "layers.0.attn.wq_a.weight" -> "layers.0.attn.wq_a.scale". Requires a name ending in ".weight".
std::string scale_name(std::string_view weight_name);

// The official name for a name of the official or of the transformers style ("model.layers.0.self_attn.wq_a.weight").
std::string official_name(std::string_view name);

}  // namespace vesta::convert
