// Engine: owns the mapping, the weights and the backend, in the order of their lifetimes.
#include "vesta/engine.h"

#include <algorithm>
#include <new>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "engine/engine_impl.h"
#include "model/cache_traffic.h"
#include "model/traffic.h"

namespace vesta {
namespace engine {

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
    return {.n_ctx = o.n_ctx, .max_pass_rows = std::min(o.chunk, o.n_ctx), .format = ops.row_format(row_format(o.cache_format)),
            .rewind = std::min(o.rewind, o.n_ctx)};
}

CachePlan EngineImpl::plan(const SessionOptions& options) const {
    const kv::Plan p = kv::plan(model_->cache_shape(), cache_options(options, *ops_));
    const int64_t spaced = options.checkpoint_spacing < 1 ? 0 : std::max<int64_t>(options.n_ctx, 0) / options.checkpoint_spacing;
    return {.window_bytes = p.window_bytes, .compressed_bytes = p.compressed_bytes, .index_bytes = p.index_bytes,
            .frontier_bytes = p.frontier_bytes, .total_bytes = p.total(), .rewind_bytes = p.rewind_bytes,
            .checkpoint_bytes = p.checkpoint_bytes,
            .n_checkpoint = std::clamp<int64_t>(spaced, 0, std::max<int64_t>(options.checkpoint_limit, 0)),
            .bytes_per_token = p.bytes_per_token};
}

std::shared_ptr<model::Workspace> EngineImpl::workspace(int64_t chunk, int64_t n_ctx) {
    const std::lock_guard lock(workspace_mutex_);
    auto shared = workspace_.lock();
    if (shared == nullptr || workspace_chunk_ < chunk || workspace_n_ctx_ < n_ctx) {
        shared = model_->new_workspace(chunk, chunk, n_ctx);
        workspace_ = shared;
        workspace_chunk_ = chunk;
        workspace_n_ctx_ = n_ctx;
    }
    return shared;
}

MemoryPlan EngineImpl::memory(const SessionOptions& options) const {
    const int64_t chunk = std::clamp<int64_t>(std::min(options.chunk, options.n_ctx), 1, kv::kMaxContext);
    const int64_t n_ctx = std::clamp<int64_t>(options.n_ctx, 1, kv::kMaxContext);
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
    m.scratch_bytes = model_->workspace_bytes(chunk, chunk, n_ctx) +
                      info_.n_vocab * static_cast<int64_t>(sizeof(float));
    m.backend_bytes = ops_->scratch_bytes(model_->pass_shape(chunk, n_ctx));
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
    try {
        return std::unique_ptr<Session>(std::make_unique<SessionImpl>(*this, std::move(cache), options));
    } catch (const std::bad_alloc&) {
        return Error{Code::no_memory, strf("scratch for chunks of {} tokens was refused by the system; a smaller chunk needs "
                                           "less", options.chunk)};
    }
}

namespace {

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
}  // namespace engine

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path, const EngineOptions& options,
                                             const ProgressFn& progress) {
    if (progress && !progress({"load", path, 0, 1, "steps"})) return Error{Code::cancelled, "loading was stopped"};
    VESTA_TRY(auto file, gguf::File::open(path));
    return engine::open_file(std::move(file), path, options, progress);
}

Result<std::unique_ptr<Engine>> Engine::open_bytes(std::span<const std::byte> bytes, const std::string& name,
                                                   const EngineOptions& options, const ProgressFn& progress) {
    VESTA_TRY(auto file, gguf::File::parse(bytes, name));
    return engine::open_file(std::move(file), name, options, progress);
}

}  // namespace vesta
