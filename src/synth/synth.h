// Synthetic models: a model file of any shape with random but valid weights, so that real layer sizes can be measured
// where the real model does not fit, or is not at hand. plan() knows every size; write() makes the file, and build()
// the same bytes in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "convert/config.h"
#include "convert/recipe.h"
#include "gguf/writer.h"
#include "quant/format.h"
#include "synth/shapes.h"

namespace vesta::synth {

struct Options {
    ShapeOptions shape{};
    convert::Recipe recipe;
    uint64_t seed = 1;
};

struct PlannedTensor {
    std::string name;
    quant::Type type;
    std::vector<uint64_t> dims;  // GGUF order
    uint64_t bytes;
};

struct Plan {
    Options options;
    convert::ModelConfig config;
    std::vector<PlannedTensor> tensors;
    uint64_t data_bytes() const;
    uint64_t n_parameter() const;
};

// Errors: invalid_argument for a shape that cannot be, unsupported for a format that cannot be filled.
Result<Plan> plan(const Options& options);

// Writes PATH, or leaves nothing there. `n_thread` changes speed only, never a byte.
Status write(const Plan& plan, const std::string& path, bool overwrite, int n_thread, const ProgressFn& progress);

// A model file as it would stand on disk, in anonymous memory (huge pages where the kernel gives them).
class Image {
 public:
    Image() = default;
    Image(Image&& o) noexcept;
    Image& operator=(Image&& o) noexcept;
    ~Image();
    std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
    friend Result<Image> build(const Plan& plan, int n_thread, const ProgressFn& progress);
    std::byte* data_ = nullptr;
    size_t size_ = 0;
};
Result<Image> build(const Plan& plan, int n_thread, const ProgressFn& progress);

}  // namespace vesta::synth
