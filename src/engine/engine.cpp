// Engine and Session: own the mapping, the weights, the backend and the scratch, in the order of their lifetimes, and turn
// token lists into passes.
#include "vesta/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <new>

#include "backend/registry.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "gguf/file.h"
#include "kv/cache.h"
#include "model/cache_traffic.h"
#include "model/model.h"
#include "model/traffic.h"
#include "ops/ops.h"
#include "tokenizer/tokenizer.h"

namespace vesta {

// Rows are copied by position (kv::Cache::copy_used), so a snapshot does not know the session's capacity.
struct Snapshot::State {
    uint64_t engine = 0;  // EngineImpl::id_: the model and the backend that computed it
    quant::RowFormat format{};
    std::vector<int32_t> tokens;
    std::vector<float> logits;  // empty: none were available
    std::vector<std::byte> cache;
};

int64_t Snapshot::n_token() const { return static_cast<int64_t>(state_->tokens.size()); }
int64_t Snapshot::n_byte() const {
    return static_cast<int64_t>(state_->cache.size() + state_->tokens.size() * sizeof(int32_t) +
                                state_->logits.size() * sizeof(float));
}

namespace {

using tokenizer::Tokenizer;

quant::RowFormat row_format(CacheFormat f) {
    switch (f) {
        case CacheFormat::fp8: return quant::RowFormat::fp8;
        case CacheFormat::f16: return quant::RowFormat::f16;
        case CacheFormat::f32: return quant::RowFormat::f32;
    }
    return quant::RowFormat::fp8;
}

const char* row_format_name(quant::RowFormat f) {
    switch (f) {
        case quant::RowFormat::fp8:
            return "fp8";
        case quant::RowFormat::fp8_exact:
            return "fp8 with an exact rotary part";
        case quant::RowFormat::f16:
            return "f16";
        case quant::RowFormat::f32:
            return "f32";
    }
    return "unknown";
}

kv::Options cache_options(const SessionOptions& o, const ops::Ops& ops) {
    return {.n_ctx = o.n_ctx, .max_pass_rows = std::min(o.chunk, o.n_ctx), .format = ops.row_format(row_format(o.cache_format))};
}

class EngineImpl : public Engine {
 public:
    EngineImpl(gguf::File file, std::vector<gguf::File> drafter, Tokenizer tokenizer)
        : file_(std::move(file)), drafter_(std::move(drafter)), tokenizer_(std::move(tokenizer)) {}

    const EngineInfo& info() const override { return info_; }
    const tokenizer::Tokenizer& tokenizer() const override { return tokenizer_; }
    CachePlan plan(const SessionOptions& options) const override {
        const kv::Plan p = kv::plan(model_->cache_shape(), cache_options(options, *ops_));
        return {p.window_bytes, p.compressed_bytes, p.index_bytes, p.frontier_bytes, p.total(), p.bytes_per_token};
    }
    MemoryPlan memory(const SessionOptions& options) const override;
    TokenTraffic traffic(CacheFormat format, int64_t n_token) const override;
    Result<std::unique_ptr<Session>> new_session(const SessionOptions& options) override;
    const model::Model& model() const override { return *model_; }
    ops::Ops& ops() override { return *ops_; }

    // Declared in the order of lifetimes: the mapping outlives the weights, the weights outlive the sessions.
    static uint64_t next_id() {
        static std::atomic<uint64_t> last{0};
        return ++last;
    }

    gguf::File file_;
    std::vector<gguf::File> drafter_;  // none or one
    Tokenizer tokenizer_;
    std::unique_ptr<ops::Ops> ops_;
    std::unique_ptr<model::Model> model_;
    EngineInfo info_;
    int64_t locked_bytes_ = 0;
    const uint64_t id_ = next_id();  // differs between all engines of a process
    std::mutex pass_mutex_;  // guards ops_: one pass at a time
};

class SessionImpl : public Session {
 public:
    SessionImpl(EngineImpl& engine, std::unique_ptr<kv::Cache> cache, int64_t chunk)
        : engine_(engine), cache_(std::move(cache)), chunk_(chunk),
          logits_(static_cast<size_t>(engine.info_.n_vocab)) {
        workspace_ = engine.model_->new_workspace(chunk, chunk, cache_->options().n_ctx);
    }

    Status prefill(std::span<const int32_t> tokens, const ProgressFn& progress) override { return run(tokens, {}, progress); }
    Status decode(int32_t token) override { return run({&token, 1}, {}, {}); }
    Status evaluate(std::span<const int32_t> tokens, std::span<float> all_logits) override {
        const size_t need = tokens.size() * static_cast<size_t>(engine_.info_.n_vocab);
        if (all_logits.size() != need)
            return Error{Code::invalid_argument, strf("room for {} logits, expected {}", all_logits.size(), need)};
        return run(tokens, all_logits, {});
    }

    std::span<const float> logits() const override {
        return has_logits_ ? std::span<const float>(logits_) : std::span<const float>{};
    }
    std::span<const int32_t> tokens() const override { return tokens_; }
    int64_t n_token() const override { return cache_->n_token(); }
    int64_t n_ctx() const override { return cache_->options().n_ctx; }
    void clear() override {
        cache_->clear();
        tokens_.clear();
        has_logits_ = false;
        stale_ = false;
    }
    Result<Snapshot> snapshot() override;
    Status restore(const Snapshot& snapshot) override;

 private:
    Status check(std::span<const int32_t> tokens) const;
    Status run(std::span<const int32_t> tokens, std::span<float> all_logits, const ProgressFn& progress);
    Status rebuild();
    Status run_chunk(std::span<const int32_t> tokens, std::span<float> all_logits, bool last);

    EngineImpl& engine_;
    std::unique_ptr<kv::Cache> cache_;
    std::unique_ptr<model::Workspace> workspace_;
    int64_t chunk_;
    std::vector<int32_t> tokens_;
    std::vector<float> logits_;
    bool has_logits_ = false;
    bool stale_ = false;  // a failed pass has written over rows that the kept tokens still need
    std::vector<ops::Row> rows_;
    std::vector<int32_t> output_rows_;
};

Status SessionImpl::check(std::span<const int32_t> tokens) const {
    const auto n = static_cast<int64_t>(tokens.size());
    if (n > n_ctx() - n_token())
        return Error{Code::invalid_argument, strf("context is full: {} tokens are in use and {} more do not fit into {}",
                                                  n_token(), n, n_ctx())};
    for (const int32_t id : tokens)
        if (id < 0 || id >= engine_.info_.n_vocab)
            return Error{Code::invalid_argument, strf("token id {} is outside the vocabulary of {}", id, engine_.info_.n_vocab)};
    return {};
}

Status SessionImpl::run(std::span<const int32_t> tokens, std::span<float> all_logits, const ProgressFn& progress) {
    VESTA_TRY_STATUS(check(tokens));
    if (stale_) VESTA_TRY_STATUS(rebuild());
    const auto n_vocab = static_cast<size_t>(engine_.info_.n_vocab);
    for (size_t first = 0; first < tokens.size();) {
        const size_t n = std::min(static_cast<size_t>(chunk_), tokens.size() - first);
        const bool last = first + n == tokens.size();
        if (progress && !progress({"prefill", {}, first, tokens.size(), "tokens"}))
            return Error{Code::cancelled, strf("stopped after {} of {} tokens", first, tokens.size())};
        VESTA_TRY_STATUS(run_chunk(tokens.subspan(first, n),
                                   all_logits.empty() ? all_logits : all_logits.subspan(first * n_vocab, n * n_vocab), last));
        first += n;
    }
    if (progress) progress({"prefill", {}, tokens.size(), tokens.size(), "tokens"});
    return {};
}

// Computes the kept tokens again. The choice not taken is room in the cache to undo any pass: 160 MB for Flash at chunks of
// 512, all the time, for something that happens when a model file holds NaNs.
Status SessionImpl::rebuild() {
    const std::vector<int32_t> kept = tokens_;
    clear();
    for (size_t first = 0; first < kept.size(); first += static_cast<size_t>(chunk_)) {
        const size_t n = std::min(static_cast<size_t>(chunk_), kept.size() - first);
        VESTA_TRY_STATUS(run_chunk(std::span(kept).subspan(first, n), {}, false));
    }
    return {};
}

Status SessionImpl::run_chunk(std::span<const int32_t> tokens, std::span<float> all_logits, bool last) {
    const auto n = static_cast<int32_t>(tokens.size());
    rows_.clear();
    output_rows_.clear();
    for (int32_t i = 0; i < n; ++i) {
        rows_.push_back({.token = tokens[static_cast<size_t>(i)], .position = static_cast<int32_t>(n_token()) + i, .slot = 0});
        if (!all_logits.empty() || (last && i + 1 == n)) output_rows_.push_back(i);
    }
    kv::Cache* const caches[] = {cache_.get()};
    has_logits_ = false;
    float* out = all_logits.empty() ? logits_.data() : all_logits.data();
    {
        const std::lock_guard lock(engine_.pass_mutex_);
        stale_ = n > 1;  // until the pass is known to be good; a single row writes over nothing that is still needed
        VESTA_TRY_STATUS(engine_.model_->forward(
            *engine_.ops_, *workspace_, {.rows = rows_, .cache = caches, .output_rows = output_rows_, .logits = out}));
    }
    const size_t n_vocab = logits_.size();
    for (size_t i = 0; i < output_rows_.size() * n_vocab; ++i)
        if (!std::isfinite(out[i]))
            return Error{Code::numeric, strf("logit of token {} is {} at position {}", i % n_vocab, out[i],
                                             n_token() + output_rows_[i / n_vocab])};
    stale_ = false;
    cache_->advance(n);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    if (output_rows_.empty()) return {};
    if (!all_logits.empty()) std::copy_n(out + (output_rows_.size() - 1) * n_vocab, n_vocab, logits_.begin());
    has_logits_ = true;
    return {};
}

Result<Snapshot> SessionImpl::snapshot() {
    if (stale_) VESTA_TRY_STATUS(rebuild());
    try {
        auto state = std::make_shared<Snapshot::State>();
        state->engine = engine_.id_;
        state->format = cache_->options().format;
        state->tokens = tokens_;
        if (has_logits_) state->logits = logits_;
        state->cache.resize(static_cast<size_t>(cache_->used_bytes()));
        cache_->copy_used(state->cache.data());
        return Snapshot(std::move(state));
    } catch (const std::bad_alloc&) {
        return Error{Code::no_memory, strf("a snapshot of {} tokens takes {} bytes, which the system refused",
                                           n_token(), cache_->used_bytes())};
    }
}

Status SessionImpl::restore(const Snapshot& snapshot) {
    const Snapshot::State& s = snapshot.state();
    if (s.engine != engine_.id_)
        return Error{Code::invalid_argument,
                     strf("the snapshot of {} tokens was taken from another engine; its rows mean "
                          "nothing to this one ({})",
                          snapshot.n_token(), engine_.info_.path)};
    if (s.format != cache_->options().format)
        return Error{Code::invalid_argument,
                     strf("the snapshot keeps its rows as {} and this session as {}; expected the "
                          "same cache format",
                          row_format_name(s.format), row_format_name(cache_->options().format))};
    if (snapshot.n_token() > n_ctx())
        return Error{Code::invalid_argument,
                     strf("the snapshot has {} tokens, but this session holds {}", snapshot.n_token(), n_ctx())};
    try {
        tokens_.reserve(s.tokens.size());  // the only step that can fail
    } catch (const std::bad_alloc&) {
        return Error{Code::no_memory, strf("no memory for {} tokens", snapshot.n_token())};
    }
    tokens_ = s.tokens;
    has_logits_ = !s.logits.empty();
    if (has_logits_) std::copy(s.logits.begin(), s.logits.end(), logits_.begin());
    cache_->restore_used(s.cache.data(), snapshot.n_token());
    stale_ = false;
    return {};
}

MemoryPlan EngineImpl::memory(const SessionOptions& options) const {
    const int64_t chunk = std::clamp<int64_t>(std::min(options.chunk, options.n_ctx), 1, kv::kMaxContext);
    MemoryPlan m;
    m.weight_bytes = static_cast<int64_t>(file_.file_bytes());
    m.weight_resident_bytes = resident_bytes(file_.bytes());
    for (const gguf::File& d : drafter_) {
        m.weight_bytes += static_cast<int64_t>(d.file_bytes());
        m.weight_resident_bytes += resident_bytes(d.bytes());
    }
    m.weight_locked_bytes = locked_bytes_;
    m.decoded_bytes = model_->info().decoded_bytes;
    m.cache = plan(options);
    m.scratch_bytes = model_->workspace_bytes(chunk, chunk, std::clamp<int64_t>(options.n_ctx, 1, kv::kMaxContext)) +
                      info_.n_vocab * static_cast<int64_t>(sizeof(float));
    return m;
}

TokenTraffic EngineImpl::traffic(CacheFormat format, int64_t n_token) const {
    const model::Traffic w = model::decode_traffic(file_);
    const model::Info& info = model_->info();
    const kv::Shape& shape = model_->cache_shape();
    const model::CacheTraffic c =
        model::cache_traffic(shape, ops_->row_format(row_format(format)), info.index_top_k, n_token,
                             static_cast<int64_t>(shape.layer.size()) - info.n_layer);
    return {.routed = static_cast<int64_t>(w.routed),
            .shared = static_cast<int64_t>(w.shared),
            .attention = static_cast<int64_t>(w.attention),
            .head = static_cast<int64_t>(w.head),
            .rest = static_cast<int64_t>(w.rest),
            .window = c.window,
            .compressed = c.compressed,
            .index = c.index,
            .frontier = c.frontier};
}

Result<std::unique_ptr<Session>> EngineImpl::new_session(const SessionOptions& options) {
    if (options.chunk < 1)
        return Error{Code::invalid_argument, strf("chunk of {} tokens: expected at least 1", options.chunk)};
    VESTA_TRY(auto cache, kv::Cache::create(model_->cache_shape(), cache_options(options, *ops_)));
    const int64_t chunk = std::min(options.chunk, options.n_ctx);
    try {
        return std::unique_ptr<Session>(std::make_unique<SessionImpl>(*this, std::move(cache), chunk));
    } catch (const std::bad_alloc&) {
        return Error{Code::no_memory, strf("scratch for chunks of {} tokens was refused by the system; a smaller chunk needs "
                                           "less", chunk)};
    }
}

// Weights in memory as the options ask. `locked` counts what was locked.
Status load_pages(const gguf::File& file, const EngineOptions& options, ops::Ops& ops, const ProgressFn& progress,
                  int64_t& locked) {
    if (options.huge_pages) advise_huge_pages(file.bytes());
    if (options.warm || options.lock) {
        ThreadPool pool(ops.n_thread());
        VESTA_TRY_STATUS(warm_pages(file.bytes(), pool, progress));
    }
    if (!options.lock) return {};
    VESTA_TRY_STATUS(lock_pages(file.bytes()));
    locked += static_cast<int64_t>(file.bytes().size());
    return {};
}

Result<std::unique_ptr<Engine>> open_file(gguf::File file, const std::string& path, const EngineOptions& options,
                                          const ProgressFn& progress) {
    std::vector<gguf::File> drafter;
    if (!options.drafter_path.empty()) {
        VESTA_TRY(auto side, gguf::File::open(options.drafter_path));
        drafter.push_back(std::move(side));
    }
    VESTA_TRY(auto vocabulary, tokenizer::Tokenizer::from_gguf(file));
    VESTA_TRY(auto ops, backend::create(options.backend, options.n_thread));
    auto engine = std::make_unique<EngineImpl>(std::move(file), std::move(drafter), std::move(vocabulary));
    engine->ops_ = std::move(ops);
    VESTA_TRY(engine->model_, model::load(engine->file_, engine->drafter_.empty() ? nullptr : &engine->drafter_[0], *engine->ops_));
    const model::Info& m = engine->model_->info();
    if (engine->tokenizer_.n_vocab() != m.n_vocab)
        return Error{Code::bad_file, strf("{}: the vocabulary has {} tokens, but the model expects {}", path,
                                          engine->tokenizer_.n_vocab(), m.n_vocab)};
    engine->info_ = {.path = path, .name = m.name, .architecture = m.architecture, .backend = engine->ops_->name(),
                     .dialect = "dsv4", .n_thread = engine->ops_->n_thread(), .n_vocab = m.n_vocab, .n_embd = m.n_embd,
                     .n_layer = m.n_layer, .n_ctx_train = m.n_ctx_train, .n_parameter = m.n_parameter,
                     .weight_bytes = m.weight_bytes, .has_drafter = m.has_drafter};
    if (engine->file_.has("vesta.chat.dialect")) {
        VESTA_TRY(const std::string_view dialect, engine->file_.string("vesta.chat.dialect"));
        engine->info_.dialect = dialect;
    }
    // Last, so that a file that cannot be run is refused before gigabytes of it are read.
    VESTA_TRY_STATUS(load_pages(engine->file_, options, *engine->ops_, progress, engine->locked_bytes_));
    for (const gguf::File& d : engine->drafter_)
        VESTA_TRY_STATUS(load_pages(d, options, *engine->ops_, progress, engine->locked_bytes_));
    return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path, const EngineOptions& options,
                                             const ProgressFn& progress) {
    if (progress && !progress({"load", path, 0, 1, "steps"})) return Error{Code::cancelled, "loading was stopped"};
    VESTA_TRY(auto file, gguf::File::open(path));
    return open_file(std::move(file), path, options, progress);
}

Result<std::unique_ptr<Engine>> Engine::open_bytes(std::span<const std::byte> bytes, const std::string& name,
                                                   const EngineOptions& options, const ProgressFn& progress) {
    VESTA_TRY(auto file, gguf::File::parse(bytes, name));
    return open_file(std::move(file), name, options, progress);
}

}  // namespace vesta
