// From an official checkpoint (safetensors + config.json + tokenizer.json) to one GGUF model file.
//
// plan() reads headers only: it matches every tensor of the checkpoint with every tensor the model must have and
// decides formats, so all refusals that do not need the weights come before the first byte is written. execute() then
// streams the weights through a buffer of a few tens of MB, whatever the size of the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "convert/config.h"
#include "convert/names.h"
#include "convert/recipe.h"
#include "convert/source.h"
#include "convert/vocabulary.h"
#include "quant/format.h"
#include "safetensors/file.h"

namespace vesta::convert {

struct Options {
    std::string from;  // the checkpoint's folder
    Recipe recipe;
    std::string dialect = "dsv4";  // how prompts are written for this model; chat reads it from the file
    std::string model_name{};      // general.name; empty: the folder's name
    std::string version{};         // of the converter, for the file's provenance keys
    bool ignore_unknown = false;   // leave tensors out that no GGUF name is known for, instead of refusing
};

struct PlannedTensor {
    ExpectedTensor expected;
    std::vector<Source> sources;  // one, or one per expert
    quant::Type type;
    bool exact;                  // every value must survive
    std::vector<uint64_t> dims;  // GGUF order, dims[0] contiguous
    uint64_t bytes;
    uint64_t n_elem() const;
};

struct Plan {
    Options options;
    ModelConfig config;
    safetensors::Checkpoint checkpoint;
    bool has_vocabulary = false;
    Vocabulary vocabulary;
    std::vector<PlannedTensor> tensors;
    std::vector<std::string> notes;  // what a person should know: fallbacks, missing parts
    uint64_t data_bytes() const;
};

Result<Plan> plan(const Options& options);

struct Summary {
    size_t n_tensor = 0;
    uint64_t file_bytes = 0;
};

// Writes PATH, or leaves nothing there. `n_thread` changes speed only, never a byte.
Result<Summary> execute(const Plan& plan, const std::string& path, bool overwrite, int n_thread,
                        const ProgressFn& progress);

}  // namespace vesta::convert
