// Which format a tensor gets, from its name, its shape and how its source stores it.
#pragma once

#include <string>
#include <vector>

#include "convert/recipe.h"
#include "quant/format.h"

namespace vesta::convert {

struct TensorFacts {
    std::string name;
    uint64_t n_col;         // dims[0]
    bool is_vector;         // one dimension
    quant::Type as_stored;  // the format that holds the source without changing a value
};

struct Target {
    quant::Type type;
    bool exact;          // every value must survive
    std::string note{};  // why it is not what the recipe says; empty when it is
};

// Integer tables stay what they are, vectors become F32 (a few KB that every backend wants that way), matrices follow
// the last matching override, then the recipe. When the rows do not divide into the format's blocks:
//
//   a format with blocks of 256 → as stored, if that is MXFP4 (no bigger than 4 bits and no new error) → Q8_0
//   a format with blocks of 32  → BF16 for sources that BF16 holds, else F16
//
// (Q4_0 and other formats of 32 would be smaller, but this program does not write them: they are worse at their size.)
Target choose_target(const TensorFacts& facts, const Recipe& recipe, const std::vector<Override>& overrides);

bool is_integer(quant::Type type);
// Formats whose encoder makes use of an importance matrix, and those coarse enough that its absence matters.
bool uses_importance(quant::Type type);
bool needs_importance(quant::Type type);
// Formats that have lost so much that encoding their values again is worth a warning. MXFP4 is not among them: official
// checkpoints are made in it.
bool is_coarse(quant::Type type);

}  // namespace vesta::convert
