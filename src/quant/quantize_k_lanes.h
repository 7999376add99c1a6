// Eight f32 side by side, in the two forms that quantize_k_search.h is compiled with: a loop, and an AVX2 register
// where the including file has it. Every operation is the IEEE one of each lane, so both give the same bits. Everything
// here is in an unnamed namespace: two files compiled for different processors must not share a function.
#pragma once

#include <cstdint>

#include "quant/quantize_k.h"

#if defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#else
#include "quant/half.h"
#endif

namespace vesta::quant {
namespace {

#if defined(__AVX2__) && defined(__F16C__)

struct F8 {
    __m256 v;
};
struct M8 {
    __m256 v;
};
[[maybe_unused]] inline F8 all(float x) { return {_mm256_set1_ps(x)}; }
[[maybe_unused]] inline F8 read(const float* p) { return {_mm256_load_ps(p)}; }
[[maybe_unused]] inline void write(float* p, F8 a) { _mm256_store_ps(p, a.v); }
[[maybe_unused]] inline F8 operator+(F8 a, F8 b) { return {_mm256_add_ps(a.v, b.v)}; }
[[maybe_unused]] inline F8 operator-(F8 a, F8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
[[maybe_unused]] inline F8 operator*(F8 a, F8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
[[maybe_unused]] inline F8 operator/(F8 a, F8 b) { return {_mm256_div_ps(a.v, b.v)}; }
[[maybe_unused]] inline F8 smaller(F8 a, F8 b) { return {_mm256_min_ps(a.v, b.v)}; }
[[maybe_unused]] inline F8 larger(F8 a, F8 b) { return {_mm256_max_ps(a.v, b.v)}; }
[[maybe_unused]] inline M8 operator<(F8 a, F8 b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
[[maybe_unused]] inline F8 pick(M8 m, F8 yes, F8 no) { return {_mm256_blendv_ps(no.v, yes.v, m.v)}; }
[[maybe_unused]] inline F8 to_f16(F8 a) {
    return {_mm256_cvtph_ps(_mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}

#else

struct F8 {
    float v[8];
};
struct M8 {
    bool v[8];
};
#define VESTA_EIGHT(type, expression)                  \
    type r;                                            \
    for (int l = 0; l < 8; ++l) r.v[l] = (expression); \
    return r
[[maybe_unused]] inline F8 all(float x) { VESTA_EIGHT(F8, x); }
[[maybe_unused]] inline F8 read(const float* p) { VESTA_EIGHT(F8, p[l]); }
[[maybe_unused]] inline void write(float* p, const F8& a) {
    for (int l = 0; l < 8; ++l) p[l] = a.v[l];
}
[[maybe_unused]] inline F8 operator+(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] + b.v[l]); }
[[maybe_unused]] inline F8 operator-(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] - b.v[l]); }
[[maybe_unused]] inline F8 operator*(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] * b.v[l]); }
[[maybe_unused]] inline F8 operator/(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] / b.v[l]); }
// As the x86 instructions: the second operand when the comparison says no, so also when one is NaN.
[[maybe_unused]] inline F8 smaller(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] < b.v[l] ? a.v[l] : b.v[l]); }
[[maybe_unused]] inline F8 larger(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] > b.v[l] ? a.v[l] : b.v[l]); }
[[maybe_unused]] inline M8 operator<(const F8& a, const F8& b) { VESTA_EIGHT(M8, a.v[l] < b.v[l]); }
[[maybe_unused]] inline F8 pick(const M8& m, const F8& yes, const F8& no) {
    VESTA_EIGHT(F8, m.v[l] ? yes.v[l] : no.v[l]);
}
[[maybe_unused]] inline F8 to_f16(const F8& a) { VESTA_EIGHT(F8, f16_to_f32(f32_to_f16(a.v[l]))); }
#undef VESTA_EIGHT

#endif

// To the nearest integer, ties to even, for |a| < 2^22: adding 1.5·2^23 leaves no bits below 1.
[[maybe_unused]] inline F8 nearest(const F8& a) { return (a + all(12582912.0f)) - all(12582912.0f); }
[[maybe_unused]] inline F8 clamp(const F8& a, const F8& low, const F8& high) { return smaller(larger(a, low), high); }
[[maybe_unused]] inline F8 magnitude(const F8& a) { return larger(a, all(0.0f) - a); }

// Across lanes, in this order, for the few sums over a whole super-block.
[[maybe_unused]] inline float sum(const F8& a) {
    alignas(32) float t[8];
    write(t, a);
    return ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
}
[[maybe_unused]] inline float largest(const F8& a) {
    alignas(32) float t[8];
    write(t, a);
    float m = t[0];
    for (int l = 1; l < 8; ++l) m = t[l] > m ? t[l] : m;
    return m;
}

}  // namespace
}  // namespace vesta::quant
