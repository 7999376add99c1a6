#include "store/policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vesta::store {
namespace {

constexpr double kBase = 1.0 / 8;
constexpr double kManualWeight = 32;

int64_t align_down(int64_t n, int64_t step) { return step > 0 ? n - n % step : n; }

}  // namespace

Status check(const SavePolicy& p) {
    const std::pair<const char*, int64_t> numbers[] = {{"min_tokens", p.min_tokens},
                                                       {"cold_max_tokens", p.cold_max_tokens},
                                                       {"continued_interval", p.continued_interval},
                                                       {"boundary_trim", p.boundary_trim},
                                                       {"boundary_align", p.boundary_align}};
    constexpr int64_t kMax = int64_t{1} << 40;  // sums of two stay far from overflow
    for (const auto& [name, number] : numbers)
        if (number < 0 || number > kMax)
            return Error{Code::invalid_argument, strf("{} is {}; expected 0 to {}", name, number, kMax)};
    if (p.cold_max_tokens > 0 && p.cold_max_tokens < p.min_tokens)
        return Error{Code::invalid_argument,
                     strf("cold_max_tokens is {} and min_tokens {}: no prompt is between them; 0 turns cold saves off",
                          p.cold_max_tokens, p.min_tokens)};
    return {};
}

int64_t cold_position(const SavePolicy& p, int64_t n_prompt) {
    if (n_prompt < std::max<int64_t>(1, p.min_tokens) || n_prompt > p.cold_max_tokens) return 0;
    const int64_t trimmed = n_prompt - p.boundary_trim;
    const int64_t aligned = align_down(trimmed, p.boundary_align);
    const int64_t position = aligned >= std::max<int64_t>(1, p.min_tokens) ? aligned : trimmed;
    return position >= std::max<int64_t>(1, p.min_tokens) ? position : 0;
}

int64_t next_continued(const SavePolicy& p, int64_t n_token) {
    if (p.continued_interval <= 0) return 0;
    const int64_t align = std::max<int64_t>(1, p.boundary_align);
    const int64_t step = (p.continued_interval + align - 1) / align * align;
    int64_t next = (n_token / step + 1) * step;
    if (next < p.min_tokens) next = (p.min_tokens + step - 1) / step * step;
    return next;
}

std::vector<Stop> prefill_stops(const SavePolicy& p, int64_t n_reused, int64_t n_prompt) {
    std::vector<Stop> stops;
    if (n_reused == 0 && n_prompt >= p.min_tokens && n_prompt <= p.cold_max_tokens) {
        if (const int64_t at = cold_position(p, n_prompt); at > 0) stops.push_back({at, snapshot::Reason::cold});
        return stops;
    }
    for (int64_t at = next_continued(p, n_reused); at > 0 && at <= n_prompt; at = next_continued(p, at))
        stops.push_back({at, snapshot::Reason::continued});
    return stops;
}

bool save_at_end(const SavePolicy& p, int64_t n_token, int64_t n_stored) {
    return n_token >= std::max<int64_t>(1, p.min_tokens) && n_token > n_stored;
}

double value(const Worth& w, int64_t now) {
    const double age = std::max(0.0, static_cast<double>(now) - static_cast<double>(w.last_used));  // times may be lies
    const double recent = std::exp2(-age / kHalfLifeSeconds);
    const double uses = static_cast<double>(w.hits);
    const double expected = w.superseded ? uses * recent : kBase + (1 + uses) * recent;
    return (w.manual ? kManualWeight : 1) * static_cast<double>(w.tokens) * expected /
           static_cast<double>(std::max<uint64_t>(1, w.bytes));
}

std::optional<std::vector<size_t>> make_room(std::span<const Candidate> candidates, uint64_t need,
                                             double newcomer_value, int64_t now) {
    struct Ranked {
        size_t index;
        double value;
    };
    std::vector<Ranked> order;
    for (size_t i = 0; i < candidates.size(); ++i) {
        const double v = value(candidates[i].worth, now);
        if (!candidates[i].pinned && v <= newcomer_value) order.push_back({i, v});
    }
    std::sort(order.begin(), order.end(), [&](const Ranked& a, const Ranked& b) {
        if (a.value != b.value) return a.value < b.value;
        const int64_t used_a = candidates[a.index].worth.last_used, used_b = candidates[b.index].worth.last_used;
        return used_a != used_b ? used_a < used_b : a.index < b.index;
    });
    uint64_t freed = 0;
    size_t n = 0;
    for (; n < order.size() && freed < need; ++n) freed += candidates[order[n].index].worth.bytes;
    if (freed < need) return std::nullopt;
    order.resize(n);
    // A large file at the end of the list may make small ones before it unnecessary: they stay, the best first.
    std::vector<size_t> victims;
    for (size_t i = n; i-- > 0;) {
        const uint64_t bytes = candidates[order[i].index].worth.bytes;
        if (freed - bytes >= need)
            freed -= bytes;
        else
            victims.push_back(order[i].index);
    }
    std::reverse(victims.begin(), victims.end());
    return victims;
}

}  // namespace vesta::store
