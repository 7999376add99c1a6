// The searches with eight lanes in one register: x86 with AVX2 and F16C. Compiled with those flags on, so no function
// here may be shared with other files; quantize_k_search.h and the lanes are all in an unnamed namespace.
#include "quant/quantize_k.h"

#if defined(__AVX2__) && defined(__F16C__)

#include <cpuid.h>

#include "quant/quantize_k_search.h"

namespace vesta::quant {

// Nothing before the question may need the instructions it asks for: the table is a constant.
const SearchKernels* avx2_search() {
    static constexpr SearchKernels kKernels = search_kernels("avx2");
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kKernels : nullptr;
}

}  // namespace vesta::quant

#else

namespace vesta::quant {
const SearchKernels* avx2_search() { return nullptr; }
}  // namespace vesta::quant

#endif
