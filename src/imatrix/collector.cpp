#include "imatrix/collector.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

namespace vesta::imatrix {
namespace {

class Hash {
 public:
    void add(std::span<const std::byte> bytes) {
        for (const std::byte b : bytes) h_ = (h_ ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
    }
    void add(uint64_t v) { add(std::as_bytes(std::span(&v, 1))); }
    uint64_t value() const { return h_; }

 private:
    uint64_t h_ = 0xcbf29ce484222325u;
};

}  // namespace

uint64_t fingerprint(std::span<const gguf::File* const> files) {
    constexpr size_t kSample = 64;  // of each tensor: one page of each is read, not 81 GB
    Hash h;
    for (const gguf::File* file : files) {
        h.add(file->file_bytes());
        for (const gguf::TensorInfo& t : file->tensors()) {
            h.add(std::as_bytes(std::span(t.name)));
            h.add(static_cast<uint64_t>(t.type));
            for (const uint64_t d : t.dims) h.add(d);
            h.add(t.bytes.first(std::min(t.bytes.size(), kSample)));
        }
    }
    return h.value();
}

Result<std::unique_ptr<Collector>> Collector::create(CollectOptions options, const Matrix* previous) {
    if (options.n_ctx < 2 || options.chunk < 1)
        return Error{Code::invalid_argument, strf("a context of {} and a chunk of {}: expected at least 2 and 1",
                                                  options.n_ctx, options.chunk)};
    auto c = std::unique_ptr<Collector>(new Collector);
    c->options_ = std::move(options);
    CollectOptions& o = c->options_;
    const int64_t n_vocab = o.model->info().n_vocab;
    for (const Sequence& s : o.sequences) {
        VESTA_CHECK(!s.empty() && s.size() <= static_cast<size_t>(o.n_ctx));
        for (const int32_t id : s)
            if (id < 0 || id >= n_vocab)
                return Error{Code::invalid_argument, strf("token id {} is outside the vocabulary of {}", id, n_vocab)};
        c->n_total_ += s.size();
    }
    c->state_.model = fingerprint(o.files);
    c->state_.n_ctx = static_cast<uint32_t>(o.n_ctx);
    if (previous != nullptr) VESTA_TRY_STATUS(c->adopt(*previous));
    VESTA_TRY(c->observer_, Observer::create(*o.backend, o.files, c->matrix_));

    o.chunk = std::min(o.chunk, o.n_ctx);
    VESTA_TRY(c->cache_, kv::Cache::create(o.model->cache_shape(), {.n_ctx = o.n_ctx,
                                                                    .max_pass_rows = o.chunk,
                                                                    .format = o.backend->row_format(o.cache_format)}));
    try {
        c->workspace_ = o.model->new_workspace(o.chunk, o.chunk, o.n_ctx);
        c->logits_.resize(static_cast<size_t>(o.chunk * n_vocab));
    } catch (const std::bad_alloc&) {
        return Error{Code::no_memory,
                     strf("scratch for {} rows was refused by the system; a smaller chunk needs less", o.chunk)};
    }
    return c;
}

Status Collector::adopt(const Matrix& previous) {
    if (!previous.run)
        return Error{Code::invalid_argument,
                     "the file does not say where its run stands; it was merged or written by "
                     "another tool, and can only be merged"};
    const RunState& was = *previous.run;
    if (was.model != state_.model)
        return Error{Code::invalid_argument, "the file was collected from another model file"};
    if (was.n_ctx != state_.n_ctx)
        return Error{Code::invalid_argument,
                     strf("the file was collected with --ctx {}, not {}", was.n_ctx, state_.n_ctx)};
    if (was.n_sequence > options_.sequences.size())
        return Error{Code::invalid_argument,
                     strf("the file covers {} sequences, the text has {}", was.n_sequence, options_.sequences.size())};
    const auto n = static_cast<size_t>(was.n_sequence);
    if (was.data != hash_sequences(options_.sequences, n))
        return Error{Code::invalid_argument,
                     strf("the file was collected over another text: its {} sequences are not the "
                          "first ones here",
                          n)};
    matrix_ = previous;
    for (auto& [name, e] : matrix_.entries) VESTA_TRY_STATUS(e.restore_sums(name));
    state_.n_sequence = was.n_sequence;
    state_.n_token = was.n_token;
    return {};
}

Status Collector::step(const ProgressFn& progress) {
    VESTA_CHECK(!done());
    const Sequence& s = options_.sequences[static_cast<size_t>(state_.n_sequence)];
    observer_->begin_sequence();
    cache_->clear();
    VESTA_TRY_STATUS(run_sequence(s, progress));
    if (observer_->n_unknown() > 0)
        return Error{Code::unsupported,
                     strf("backend {} multiplied {} times by weights that are not in the model file; "
                          "collecting needs one that reads them there (--backend reference does)",
                          options_.backend->name(), observer_->n_unknown())};
    ++state_.n_sequence;
    state_.n_token += s.size();
    return {};
}

Status Collector::run_sequence(const Sequence& ids, const ProgressFn& progress) {
    const auto chunk = static_cast<size_t>(options_.chunk);
    for (size_t first = 0; first < ids.size(); first += chunk) {
        const size_t n = std::min(chunk, ids.size() - first);
        if (progress) progress({"collect", {}, state_.n_token + first, n_total_, "tokens"});
        rows_.clear();
        output_rows_.clear();
        for (size_t i = 0; i < n; ++i) {
            rows_.push_back({.token = ids[first + i], .position = static_cast<int32_t>(first + i), .slot = 0});
            output_rows_.push_back(static_cast<int32_t>(i));  // all of them: the output matrix needs its rows too
        }
        kv::Cache* const caches[] = {cache_.get()};
        VESTA_TRY_STATUS(options_.model->forward(
            *observer_, *workspace_,
            {.rows = rows_, .cache = caches, .output_rows = output_rows_, .logits = logits_.data()}));
        VESTA_TRY_STATUS(score(ids, first, n));
        if (options_.model->info().has_drafter) VESTA_TRY_STATUS(run_draft(ids, first, n));
        cache_->advance(static_cast<int64_t>(n));
    }
    if (progress) progress({"collect", {}, state_.n_token + ids.size(), n_total_, "tokens"});
    return {};
}

// The MTP block over the same positions, as drafting would run it: with the token that follows. Its head is not run,
// since it shares the output matrix, which should be measured by what the main model sends there.
Status Collector::run_draft(std::span<const int32_t> ids, size_t first, size_t n) {
    n = std::min(n, ids.size() - 1 - first);
    if (n == 0) return {};
    rows_.resize(n);
    for (size_t i = 0; i < n; ++i) rows_[i].token = ids[first + i + 1];
    kv::Cache* const caches[] = {cache_.get()};
    return options_.model->draft(*observer_, *workspace_,
                                 {.rows = rows_,
                                  .cache = caches,
                                  .streams = workspace_->final_streams().data(),
                                  .output_rows = {},
                                  .logits = nullptr});
}

Status Collector::score(std::span<const int32_t> ids, size_t first, size_t n) {
    const auto n_vocab = static_cast<size_t>(options_.model->info().n_vocab);
    for (size_t i = 0; i < n && first + i + 1 < ids.size(); ++i) {
        const std::span<const float> row = std::span(logits_).subspan(i * n_vocab, n_vocab);
        const float top = *std::max_element(row.begin(), row.end());
        double total = 0;
        for (const float v : row) total += std::exp(static_cast<double>(v - top));
        const double nll = std::log(total) - static_cast<double>(row[static_cast<size_t>(ids[first + i + 1])] - top);
        if (!std::isfinite(nll))
            return Error{Code::numeric, strf("the logits at position {} are not finite", first + i)};
        nll_ += nll;
        ++n_scored_;
    }
    return {};
}

double Collector::perplexity() const {
    return n_scored_ > 0 ? std::exp(nll_ / static_cast<double>(n_scored_)) : std::numeric_limits<double>::quiet_NaN();
}

const Matrix& Collector::snapshot() {
    for (auto& [name, e] : matrix_.entries) e.set_values_from_sums();
    matrix_.n_chunk = static_cast<int32_t>(std::min<uint64_t>(state_.n_sequence, std::numeric_limits<int32_t>::max()));
    matrix_.dataset = options_.dataset;
    state_.data = hash_sequences(options_.sequences, static_cast<size_t>(state_.n_sequence));
    matrix_.run = state_;
    return matrix_;
}

Matrix Collector::finish() && {
    VESTA_CHECK(done());
    snapshot();
    observer_.reset();
    for (auto& [name, e] : matrix_.entries) e.sum = {};
    matrix_.run->finished = true;
    return std::move(matrix_);
}

}  // namespace vesta::imatrix
