// The texts of recipes/*.recipe inside the program; cmake/recipes.cmake makes their definition.
#pragma once

#include <span>

namespace vesta::convert {

struct EmbeddedRecipe {
    const char* name;
    const char* text;
};
std::span<const EmbeddedRecipe> embedded_recipes();

}  // namespace vesta::convert
