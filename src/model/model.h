// What the engine knows of a model: its sizes, what its cache looks like, and how to run a pass. Families live in
// sub-folders and are found by general.architecture in families.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gguf/file.h"
#include "kv/cache.h"
#include "ops/ops.h"

namespace vesta::model {

struct Info {
    std::string architecture;
    std::string name;
    int64_t n_vocab = 0, n_embd = 0, n_layer = 0;
    int64_t n_ctx_train = 0;   // 0: the file does not say
    int64_t n_parameter = 0;   // weights of the main model
    int64_t weight_bytes = 0;  // as stored
    int64_t n_stream = 1;      // residual streams: a hidden state is [n_stream, n_embd]
    bool has_drafter = false;  // an MTP block came with the weights
    int64_t index_top_k = 0;   // compressed rows an indexed layer attends at most
    int64_t decoded_bytes = 0;  // norms, biases and tables that were copied out of the file
};

// Named observation points. The tensor is valid during the call; rows as in the pass.
enum class Tap { layer_input, after_attention, after_experts, final_streams };
using TapFn = std::function<void(Tap, int layer, const ops::Tensor&, std::span<const ops::Row>)>;

// One run of all layers over a batch of rows.
struct Pass {
    std::span<const ops::Row> rows;       // at most max_rows of the workspace; positions continue each session
    std::span<kv::Cache* const> cache;    // by slot
    std::span<const int32_t> output_rows; // rows whose logits are wanted, ascending
    float* logits = nullptr;              // [output_rows.size(), n_vocab]
    const TapFn* tap = nullptr;
};

// The drafter's step: token p+1 with the main model's final streams at p gives logits for p+2.
struct DraftPass {
    std::span<const ops::Row> rows;       // token: the one at position+1; position: p
    std::span<kv::Cache* const> cache;
    float* streams = nullptr;             // only read; [rows.size(), n_stream * n_embd]: final streams at the same positions
    std::span<const int32_t> output_rows;
    float* logits = nullptr;
};

// Scratch memory for passes of up to max_rows rows: taken once, used by one pass at a time.
class Workspace {
 public:
    virtual ~Workspace() = default;
    // Streams after the last layer of the latest forward(), [rows, n_stream * n_embd].
    virtual std::span<float> final_streams() = 0;
};

// Weights bound to a model file. Immutable: any number of sessions share it. The file outlives the model.
class Model {
 public:
    virtual ~Model() = default;
    virtual const Info& info() const = 0;
    virtual const kv::Shape& cache_shape() const = 0;
    virtual std::unique_ptr<Workspace> new_workspace(int64_t max_rows, int64_t max_outputs, int64_t n_ctx) const = 0;
    // Bytes new_workspace() would take, without taking them (lists of a few KB not counted).
    virtual int64_t workspace_bytes(int64_t max_rows, int64_t max_outputs, int64_t n_ctx) const = 0;
    virtual ops::PassShape pass_shape(int64_t max_rows, int64_t n_ctx) const = 0;
    // Errors: numeric, when values stop being finite (names the layer). The sessions' counters are not advanced.
    virtual Status forward(ops::Ops& ops, Workspace& workspace, const Pass& pass) const = 0;
    virtual Status draft(ops::Ops& ops, Workspace& workspace, const DraftPass& pass) const = 0;
};

// Binds the weights in `file` (and, if given, a separate drafter file) after checking all of them: metadata, names,
// shapes, types that `ops` can read, and index tensors. Errors name the first object that does not fit.
Result<std::unique_ptr<Model>> load(const gguf::File& file, const gguf::File* drafter, const ops::Ops& ops);

// Whether a family of this build reads files of this general.architecture.
bool known_architecture(std::string_view architecture);

// The same checks without keeping anything. `supports` says which formats could be read.
Status check(const gguf::File& file, const std::function<bool(quant::Type)>& supports);

}  // namespace vesta::model
