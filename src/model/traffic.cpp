#include "model/traffic.h"

#include <algorithm>
#include <vector>

#include "base/result.h"

namespace vesta::model {
namespace {

bool is_lookup(std::string_view name) { return name.ends_with("_tid2eid.weight"); }

bool is_attention(std::string_view name) {
    static constexpr std::string_view kParts[] = {".attn_q_a.weight", ".attn_q_b.weight", ".attn_kv.weight",
                                                  ".attn_output_a.weight", ".attn_output_b.weight"};
    return name.find("indexer") == name.npos &&
           std::any_of(std::begin(kParts), std::end(kParts), [&](std::string_view p) { return name.ends_with(p); });
}

}  // namespace

bool is_drafter(std::string_view name, std::string_view prefix) {
    return name.starts_with("mtp.") || (!prefix.empty() && name.starts_with(prefix));
}

std::string_view nextn_prefix(std::span<const WeightSize> weights) {
    for (const WeightSize& w : weights)
        if (const size_t at = w.name.find(".nextn."); at != w.name.npos) return w.name.substr(0, at + 1);
    return {};
}

Traffic decode_traffic(std::span<const WeightSize> weights, uint64_t n_expert, uint64_t n_expert_used) {
    const std::string_view prefix = nextn_prefix(weights);
    const bool tied =
        std::none_of(weights.begin(), weights.end(), [](const WeightSize& w) { return w.name == "output.weight"; });
    Traffic t;
    for (const WeightSize& w : weights) {
        if (is_drafter(w.name, prefix)) continue;
        if (w.name.find("_exps.") != w.name.npos)
            t.routed += n_expert == 0 ? w.bytes : w.bytes / n_expert * std::min(n_expert_used, n_expert);
        else if (w.name == "token_embd.weight" && tied)
            t.head += w.bytes;
        else if (w.name == "token_embd.weight" || is_lookup(w.name))
            t.rest += w.n_row == 0 ? 0 : w.bytes / w.n_row;
        else if (w.name == "output.weight")
            t.head += w.bytes;
        else if (w.name.find("_shexp.") != w.name.npos)
            t.shared += w.bytes;
        else if (is_attention(w.name))
            t.attention += w.bytes;
        else
            t.rest += w.bytes;
    }
    return t;
}

Traffic decode_traffic(const gguf::File& file) {
    const auto architecture = file.string("general.architecture");
    const std::string prefix = architecture.ok() ? std::string(architecture.value()) + "." : "";
    const auto n_expert = file.u64(prefix + "expert_count"), n_used = file.u64(prefix + "expert_used_count");
    std::vector<WeightSize> weights;
    for (const gguf::TensorInfo& t : file.tensors()) weights.push_back({t.name, t.bytes.size(), t.dims[1]});
    return decode_traffic(weights, n_expert.ok() ? n_expert.value() : 0, n_used.ok() ? n_used.value() : 0);
}

}  // namespace vesta::model
