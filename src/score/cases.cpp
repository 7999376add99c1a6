#include "score/cases.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <new>

#include "base/utf8.h"
#include "sample/logprob.h"
#include "score/text.h"
#include "tokenizer/tokenizer.h"

namespace vesta::score {
namespace {

using Ids = std::vector<int32_t>;

std::string_view trimmed(std::string_view s) {
    constexpr std::string_view kSpace = " \t\r\n";
    const size_t first = s.find_first_not_of(kSpace);
    if (first == std::string_view::npos) return {};
    return s.substr(first, s.find_last_not_of(kSpace) - first + 1);
}

int32_t argmax(std::span<const float> logits) {  // ties to the lower id
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

struct Prepared {
    Ids prompt, continuation;
    int64_t n_max = 0;
    int64_t n_ctx() const {
        return static_cast<int64_t>(prompt.size()) + std::max(static_cast<int64_t>(continuation.size()), n_max);
    }
};

class CaseScorer {
 public:
    // `go_on` is asked between passes; a case it stops ends with Code::cancelled.
    CaseScorer(Engine& engine, const CaseOptions& options, std::function<bool()> go_on)
        : engine_(engine), options_(options), go_on_(std::move(go_on)) {}

    Result<Prepared> prepare(const Case& c) const;
    Status open(int64_t n_ctx);
    Result<CaseResult> score(const Case& c, const Prepared& p);
    int64_t n_computed() const { return n_computed_; }

 private:
    Status likelihood(const Prepared& p, CaseResult& r);
    Status answer(const Case& c, const Prepared& p, CaseResult& r);
    std::span<const int32_t> first(const Ids& ids, int64_t n) const {
        return std::span(ids).first(static_cast<size_t>(n));
    }

    Status prefill(std::span<const int32_t> ids) {
        return session_->prefill(ids, [this](const Progress&) { return go_on_(); });
    }

    Engine& engine_;
    const CaseOptions& options_;
    std::function<bool()> go_on_;
    std::unique_ptr<Session> session_;
    int64_t chunk_ = 0;
    std::vector<float> logits_;
    int64_t n_same_ = 0;  // leading tokens of the continuation that were the likeliest
    int32_t next_ = 0;    // the likeliest token after those
    int64_t n_computed_ = 0;
};

Result<Prepared> CaseScorer::prepare(const Case& c) const {
    const tokenizer::Tokenizer& t = engine_.tokenizer();
    const auto mode = options_.recognise_specials ? tokenizer::SpecialMode::recognise : tokenizer::SpecialMode::text;
    Prepared p;
    for (const std::string* text : {&c.prompt, &c.continuation})
        if (text->size() > tokenizer::Tokenizer::kMaxTextBytes)
            return Error{Code::unsupported, strf("case {}: a text of {} bytes", printable(c.id), text->size())};
    t.encode(c.prompt, mode, p.prompt);
    if (options_.add_bos && t.bos() && (p.prompt.empty() || p.prompt[0] != *t.bos()))
        p.prompt.insert(p.prompt.begin(), *t.bos());
    if (p.prompt.empty())
        return Error{Code::invalid_argument,
                     strf("case {}: the prompt is empty; the first token of a continuation needs "
                          "something before it (without --no-bos there is a BOS)",
                          printable(c.id))};
    t.encode(c.continuation, mode, p.continuation);
    if (c.end && !c.pattern) {
        if (!t.eos())
            return Error{Code::invalid_argument, strf("case {}: wants the end of the text, and the vocabulary has no "
                                                      "end-of-text token",
                                                      printable(c.id))};
        p.continuation.push_back(*t.eos());
    }
    if (!c.pattern && p.continuation.empty())
        return Error{Code::invalid_argument, strf("case {}: the continuation has no tokens", printable(c.id))};
    if (options_.greedy) {
        constexpr int64_t kPatternTokens = 512;
        const auto n = static_cast<int64_t>(p.continuation.size());
        p.n_max = c.max_tokens > 0 ? c.max_tokens : n > 0 ? 2 * n + 16 : kPatternTokens;
    }
    return p;
}

Status CaseScorer::open(int64_t n_ctx) {
    const int64_t row_bytes = engine_.info().n_vocab * static_cast<int64_t>(sizeof(float));
    chunk_ = std::min(std::clamp(kMaxLogitBytes / row_bytes, int64_t{1}, std::max<int64_t>(options_.chunk, 1)), n_ctx);
    VESTA_TRY(session_, engine_.new_session({.n_ctx = n_ctx, .chunk = chunk_, .cache_format = options_.cache_format}));
    try {
        logits_.resize(static_cast<size_t>(chunk_ * engine_.info().n_vocab));
    } catch (const std::bad_alloc&) {
        return Error{Code::no_memory,
                     strf("logits of {} tokens were refused by the system; a smaller --chunk needs less", chunk_)};
    }
    return {};
}

// Inputs are the prompt and all of the continuation but its last token, which nothing follows.
Status CaseScorer::likelihood(const Prepared& p, CaseResult& r) {
    const auto n_prompt = static_cast<int64_t>(p.prompt.size()), n = static_cast<int64_t>(p.continuation.size());
    const auto n_vocab = static_cast<size_t>(engine_.info().n_vocab);
    VESTA_TRY_STATUS(prefill(first(p.prompt, n_prompt - 1)));
    Ids inputs = {p.prompt.back()};
    inputs.insert(inputs.end(), p.continuation.begin(), p.continuation.end() - 1);
    n_same_ = 0;
    for (int64_t at = 0; at < n; at += chunk_) {
        const int64_t rows = std::min(chunk_, n - at);
        const std::span<float> logits = std::span(logits_).first(static_cast<size_t>(rows) * n_vocab);
        VESTA_TRY_STATUS(
            session_->evaluate(std::span(inputs).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)), logits));
        for (int64_t i = 0; i < rows; ++i) {
            const std::span<const float> row = logits.subspan(static_cast<size_t>(i) * n_vocab, n_vocab);
            const int32_t target = p.continuation[static_cast<size_t>(at + i)];
            const float wanted = row[static_cast<size_t>(target)];
            r.nll += std::max(sample::log_sum_exp(row) - static_cast<double>(wanted), 0.0);
            if (at + i == 0)
                for (int32_t id = 0; id < static_cast<int32_t>(n_vocab); ++id) {
                    const float l = row[static_cast<size_t>(id)];
                    r.first_rank += l > wanted || (l == wanted && id <= target);  // itself counts: ranks begin at 1
                }
            if (n_same_ < at + i) continue;  // left the continuation before this token
            next_ = argmax(row);
            if (next_ == target) ++n_same_;
        }
    }
    r.n_token = n;
    r.reproduced = n_same_ == n;
    n_computed_ += n_prompt - 1 + n;
    return {};
}

// Greedy decoding takes the same tokens as the continuation for its first n_same_ tokens, so it only has to be done
// from there on: for most cases it ends after a token or two.
Status CaseScorer::answer(const Case& c, const Prepared& p, CaseResult& r) {
    if (r.reproduced) {
        // Also right by judge(): except when the author's `final` is not the end of the author's own answer.
        r.correct = judge(c, c.continuation, true) == Verdict::right;
        return {};
    }
    const tokenizer::Tokenizer& t = engine_.tokenizer();
    std::string text;
    for (int64_t i = 0; i < n_same_; ++i) t.append_token_bytes(p.continuation[static_cast<size_t>(i)], text);
    const auto take = [&](int32_t id, int64_t n) {  // the n-th token of the answer, from 0
        const bool stop = t.eos() && id == *t.eos();
        if (!stop) t.append_token_bytes(id, text);
        return judge(c, text, stop || n + 1 >= p.n_max);
    };
    // The token where greedy decoding leaves the continuation is known, and mostly decides.
    Verdict verdict = p.continuation.empty() ? Verdict::undecided : take(next_, n_same_);
    if (verdict == Verdict::undecided) {
        session_->clear();  // the continuation's own tokens are in it
        Ids inputs = p.prompt;
        inputs.insert(inputs.end(), p.continuation.begin(), p.continuation.begin() + n_same_);
        if (!p.continuation.empty()) inputs.push_back(next_);
        VESTA_TRY_STATUS(prefill(inputs));
        n_computed_ += static_cast<int64_t>(inputs.size());
        for (int64_t n = n_same_ + (p.continuation.empty() ? 0 : 1);; ++n) {
            const int32_t id = argmax(session_->logits());
            verdict = take(id, n);
            if (verdict != Verdict::undecided) break;
            if (!go_on_()) return Error{Code::cancelled, "stopped within an answer"};
            VESTA_TRY_STATUS(session_->decode(id));
            ++n_computed_;
        }
    }
    r.correct = verdict == Verdict::right;
    r.output = std::move(text);
    return {};
}

Result<CaseResult> CaseScorer::score(const Case& c, const Prepared& p) {
    CaseResult r;
    r.id = c.id;
    r.kind = c.kind;
    r.hash = c.hash;
    session_->clear();
    n_same_ = 0;
    if (!p.continuation.empty()) VESTA_TRY_STATUS(likelihood(p, r));
    if (options_.greedy) VESTA_TRY_STATUS(answer(c, p, r));
    return r;
}

}  // namespace

Verdict judge(const Case& c, std::string_view answer, bool ended) {
    const auto decided = [](bool right) { return right ? Verdict::right : Verdict::wrong; };
    if (c.pattern) return ended ? decided(c.pattern->matches(answer)) : Verdict::undecided;
    if (!c.final_answer.empty()) {
        if (!ended) return Verdict::undecided;
        constexpr std::string_view kThinkEnd = "</think>";
        const size_t at = answer.rfind(kThinkEnd);
        if (at != std::string_view::npos) answer.remove_prefix(at + kThinkEnd.size());
        return decided(trimmed(answer) == trimmed(c.final_answer));
    }
    if (!c.end) {
        if (answer.starts_with(c.continuation)) return Verdict::right;
        return !ended && std::string_view(c.continuation).starts_with(answer) ? Verdict::undecided : Verdict::wrong;
    }
    const std::string_view wanted = trimmed(c.continuation), so_far = trimmed(answer);
    if (ended) return decided(so_far == wanted);
    // White space at the end may yet become part of the text or stay at its end; wanted.starts_with covers both.
    return wanted.starts_with(so_far) ? Verdict::undecided : Verdict::wrong;
}

Result<CasesResult> score_cases(Engine& engine, std::span<const Case> cases, const CaseOptions& options,
                                const ProgressFn& progress, const std::function<Status(const CaseResult&)>& on_result) {
    const auto started = std::chrono::steady_clock::now();
    size_t current = 0;
    const auto report = [&] {
        return !progress ||
               progress({"score", current < cases.size() ? std::string_view(cases[current].id) : std::string_view(),
                         current, cases.size(), "cases"});
    };
    CaseScorer scorer(engine, options, report);
    std::vector<Prepared> prepared;
    int64_t n_ctx = 1;
    for (const Case& c : cases) {
        VESTA_TRY(prepared.emplace_back(), scorer.prepare(c));
        n_ctx = std::max(n_ctx, prepared.back().n_ctx());
    }
    VESTA_TRY_STATUS(scorer.open(n_ctx));
    CasesResult out;
    for (; current < cases.size(); ++current) {
        const Case& c = cases[current];
        Result<CaseResult> result = Error{Code::cancelled, {}};
        if (report()) result = scorer.score(c, prepared[current]);
        if (!result.ok() && result.error().code == Code::cancelled) {
            out.partial = true;
            break;
        }
        if (!result.ok())
            return Error{result.error().code, strf("case {}: {}", printable(c.id), result.error().message)};
        if (on_result) VESTA_TRY_STATUS(on_result(result.value()));
        out.results.push_back(std::move(result).value());
    }
    if (!out.partial) report();
    out.n_computed = scorer.n_computed();
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    return out;
}

}  // namespace vesta::score
