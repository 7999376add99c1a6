// The kernels for AVX-512 F, BW, DQ, VL, VNNI and VBMI (servers since 2019, Zen 4 and later). See kernels_avx2.cpp for
// why nothing here may be shared with other files as an inline function.
#include "backend/cpu/kernels_tables.h"

namespace vesta::backend {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace vesta::backend
