// Model files made on the spot from the checkpoints under tests/data.
#pragma once

#include <unistd.h>

#include <stdexcept>
#include <string>

#include "convert/convert.h"

namespace vesta::test {

// Converts `checkpoint` with a named recipe and returns the path of the model file, which the process removes at exit.
inline std::string converted(const std::string& checkpoint, const std::string& recipe_name) {
    static std::vector<std::string> made;
    static const int registered = std::atexit([] {
        for (const std::string& path : made) ::unlink(path.c_str());
    });
    (void)registered;
    auto recipe = convert::find_recipe(recipe_name);
    if (!recipe.ok()) throw std::runtime_error(recipe.error().message);
    convert::Options options;
    options.from = checkpoint;
    options.recipe = std::move(recipe).value();
    auto plan = convert::plan(options);
    if (!plan.ok()) throw std::runtime_error(plan.error().message);
    const std::string path = strf("{}/model-{}-{}.gguf", VESTA_TEST_TMP, ::getpid(), made.size());
    auto summary = convert::execute(plan.value(), path, true, 1, {});
    if (!summary.ok()) throw std::runtime_error(summary.error().message);
    made.push_back(path);
    return path;
}

}  // namespace vesta::test
