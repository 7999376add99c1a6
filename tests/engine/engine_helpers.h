// The toy model opened as an engine.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "support/toy_model.h"
#include "vesta/engine.h"

namespace vesta::test {

// Keeps the bytes for the process: engines of a test may end in any order.
inline std::unique_ptr<Engine> open_toy(const std::string& backend, EngineOptions options = {}) {
    static const std::vector<std::byte> bytes = ToyModel().bytes();
    options.backend = backend;
    if (options.n_thread == 0) options.n_thread = 2;
    auto engine = Engine::open_bytes(bytes, "toy.gguf", options);
    if (!engine.ok()) throw std::runtime_error(engine.error().message);
    return std::move(engine).value();
}

inline std::vector<int32_t> ids(int n, int seed = 0) {
    std::vector<int32_t> out;
    for (int i = 0; i < n; ++i) out.push_back(3 + (i * 37 + seed * 11) % 250);
    return out;
}

}  // namespace vesta::test
