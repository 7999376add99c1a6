// What stands behind Engine, Session and Snapshot. Shared by the files of this room only.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/registry.h"
#include "gguf/file.h"
#include "kv/cache.h"
#include "model/model.h"
#include "ops/ops.h"
#include "snapshot/file.h"
#include "tokenizer/tokenizer.h"
#include "vesta/engine.h"

namespace vesta {

// Rows are copied by position (kv::Cache::copy_used), so a snapshot does not know the session's capacity.
struct Snapshot::State {
    uint64_t model = 0;  // Engine::fingerprint()
    quant::RowFormat format{};
    std::vector<int32_t> tokens;
    std::vector<float> logits;  // empty: none were available
    snapshot::RowBytes cache;
};

namespace engine {

quant::RowFormat row_format(CacheFormat f);
const char* row_format_name(quant::RowFormat f);
kv::Options cache_options(const SessionOptions& o, const ops::Ops& ops);

class EngineImpl : public Engine {
 public:
    EngineImpl(gguf::File file, std::vector<gguf::File> drafter, tokenizer::Tokenizer tokenizer)
        : file_(std::move(file)), drafter_(std::move(drafter)), tokenizer_(std::move(tokenizer)) {}

    const EngineInfo& info() const override { return info_; }
    const tokenizer::Tokenizer& tokenizer() const override { return tokenizer_; }
    CachePlan plan(const SessionOptions& options) const override;
    MemoryPlan memory(const SessionOptions& options) const override;
    TokenTraffic traffic(CacheFormat format, int64_t n_token) const override;
    Result<std::unique_ptr<Session>> new_session(const SessionOptions& options) override;
    uint64_t fingerprint() const override;
    uint32_t row_format_number(CacheFormat format) const override;
    Status write_snapshot(const Snapshot& snapshot, const std::string& path, const SnapshotNotes& notes,
                          const snapshot::WriteOptions& options) const override;
    Result<SavedSnapshot> read_snapshot(const std::string& path) const override;
    const model::Model& model() const override { return *model_; }
    ops::Ops& ops() override { return *ops_; }

    // Scratch for passes. Passes take turns, so sessions share it as long as it is large enough for the next one.
    std::shared_ptr<model::Workspace> workspace(int64_t chunk, int64_t n_ctx);

    // Declared in the order of lifetimes: the mapping outlives the weights, the weights outlive the sessions.
    gguf::File file_;
    std::vector<gguf::File> drafter_;  // none or one
    tokenizer::Tokenizer tokenizer_;
    std::unique_ptr<ops::Ops> ops_;
    std::unique_ptr<model::Model> model_;
    EngineInfo info_;
    int64_t locked_bytes_ = 0;
    mutable std::once_flag fingerprint_once_;
    mutable uint64_t fingerprint_ = 0;
    std::mutex pass_mutex_;  // guards ops_ and the workspace: one pass at a time
    std::mutex workspace_mutex_;
    std::weak_ptr<model::Workspace> workspace_;
    int64_t workspace_chunk_ = 0, workspace_n_ctx_ = 0;
};

class SessionImpl : public Session {
 public:
    SessionImpl(EngineImpl& engine, std::unique_ptr<kv::Cache> cache, const SessionOptions& options)
        : engine_(engine), cache_(std::move(cache)), chunk_(std::min(options.chunk, options.n_ctx)),
          checkpoint_spacing_(options.checkpoint_spacing), checkpoint_limit_(options.checkpoint_limit),
          logits_(static_cast<size_t>(engine.info_.n_vocab)) {
        workspace_ = engine.workspace(chunk_, cache_->options().n_ctx);
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
    void clear() override;
    Result<SyncReport> sync(std::span<const int32_t> tokens, const ProgressFn& progress) override;
    Status rewind(int64_t n_token, const ProgressFn& progress) override;
    int64_t n_checkpoint() const override { return static_cast<int64_t>(checkpoints_.size()); }
    int64_t checkpoint_bytes() const override;
    Result<Snapshot> snapshot() override;
    Status restore(const Snapshot& snapshot) override;

 private:
    // What the cache's rings held after n_token tokens; the rest is still in the cache.
    struct Checkpoint {
        int64_t n_token;
        std::vector<std::byte> recent;
    };

    Status check(std::span<const int32_t> tokens, int64_t n_before) const;
    Status run(std::span<const int32_t> tokens, std::span<float> all_logits, const ProgressFn& progress);
    Status repair();
    Status run_chunk(std::span<const int32_t> tokens, std::span<float> all_logits, bool last);
    Status extend(std::span<const int32_t> tokens, std::span<float> all_logits, bool want_logits, const ProgressFn& progress);
    // The latest position <= target whose state is here, and going there.
    int64_t restart_point(int64_t target) const;
    void restart_at(int64_t n_token);
    void take_checkpoint();

    EngineImpl& engine_;
    std::unique_ptr<kv::Cache> cache_;
    std::shared_ptr<model::Workspace> workspace_;
    int64_t chunk_, checkpoint_spacing_, checkpoint_limit_;
    std::vector<int32_t> tokens_;
    std::vector<float> logits_;
    bool has_logits_ = false;
    std::vector<Checkpoint> checkpoints_;  // ascending
    int64_t spacing_ = 0;                  // between them now: checkpoint_spacing_, doubled whenever there are too many
    std::vector<ops::Row> rows_;
    std::vector<int32_t> output_rows_;
};

}  // namespace engine
}  // namespace vesta
