#include "score/text.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "base/thread_pool.h"
#include "base/utf8.h"
#include "sample/logprob.h"
#include "score/windows.h"

namespace vesta::score {
namespace {

// One scored token. Filled by any thread, read in order.
struct Scored {
    double nll = 0;
    BaseRecord base;  // to save
    double kl = 0, base_nll = 0;
    int n_same5 = 0;  // of the base's five likeliest among the model's five
    bool same1 = false;
};

void score_row(std::span<const float> logits, int32_t target, const BaseRecord* base, size_t save_k, Scored& s) {
    const double log_norm = sample::log_sum_exp(logits);
    const double logprob = std::min(static_cast<double>(logits[static_cast<size_t>(target)]) - log_norm, 0.0);
    s.nll = -logprob;
    if (save_k > 0) {
        s.base.row = truncate(logits, save_k, log_norm);
        s.base.logprob = static_cast<float>(logprob);
    }
    if (base == nullptr) return;
    s.base_nll = -static_cast<double>(base->logprob);
    s.kl = divergence(base->row, logits, log_norm);
    std::vector<int32_t> five;
    top_k(logits, 5, five);
    s.same1 = five[0] == base->row.ids[0];
    const size_t n = std::min<size_t>(5, base->row.ids.size());
    s.n_same5 = 0;
    for (size_t i = 0; i < n; ++i) s.n_same5 += std::find(five.begin(), five.end(), base->row.ids[i]) != five.end();
}

struct Lists {
    std::vector<double> nll, kl, same1, delta;
    double n_same5 = 0, n_overlap = 0, square_dp = 0, base_nll = 0;
};

Divergence summarise(Lists& lists, size_t n_five, int64_t block) {
    const auto n = static_cast<double>(lists.nll.size());
    Divergence d;
    d.kl = block_mean(lists.kl, block);
    d.kl_median = quantile(lists.kl, 0.5);
    d.kl_90 = quantile(lists.kl, 0.9);
    d.kl_99 = quantile(lists.kl, 0.99);
    d.kl_max = quantile(lists.kl, 1);
    d.same_top1 = block_mean(lists.same1, block);
    d.same_top5 = lists.n_same5 / n;
    d.top5_overlap = lists.n_overlap / (n * static_cast<double>(n_five));
    d.delta_nll = block_mean(lists.delta, block);
    d.ppl_ratio = std::exp(d.delta_nll.mean);
    d.ppl_ratio_low = std::exp(d.delta_nll.low);
    d.ppl_ratio_high = std::exp(d.delta_nll.high);
    d.rms_dp = std::sqrt(lists.square_dp / n);
    d.base_nll = lists.base_nll / n;
    return d;
}

class TextScorer {
 public:
    TextScorer(Engine& engine, const TextJob& job, const ProgressFn& progress)
        : engine_(engine),
          job_(job),
          progress_(progress),
          pool_(std::max(engine.info().n_thread, 1)),
          n_vocab_(static_cast<size_t>(engine.info().n_vocab)) {}

    Result<TextResult> run();

 private:
    // False: the listener asked to stop.
    Result<bool> window(Session& session, const Window& w);
    Status rows(int64_t first_target, int64_t n);
    bool report() const {
        return !progress_ || progress_({"score",
                                        {},
                                        static_cast<uint64_t>(result_.n_scored),
                                        static_cast<uint64_t>(result_.n_target),
                                        "tokens"});
    }

    Engine& engine_;
    const TextJob& job_;
    const ProgressFn& progress_;
    ThreadPool pool_;
    size_t n_vocab_;
    int64_t chunk_ = 0;
    std::vector<float> logits_;
    std::vector<Scored> scored_;
    Lists lists_;
    TextResult result_;
};

Result<TextResult> TextScorer::run() {
    const auto started = std::chrono::steady_clock::now();
    const auto n_token = static_cast<int64_t>(job_.ids.size());
    VESTA_TRY(const std::vector<Window> windows, cut_windows(n_token, job_.ctx, job_.stride));
    if (job_.base != nullptr) {
        BaseHeader now;
        now.n_vocab = static_cast<uint32_t>(n_vocab_);
        now.n_record = static_cast<uint64_t>(n_token - 1);
        now.ctx = job_.ctx;
        now.stride = job_.stride;
        now.token_hash = hash_tokens(job_.ids);
        VESTA_TRY_STATUS(check_base(*job_.base, now));
    }
    const int64_t row_bytes = static_cast<int64_t>(n_vocab_ * sizeof(float));
    chunk_ = std::clamp(kMaxLogitBytes / row_bytes, int64_t{1}, std::max<int64_t>(job_.chunk, 1));
    const int64_t n_ctx = std::min(job_.ctx, n_token - 1);
    VESTA_TRY(const auto session,
              engine_.new_session({.n_ctx = n_ctx, .chunk = chunk_, .cache_format = job_.cache_format}));
    chunk_ = std::min(chunk_, n_ctx);
    try {
        logits_.resize(static_cast<size_t>(chunk_) * n_vocab_);
        scored_.resize(static_cast<size_t>(chunk_));
    } catch (const std::bad_alloc&) {
        return Error{Code::no_memory,
                     strf("logits of {} tokens were refused by the system; a smaller --chunk needs less", chunk_)};
    }
    result_.n_target = n_token - 1;
    for (const Window& w : windows) {
        VESTA_TRY(const bool go_on, window(*session, w));
        if (!go_on) break;
        ++result_.n_window;
    }
    if (result_.n_scored == 0) return Error{Code::cancelled, "stopped before any token was scored"};
    result_.block = default_block(result_.n_scored);
    result_.nll = block_mean(lists_.nll, result_.block);
    if (job_.base != nullptr)
        result_.divergence = summarise(lists_, std::min<size_t>(5, job_.base->header().k), result_.block);
    result_.token_nll = std::move(lists_.nll);
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return std::move(result_);
}

Result<bool> TextScorer::window(Session& session, const Window& w) {
    if (!report()) return false;
    session.clear();
    const auto inputs = [&](int64_t from, int64_t to) {
        return job_.ids.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
    };
    // Inputs before first_target - 1 predict nothing that is scored here: no logits of theirs are computed.
    const int64_t first = w.first_target - 1;
    if (first > w.begin) {
        const Status s = session.prefill(inputs(w.begin, first), [&](const Progress&) { return report(); });
        if (!s.ok() && s.error().code == Code::cancelled) return false;
        VESTA_TRY_STATUS(s);
        result_.n_computed += first - w.begin;
    }
    for (int64_t at = first; at < w.end; at += chunk_) {
        if (!report()) return false;
        const int64_t n = std::min(chunk_, w.end - at);
        VESTA_TRY_STATUS(
            session.evaluate(inputs(at, at + n), std::span(logits_).first(static_cast<size_t>(n) * n_vocab_)));
        result_.n_computed += n;
        VESTA_TRY_STATUS(rows(at + 1, n));
    }
    report();
    return true;
}

// Row i of logits_ predicts token first_target + i.
Status TextScorer::rows(int64_t first_target, int64_t n) {
    std::vector<BaseRecord> base;
    for (int64_t i = 0; job_.base != nullptr && i < n; ++i) {
        VESTA_TRY(base.emplace_back(), job_.base->record(static_cast<uint64_t>(first_target + i - 1)));
    }
    const size_t save_k = job_.save != nullptr ? job_.save->header().k : 0;
    pool_.run(n, [&](int64_t i) {
        const auto row = static_cast<size_t>(i);
        score_row(std::span(logits_).subspan(row * n_vocab_, n_vocab_), job_.ids[static_cast<size_t>(first_target + i)],
                  base.empty() ? nullptr : &base[row], save_k, scored_[row]);
    });
    for (int64_t i = 0; i < n; ++i) {
        const Scored& s = scored_[static_cast<size_t>(i)];
        lists_.nll.push_back(s.nll);
        if (job_.save != nullptr) VESTA_TRY_STATUS(job_.save->append(s.base));
        if (job_.base == nullptr) continue;
        const int n_five = static_cast<int>(std::min<uint32_t>(5, job_.base->header().k));
        const double nll = static_cast<double>(static_cast<float>(s.nll));  // rounded like the record: 0 against itself
        const double dp = std::exp(-nll) - std::exp(-s.base_nll);
        lists_.kl.push_back(s.kl);
        lists_.same1.push_back(s.same1 ? 1 : 0);
        lists_.delta.push_back(nll - s.base_nll);
        lists_.n_same5 += s.n_same5 == n_five;
        lists_.n_overlap += s.n_same5;
        lists_.square_dp += dp * dp;
        lists_.base_nll += s.base_nll;
    }
    result_.n_scored += n;
    return {};
}

}  // namespace

Result<TextResult> score_text(Engine& engine, const TextJob& job, const ProgressFn& progress) {
    return TextScorer(engine, job, progress).run();
}

double TextResult::ppl() const { return std::exp(nll.mean); }

Status check_base(const BaseFile& base, const BaseHeader& now) {
    const BaseHeader& h = base.header();
    const auto differs = [&](const std::string& what) {
        return Error{
            Code::invalid_argument,
            strf("{}: {}; a comparison needs the same text, vocabulary, special-token flags, --ctx and --stride",
                 printable(base.name()), what)};
    };
    if (h.n_vocab != now.n_vocab)
        return differs(strf("made with a vocabulary of {}, this model has {}", h.n_vocab, now.n_vocab));
    if (now.text_hash != 0 && h.text_hash != now.text_hash) return differs("made from another text");
    if (h.ctx != now.ctx) return differs(strf("made with --ctx {}, this run has {}", h.ctx, now.ctx));
    if (h.stride != now.stride) return differs(strf("made with --stride {}, this run has {}", h.stride, now.stride));
    if (h.n_record != now.n_record)
        return differs(strf("holds {} scored tokens, this run has {}", h.n_record, now.n_record));
    if (h.token_hash != now.token_hash) return differs("made from other tokens");
    return {};
}

}  // namespace vesta::score
