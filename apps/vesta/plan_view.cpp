#include "plan_view.h"

#include <fmt/format.h>

#include <cstdio>

#include "terminal.h"

namespace vesta::app {

std::map<std::string, TypeTotal> totals_by_type(const convert::Plan& plan) {
    std::map<std::string, TypeTotal> totals;
    for (const convert::PlannedTensor& t : plan.tensors) {
        TypeTotal& total = totals[quant::format(t.type).name];
        ++total.n_tensor;
        total.bytes += t.bytes;
    }
    return totals;
}

void print_tensors(const convert::Plan& plan) {
    for (const convert::PlannedTensor& t : plan.tensors) {
        std::string dims;
        for (const uint64_t d : t.dims) dims += (dims.empty() ? "" : " x ") + std::to_string(d);
        fmt::print("{:<40} {:>22}  {:>7} -> {:<7} {:>12} bytes\n", t.expected.gguf_name, dims, t.stored_name(),
                   quant::format(t.type).name, t.bytes);
    }
}

void print_notes(const std::vector<std::string>& notes) {
    // A model with odd shapes can have a note per layer; the first few say what is going on.
    constexpr size_t kMaxNotes = 8;
    for (size_t i = 0; i < std::min(notes.size(), kMaxNotes); ++i) fmt::print(stderr, "note: {}\n", notes[i]);
    if (notes.size() > kMaxNotes) fmt::print(stderr, "note: and {} more like these\n", notes.size() - kMaxNotes);
}

void print_type_totals(const convert::Plan& plan) {
    for (const auto& [type, total] : totals_by_type(plan))
        fmt::print(stderr, "{:>8}  {:>5} tensors  {:>10}\n", type, total.n_tensor, format_bytes(total.bytes));
}

nlohmann::ordered_json plan_json(const convert::Plan& plan) {
    nlohmann::ordered_json j;
    j["recipe"] = plan.options.recipe.name;
    j["tensors"] = plan.tensors.size();
    j["data_bytes"] = plan.data_bytes();
    for (const auto& [type, total] : totals_by_type(plan))
        j["types"][type] = {{"tensors", total.n_tensor}, {"bytes", total.bytes}};
    j["notes"] = plan.notes;
    return j;
}

std::string recipe_list() {
    std::string text;
    for (const convert::Recipe& r : convert::recipes()) text += strf("  {:<9} {}\n", r.name, r.summary);
    return text;
}

}  // namespace vesta::app
