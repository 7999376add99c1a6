#pragma once

#include <cstdint>

namespace vesta::test {

// Bytes this thread has asked operator new for so far.
int64_t allocated_bytes();

}  // namespace vesta::test
