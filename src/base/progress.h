// Progress of long work, reported upward so that libraries never print. apps/ draws the bar; the server may ignore it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace vesta {

struct Progress {
    std::string_view stage;  // "load", "prefill", "convert": valid for the call only
    std::string_view item;   // what is being worked on, may be empty
    uint64_t done = 0;
    uint64_t total = 0;      // in `unit`s, 0 when unknown
    std::string_view unit;   // "tokens", "bytes"
};

// Returns false to ask for a stop; the work then ends with Code::cancelled. An empty function means nobody listens.
using ProgressFn = std::function<bool(const Progress&)>;

}  // namespace vesta
