#include "kv/cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace vesta::kv {
namespace {

// One walk over the shape serves planning (memory == nullptr) and placement, so the two cannot disagree.
class Placement {
 public:
    explicit Placement(std::byte* memory) : memory_(memory) {}

    std::byte* take(int64_t bytes, int64_t& account) {
        std::byte* p = memory_ == nullptr ? nullptr : memory_ + used_;
        const int64_t padded = (bytes + 63) / 64 * 64;  // every store starts on a cache line
        used_ += padded;
        account += padded;
        return p;
    }
    int64_t used() const { return used_; }

 private:
    std::byte* memory_;
    int64_t used_ = 0;
};

ops::RowStore store(Placement& place, int64_t row_bytes, int64_t capacity, int64_t& account) {
    return {place.take(row_bytes * capacity, account), row_bytes, capacity};
}

ops::Frontier frontier(Placement& place, int64_t width, int64_t capacity, int64_t& account) {
    const auto bytes = width * capacity * static_cast<int64_t>(sizeof(float));
    ops::Frontier f;
    f.c = reinterpret_cast<float*>(place.take(bytes, account));
    f.z = reinterpret_cast<float*>(place.take(bytes, account));
    f.width = width;
    f.capacity = capacity;
    return f;
}

Plan place_all(const Shape& shape, const Options& o, std::byte* memory, std::vector<ops::LayerCache>* layers) {
    Plan plan;
    Placement place(memory);
    const int64_t row = quant::attn_row_bytes(o.format, static_cast<int>(shape.head_dim), static_cast<int>(shape.n_rot));
    for (const Shape::Layer& layer : shape.layer) {
        ops::LayerCache c;
        c.format = o.format;
        // A block's rows are all written before any of its queries reads, so the ring also holds the rows of one block.
        // No ring needs more than every position.
        const int64_t block = shape.block_rows > 0 ? std::min(shape.block_rows, o.max_pass_rows) : o.max_pass_rows;
        c.window = store(place, row, std::min(shape.window + block + o.rewind, std::max<int64_t>(o.n_ctx, 1)), plan.window_bytes);
        if (layer.ratio > 0) {
            const int64_t n_row = o.n_ctx / layer.ratio + 1;
            c.compressed = store(place, row, n_row, plan.compressed_bytes);
            const int64_t remembered = std::min(layer.ratio * layer.n_lane + o.rewind, std::max<int64_t>(o.n_ctx, 1));
            c.attn_frontier = frontier(place, shape.head_dim * layer.n_lane, remembered, plan.frontier_bytes);
            plan.bytes_per_token += static_cast<double>(row) / static_cast<double>(layer.ratio);
            if (layer.indexed) {
                const int64_t index_row = quant::index_row_bytes(o.format, static_cast<int>(shape.index_dim));
                c.index = store(place, index_row, n_row, plan.index_bytes);
                c.index_frontier = frontier(place, shape.index_dim * layer.n_lane, remembered, plan.frontier_bytes);
                plan.bytes_per_token += static_cast<double>(index_row) / static_cast<double>(layer.ratio);
            }
        }
        if (layers != nullptr) layers->push_back(c);
    }
    return plan;
}

// What n_token positions leave in use of one layer: of its rings, and of its stores that grow.
int64_t ring_bytes(const Shape& shape, const Shape::Layer& layer, quant::RowFormat format, int64_t n_token) {
    const int64_t row = quant::attn_row_bytes(format, static_cast<int>(shape.head_dim), static_cast<int>(shape.n_rot));
    const int64_t wide = (shape.head_dim + (layer.indexed ? shape.index_dim : 0)) * layer.n_lane;
    return std::min(shape.window, n_token) * row +
           std::min(layer.ratio * layer.n_lane, n_token) * wide * 2 * static_cast<int64_t>(sizeof(float));
}
int64_t grown_bytes(const Shape& shape, const Shape::Layer& layer, quant::RowFormat format, int64_t n_token) {
    if (layer.ratio == 0) return 0;
    const int64_t row = quant::attn_row_bytes(format, static_cast<int>(shape.head_dim), static_cast<int>(shape.n_rot));
    const int64_t index_row = layer.indexed ? quant::index_row_bytes(format, static_cast<int>(shape.index_dim)) : 0;
    return n_token / layer.ratio * (row + index_row);
}

int64_t recent_bytes(const Shape& shape, quant::RowFormat format, int64_t n_token) {
    int64_t n = 0;
    for (const Shape::Layer& layer : shape.layer) n += ring_bytes(shape, layer, format, n_token);
    return n;
}

}  // namespace

Plan plan(const Shape& shape, const Options& options) {
    Options in_range = options;
    in_range.n_ctx = std::clamp<int64_t>(options.n_ctx, 0, kMaxContext);
    in_range.max_pass_rows = std::clamp<int64_t>(options.max_pass_rows, 0, kMaxContext);
    in_range.rewind = std::clamp<int64_t>(options.rewind, 0, kMaxContext);
    Plan p = place_all(shape, in_range, nullptr, nullptr);
    Options without = in_range;
    without.rewind = 0;
    p.rewind_bytes = p.total() - place_all(shape, without, nullptr, nullptr).total();
    p.checkpoint_bytes = recent_bytes(shape, options.format, in_range.n_ctx);
    return p;
}

std::vector<int64_t> used_bytes_by_layer(const Shape& shape, quant::RowFormat format, int64_t n_token) {
    std::vector<int64_t> bytes;
    for (const Shape::Layer& layer : shape.layer)
        bytes.push_back(ring_bytes(shape, layer, format, n_token) + grown_bytes(shape, layer, format, n_token));
    return bytes;
}

Result<std::unique_ptr<Cache>> Cache::create(const Shape& shape, const Options& options) {
    if (options.n_ctx < 1 || options.n_ctx > kMaxContext)
        return Error{Code::invalid_argument, strf("context of {} tokens: expected 1 to {}", options.n_ctx, kMaxContext)};
    if (options.max_pass_rows < 1 || options.max_pass_rows > kMaxContext)
        return Error{Code::invalid_argument,
                     strf("chunk of {} tokens: expected 1 to {}", options.max_pass_rows, kMaxContext)};
    if (options.rewind < 0 || options.rewind > kMaxContext)
        return Error{Code::invalid_argument, strf("rewind of {} tokens: expected 0 to {}", options.rewind, kMaxContext)};
    const Plan p = plan(shape, options);
    auto cache = std::unique_ptr<Cache>(new Cache);
    cache->shape_ = shape;
    cache->options_ = options;
    cache->memory_bytes_ = static_cast<size_t>(p.total());
    void* memory = ::mmap(nullptr, cache->memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return Error{Code::no_memory, strf("kv cache for {} tokens: {} bytes refused by the system: {}", options.n_ctx,
                                           p.total(), std::strerror(errno))};
    cache->memory_ = static_cast<std::byte*>(memory);
    place_all(shape, options, cache->memory_, &cache->layers_);
    return cache;
}

// visit(memory, bytes) for every run of bytes in use, in one fixed order. Rings are walked by position, so that
// the order does not depend on their capacity.
template <class F>
void Cache::for_each_used(int64_t n_token, What what, F&& visit) const {
    const auto last = [&](int64_t n) { return std::max<int64_t>(0, n_token - n); };  // first of the last n positions
    for (size_t i = 0; i < layers_.size(); ++i) {
        const ops::LayerCache& layer = layers_[i];
        for (int64_t p = last(shape_.window); p < n_token; ++p) visit(layer.window.row(p), layer.window.row_bytes);
        const Shape::Layer& is = shape_.layer[i];
        if (is.ratio == 0) continue;
        const int64_t n_row = what == What::all ? n_token / is.ratio : 0;
        if (n_row > 0) visit(layer.compressed.data, n_row * layer.compressed.row_bytes);
        if (n_row > 0 && is.indexed) visit(layer.index.data, n_row * layer.index.row_bytes);
        for (const ops::Frontier* f : {&layer.attn_frontier, &layer.index_frontier}) {
            const int64_t row_bytes = f->width * static_cast<int64_t>(sizeof(float));
            if (f->capacity == 0) continue;  // no indexer in this layer
            for (int64_t p = last(is.ratio * is.n_lane); p < n_token; ++p) {
                visit(reinterpret_cast<std::byte*>(f->c_row(p)), row_bytes);
                visit(reinterpret_cast<std::byte*>(f->z_row(p)), row_bytes);
            }
        }
    }
}

namespace {

auto copy_to(std::byte*& dst) {
    return [&dst](const std::byte* p, int64_t bytes) {
        std::memcpy(dst, p, static_cast<size_t>(bytes));
        dst += bytes;
    };
}
auto copy_from(const std::byte*& src) {
    return [&src](std::byte* p, int64_t bytes) {
        std::memcpy(p, src, static_cast<size_t>(bytes));
        src += bytes;
    };
}

}  // namespace

void Cache::rewind(int64_t n) {
    VESTA_CHECK(can_rewind(n));
    if (n == 0) clear();
    n_token_ = n;
}

int64_t Cache::used_bytes() const {
    int64_t n = 0;
    for (const int64_t bytes : used_bytes_by_layer(shape_, options_.format, n_token_)) n += bytes;
    return n;
}

void Cache::copy_used(std::byte* dst) const { for_each_used(n_token_, What::all, copy_to(dst)); }

void Cache::restore_used(const std::byte* src, int64_t n_token) {
    VESTA_CHECK(n_token >= 0 && n_token <= options_.n_ctx);
    for_each_used(n_token, What::all, copy_from(src));
    n_token_ = high_ = floor_ = n_token;
}

int64_t Cache::recent_bytes() const { return kv::recent_bytes(shape_, options_.format, n_token_); }

void Cache::copy_recent(std::byte* dst) const { for_each_used(n_token_, What::recent, copy_to(dst)); }

void Cache::restore_recent(const std::byte* src, int64_t n_token) {
    VESTA_CHECK(n_token >= 0 && n_token <= options_.n_ctx);
    for_each_used(n_token, What::recent, copy_from(src));
    n_token_ = high_ = floor_ = n_token;
}

Cache::~Cache() {
    if (memory_ != nullptr) ::munmap(memory_, memory_bytes_);
}

}  // namespace vesta::kv
