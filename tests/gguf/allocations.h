// Counts what operator new hands out in this program, so that a test can say "a count in the file costs nothing".
#pragma once

#include <cstddef>

namespace vesta::gguf {

size_t allocated_bytes();  // since the program began; never goes down

}  // namespace vesta::gguf
