// The engine: a model file opened for use, and sessions on it. What servers, agents and the command line build on; no
// tensors here. One engine serves one model; several engines can live in one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
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
namespace snapshot {  // snapshot/file.h
enum class Reason : uint32_t;
struct WriteOptions;
}
class Session;

struct EngineOptions {
    std::string backend = "auto";    // "auto", "cpu", "reference"
    int n_thread = 0;                // 0: every core this process may use
    std::string drafter_path{};      // separate file with the MTP block; empty: only what the model file holds
    // How weights come into memory; speed only. A mapped page is read from disk when it is first needed.
    bool warm = false;        // all of them before open() returns, on all threads, with progress
    bool lock = false;        // warm, and they stay in RAM; open() fails where the limit does not allow it
    bool huge_pages = false;  // ask the kernel for huge pages under the weights (few file systems have them)
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
    // Going back. The last `rewind` tokens can be taken back at once, for the rows this keeps (CachePlan::rewind_bytes).
    // Further back the session starts from a checkpoint, one every checkpoint_spacing tokens, and computes what is
    // missing; beyond checkpoint_limit of them every second one goes. 0: none.
    int64_t rewind = 512;
    int64_t checkpoint_spacing = 2048;
    int64_t checkpoint_limit = 16;
};

// Exact bytes of a session's cache, without creating it.
struct CachePlan {
    int64_t window_bytes = 0, compressed_bytes = 0, index_bytes = 0, frontier_bytes = 0, total_bytes = 0;
    int64_t rewind_bytes = 0;      // of the total: what SessionOptions::rewind costs
    int64_t checkpoint_bytes = 0;  // beside the total: one checkpoint
    int64_t n_checkpoint = 0;      // as many at most
    double bytes_per_token = 0;
};

// What opening a session will take, known before it is opened.
struct MemoryPlan {
    int64_t weight_bytes = 0;  // files mapped; the kernel may drop and read again what is not locked
    int64_t weight_locked_bytes = 0;
    int64_t weight_resident_bytes = 0;  // of the mapping, in RAM at this moment
    int64_t decoded_bytes = 0;          // norms, biases and tables copied out of the file
    CachePlan cache;
    int64_t scratch_bytes = 0;  // intermediate results of a pass, and logits
    int64_t backend_bytes = 0;  // what the backend takes beside them, at most
    int64_t session_bytes() const {
        return cache.total_bytes + cache.n_checkpoint * cache.checkpoint_bytes + scratch_bytes + backend_bytes;
    }
    int64_t total_bytes() const { return weight_bytes + decoded_bytes + session_bytes(); }
};

// Bytes one decoded token reads with n_token tokens before it: what decides its speed where memory is the limit.
struct TokenTraffic {
    int64_t routed = 0, shared = 0, attention = 0, head = 0, rest = 0;  // weights; routed: the experts used of all
    int64_t window = 0, compressed = 0, index = 0, frontier = 0;        // kv cache
    int64_t weight_bytes() const { return routed + shared + attention + head + rest; }
    int64_t cache_bytes() const { return window + compressed + index + frontier; }
    int64_t total() const { return weight_bytes() + cache_bytes(); }
};

// A session's state at one moment, for going back to it: tokens, logits and what the cache holds of them, copied.
// Copies of a Snapshot share the bytes, which live as long as any of them, also beyond session and engine.
class Snapshot {
 public:
    struct State;
    explicit Snapshot(std::shared_ptr<const State> state) : state_(std::move(state)) {}
    int64_t n_token() const;
    std::span<const int32_t> tokens() const;  // valid while this or a copy lives
    int64_t n_byte() const;  // memory it holds
    const State& state() const { return *state_; }

 private:
    std::shared_ptr<const State> state_;  // never null
};

// What is kept beside a session's state in a snapshot file (docs/kv-format.md).
struct SnapshotNotes {
    snapshot::Reason reason{};  // manual
    std::string text;        // the rendered bytes the tokens came from; may be empty
    std::string tool_calls;  // the server's replay map, JSON; may be empty
};
struct SavedSnapshot {
    Snapshot snapshot;
    SnapshotNotes notes;
};

class Engine {
 public:
    static Result<std::unique_ptr<Engine>> open(const std::string& path, const EngineOptions& options,
                                                const ProgressFn& progress = {});
    // The same for a model file that lies in memory already, for example a synthetic one. The bytes must outlive the
    // engine; `name` stands for the path in messages.
    static Result<std::unique_ptr<Engine>> open_bytes(std::span<const std::byte> bytes, const std::string& name,
                                                      const EngineOptions& options, const ProgressFn& progress = {});
    virtual ~Engine() = default;

    virtual const EngineInfo& info() const = 0;
    virtual const tokenizer::Tokenizer& tokenizer() const = 0;  // valid while the engine lives
    virtual CachePlan plan(const SessionOptions& options) const = 0;
    virtual MemoryPlan memory(const SessionOptions& options) const = 0;
    virtual TokenTraffic traffic(CacheFormat format, int64_t n_token) const = 0;
    // Sessions must be destroyed before their engine. They may be used from different threads; passes take turns.
    virtual Result<std::unique_ptr<Session>> new_session(const SessionOptions& options) = 0;

    // Which weights these are: rows computed with other ones mean nothing to this engine. A hash of metadata, tensor
    // directory and samples of the data, the same in every process; a separate drafter file counts too.
    virtual uint64_t fingerprint() const = 0;
    // The snapshot::Header::row_format of this engine's sessions with that cache format: what their rows are kept as
    // depends on the backend too.
    virtual uint32_t row_format_number(CacheFormat format) const = 0;
    // A snapshot as a file, and back. Reading checks everything: the result restores exactly what was written, or there
    // is none. Errors: unsupported for another model or row format, bad_file, io, no_memory.
    virtual Status write_snapshot(const Snapshot& snapshot, const std::string& path, const SnapshotNotes& notes,
                                  const snapshot::WriteOptions& options) const = 0;
    virtual Result<SavedSnapshot> read_snapshot(const std::string& path) const = 0;

    // For tests and tools inside the project: the parts underneath.
    virtual const model::Model& model() const = 0;
    virtual ops::Ops& ops() = 0;
};

// What sync() did: tokens kept, tokens of the session dropped, tokens computed. reused + computed is the new length.
struct SyncReport {
    int64_t reused = 0, rewound = 0, computed = 0;
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

    // Makes the session hold exactly these tokens, with the logits of the last one, and computes as little as it can:
    // keeps the longest common beginning whose state is still there (rewind, checkpoints), drops the rest, prefills what
    // is new. The result is bit for bit that of a fresh session. Errors as prefill; when tokens are refused nothing
    // changes, and after a stop or a failure the session holds a beginning of `tokens`.
    virtual Result<SyncReport> sync(std::span<const int32_t> tokens, const ProgressFn& progress = {}) = 0;
    // Goes back to the first n_token tokens: at once within SessionOptions::rewind, else with up to checkpoint_spacing
    // tokens computed again. logits() is empty until the next token, unless nothing was taken back.
    // Errors: invalid_argument when n_token is not in 0..n_token(); cancelled and numeric as prefill.
    virtual Status rewind(int64_t n_token, const ProgressFn& progress = {}) = 0;
    // Checkpoints it holds now.
    virtual int64_t n_checkpoint() const = 0;
    virtual int64_t checkpoint_bytes() const = 0;  // of all of them

    // Logits after the latest token, [n_vocab]; empty before the first. Valid until the next call.
    virtual std::span<const float> logits() const = 0;
    virtual std::span<const int32_t> tokens() const = 0;
    virtual int64_t n_token() const = 0;
    virtual int64_t n_ctx() const = 0;
    virtual void clear() = 0;

    // The state now, and back to it: what is computed after restore() is bit for bit what was computed after
    // snapshot(). A snapshot also fits other sessions, also of other engines, on the same weights (Engine::fingerprint) with
    // the same cache format and room for its tokens. Errors: no_memory; restore: invalid_argument for a snapshot of
    // another model or format or too many tokens. A refused restore() leaves the session as it was.
    virtual Result<Snapshot> snapshot() = 0;
    virtual Status restore(const Snapshot& snapshot) = 0;
};

}  // namespace vesta
