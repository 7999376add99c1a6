// A model opened from a GGUF file together with a backend: runs token sequences through a fresh cache, for tests that ask
// about numbers and need neither tokenizer nor session.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "gguf/file.h"
#include "kv/cache.h"
#include "model/model.h"

namespace vesta::test {

class ModelRunner {
 public:
    ModelRunner(const std::string& path, const std::string& backend_name, int n_thread) {
        auto file = gguf::File::open(path);
        if (!file.ok()) throw std::runtime_error(file.error().message);
        file_ = std::make_unique<gguf::File>(std::move(file).value());
        auto ops = backend::create(backend_name, n_thread);
        if (!ops.ok()) throw std::runtime_error(ops.error().message);
        ops_ = std::move(ops).value();
        auto model = model::load(*file_, nullptr, *ops_);
        if (!model.ok()) throw std::runtime_error(model.error().message);
        model_ = std::move(model).value();
    }

    const model::Model& model() const { return *model_; }
    ops::Ops& ops() { return *ops_; }
    int64_t n_vocab() const { return model_->info().n_vocab; }

    // A sequence in progress.
    struct Sequence {
        std::unique_ptr<kv::Cache> cache;
        std::unique_ptr<model::Workspace> workspace;
    };
    Sequence start(quant::RowFormat format, int64_t n_ctx, int64_t chunk) const {
        Sequence s;
        auto cache = kv::Cache::create(model_->cache_shape(), {.n_ctx = n_ctx, .max_pass_rows = chunk, .format = ops_->row_format(format)});
        if (!cache.ok()) throw std::runtime_error(cache.error().message);
        s.cache = std::move(cache).value();
        s.workspace = model_->new_workspace(chunk, chunk, n_ctx);
        return s;
    }

    // Makes `to` a copy of `from`, which was started with the same options: a session's cache is all its state.
    void copy_state(const Sequence& from, Sequence& to) const {
        for (int64_t i = 0; i < from.cache->n_layer(); ++i) {
            const ops::LayerCache &a = from.cache->layer(i), &b = to.cache->layer(i);
            const auto rows = [](const ops::RowStore& x, const ops::RowStore& y) {
                if (x.data != nullptr) std::memcpy(y.data, x.data, static_cast<size_t>(x.row_bytes * x.capacity));
            };
            const auto frontier = [](const ops::Frontier& x, const ops::Frontier& y) {
                if (x.c == nullptr) return;
                std::memcpy(y.c, x.c, static_cast<size_t>(x.width * x.capacity) * sizeof(float));
                std::memcpy(y.z, x.z, static_cast<size_t>(x.width * x.capacity) * sizeof(float));
            };
            rows(a.window, b.window);
            rows(a.compressed, b.compressed);
            rows(a.index, b.index);
            frontier(a.attn_frontier, b.attn_frontier);
            frontier(a.index_frontier, b.index_frontier);
        }
        to.cache->clear();
        to.cache->advance(from.cache->n_token());
    }

    // One pass. `out` receives the logits of all its rows, or of the last one only.
    void pass(Sequence& s, std::span<const int32_t> ids, std::vector<float>& out, bool all, const model::TapFn* tap = nullptr) {
        std::vector<ops::Row> rows;
        std::vector<int32_t> wanted;
        for (size_t i = 0; i < ids.size(); ++i) {
            rows.push_back({ids[i], static_cast<int32_t>(s.cache->n_token()) + static_cast<int32_t>(i), 0});
            if (all || i + 1 == ids.size()) wanted.push_back(static_cast<int32_t>(i));
        }
        const size_t before = out.size();
        out.resize(before + wanted.size() * static_cast<size_t>(n_vocab()));
        kv::Cache* const caches[] = {s.cache.get()};
        const Status status = model_->forward(*ops_, *s.workspace, {.rows = rows, .cache = caches, .output_rows = wanted,
                                                                    .logits = out.data() + before, .tap = tap});
        if (!status.ok()) throw std::runtime_error(status.error().message);
        s.cache->advance(static_cast<int64_t>(ids.size()));
    }

    // Logits of every position, [ids.size(), n_vocab].
    std::vector<float> logits(std::span<const int32_t> ids, quant::RowFormat format, int64_t chunk,
                              const model::TapFn* tap = nullptr) {
        Sequence s = start(format, static_cast<int64_t>(ids.size()), std::min(chunk, static_cast<int64_t>(ids.size())));
        std::vector<float> out;
        for (size_t first = 0; first < ids.size(); first += static_cast<size_t>(chunk))
            pass(s, ids.subspan(first, std::min(static_cast<size_t>(chunk), ids.size() - first)), out, true, tap);
        return out;
    }

 private:
    std::unique_ptr<gguf::File> file_;
    std::unique_ptr<ops::Ops> ops_;
    std::unique_ptr<model::Model> model_;
};

inline int32_t argmax(std::span<const float> v) {
    size_t best = 0;
    for (size_t i = 1; i < v.size(); ++i)
        if (v[i] > v[best]) best = i;
    return static_cast<int32_t>(best);
}

// Distance between the largest and the second largest value.
inline float top_margin(std::span<const float> v) {
    float first = -1e30f, second = -1e30f;
    for (const float x : v) {
        if (x > first) second = first, first = x;
        else if (x > second) second = x;
    }
    return first - second;
}

}  // namespace vesta::test
