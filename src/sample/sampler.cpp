#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sample/logprob.h"

namespace vesta::sample {
namespace {

// Falling probability, ties to the lower id: the one order used by every cut.
bool before(const Candidate& a, const Candidate& b) { return a.p != b.p ? a.p > b.p : a.id < b.id; }

struct Range {
    const char* field;
    double value, low, high;
    const char* accepted;
    bool low_open = false;
};

Status check(const Range& r) {
    const bool inside = r.value >= r.low && r.value <= r.high && !(r.low_open && r.value == r.low);  // NaN: false
    if (inside) return {};
    return Error{Code::invalid_argument, strf("{} is {}, expected {}", r.field, r.value, r.accepted)};
}

}  // namespace

Status validate(const SamplerParams& p, int32_t n_vocab) {
    constexpr double kMaxInt = std::numeric_limits<int32_t>::max();
    const Range ranges[] = {
        {"temperature", p.temperature, 0, 100, "0 (greedy) to 100"},
        {"top_k", static_cast<double>(p.top_k), 0, kMaxInt, "0 (off) or more"},
        {"top_p", p.top_p, 0, 1, "more than 0, up to 1 (off)", true},
        {"min_p", p.min_p, 0, 1, "0 (off) to 1"},
        {"repetition_penalty", p.repetition_penalty, 0.01, 100, "0.01 to 100 (1 is off)"},
        {"presence_penalty", p.presence_penalty, -2, 2, "-2 to 2 (0 is off)"},
        {"frequency_penalty", p.frequency_penalty, -2, 2, "-2 to 2 (0 is off)"},
        {"penalty_window", static_cast<double>(p.penalty_window), 0, 1 << 24, "0 (all tokens) to 16777216"},
    };
    for (const Range& r : ranges) VESTA_TRY_STATUS(check(r));
    for (const auto& [id, bias] : p.logit_bias) {
        if (id < 0 || id >= n_vocab)
            return Error{Code::invalid_argument,
                         strf("logit_bias names token {}, expected an id from 0 to {}", id, n_vocab - 1)};
        if (!(bias >= -100 && bias <= 100))
            return Error{Code::invalid_argument, strf("logit_bias of token {} is {}, expected -100 to 100", id, bias)};
    }
    return {};
}

Result<Sampler> Sampler::create(const SamplerParams& params, int32_t n_vocab) {
    VESTA_CHECK(n_vocab > 0);
    VESTA_TRY_STATUS(validate(params, n_vocab));
    return Sampler(params, n_vocab);
}

Sampler::Sampler(const SamplerParams& params, int32_t n_vocab)
    : params_(params),
      rng_(params.seed),
      penalise_(params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0),
      log_min_p_(params.min_p > 0 ? std::log(params.min_p) : -std::numeric_limits<double>::infinity()),
      adjusted_(static_cast<size_t>(n_vocab)) {
    kept_.reserve(adjusted_.size());
    // The last entry of an id wins: keep that one only, so that the token loop can simply add.
    std::vector<std::pair<int32_t, double>> bias;
    for (const auto& entry : params_.logit_bias) {
        std::erase_if(bias, [&](const auto& b) { return b.first == entry.first; });
        bias.push_back(entry);
    }
    params_.logit_bias = std::move(bias);
    if (penalise_) {
        seen_.resize(adjusted_.size());
        listed_.resize(adjusted_.size());
        seen_ids_.reserve(adjusted_.size());
        window_.resize(static_cast<size_t>(params_.penalty_window));
    }
}

void Sampler::accept_prompt(std::span<const int32_t> ids) {
    for (const int32_t id : ids) remember({id, false});
}

void Sampler::accept(int32_t id) { remember({id, true}); }

void Sampler::forget() {
    std::fill(seen_.begin(), seen_.end(), Seen{});
    std::fill(listed_.begin(), listed_.end(), char{0});
    seen_ids_.clear();
    window_next_ = window_used_ = 0;
}

void Sampler::remember(Token token) {
    VESTA_CHECK(token.id >= 0 && static_cast<size_t>(token.id) < adjusted_.size());
    if (!penalise_) return;
    if (!window_.empty()) {
        if (window_used_ == window_.size()) {
            const Token old = window_[window_next_];
            seen_[static_cast<size_t>(old.id)].n_any -= 1;
            seen_[static_cast<size_t>(old.id)].n_generated -= old.generated;
        } else {
            ++window_used_;
        }
        window_[window_next_] = token;
        window_next_ = (window_next_ + 1) % window_.size();
    }
    const auto id = static_cast<size_t>(token.id);
    seen_[id].n_any += 1;
    seen_[id].n_generated += token.generated;
    if (!listed_[id]) {
        listed_[id] = 1;
        seen_ids_.push_back(token.id);
    }
}

// Steps 1 and 2. In double, so that no finite logit can overflow on the way.
Status Sampler::adjust(std::span<const float> logits) {
    VESTA_CHECK(logits.size() == adjusted_.size());
    VESTA_TRY_STATUS(check_finite(logits));
    std::copy(logits.begin(), logits.end(), adjusted_.begin());
    for (const int32_t id : seen_ids_) {
        const Seen& seen = seen_[static_cast<size_t>(id)];
        if (seen.n_any == 0) continue;  // has left the window
        double& l = adjusted_[static_cast<size_t>(id)];
        l = l > 0 ? l / params_.repetition_penalty : l * params_.repetition_penalty;
        if (seen.n_generated > 0) l -= params_.presence_penalty + params_.frequency_penalty * seen.n_generated;
    }
    for (const auto& [id, bias] : params_.logit_bias) adjusted_[static_cast<size_t>(id)] += bias;
    return {};
}

int32_t Sampler::argmax() const {
    return static_cast<int32_t>(std::max_element(adjusted_.begin(), adjusted_.end()) - adjusted_.begin());  // first max
}

// Steps 3 to 6: fills kept_ with exp((l - max) / temperature) of every candidate that stays.
void Sampler::filter() {
    const double top = adjusted_[static_cast<size_t>(argmax())];
    kept_.clear();
    // min-p comes first here although it is step 5: the largest candidate is the same before and after top-k, so the
    // order does not change the set, and it spares the exponential for nearly all of a vocabulary. The rough test in
    // the log domain leaves room for the rounding of log(); the exact one is w >= min_p.
    const double floor = log_min_p_ - 1e-6;
    for (size_t id = 0; id < adjusted_.size(); ++id) {
        const double x = (adjusted_[id] - top) / params_.temperature;
        if (x < floor) continue;
        const double w = exp_nonpositive(x);
        if (w > 0 && w >= params_.min_p) kept_.push_back({static_cast<int32_t>(id), w});
    }
    const auto n_top = static_cast<size_t>(params_.top_k);
    if (n_top > 0 && n_top < kept_.size()) {
        std::nth_element(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(n_top), kept_.end(), before);
        kept_.resize(n_top);
        std::sort(kept_.begin(), kept_.end(), before);
    }
    if (params_.top_p < 1) {
        double total = 0;
        for (const Candidate& c : kept_) total += c.p;
        // A heap instead of a sort: usually a few of 129,280 candidates hold the mass, and popping k of n costs
        // n + k log n. std:: heaps keep the greatest in front, so "less" is "comes later".
        const auto later = [](const Candidate& a, const Candidate& b) { return before(b, a); };
        std::make_heap(kept_.begin(), kept_.end(), later);
        double mass = 0;
        auto end = kept_.end();
        while (end != kept_.begin() && mass < params_.top_p * total) {
            std::pop_heap(kept_.begin(), end, later);
            --end;
            mass += end->p;
        }
        // The popped ones lie at the back, largest last.
        std::reverse(kept_.begin(), kept_.end());
        kept_.resize(static_cast<size_t>(kept_.size() - static_cast<size_t>(end - kept_.begin())));
    }
}

Result<std::span<const Candidate>> Sampler::distribution(std::span<const float> logits) {
    VESTA_TRY_STATUS(adjust(logits));
    if (params_.temperature == 0) {
        kept_.assign(1, {argmax(), 1.0});
        return std::span<const Candidate>(kept_);
    }
    filter();
    double total = 0;
    for (const Candidate& c : kept_) total += c.p;
    for (Candidate& c : kept_) c.p /= total;
    return std::span<const Candidate>(kept_);
}

Result<int32_t> Sampler::sample(std::span<const float> logits) {
    VESTA_TRY(const std::span<const Candidate> candidates, distribution(logits));
    if (params_.temperature == 0) return candidates.front().id;  // greedy text must not depend on the random state
    // Inverse of the cumulative distribution. The sum may end a rounding below u; then the last candidate is meant.
    const double u = rng_.uniform();
    double mass = 0;
    for (const Candidate& c : candidates) {
        mass += c.p;
        if (u < mass) return c.id;
    }
    return candidates.back().id;
}

}  // namespace vesta::sample
