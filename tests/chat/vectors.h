// Reading the recorded vectors of tests/data, one JSON object per line.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"

namespace vesta::chat {

struct Vector {
    std::string line;  // as recorded: numbers that a DOM would change are still intact here
    nlohmann::ordered_json json;
    std::string name() const { return json.at("name").get<std::string>(); }
};

inline std::vector<Vector> read_vectors(const std::string& file) {
    std::vector<Vector> vectors;
    const auto text = read_text_file(std::string(VESTA_TEST_DATA) + "/" + file);
    EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
    if (!text.ok()) return vectors;
    std::istringstream lines(text.value());
    for (std::string line; std::getline(lines, line);)
        if (!line.empty()) vectors.push_back({line, nlohmann::ordered_json::parse(line)});
    return vectors;
}

}  // namespace vesta::chat
