// A session: a list of tokens, and the cache's state after exactly these. Forward in chunks; back by a counter change
// while the rings still hold what is needed, else to a checkpoint and forward again.
#include <cmath>
#include <new>

#include "engine/engine_impl.h"

namespace vesta::engine {

Status SessionImpl::check(std::span<const int32_t> tokens, int64_t n_before) const {
    const auto n = static_cast<int64_t>(tokens.size());
    if (n > n_ctx() - n_before)
        return Error{Code::invalid_argument, strf("context is full: {} tokens are in use and {} more do not fit into {}",
                                                  n_before, n, n_ctx())};
    for (const int32_t id : tokens)
        if (id < 0 || id >= engine_.info_.n_vocab)
            return Error{Code::invalid_argument, strf("token id {} is outside the vocabulary of {}", id, engine_.info_.n_vocab)};
    return {};
}

void SessionImpl::clear() {
    cache_->clear();
    tokens_.clear();
    checkpoints_.clear();
    spacing_ = 0;
    has_logits_ = false;
}

Status SessionImpl::run(std::span<const int32_t> tokens, std::span<float> all_logits, const ProgressFn& progress) {
    VESTA_TRY_STATUS(check(tokens, n_token()));
    VESTA_TRY_STATUS(repair());
    return extend(tokens, all_logits, true, progress);
}

Status SessionImpl::extend(std::span<const int32_t> tokens, std::span<float> all_logits, bool want_logits,
                           const ProgressFn& progress) {
    const auto n_vocab = static_cast<size_t>(engine_.info_.n_vocab);
    for (size_t first = 0; first < tokens.size();) {
        const size_t n = std::min(static_cast<size_t>(chunk_), tokens.size() - first);
        const bool last = first + n == tokens.size();
        if (progress && !progress({"prefill", {}, first, tokens.size(), "tokens"}))
            return Error{Code::cancelled, strf("stopped after {} of {} tokens", first, tokens.size())};
        VESTA_TRY_STATUS(run_chunk(tokens.subspan(first, n),
                                   all_logits.empty() ? all_logits : all_logits.subspan(first * n_vocab, n * n_vocab),
                                   last && want_logits));
        first += n;
    }
    if (progress) progress({"prefill", {}, tokens.size(), tokens.size(), "tokens"});
    return {};
}

// A failed pass may have written over rows that the kept tokens need: those are computed again.
Status SessionImpl::repair() {
    if (cache_->can_rewind(n_token())) return {};
    const std::vector<int32_t> kept = tokens_;
    restart_at(restart_point(n_token()));
    return extend(std::span(kept).subspan(static_cast<size_t>(n_token())), {}, false, {});
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
        cache_->begin_pass(n);
        VESTA_TRY_STATUS(engine_.model_->forward(
            *engine_.ops_, *workspace_, {.rows = rows_, .cache = caches, .output_rows = output_rows_, .logits = out}));
    }
    const size_t n_vocab = logits_.size();
    for (size_t i = 0; i < output_rows_.size() * n_vocab; ++i)
        if (!std::isfinite(out[i]))
            return Error{Code::numeric, strf("logit of token {} is {} at position {}", i % n_vocab, out[i],
                                             n_token() + output_rows_[i / n_vocab])};
    cache_->advance(n);
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    take_checkpoint();
    if (output_rows_.empty()) return {};
    if (!all_logits.empty()) std::copy_n(out + (output_rows_.size() - 1) * n_vocab, n_vocab, logits_.begin());
    has_logits_ = true;
    return {};
}

int64_t SessionImpl::restart_point(int64_t target) const {
    if (cache_->can_rewind(target)) return target;
    for (auto c = checkpoints_.rbegin(); c != checkpoints_.rend(); ++c)
        if (c->n_token <= target) return c->n_token;
    return 0;
}

void SessionImpl::restart_at(int64_t n) {
    if (n < n_token()) has_logits_ = false;
    if (cache_->can_rewind(n)) {
        cache_->rewind(n);
    } else {
        const auto at = std::ranges::find(checkpoints_, n, &Checkpoint::n_token);
        VESTA_CHECK(at != checkpoints_.end());
        cache_->restore_recent(at->recent.data(), n);
    }
    tokens_.resize(static_cast<size_t>(n));
    // Later ones belong to rows that will be written again.
    std::erase_if(checkpoints_, [n](const Checkpoint& c) { return c.n_token > n; });
}

void SessionImpl::take_checkpoint() {
    if (checkpoint_spacing_ < 1 || checkpoint_limit_ < 1) return;
    spacing_ = std::max(spacing_, checkpoint_spacing_);
    const int64_t latest = checkpoints_.empty() ? 0 : checkpoints_.back().n_token;
    if (n_token() / spacing_ <= latest / spacing_) return;
    if (static_cast<int64_t>(checkpoints_.size()) >= checkpoint_limit_) {
        size_t kept = 0;
        for (size_t i = 1; i < checkpoints_.size(); i += 2) std::swap(checkpoints_[kept++], checkpoints_[i]);
        checkpoints_.resize(kept);
        spacing_ *= 2;
    }
    try {
        Checkpoint c{n_token(), std::vector<std::byte>(static_cast<size_t>(cache_->recent_bytes()))};
        cache_->copy_recent(c.recent.data());
        checkpoints_.push_back(std::move(c));
    } catch (const std::bad_alloc&) {
        // Going back will take longer; nothing else depends on a checkpoint.
    }
}

int64_t SessionImpl::checkpoint_bytes() const {
    int64_t n = 0;
    for (const Checkpoint& c : checkpoints_) n += static_cast<int64_t>(c.recent.size());
    return n;
}

Status SessionImpl::rewind(int64_t n, const ProgressFn& progress) {
    if (n < 0 || n > n_token())
        return Error{Code::invalid_argument, strf("rewind to {} tokens: the session has {}", n, n_token())};
    const std::vector<int32_t> kept(tokens_.begin(), tokens_.begin() + n);
    restart_at(restart_point(n));
    return extend(std::span(kept).subspan(static_cast<size_t>(n_token())), {}, false, progress);
}

Result<SyncReport> SessionImpl::sync(std::span<const int32_t> tokens, const ProgressFn& progress) {
    VESTA_TRY_STATUS(check(tokens, 0));
    const int64_t before = n_token(), wanted = static_cast<int64_t>(tokens.size());
    int64_t common = std::ranges::mismatch(tokens, tokens_).in1 - tokens.begin();
    // All of it is here, but not what follows its last token: that token is computed once more.
    if (common == wanted && wanted > 0 && !(common == before && has_logits_)) --common;
    restart_at(restart_point(common));
    const SyncReport report{.reused = n_token(), .rewound = before - n_token(), .computed = wanted - n_token()};
    VESTA_TRY_STATUS(extend(tokens.subspan(static_cast<size_t>(n_token())), {}, true, progress));
    return report;
}

}  // namespace vesta::engine
