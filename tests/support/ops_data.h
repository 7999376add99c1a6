// Inputs for tests of operations: random rows, weights in any format, and a layer's cache in memory of its own.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/ops.h"
#include "quant/kv_row.h"
#include "support/random_blocks.h"

namespace vesta::test {

inline std::vector<float> gaussian(int64_t n, uint32_t seed, float sigma = 1.0f, float mean = 0.0f) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(mean, sigma);
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = normal(rng);
    return v;
}

// An [n_row, n_col] matrix that owns its values.
struct Rows {
    std::vector<float> v;
    int64_t n_col;
    Rows(int64_t n_row, int64_t col) : v(static_cast<size_t>(n_row * col), NAN), n_col(col) {}
    Rows(std::vector<float> values, int64_t col) : v(std::move(values)), n_col(col) {}
    int64_t n_row() const { return static_cast<int64_t>(v.size()) / n_col; }
    ops::Tensor t() { return ops::Tensor::of(v.data(), n_row(), n_col); }
};

// A random matrix (or one per expert) in its file format, about 1/sqrt(n_in) large.
struct OwnedWeight {
    std::vector<std::byte> bytes;
    ops::Weight w;
    OwnedWeight(quant::Type type, int64_t n_out, int64_t n_in, uint32_t seed, int64_t n_expert = 1) {
        const quant::Format& f = quant::format(type);
        const int64_t n_row = n_out * n_expert, row_bytes = quant::row_bytes(f, n_in);
        bytes.resize(static_cast<size_t>(n_row * row_bytes));
        const std::vector<float> values = gaussian(n_row * n_in, seed, 1.0f / std::sqrt(static_cast<float>(n_in)));
        std::mt19937 rng(seed);
        if (f.encode != nullptr)
            f.encode(values.data(), bytes.data(), n_row * n_in);
        else
            random_blocks(f, bytes.data(), n_row * n_in, rng);
        w = {type, bytes.data(), n_out, n_in, n_expert, row_bytes};
    }
};

// One layer's cache: stores of the given capacities, as kv::Cache would place them.
class OwnedCache {
 public:
    struct Sizes {
        int64_t dim = 80, n_rot = 16, index_dim = 32, window = 8, ratio = 4, n_lane = 2, n_ctx = 128, max_rows = 64;
    };
    OwnedCache(quant::RowFormat format, const Sizes& s) {
        const int64_t row = quant::attn_row_bytes(format, static_cast<int>(s.dim), static_cast<int>(s.n_rot));
        const int64_t index_row = quant::index_row_bytes(format, static_cast<int>(s.index_dim));
        const int64_t n_row = s.n_ctx / s.ratio + 1;
        cache.format = format;
        cache.window = store(row, s.window + s.max_rows);
        cache.compressed = store(row, n_row);
        cache.index = store(index_row, n_row);
        cache.attn_frontier = frontier(s.n_lane * s.dim, s.n_lane * s.ratio);
        cache.index_frontier = frontier(s.n_lane * s.index_dim, s.n_lane * s.ratio);
    }
    ops::LayerCache cache;

 private:
    ops::RowStore store(int64_t row_bytes, int64_t capacity) {
        bytes_.emplace_back(static_cast<size_t>(row_bytes * capacity));
        return {bytes_.back().data(), row_bytes, capacity};
    }
    ops::Frontier frontier(int64_t width, int64_t capacity) {
        for (int i = 0; i < 2; ++i) floats_.emplace_back(static_cast<size_t>(width * capacity), NAN);
        return {floats_[floats_.size() - 2].data(), floats_.back().data(), width, capacity};
    }
    std::vector<std::vector<std::byte>> bytes_;
    std::vector<std::vector<float>> floats_;
};

// Rows first .. first+n-1 of one session.
inline std::vector<ops::Row> session_rows(int64_t n, int32_t slot = 0, int32_t first = 0) {
    std::vector<ops::Row> rows;
    for (int32_t i = 0; i < n; ++i)
        rows.push_back({.token = (first + i) * 7 % 100 + slot, .position = first + i, .slot = slot});
    return rows;
}

}  // namespace vesta::test
