// The engine: a model file opened for use, and sessions on it. What servers, agents and the command line build on; no
// tensors here. One engine serves one model; several engines can live in one process.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"

namespace vesta {

namespace tokenizer {
class Tokenizer;
}
namespace model {
class Model;
}
namespace ops {
class Ops;
}
class Session;

struct EngineOptions {
    std::string backend = "auto";    // "auto", "cpu", "reference"
    int n_thread = 0;                // 0: every core this process may use
    std::string drafter_path;        // separate file with the MTP block; empty: only what the model file holds
};

struct EngineInfo {
    std::string path, name, architecture, backend, dialect;
    int n_thread = 0;
    int64_t n_vocab = 0, n_embd = 0, n_layer = 0;
    int64_t n_ctx_train = 0;         // 0: the file does not say
    int64_t n_parameter = 0, weight_bytes = 0;
    bool has_drafter = false;
};

// How rows of the kv cache are kept. fp8: the rounding the model was trained with. f32: no rounding at all.
enum class CacheFormat { fp8, f16, f32 };

struct SessionOptions {
    int64_t n_ctx = 4096;            // positions the session can hold
    int64_t chunk = 512;             // prefill rows computed together; changes speed and memory, never a result
    CacheFormat cache_format = CacheFormat::fp8;
};

// Exact bytes of a session's cache, without creating it.
struct CachePlan {
    int64_t window_bytes = 0, compressed_bytes = 0, index_bytes = 0, frontier_bytes = 0, total_bytes = 0;
    double bytes_per_token = 0;
};

class Engine {
 public:
    static Result<std::unique_ptr<Engine>> open(const std::string& path, const EngineOptions& options,
                                                const ProgressFn& progress = {});
    virtual ~Engine() = default;

    virtual const EngineInfo& info() const = 0;
    virtual const tokenizer::Tokenizer& tokenizer() const = 0;  // valid while the engine lives
    virtual CachePlan plan(const SessionOptions& options) const = 0;
    // Sessions must be destroyed before their engine. They may be used from different threads; passes take turns.
    virtual Result<std::unique_ptr<Session>> new_session(const SessionOptions& options) = 0;

    // For tests and tools inside the project: the parts underneath.
    virtual const model::Model& model() const = 0;
    virtual ops::Ops& ops() = 0;
};

// A sequence of tokens and what the model remembers of it. One thread at a time.
class Session {
 public:
    virtual ~Session() = default;

    // Appends tokens and computes their rows in chunks. Logits of the last one are then available. A listener that
    // returns false stops between chunks with Code::cancelled; what was computed stays. Errors: invalid_argument for a
    // token outside the vocabulary or a full context (the message has both numbers; nothing is computed), numeric for
    // values that are not finite (the session keeps the tokens before the failing chunk).
    virtual Status prefill(std::span<const int32_t> tokens, const ProgressFn& progress = {}) = 0;
    // The same for one token.
    virtual Status decode(int32_t token) = 0;

    // As prefill, and writes the logits of every given token: [tokens.size(), n_vocab].
    virtual Status evaluate(std::span<const int32_t> tokens, std::span<float> all_logits) = 0;

    // Logits after the latest token, [n_vocab]; empty before the first. Valid until the next call.
    virtual std::span<const float> logits() const = 0;
    virtual std::span<const int32_t> tokens() const = 0;
    virtual int64_t n_token() const = 0;
    virtual int64_t n_ctx() const = 0;
    virtual void clear() = 0;
};

}  // namespace vesta
