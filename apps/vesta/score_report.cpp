#include "score_report.h"

#include <cmath>

#include "base/utf8.h"
#include "terminal.h"

namespace vesta::app {
namespace {

using score::Estimate;

OrderedJson estimate_json(const Estimate& e) {
    OrderedJson j;
    j["mean"] = e.mean;
    j["standard_error"] = e.standard_error;  // NaN becomes null
    j["low"] = e.low;
    j["high"] = e.high;
    j["n"] = e.n;
    j["n_block"] = e.n_block;
    return j;
}

double bits_per_byte(const TextFacts& facts, const score::TextResult& r) {
    if (facts.scored_bytes == 0) return std::nan("");
    return r.nll.mean * static_cast<double>(r.n_scored) / std::log(2.0) / static_cast<double>(facts.scored_bytes);
}

double rate(int64_t n, double seconds) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; }

std::string with_interval(double mean, double low, double high, const char* unit = "", double scale = 1) {
    if (std::isnan(low)) return strf("{:.5g}{}", mean * scale, unit);
    return strf("{:.5g}{}   [{:.5g}, {:.5g}]", mean * scale, unit, low * scale, high * scale);
}

std::string percent(int64_t part, int64_t all) {
    return all == 0 ? "-" : strf("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(all));
}

void row(const char* what, const std::string& value) { fmt::print("  {:<26} {}\n", what, value); }

const char* kind_name(const std::string& kind) { return kind.empty() ? "all" : kind.c_str(); }

}  // namespace

OrderedJson model_json(const EngineInfo& info) {
    OrderedJson j;
    j["path"] = info.path;
    j["name"] = info.name;
    j["weight_bytes"] = info.weight_bytes;
    j["parameters"] = info.n_parameter;
    j["backend"] = info.backend;
    j["threads"] = info.n_thread;
    return j;
}

OrderedJson text_json(const TextFacts& f, const score::TextResult& r) {
    OrderedJson j;
    j["text"] = {
        {"file", f.file}, {"bytes", f.n_byte}, {"tokens", f.n_token}, {"specials", f.specials}, {"bos", f.bos}};
    j["ctx"] = f.ctx;
    j["stride"] = f.stride;
    j["partial"] = r.partial();
    j["n_target"] = r.n_target;
    j["n_scored"] = r.n_scored;
    j["block"] = r.block;
    j["nll"] = estimate_json(r.nll);
    j["ppl"] = {{"value", r.ppl()}, {"low", std::exp(r.nll.low)}, {"high", std::exp(r.nll.high)}};
    j["bits_per_token"] = r.nll.mean / std::log(2.0);
    j["bits_per_byte"] = bits_per_byte(f, r);
    j["seconds"] = r.seconds;
    j["tokens_per_second"] = rate(r.n_computed, r.seconds);
    if (!r.divergence) return j;
    const score::Divergence& d = *r.divergence;
    OrderedJson& o = j["divergence"];
    o["base"] = f.base_file;
    o["base_model"] = f.base_model;
    o["base_fingerprint"] = strf("{:016x}", f.base_fingerprint);
    o["k"] = f.base_k;
    o["kl"] = estimate_json(d.kl);
    o["kl"]["median"] = d.kl_median;
    o["kl"]["p90"] = d.kl_90;
    o["kl"]["p99"] = d.kl_99;
    o["kl"]["max"] = d.kl_max;
    o["same_top1"] = estimate_json(d.same_top1);
    o["same_top5"] = d.same_top5;
    o["top5_overlap"] = d.top5_overlap;
    o["base_nll"] = d.base_nll;
    o["delta_nll"] = estimate_json(d.delta_nll);
    o["ppl_ratio"] = {{"value", d.ppl_ratio}, {"low", d.ppl_ratio_low}, {"high", d.ppl_ratio_high}};
    o["rms_dp"] = d.rms_dp;
    return j;
}

OrderedJson cases_json(const score::CasesResult& r) {
    OrderedJson j;
    j["partial"] = r.partial;
    j["n_case"] = r.results.size();
    j["seconds"] = r.seconds;
    j["tokens_per_second"] = rate(r.n_computed, r.seconds);
    j["kinds"] = OrderedJson::array();
    for (const score::Accuracy& a : score::accuracy_by_kind(r.results)) {
        OrderedJson k;
        k["kind"] = kind_name(a.kind);
        k["n"] = a.n;
        k["mean_nll"] = a.n_token > 0 ? a.nll / a.n_token : std::nan("");
        k["case_nll"] = estimate_json(a.mean_nll);
        k["reproduced"] = a.n_reproduced;
        if (a.n_judged > 0) {
            k["judged"] = a.n_judged;
            k["correct"] = a.n_right;
            k["accuracy"] = static_cast<double>(a.n_right) / static_cast<double>(a.n_judged);
        }
        j["kinds"].push_back(std::move(k));
    }
    return j;
}

OrderedJson comparison_json(const std::string& name_a, const std::string& name_b, const score::Comparison& c) {
    OrderedJson j;
    j["a"] = name_a;
    j["b"] = name_b;
    j["n_common"] = c.n_common;
    j["n_only_a"] = c.n_only_a;
    j["n_only_b"] = c.n_only_b;
    j["groups"] = OrderedJson::array();
    for (const score::CompareGroup& g : c.groups) {
        OrderedJson o;
        o["kind"] = kind_name(g.kind);
        if (g.n_nll > 0)
            o["nll"] = {{"n", g.n_nll},
                        {"a_wins", g.a_wins},
                        {"b_wins", g.b_wins},
                        {"ties", g.ties},
                        {"mean_a", g.mean_a},
                        {"mean_b", g.mean_b},
                        {"b_minus_a", estimate_json(g.nll.difference)},
                        {"t_p", g.nll.t_p},
                        {"wilcoxon_p", g.nll.wilcoxon_p},
                        {"sign_p", g.nll.sign_p},
                        {"a_first", g.a_first},
                        {"b_first", g.b_first}};
        if (g.n_judged > 0)
            o["answers"] = {{"n", g.n_judged},    {"a_right", g.a_right}, {"b_right", g.b_right},
                            {"only_a", g.only_a}, {"only_b", g.only_b},   {"sign_p", g.answer_p}};
        j["groups"].push_back(std::move(o));
    }
    return j;
}

void print_model(const EngineInfo& info) {
    fmt::print("{}  ({}, {}, backend {}, {} threads)\n", printable(info.path), printable(info.name),
               format_bytes(static_cast<uint64_t>(info.weight_bytes)), info.backend, info.n_thread);
}

void print_text(const TextFacts& f, const score::TextResult& r) {
    if (r.partial())
        fmt::print("PARTIAL: stopped after {} of {} tokens; the numbers are of that part\n", r.n_scored, r.n_target);
    row("text", strf("{}: {}, {} tokens", printable(f.file), format_bytes(f.n_byte), f.n_token));
    row("scored", strf("{} tokens in windows of {}, stride {}", r.n_scored, f.ctx, f.stride));
    row("perplexity", with_interval(r.ppl(), std::exp(r.nll.low), std::exp(r.nll.high)));
    row("nll, nats per token", with_interval(r.nll.mean, r.nll.low, r.nll.high));
    row("bits per byte", strf("{:.5g}   ({:.5g} per token)", bits_per_byte(f, r), r.nll.mean / std::log(2.0)));
    if (r.divergence) {
        const score::Divergence& d = *r.divergence;
        fmt::print("against {} ({})\n", printable(f.base_file), printable(f.base_model));
        row("KL(base, model), nats *", with_interval(d.kl.mean, d.kl.low, d.kl.high));
        row("  median, 90 %, 99 %, max",
            strf("{:.5g}, {:.5g}, {:.5g}, {:.5g}", d.kl_median, d.kl_90, d.kl_99, d.kl_max));
        row("same likeliest token", with_interval(d.same_top1.mean, d.same_top1.low, d.same_top1.high, " %", 100));
        row("same five likeliest",
            strf("{:.4g} %   ({:.4g} % of the base's five)", 100 * d.same_top5, 100 * d.top5_overlap));
        row("nll - base nll", strf("{:+.5g} ± {:.2g}", d.delta_nll.mean, d.delta_nll.standard_error));
        row("perplexity ratio", with_interval(d.ppl_ratio, d.ppl_ratio_low, d.ppl_ratio_high));
        row("rms change of p(true)", strf("{:.4g} %", 100 * d.rms_dp));
        fmt::print("* over the base's {} likeliest tokens and one bucket for the rest: a lower bound\n", f.base_k);
    }
    fmt::print("[95 % intervals: standard error over {} blocks of {} tokens]  {:.1f} s, {:.0f} tok/s\n", r.nll.n_block,
               r.block, r.seconds, rate(r.n_computed, r.seconds));
}

void print_cases(const score::CasesResult& r) {
    if (r.partial) fmt::print("PARTIAL: stopped after {} cases\n", r.results.size());
    fmt::print("  {:<16} {:>6} {:>12} {:>10} {:>12} {:>10}\n", "kind", "cases", "nll/token", "± se", "reproduced",
               "correct");
    for (const score::Accuracy& a : score::accuracy_by_kind(r.results)) {
        const bool some = a.n_nll > 0;
        fmt::print("  {:<16} {:>6} {:>12} {:>10} {:>12} {:>10}\n", printable(kind_name(a.kind)), a.n,
                   some ? strf("{:.5f}", a.mean_nll.mean) : "-",
                   a.n_nll > 1 ? strf("{:.5f}", a.mean_nll.standard_error) : "-", percent(a.n_reproduced, a.n_nll),
                   percent(a.n_right, a.n_judged));
    }
    fmt::print(
        "[nll: mean over cases; reproduced: every token of the continuation was the likeliest]  {:.1f} s, {:.0f} "
        "tok/s\n",
        r.seconds, rate(r.n_computed, r.seconds));
}

void print_comparison(const std::string& name_a, const std::string& name_b, const score::Comparison& c) {
    fmt::print("A: {}\nB: {}\n{} cases in both", printable(name_a), printable(name_b), c.n_common);
    if (c.n_only_a + c.n_only_b > 0) fmt::print("; left out: {} only in A, {} only in B", c.n_only_a, c.n_only_b);
    fmt::print("\n  {:<16} {:>6} {:>7} {:>7} {:>6} {:>11} {:>9} {:>8} {:>8} {:>8}\n", "kind", "cases", "A wins",
               "B wins", "ties", "nll B - A", "± se", "t", "Wilcoxon", "sign");
    for (const score::CompareGroup& g : c.groups)
        if (g.n_nll > 0)
            fmt::print("  {:<16} {:>6} {:>7} {:>7} {:>6} {:>+11.5f} {:>9.5f} {:>8.2g} {:>8.2g} {:>8.2g}\n",
                       printable(kind_name(g.kind)), g.n_nll, g.a_wins, g.b_wins, g.ties, g.nll.difference.mean,
                       g.nll.difference.standard_error, g.nll.t_p, g.nll.wilcoxon_p, g.nll.sign_p);
    bool judged = false;
    for (const score::CompareGroup& g : c.groups) judged = judged || g.n_judged > 0;
    if (judged) {
        fmt::print("greedy answers\n  {:<16} {:>6} {:>9} {:>9} {:>7} {:>7} {:>8}\n", "kind", "cases", "A right",
                   "B right", "only A", "only B", "sign");
        for (const score::CompareGroup& g : c.groups)
            if (g.n_judged > 0)
                fmt::print("  {:<16} {:>6} {:>9} {:>9} {:>7} {:>7} {:>8.2g}\n", printable(kind_name(g.kind)),
                           g.n_judged, percent(g.a_right, g.n_judged), percent(g.b_right, g.n_judged), g.only_a,
                           g.only_b, g.answer_p);
    }
    fmt::print(
        "[a win is a smaller nll per token, a tie less than {:g} apart; the last columns are two-sided p-values]\n",
        score::kTieNats);
}

}  // namespace vesta::app
