// How many bytes of weights one decoded token reads: what decides the speed where memory is the limit. Of the routed
// experts, the chosen ones; of tables that are looked up (embeddings, token-routed experts), one row; everything else
// whole. Drafters are not counted: they run for several tokens at once. The kv cache is not counted.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "gguf/file.h"

namespace vesta::model {

struct WeightSize {
    std::string_view name;  // GGUF name
    uint64_t bytes;
    uint64_t n_row;  // dims[1]; 1 for vectors
};

struct Traffic {
    uint64_t routed = 0, shared = 0, attention = 0, head = 0, rest = 0;  // attention: its five projections
    uint64_t total() const { return routed + shared + attention + head + rest; }
};

// n_expert 0: a model without routed experts.
Traffic decode_traffic(std::span<const WeightSize> weights, uint64_t n_expert, uint64_t n_expert_used);
Traffic decode_traffic(const gguf::File& file);  // expert counts from <architecture>.expert_count and _used_count

// Whether the tensor belongs to a drafter: mtp.*, or the block of llama.cpp's *.nextn.* tensors, whose prefix
// ("blk.43.") is `nextn_prefix` (empty: none).
bool is_drafter(std::string_view name, std::string_view nextn_prefix);
std::string_view nextn_prefix(std::span<const WeightSize> weights);

}  // namespace vesta::model
