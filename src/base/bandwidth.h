// The machine's peak read bandwidth, measured: what "percent of peak" in benchmarks means.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace vesta {

struct Bandwidth {
    int n_thread = 0;
    double median = 0, best = 0;  // bytes per second over the repeats
};

// Every thread sums its own contiguous part of a buffer, in two streams, reading each byte once per repeat;
// the buffer is far larger than the caches. Takes `bytes` of memory for the time of the call.
// Error: no_memory.
Result<Bandwidth> measure_read_bandwidth(int n_thread, int64_t bytes = int64_t{1} << 30, int repeats = 5);

}  // namespace vesta
