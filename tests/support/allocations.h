// Counts what operator new hands out, so that a test can say "a length in the file costs nothing". A test that includes
// this needs allocations.cpp among its sources (tests/CMakeLists.txt): it replaces operator new for the whole program.
#pragma once

#include <cstdint>

namespace vesta::test {

int64_t allocated_bytes();  // this thread has asked operator new for, so far; never goes down

}  // namespace vesta::test
