// From a checkpoint (safetensors + config.json + tokenizer.json) or from another model file to one GGUF model file:
// what `vesta convert` and `vesta quantize` share.
//
// plan() reads headers only: it matches every tensor of a checkpoint with every tensor the model must have, decides
// formats and looks at the importance matrix, so all refusals that do not need the weights come before the first byte
// is written. execute() then streams the weights through a buffer of a few tens of MB, whatever the size of the model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "convert/config.h"
#include "convert/names.h"
#include "convert/recipe.h"
#include "convert/source.h"
#include "convert/vocabulary.h"
#include "gguf/file.h"
#include "gguf/writer.h"
#include "imatrix/dat.h"
#include "model/traffic.h"
#include "quant/format.h"
#include "quant/quantize.h"
#include "safetensors/file.h"

namespace vesta::convert {

// An importance matrix with what the model file will say about it.
struct Importance {
    imatrix::Matrix matrix;
    std::string file_name;  // without its folder
    uint64_t hash;          // of the file's bytes
};
Result<std::shared_ptr<const Importance>> read_importance(const std::string& path);

// What becomes of the MTP block, the tensors mtp.*.
enum class Drafter { inside, left_out, alone };

struct Options {
    std::string from;  // the checkpoint's folder, or a model file
    Recipe recipe;
    std::string dialect = "dsv4";  // how prompts are written for this model; chat reads it from the file
    std::string model_name{};      // general.name; empty: the folder's name. Model files keep theirs
    std::string version{};         // of the converter, for the file's provenance keys
    bool ignore_unknown = false;   // leave tensors out that no GGUF name is known for, instead of refusing
    bool quantize = false;         // write vesta.quantize.* and general.file_type too
    std::vector<Override> overrides{};
    std::shared_ptr<const Importance> importance{};
    Drafter drafter = Drafter::inside;
    bool strict = false;  // a tensor the importance matrix does not cover well is an error, not a note
};

struct PlannedTensor {
    ExpectedTensor expected;
    std::vector<Source> sources;  // one, or one per expert
    quant::Type type;
    bool exact;                  // every value must survive
    std::vector<uint64_t> dims;  // GGUF order, dims[0] contiguous
    uint64_t bytes;
    bool copy = false;                      // of a model file: its bytes as they are
    quant::Type stored = quant::Type::f32;  // the source's format, or the one that holds its values exactly
    uint64_t n_elem() const;
    const char* stored_name() const;  // "FP8", "q8_0"
};

struct Plan {
    Options options;
    ModelConfig config{};  // of a checkpoint
    std::optional<safetensors::Checkpoint> checkpoint;
    std::optional<gguf::File> file;  // or a model file
    bool has_drafter = false;        // the source has an MTP block
    bool has_vocabulary = false;
    Vocabulary vocabulary;
    std::vector<PlannedTensor> tensors;
    std::vector<std::string> notes;  // what a person should know: fallbacks, missing parts
    uint32_t n_expert = 0, n_expert_used = 0;

    uint64_t data_bytes() const;  // tensors without padding
    uint64_t file_bytes() const;  // of the file execute() writes
    double bits_per_weight() const;
    model::Traffic traffic() const;                                       // per decoded token
    std::string describe(const PlannedTensor& t, const Source& s) const;  // for messages: file and tensor
    // Importance of the columns of source `index` of t: empty when the matrix has none that can be used.
    std::vector<float> importance(const PlannedTensor& t, size_t index) const;
};

Result<Plan> plan(const Options& options);
// Shapes and sizes only, from a config.json: what a recipe would make of a checkpoint that is not here. The result has
// no sources and cannot be executed.
Result<Plan> plan_shapes(const std::string& config_path, const Options& options);

struct ExecuteOptions {
    std::string path;
    bool overwrite = false;
    int n_thread = 1;        // changes speed only, never a byte
    bool resumable = false;  // work in PATH.part and keep it when stopped or killed; otherwise nothing is left
    bool restart = false;    // do not continue a PATH.part
    bool measure = false;    // fill Summary::errors
    ProgressFn progress{};
};

struct TensorError {
    size_t tensor;  // index in the plan
    quant::ErrorSum sum;
};

struct Summary {
    size_t n_tensor = 0;
    uint64_t file_bytes = 0;
    size_t n_resumed = 0;  // tensors taken over from an unfinished file
    std::vector<TensorError> errors;
    std::vector<std::string> notes;  // of the work itself
};

// Writes PATH, or leaves nothing there.
Result<Summary> execute(const Plan& plan, const ExecuteOptions& options);
Result<Summary> execute(const Plan& plan, const std::string& path, bool overwrite, int n_thread,
                        const ProgressFn& progress);

// Encodes one tensor again and compares with what `file` holds under its name.
struct Comparison {
    bool equal = false;
    uint64_t n_block = 0, n_block_differs = 0, first_difference = 0;  // byte offset inside the tensor
    quant::Type type;
};
Result<Comparison> compare_tensor(const Plan& plan, const std::string& name, const gguf::File& file, int n_thread,
                                  const ProgressFn& progress);

// The header execute() writes. Requires a plan with sources.
gguf::Writer new_writer(const Plan& plan);

}  // namespace vesta::convert
