// Which model file a command means when the user does not say.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace vesta::app {

// The flag if given (whether or not the file exists: opening it gives the better message), else $VESTA_MODEL, else the
// first of default_model_paths() that exists. Otherwise not_found, saying where it looked and how to get a model.
Result<std::string> find_model(const std::string& flag);

// Beside the program, in the source tree it was built from, and where `cmake --install` puts it; in this order.
std::vector<std::string> default_model_paths();

}  // namespace vesta::app
