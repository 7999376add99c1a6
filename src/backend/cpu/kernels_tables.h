// The parts of which the tables of kernels.h are put together; each is defined in the file of its name and instruction
// set (kernels_a16_avx2.cpp) and constant-initialised.
#pragma once

#include "backend/cpu/kernels.h"

namespace vesta::backend {
namespace scalar {
extern const A16Kernels kA16;
}
namespace avx2 {
extern const A16Kernels kA16;
}
namespace avx512 {
extern const A16Kernels kA16;
}
// nullptr where the file of that name was compiled without its instructions.
const A16Kernels* neon_a16();
const A16Kernels* neon_dotprod_a16();
const A16Kernels* neon_i8mm_a16();
}  // namespace vesta::backend
