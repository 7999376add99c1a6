#include "model/cache_traffic.h"

#include <algorithm>

namespace vesta::model {

CacheTraffic cache_traffic(const kv::Shape& shape, quant::RowFormat format, int64_t top_k, int64_t n_token,
                           int64_t n_drafter) {
    CacheTraffic t;
    const int64_t row = quant::attn_row_bytes(format, static_cast<int>(shape.head_dim), static_cast<int>(shape.n_rot));
    const auto f32 = static_cast<int64_t>(sizeof(float));
    // The token's own rows are written first and read with the others.
    const int64_t visible = n_token + 1;
    for (size_t i = 0; i + static_cast<size_t>(n_drafter) < shape.layer.size(); ++i) {
        const kv::Shape::Layer& layer = shape.layer[i];
        t.window += row * std::min(visible, shape.window);
        if (layer.ratio == 0) continue;
        const int64_t n_row = visible / layer.ratio;
        t.compressed += row * (layer.indexed ? std::min(n_row, top_k) : n_row);
        // A window that is complete reads c and z of its n_lane · ratio positions, a lane of each: per position of the
        // window c and z once, n_lane rows wide.
        t.frontier += 2 * f32 * shape.head_dim * layer.n_lane;
        if (!layer.indexed) continue;
        // When every row is chosen there is nothing to score.
        if (n_row > top_k) t.index += n_row * quant::index_row_bytes(format, static_cast<int>(shape.index_dim));
        t.frontier += 2 * f32 * shape.index_dim * layer.n_lane;
    }
    return t;
}

}  // namespace vesta::model
