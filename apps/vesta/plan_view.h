// How a conversion plan is shown: what `vesta convert` and `vesta quantize` print.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "convert/convert.h"

namespace vesta::app {

struct TypeTotal {
    size_t n_tensor = 0;
    uint64_t bytes = 0;
};
std::map<std::string, TypeTotal> totals_by_type(const convert::Plan& plan);

void print_tensors(const convert::Plan& plan);                // stdout: a line per tensor
void print_notes(const std::vector<std::string>& notes);      // stderr: the first few
void print_type_totals(const convert::Plan& plan);            // stderr
nlohmann::ordered_json plan_json(const convert::Plan& plan);  // recipe, tensors, bytes, types, notes
std::string recipe_list();                                    // "  name     summary" per line, for --help

}  // namespace vesta::app
