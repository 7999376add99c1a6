#include "convert/recipe.h"

#include <algorithm>

namespace vesta::convert {
namespace {

using quant::Type;

// The formats of the published files outside the routed experts: what is multiplied by many rows of activations is
// Q8_0; the router, the compressors and the indexer decide between alternatives and stay 16 bits wide.
std::vector<Rule> published(std::optional<Type> experts) {
    return {
        {"*_exps.weight", experts},  {"token_embd.weight", Type::f16}, {"*hc_*fn.weight", Type::f16},
        {"*compressor*", Type::f16}, {"*indexer*", Type::f16},         {"*ffn_gate_inp.weight", Type::f16},
        {"*", Type::q8_0},
    };
}

const std::vector<Recipe>& table() {
    static const std::vector<Recipe> kTable = {
        {"native", "every value exact: experts MXFP4, FP8 and BF16 as BF16, F32 as F32", {{"*", std::nullopt}}},
        {"q8", "matrices Q8_0, experts too; router, compressors, indexer and embeddings F16", published(Type::q8_0)},
        {"pocket", "as q8, but the experts as the checkpoint stores them (MXFP4, exact)", published(std::nullopt)},
        {"f16", "every matrix F16", {{"*", Type::f16}}},
        {"f32", "every matrix F32: large, for checking other formats", {{"*", Type::f32}}},
    };
    return kTable;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view text) {
    // Greedy with one point of return: after a '*', a mismatch moves the text one further.
    size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
    while (t < text.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = t;
        } else if (p < pattern.size() && pattern[p] == text[t]) {
            ++p, ++t;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            t = ++resume;
        } else {
            return false;
        }
    }
    while (p < pattern.size() && pattern[p] == '*') ++p;
    return p == pattern.size();
}

std::optional<Type> Recipe::type_for(std::string_view gguf_name) const {
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const Rule& r) { return matches(r.pattern, gguf_name); });
    VESTA_CHECK(rule != rules.end());
    return rule->type;
}

std::span<const Recipe> recipes() { return table(); }

Result<Recipe> find_recipe(std::string_view name) {
    std::string known;
    for (const Recipe& r : table()) {
        if (r.name == name) return r;
        known += (known.empty() ? "" : ", ") + r.name;
    }
    return Error{Code::invalid_argument, strf("no recipe '{}'; there are {}", name, known)};
}

}  // namespace vesta::convert
