// What attention remembers, as the backends see it: one LayerCache per layer and session. Memory belongs to kv::Cache
// (or to the backend). Positions, not slots, are the addresses: position p lives in slot p % capacity.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/kv_row.h"

namespace vesta::ops {

// Encoded rows of one kind. A store that never wraps has capacity >= the largest index + 1.
struct RowStore {
    std::byte* data = nullptr;
    int64_t row_bytes = 0;
    int64_t capacity = 0;
    std::byte* row(int64_t index) const { return data + (index % capacity) * row_bytes; }
};

// The compressor's unfinished business: c and z of the last positions, f32, a ring indexed by position.
struct Frontier {
    float* c = nullptr;    // [capacity, width]
    float* z = nullptr;    // [capacity, width]; position bias already added
    int64_t width = 0;     // lanes * row width
    int64_t capacity = 0;  // >= ratio (one lane) or 2 * ratio (two lanes)
    float* c_row(int64_t position) const { return c + (position % capacity) * width; }
    float* z_row(int64_t position) const { return z + (position % capacity) * width; }
};

struct LayerCache {
    quant::RowFormat format = quant::RowFormat::fp8;
    RowStore window;      // latent kv of recent positions; capacity >= sliding window - 1 + rows of one pass
    RowStore compressed;  // row w pools the window of positions [w*ratio, (w+1)*ratio); never wraps
    RowStore index;       // the indexer's rows, one per compressed row of a ratio-4 layer; never wraps
    Frontier attn_frontier;
    Frontier index_frontier;
};

// One row of a pass: a token of some session at its position. Rows of one session stand in order of position, without
// gaps; rows of different sessions may be mixed.
struct Row {
    int32_t token = 0;
    int32_t position = 0;
    int32_t slot = 0;  // which session: index into the pass's caches
};

}  // namespace vesta::ops
