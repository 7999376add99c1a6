// A collecting run: goes over token sequences one at a time, each from an empty cache, and adds up what meets every
// matrix of the model. Between sequences the run can be saved, and continued later from the file: sums are doubles
// added in one order, so the continued run ends in the same bytes as one that never stopped.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "imatrix/observer.h"
#include "imatrix/text.h"
#include "kv/cache.h"
#include "model/model.h"

namespace vesta::imatrix {

struct CollectOptions {
    const model::Model* model = nullptr;       // bound to files
    std::span<const gguf::File* const> files;  // the model file, and the drafter's if it is separate
    ops::Ops* backend = nullptr;               // the one the model was loaded with
    std::vector<Sequence> sequences;           // none empty
    int64_t n_ctx = 512;                       // longest sequence
    int64_t chunk = 256;                       // rows per pass: changes speed and memory, never a result
    quant::RowFormat cache_format = quant::RowFormat::fp8;
    std::string dataset;  // for the file: what was read
};

class Collector {
 public:
    // With `previous`, the run continues where that file stands. Errors: invalid_argument when it was collected from
    // another model, another text or with another n_ctx (the message says which); no_memory.
    static Result<std::unique_ptr<Collector>> create(CollectOptions options, const Matrix* previous = nullptr);

    bool done() const { return state_.n_sequence == options_.sequences.size(); }
    // Runs the next sequence. Progress ("collect", tokens) is reported per pass; a listener's `false` is ignored here,
    // since half a sequence cannot be saved: ask between steps. After an error (numeric: the model's values are not
    // finite) the sums are spoiled and the collector must not be used again. Requires !done().
    Status step(const ProgressFn& progress = {});

    // Everything so far, as a file that the run can be continued from. Valid until the next call.
    const Matrix& snapshot();
    // The finished matrix: without the sums, marked as finished. Requires done().
    Matrix finish() &&;

    uint64_t n_sequence_done() const { return state_.n_sequence; }
    uint64_t n_token_done() const { return state_.n_token; }
    // Of the tokens this run went over itself, by the model's own prediction; NaN before the first.
    double perplexity() const;

 private:
    Collector() = default;
    Status adopt(const Matrix& previous);
    Status run_sequence(const Sequence& ids, const ProgressFn& progress);
    Status run_draft(std::span<const int32_t> ids, size_t first, size_t n);
    Status score(std::span<const int32_t> ids, size_t first, size_t n);

    CollectOptions options_;
    Matrix matrix_;
    RunState state_;
    std::unique_ptr<Observer> observer_;  // adds to matrix_
    std::unique_ptr<kv::Cache> cache_;
    std::unique_ptr<model::Workspace> workspace_;
    std::vector<ops::Row> rows_;
    std::vector<int32_t> output_rows_;
    std::vector<float> logits_;
    uint64_t n_total_ = 0;  // tokens of all sequences
    uint64_t n_scored_ = 0;
    double nll_ = 0;
};

// A hash of the tensor directory and of the first bytes of every tensor.
uint64_t fingerprint(std::span<const gguf::File* const> files);

}  // namespace vesta::imatrix
