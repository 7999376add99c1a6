// The IQ2_XXS search for AVX2: the scalar loops of quantize_iq2xxs.cpp with the eight blocks in the eight lanes,
// operation for operation (no fma), so the results are the same bits. Compiled with AVX2 on, so nothing here may be an
// inline function or template shared with other files: the linker would keep one copy of it, possibly ours, for every
// processor.
#include "quant/quantize_iq2xxs_search.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <float.h>
#include <immintrin.h>

namespace vesta::quant::iq2xxs {
namespace avx2 {
namespace {

using F = __m256;

__m256i bits(F v) { return _mm256_castps_si256(v); }
// Of numbers that are not negative.
F lesser(F a, F b) { return _mm256_castsi256_ps(_mm256_min_epi32(bits(a), bits(b))); }

// The points of high quad q, and of those after it. Unrolled, with every index a constant.
template <int q>
[[gnu::always_inline]] inline void try_high_quads(const F (&pair_cost)[4][9], const F (&pair_flip)[4][9],
                                                  const F* low_cost, const F* low_flip, F& least, __m256i& best) {
    constexpr int k = kHalves.high_quad[q], first = kHalves.high_start[q], end = kHalves.high_start[q + 1];
    const F high_cost = _mm256_add_ps(pair_cost[2][k % 9], pair_cost[3][k / 9]);
    const F high_flip = lesser(pair_flip[2][k % 9], pair_flip[3][k / 9]);
    const auto cost = [&](int p) __attribute__((always_inline)) {
        const int low = kHalves.low_of[p];
        return _mm256_add_ps(_mm256_add_ps(high_cost, low_cost[low]), lesser(high_flip, low_flip[low]));
    };
    F ql = cost(first);
    __m256i qb = _mm256_set1_epi32(first);
#pragma GCC unroll 16
    for (int p = first + 1; p < end; ++p) {
        const F c = cost(p);
        const __m256i less = _mm256_cmpgt_epi32(bits(ql), bits(c));
        ql = lesser(c, ql);
        qb = _mm256_blendv_epi8(qb, _mm256_set1_epi32(p), less);
    }
    const __m256i less = _mm256_cmpgt_epi32(bits(least), bits(ql));
    least = lesser(ql, least);
    best = _mm256_blendv_epi8(best, qb, less);
    if constexpr (q + 1 < Halves::kHigh) try_high_quads<q + 1>(pair_cost, pair_flip, low_cost, low_flip, least, best);
}

void group_points(const Problem& problem, int group, F over_s, Points& out, F& sum_p, F& sum_q) {
    const F level[3] = {_mm256_set1_ps(kLevel[0]), _mm256_set1_ps(kLevel[1]), _mm256_set1_ps(kLevel[2])};
    const F odd = _mm256_load_ps(problem.odd[group]), four_odd = _mm256_mul_ps(odd, _mm256_set1_ps(4.0f));
    F cost[8][3], flip[8][3], pair_cost[4][9], pair_flip[4][9], low_cost[Halves::kLow], low_flip[Halves::kLow];
    for (int i = 0; i < 8; ++i) {
        const F w = _mm256_load_ps(problem.w[8 * group + i]);
        const F y = _mm256_mul_ps(_mm256_load_ps(problem.x[8 * group + i]), over_s);
        const F h = _mm256_mul_ps(_mm256_mul_ps(w, y), four_odd);
        for (int k = 0; k < 3; ++k) {
            const F off = _mm256_sub_ps(y, level[k]);
            cost[i][k] = _mm256_mul_ps(_mm256_mul_ps(off, off), w);
            flip[i][k] = _mm256_mul_ps(h, level[k]);
        }
    }
    for (int i = 0; i < 4; ++i)
        for (int upper = 0; upper < 3; ++upper)
            for (int lower = 0; lower < 3; ++lower) {
                pair_cost[i][3 * upper + lower] = _mm256_add_ps(cost[2 * i][lower], cost[2 * i + 1][upper]);
                pair_flip[i][3 * upper + lower] = lesser(flip[2 * i][lower], flip[2 * i + 1][upper]);
            }
    for (int q = 0; q < Halves::kLow; ++q) {
        const int k = kHalves.low_quad[q];
        low_cost[q] = _mm256_add_ps(pair_cost[0][k % 9], pair_cost[1][k / 9]);
        low_flip[q] = lesser(pair_flip[0][k % 9], pair_flip[1][k / 9]);
    }
    F least = _mm256_set1_ps(FLT_MAX);
    __m256i best = _mm256_setzero_si256();
    try_high_quads<0>(pair_cost, pair_flip, low_cost, low_flip, least, best);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.point[group]), best);

    const F by_level = _mm256_setr_ps(kLevel[0], kLevel[1], kLevel[2], 0, 0, 0, 0, 0);
    __m256i codes = _mm256_i32gather_epi32(reinterpret_cast<const int*>(kHalves.levels), best, 4);
    F p = _mm256_setzero_ps(), q = _mm256_setzero_ps(), cheapest = _mm256_set1_ps(FLT_MAX);
    __m256i at = _mm256_set1_epi32(8), element = _mm256_setzero_si256();
    for (int i = 0; i < 8; ++i) {
        const F g = _mm256_permutevar8x32_ps(by_level, _mm256_and_si256(codes, _mm256_set1_epi32(3)));
        const F wg = _mm256_mul_ps(_mm256_load_ps(problem.w[8 * group + i]), g);
        const F wxg = _mm256_mul_ps(wg, _mm256_load_ps(problem.x[8 * group + i]));
        p = _mm256_add_ps(p, wxg);
        q = _mm256_add_ps(q, _mm256_mul_ps(wg, g));
        const __m256i less = _mm256_cmpgt_epi32(bits(cheapest), bits(wxg));
        cheapest = lesser(wxg, cheapest);
        at = _mm256_blendv_epi8(at, element, less);
        element = _mm256_add_epi32(element, _mm256_set1_epi32(1));
        codes = _mm256_srli_epi32(codes, 2);
    }
    sum_p = _mm256_add_ps(sum_p, _mm256_sub_ps(p, _mm256_mul_ps(cheapest, _mm256_mul_ps(odd, _mm256_set1_ps(2.0f)))));
    sum_q = _mm256_add_ps(sum_q, q);
    const F is_odd = _mm256_cmp_ps(odd, _mm256_setzero_ps(), _CMP_NEQ_OQ);
    at = _mm256_blendv_epi8(_mm256_set1_epi32(8), at, _mm256_castps_si256(is_odd));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.flip[group]), at);
}

void best_points(const Problem& problem, const float s[kLanes], Points& out) {
    const F over_s = _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_loadu_ps(s));
    F p = _mm256_setzero_ps(), q = _mm256_setzero_ps();
    for (int group = 0; group < 4; ++group) group_points(problem, group, over_s, out, p, q);
    _mm256_store_ps(out.p, p);
    _mm256_store_ps(out.q, q);
}

// (0+4)+(2+6) + (1+5)+(3+7)
float fold(F v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

void envelope(const Curves& curves, const float* d, int n_d, float* error) {
    const F best_s = _mm256_load_ps(curves.best_s), share = _mm256_load_ps(curves.share);
    const F one = _mm256_set1_ps(1.0f), three = _mm256_set1_ps(3.0f), fourteen = _mm256_set1_ps(14.0f);
    F twice_p[kMaxCurves];
    for (int k = 0; k < curves.n; ++k)
        twice_p[k] = _mm256_add_ps(_mm256_load_ps(curves.p[k]), _mm256_load_ps(curves.p[k]));
    for (int i = 0; i < n_d; ++i) {
        const F eighth = _mm256_set1_ps(d[i] * 0.125f);
        F t = _mm256_mul_ps(_mm256_sub_ps(_mm256_div_ps(best_s, eighth), one), _mm256_set1_ps(0.5f));
        t = _mm256_min_ps(_mm256_max_ps(_mm256_setzero_ps(), t), fourteen);
        const F below = _mm256_cvtepi32_ps(_mm256_cvttps_epi32(t));
        const F twice = _mm256_add_ps(below, below);
        const F s0 = _mm256_mul_ps(eighth, _mm256_add_ps(twice, one));
        const F s1 = _mm256_mul_ps(eighth, _mm256_add_ps(twice, three));
        F least = _mm256_set1_ps(FLT_MAX);
        for (int k = 0; k < curves.n; ++k) {
            const F q = _mm256_load_ps(curves.q[k]);
            const F e0 = _mm256_mul_ps(_mm256_sub_ps(_mm256_mul_ps(s0, q), twice_p[k]), s0);
            const F e1 = _mm256_mul_ps(_mm256_sub_ps(_mm256_mul_ps(s1, q), twice_p[k]), s1);
            least = _mm256_min_ps(_mm256_min_ps(e0, e1), least);
        }
        error[i] = fold(_mm256_mul_ps(least, share));
    }
}

constexpr Kernels kTable = {.best_points = best_points, .envelope = envelope};

}  // namespace
}  // namespace avx2

const Kernels* avx2_kernels() {
    static const bool usable = __builtin_cpu_supports("avx2");
    return usable ? &avx2::kTable : nullptr;
}

}  // namespace vesta::quant::iq2xxs

#else

namespace vesta::quant::iq2xxs {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace vesta::quant::iq2xxs

#endif
