// How many bytes of kv cache one decoded token reads, by kind of store; traffic.h counts the weights. This is what the
// cost of a long context is made of.
#pragma once

#include <cstdint>

#include "kv/cache.h"

namespace vesta::model {

struct CacheTraffic {
    int64_t window = 0;      // rows of the sliding window
    int64_t compressed = 0;  // rows attended: all of a plain layer, the chosen ones of an indexed layer
    int64_t index = 0;       // the indexer's rows, all of them
    int64_t frontier = 0;    // f32 inputs of the compressors, as an average over the tokens of a window
    int64_t total() const { return window + compressed + index + frontier; }
};

// For the token at position n_token (that many are in the cache). top_k: rows an indexed layer attends at most. The
// last `n_drafter` layers of the shape are not read by decoding.
CacheTraffic cache_traffic(const kv::Shape& shape, quant::RowFormat format, int64_t top_k, int64_t n_token,
                           int64_t n_drafter = 0);

}  // namespace vesta::model
