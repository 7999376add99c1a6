// A toy model loaded from memory with a backend, and passes over it that may fail.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/registry.h"
#include "gguf/file.h"
#include "kv/cache.h"
#include "model/model.h"
#include "support/toy_model.h"

namespace vesta::test {

class ToyRun {
 public:
    static Result<std::unique_ptr<ToyRun>> load(std::vector<std::byte> bytes, const std::string& backend = "cpu",
                                                int n_thread = 1) {
        auto run = std::unique_ptr<ToyRun>(new ToyRun);
        run->bytes_ = std::move(bytes);
        VESTA_TRY(auto file, gguf::File::parse(run->bytes_, "toy.gguf"));
        run->file_ = std::make_unique<gguf::File>(std::move(file));
        VESTA_TRY(run->ops_, backend::create(backend, n_thread));
        VESTA_TRY(run->model_, model::load(*run->file_, nullptr, *run->ops_));
        return run;
    }

    const model::Model& model() const { return *model_; }
    ops::Ops& ops() { return *ops_; }

    // Logits of every token, from an empty cache, in one pass.
    Result<std::vector<float>> logits(std::span<const int32_t> ids, quant::RowFormat format = quant::RowFormat::f32) {
        const auto n = static_cast<int64_t>(ids.size());
        VESTA_TRY(auto cache, kv::Cache::create(model_->cache_shape(),
                                                {.n_ctx = n, .max_pass_rows = n, .format = ops_->row_format(format)}));
        const auto workspace = model_->new_workspace(n, n, n);
        std::vector<ops::Row> rows;
        std::vector<int32_t> wanted;
        for (int32_t i = 0; i < n; ++i) {
            rows.push_back({.token = ids[static_cast<size_t>(i)], .position = i, .slot = 0});
            wanted.push_back(i);
        }
        kv::Cache* const caches[] = {cache.get()};
        std::vector<float> out(static_cast<size_t>(n * model_->info().n_vocab));
        VESTA_TRY_STATUS(model_->forward(*ops_, *workspace,
                                         {.rows = rows, .cache = caches, .output_rows = wanted, .logits = out.data()}));
        return out;
    }

 private:
    ToyRun() = default;
    std::vector<std::byte> bytes_;
    std::unique_ptr<gguf::File> file_;
    std::unique_ptr<ops::Ops> ops_;
    std::unique_ptr<model::Model> model_;
};

// 40 tokens: five windows of eight, ten of four, and every expert of the toy in use.
inline std::vector<int32_t> toy_tokens(size_t n = 40) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((i * 37 + 11) % 256));
    return ids;
}

}  // namespace vesta::test
