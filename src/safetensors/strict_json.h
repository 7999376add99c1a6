// JSON from strangers: parsed without exceptions, to a bounded depth, and without the two readings a repeated key
// allows (one parser keeps the first, another the last; a header that means two things is refused).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace vesta::safetensors {

// `name` is used in messages. Nesting deeper than max_depth arrays/objects is refused (a scalar has depth 0).
Result<nlohmann::json> parse_strict_json(std::string_view text, const std::string& name, int max_depth = 16);

// For messages: printable(), cut to a length a terminal line can bear.
std::string shown(std::string_view text, size_t max_bytes = 160);

}  // namespace vesta::safetensors
