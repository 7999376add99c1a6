// A recipe says which format each tensor gets: an ordered list of name patterns, the first match decides. It is a
// value, so that a quantizer can make its own (for example experts of some layers finer than others) without touching
// this room.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/format.h"

namespace vesta::convert {

struct Rule {
    std::string pattern;              // of the GGUF name; '*' matches any run of characters
    std::optional<quant::Type> type;  // nothing: as the checkpoint stores it, without changing a value
};

struct Recipe {
    std::string name, summary;
    std::vector<Rule> rules;  // one-dimensional tensors are always F32 and hash tables I32; rules are for matrices

    // The rule for a matrix. Requires that the last rule matches everything.
    std::optional<quant::Type> type_for(std::string_view gguf_name) const;
};

std::span<const Recipe> recipes();
Result<Recipe> find_recipe(std::string_view name);  // not_found lists the known ones

bool matches(std::string_view pattern, std::string_view text);

}  // namespace vesta::convert
