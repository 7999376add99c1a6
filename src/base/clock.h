// The time of day, for what is kept beyond a process; durations are measured with std::chrono::steady_clock.
#pragma once

#include <cstdint>

namespace vesta {

int64_t unix_seconds();  // since 1970, as the system's clock has it

}  // namespace vesta
