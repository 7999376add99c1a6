# recipes/*.recipe become part of the program (room convert, embedded_recipes.h), so that it works alone. Configure runs
# again when one of them changes or a new one appears.
file(GLOB recipe_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/recipes/*.recipe)
set(recipe_rows "")
foreach(path ${recipe_files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    get_filename_component(name ${path} NAME_WE)
    file(READ ${path} text)
    string(APPEND recipe_rows "    {\"${name}\", R\"recipe_text(${text})recipe_text\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/embedded_recipes.cpp @ONLY CONTENT
"// Made by cmake/recipes.cmake from recipes/*.recipe.
#include \"convert/embedded_recipes.h\"

namespace vesta::convert {

static constexpr EmbeddedRecipe kRecipes[] = {
@recipe_rows@};

std::span<const EmbeddedRecipe> embedded_recipes() { return kRecipes; }

}  // namespace vesta::convert
")
target_sources(vesta_convert PRIVATE ${CMAKE_BINARY_DIR}/generated/embedded_recipes.cpp)
