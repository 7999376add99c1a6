// The kernels for AVX-512 F, BW, DQ, VL, VNNI and VBMI (servers since 2019, Zen 4 and later). See kernels_avx2.cpp for
// why nothing here may be shared with other files as an inline function. What has no gain from wider vectors is the
// AVX2 function.
#include "backend/cpu/kernels_tables.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__) && defined(__AVX512VBMI__)

namespace vesta::backend {
namespace avx512 {
namespace {

bool processor_has_it() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
}

Kernels table() {
    Kernels k = *avx2_kernels();
    k.name = "avx512";
    k.a16 = kA16;
    return k;
}

}  // namespace
}  // namespace avx512

const Kernels* avx512_kernels() {
    static const bool usable = avx2_kernels() != nullptr && avx512::processor_has_it();
    if (!usable) return nullptr;
    static const Kernels table = avx512::table();
    return &table;
}

}  // namespace vesta::backend

#else

namespace vesta::backend {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace vesta::backend

#endif
