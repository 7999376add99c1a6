// What a session will take, for people: `vesta run --memory`, and the refusal when it cannot fit.
#pragma once

#include <string>

#include "base/memory.h"
#include "vesta/engine.h"

namespace vesta::app {

std::string memory_table(const MemoryPlan& plan, const SessionOptions& session, const MemoryLimit& limit);

// Whether cache and scratch fit into what is available. The error (no_memory) says what would help: a smaller context,
// chunk or cache format, with numbers. Weights do not count: they are read again when the system drops them.
Status check_memory(const Engine& engine, const SessionOptions& session, const MemoryLimit& limit);

}  // namespace vesta::app
