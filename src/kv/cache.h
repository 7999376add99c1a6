// The kv cache of one session: memory for every layer's rows and frontiers, sized exactly when the session opens and
// never grown. Knows shapes and bytes; what the rows mean is the model's business, how they are encoded is quant's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "ops/cache.h"

namespace vesta::kv {

// What a model family asks for.
struct Shape {
    int64_t head_dim = 0;   // width of an attention row; the last n_rot values are rotary
    int64_t n_rot = 0;
    int64_t index_dim = 0;  // width of an indexer row
    int64_t window = 0;     // positions an uncompressed row stays visible
    int64_t block_rows = 0; // rows a model writes before their queries read, at most; 0: those of a whole pass
    struct Layer {
        int64_t ratio = 0;     // positions per compressed row; 0: window only
        int64_t n_lane = 0;    // 1, or 2 when windows overlap
        bool indexed = false;  // keeps indexer rows
    };
    std::vector<Layer> layer;  // the drafter's layers, if any, stand last
};

struct Options {
    int64_t n_ctx = 4096;                                    // positions the session can hold
    int64_t max_pass_rows = 512;                             // most rows of this session in one pass
    quant::RowFormat format = quant::RowFormat::fp8;
    int64_t rewind = 0;                                      // positions that can be taken back by a counter change
};

constexpr int64_t kMaxContext = int64_t{1} << 24;  // far above any model, small enough that no size overflows

// Exact bytes, known before anything is allocated.
struct Plan {
    int64_t window_bytes = 0;      // fixed
    int64_t compressed_bytes = 0;  // grow with n_ctx
    int64_t index_bytes = 0;       // grow with n_ctx
    int64_t frontier_bytes = 0;    // fixed
    int64_t rewind_bytes = 0;      // of the fixed ones: what Options::rewind costs
    int64_t checkpoint_bytes = 0;  // one copy_recent() when the window is full
    double bytes_per_token = 0;    // growth per position: sum over layers of (row + index row) / ratio
    int64_t total() const { return window_bytes + compressed_bytes + index_bytes + frontier_bytes; }
};
// For any options: values that create() would refuse count as the nearest one in range.
Plan plan(const Shape& shape, const Options& options);
// Bytes of Cache::copy_used() for n_token positions, layer by layer. Requires n_token in 0..kMaxContext.
std::vector<int64_t> used_bytes_by_layer(const Shape& shape, quant::RowFormat format, int64_t n_token);

class Cache {
 public:
    // Reserves the planned bytes; the kernel commits pages as rows are written, so a large n_ctx costs nothing up front.
    // Errors: invalid_argument for an n_ctx or pass size out of range, no_memory when the reservation is refused.
    static Result<std::unique_ptr<Cache>> create(const Shape& shape, const Options& options);
    ~Cache();
    Cache(const Cache&) = delete;
    Cache& operator=(const Cache&) = delete;

    const Options& options() const { return options_; }
    int64_t n_layer() const { return static_cast<int64_t>(layers_.size()); }
    ops::LayerCache& layer(int64_t i) { return layers_[static_cast<size_t>(i)]; }

    // Positions 0..n_token-1 are in the cache: rows are found by position, and nothing at or above n_token is read
    // before it is written again.
    int64_t n_token() const { return n_token_; }
    // A pass over the next n positions begins: its rows overwrite the oldest ones of the rings, whether it ends well or not.
    void begin_pass(int64_t n) { high_ = std::max(high_, n_token_ + n); }
    void advance(int64_t n) {
        begin_pass(n);
        n_token_ += n;
    }
    void clear() { n_token_ = high_ = floor_ = 0; }

    // Whether the state after n positions is still here, n <= n_token(): then rewind(n) is exact. True for the last
    // Options::rewind positions that were ever written, back to where the latest restore began.
    bool can_rewind(int64_t n) const {
        return n == 0 || (n >= floor_ && n >= high_ - options_.rewind && n <= n_token_);
    }
    void rewind(int64_t n);  // requires can_rewind(n); to 0 is clear()

    // What the positions in the cache can still be asked for, and nothing else: visible window rows, complete
    // compressed and index rows, the frontiers' last positions. The bytes depend on shape, format and n_token() only,
    // so a copy fits into a cache with other room (n_ctx, pass size) as long as n_token() does.
    int64_t used_bytes() const;
    void copy_used(std::byte* dst) const;  // [used_bytes()]
    // Requires: `src` is a copy of n_token positions from a cache of the same shape and format; n_token <= n_ctx.
    void restore_used(const std::byte* src, int64_t n_token);

    // The same without compressed and index rows, which stay where they are when a session goes back: a checkpoint that
    // only this cache can use, and only until positions below its own are written again.
    int64_t recent_bytes() const;
    void copy_recent(std::byte* dst) const;  // [recent_bytes()]
    void restore_recent(const std::byte* src, int64_t n_token);

 private:
    Cache() = default;
    enum class What { all, recent };
    template <class F>
    void for_each_used(int64_t n_token, What what, F&& visit) const;
    Shape shape_;
    Options options_;
    std::vector<ops::LayerCache> layers_;
    std::byte* memory_ = nullptr;
    size_t memory_bytes_ = 0;
    int64_t n_token_ = 0;
    int64_t high_ = 0;   // one beyond the highest position ever written: rings hold the last ones before it
    int64_t floor_ = 0;  // rings hold nothing before the window of this position
};

}  // namespace vesta::kv
