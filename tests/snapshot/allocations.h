// Counts what operator new hands out in this program, so that a test can say "a length in the file costs nothing".
#pragma once

#include <cstddef>

namespace vesta::snapshot {

size_t allocated_bytes();  // since the program began; never goes down

}  // namespace vesta::snapshot
