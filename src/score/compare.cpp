#include "score/compare.h"

#include <cmath>
#include <map>
#include <unordered_map>

#include "base/utf8.h"

namespace vesta::score {
namespace {

using Pair = std::pair<const CaseResult*, const CaseResult*>;

CompareGroup compare_group(std::string kind, const std::vector<Pair>& pairs) {
    CompareGroup g;
    g.kind = std::move(kind);
    std::vector<double> differences;
    for (const auto& [a, b] : pairs) {
        if (a->n_token > 0 && b->n_token > 0) {
            double d = b->mean_nll() - a->mean_nll();
            if (std::fabs(d) < kTieNats) d = 0;
            differences.push_back(d);
            g.mean_a += a->mean_nll();
            g.mean_b += b->mean_nll();
            g.a_first += a->first_rank == 1;
            g.b_first += b->first_rank == 1;
        }
        if (a->correct && b->correct) {
            ++g.n_judged;
            g.a_right += *a->correct;
            g.b_right += *b->correct;
            g.only_a += *a->correct && !*b->correct;
            g.only_b += *b->correct && !*a->correct;
        }
    }
    g.nll = paired_test(differences);
    g.n_nll = g.nll.n;
    g.a_wins = g.nll.n_greater;
    g.b_wins = g.nll.n_less;
    g.ties = g.nll.n_equal;
    if (g.n_nll > 0) {
        g.mean_a /= static_cast<double>(g.n_nll);
        g.mean_b /= static_cast<double>(g.n_nll);
    }
    g.answer_p = sign_test(g.only_a, g.only_b);
    return g;
}

Accuracy accuracy_of(std::string kind, const std::vector<const CaseResult*>& results) {
    Accuracy a;
    a.kind = std::move(kind);
    std::vector<double> means;
    for (const CaseResult* r : results) {
        ++a.n;
        a.n_judged += r->correct.has_value();
        a.n_right += r->correct.value_or(false);
        a.n_reproduced += r->reproduced;
        if (r->n_token == 0) continue;
        ++a.n_nll;
        a.nll += r->nll;
        a.n_token += static_cast<double>(r->n_token);
        means.push_back(r->mean_nll());
    }
    a.mean_nll = mean_of(means);
    return a;
}

}  // namespace

Result<Comparison> compare_results(std::span<const CaseResult> a, std::span<const CaseResult> b) {
    std::unordered_map<std::string, const CaseResult*> of_b;
    for (const CaseResult& r : b) of_b.emplace(r.id, &r);
    Comparison c;
    std::vector<Pair> all;
    std::map<std::string, std::vector<Pair>> by_kind;
    for (const CaseResult& r : a) {
        const auto found = of_b.find(r.id);
        if (found == of_b.end()) {
            ++c.n_only_a;
            continue;
        }
        if (found->second->hash != r.hash)
            return Error{Code::invalid_argument,
                         strf("case {}: the two results are of different prompts or continuations; "
                              "both must come from one manifest",
                              printable(r.id))};
        all.emplace_back(&r, found->second);
        by_kind[r.kind].emplace_back(&r, found->second);
    }
    c.n_common = static_cast<int64_t>(all.size());
    c.n_only_b = static_cast<int64_t>(of_b.size()) - c.n_common;
    if (all.empty()) return Error{Code::invalid_argument, "no case is in both results; nothing to compare"};
    c.groups.push_back(compare_group({}, all));
    if (by_kind.size() > 1)
        for (const auto& [kind, pairs] : by_kind) c.groups.push_back(compare_group(kind, pairs));
    return c;
}

std::vector<Accuracy> accuracy_by_kind(std::span<const CaseResult> results) {
    std::vector<const CaseResult*> all;
    std::map<std::string, std::vector<const CaseResult*>> by_kind;
    for (const CaseResult& r : results) {
        all.push_back(&r);
        by_kind[r.kind].push_back(&r);
    }
    std::vector<Accuracy> out = {accuracy_of({}, all)};
    if (by_kind.size() > 1)
        for (const auto& [kind, list] : by_kind) out.push_back(accuracy_of(kind, list));
    return out;
}

}  // namespace vesta::score
