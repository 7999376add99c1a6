// A recipe says which format each tensor gets: an ordered list of name patterns, the first match decides. Recipes are
// small text files (recipes/ in the source tree, built into the program; or any file of the user):
//
//   # first comment line: one sentence about the recipe
//   blk.*.ffn_{gate,up}_exps.weight = iq2_xxs
//   blk.{0-2,40-42}.ffn_down_exps.weight = q4_k
//   * = exact
//
// A pattern is a GGUF name with '*' for any run of characters and {a,b,3-7} for alternatives; a-b are whole numbers.
// The type is a format's name, or `exact` (also `native`): as the source stores it, without changing a value.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/format.h"

namespace vesta::convert {

struct Rule {
    std::string pattern;              // of the GGUF name
    std::optional<quant::Type> type;  // nothing: as the source stores it, without changing a value
};

struct Recipe {
    std::string name, summary;
    std::vector<Rule> rules;  // one-dimensional tensors are always F32 and hash tables I32; rules are for matrices
    std::string text{};       // as it was read
    // `drafter = beside`: the MTP block goes to a file of its own, as published files have it, because other readers
    // refuse a model file with tensors they do not know.
    bool drafter_beside = false;

    // The rule for a matrix. Requires that the last rule matches everything.
    std::optional<quant::Type> type_for(std::string_view gguf_name) const;
};

// Errors are bad_file and begin with "name:line:".
Result<Recipe> parse_recipe(std::string_view text, const std::string& name);

std::span<const Recipe> recipes();                            // built in, sorted by name
Result<Recipe> find_recipe(std::string_view name);            // built in; invalid_argument lists the known ones
Result<Recipe> load_recipe(const std::string& name_or_file);  // a built-in name, else a file

// Whether the pattern describes the whole text. Requires a well-formed pattern (parse_recipe refuses others). Time is
// bounded by the product of both lengths.
bool matches(std::string_view pattern, std::string_view text);

// `--set 'regex=type'`: formats that win over the recipe. The expression (ECMAScript) is searched for in the name; `^`
// and `$` bind it. Later ones win over earlier ones.
class Override {
 public:
    // invalid_argument: no '=', an unknown format, a broken or too costly expression.
    static Result<Override> parse(const std::string& text);
    const std::string& text() const { return text_; }
    const std::optional<quant::Type>& type() const { return type_; }
    bool applies_to(const std::string& gguf_name) const;

 private:
    struct Expression;
    Override() = default;
    std::string text_;
    std::optional<quant::Type> type_;
    std::shared_ptr<const Expression> expression_;
};

}  // namespace vesta::convert
