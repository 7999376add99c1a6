// The searches with eight lanes in one register: x86 with AVX2 and F16C. Compiled with those flags on, so no function
// here may be shared with other files.
#include "quant/quantize_k.h"

#if defined(__AVX2__) && defined(__F16C__)

#include <cpuid.h>
#include <immintrin.h>

namespace vesta::quant {
namespace {

struct F8 {
    __m256 v;
};
struct M8 {
    __m256 v;
};
inline F8 all(float x) { return {_mm256_set1_ps(x)}; }
inline F8 read(const float* p) { return {_mm256_load_ps(p)}; }
inline void write(float* p, F8 a) { _mm256_store_ps(p, a.v); }
inline F8 operator+(F8 a, F8 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline F8 operator-(F8 a, F8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline F8 operator*(F8 a, F8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline F8 operator/(F8 a, F8 b) { return {_mm256_div_ps(a.v, b.v)}; }
inline F8 smaller(F8 a, F8 b) { return {_mm256_min_ps(a.v, b.v)}; }
inline F8 larger(F8 a, F8 b) { return {_mm256_max_ps(a.v, b.v)}; }
inline M8 operator<(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
inline F8 pick(M8 m, F8 yes, F8 no) { return {_mm256_blendv_ps(no.v, yes.v, m.v)}; }
inline F8 to_f16(F8 a) {
    return {_mm256_cvtph_ps(_mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}

}  // namespace
}  // namespace vesta::quant

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
