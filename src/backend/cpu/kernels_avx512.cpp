// The kernels for AVX-512 F, BW, DQ, VL, VNNI and VBMI (servers since 2019, Zen 4 and later). See kernels_avx2.cpp for
// why nothing here may be shared with other files as an inline function. Block formats: kernels_a16_avx512.cpp. What is
// not here gains too little from wider vectors to be written again: it is the AVX2 function.
#include "backend/cpu/kernels_tables.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__) && defined(__AVX512VBMI__)

// GCC 12's own headers pass an undefined register where a result has no masked-out lanes (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

namespace vesta::backend {
namespace avx512 {
namespace {

constexpr int64_t kColumns = 64;  // rows of x per sweep over the weights

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
__mmask16 first(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }

// The one way sixteen running sums become a number.
float fold(__m512 v) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// --- matmul with f32 activations --------------------

// Sixteen weights, or the first n of them and zeros.
struct F32 {
    static constexpr int64_t kBytes = 4;
    static __m512 load(const std::byte* p) { return _mm512_loadu_ps(p); }
    static __m512 load(const std::byte* p, __mmask16 n) { return _mm512_maskz_loadu_ps(n, p); }
};
struct F16 {
    static constexpr int64_t kBytes = 2;
    static __m512 load(const std::byte* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static __m512 load(const std::byte* p, __mmask16 n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(n, p)); }
};
struct Bf16 {
    static constexpr int64_t kBytes = 2;
    static __m512 widen(__m256i v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16)); }
    static __m512 load(const std::byte* p) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
    static __m512 load(const std::byte* p, __mmask16 n) { return widen(_mm256_maskz_loadu_epi16(n, p)); }
};

// R rows of w by C rows of x. Meanwhile the weights kAhead bytes on are fetched: of these rows, then of the next R.
template <class F, int R, int C>
void tile(const MatmulTask& m, int64_t o, int64_t t) {
    constexpr int64_t kLine = 64 / F::kBytes, kAhead = 2048;
    const int64_t jump = (o + 2 * R <= m.n_out ? R * m.w_stride : 0) - m.n_in * F::kBytes;
    const std::byte* w[R];
    const float* x[C];
    __m512 acc[R][C];
    for (int r = 0; r < R; ++r) w[r] = m.w + (o + r) * m.w_stride;
    for (int c = 0; c < C; ++c) {
        x[c] = m.x + (m.pick == nullptr ? t + c : m.pick[t + c]) * m.x_stride;
        for (int r = 0; r < R; ++r) acc[r][c] = _mm512_setzero_ps();
    }
    const auto step = [&](int64_t at) {
        __m512 v[C];
        for (int c = 0; c < C; ++c) v[c] = _mm512_loadu_ps(x[c] + at);
        for (int r = 0; r < R; ++r) {
            const __m512 u = F::load(w[r] + at * F::kBytes);
            for (int c = 0; c < C; ++c) acc[r][c] = _mm512_fmadd_ps(u, v[c], acc[r][c]);
        }
    };
    int64_t i = 0;
    for (; i + kLine <= m.n_in; i += kLine) {
        const int64_t ahead = i * F::kBytes + kAhead + ((i * F::kBytes + kAhead < m.n_in * F::kBytes) ? 0 : jump);
        for (int r = 0; r < R; ++r) _mm_prefetch(reinterpret_cast<const char*>(w[r] + ahead), _MM_HINT_T0);
        for (int64_t at = i; at < i + kLine; at += 16) step(at);
    }
    for (; i + 16 <= m.n_in; i += 16) step(i);
    if (i < m.n_in) {
        const __mmask16 rest = first(m.n_in - i);
        for (int r = 0; r < R; ++r) {
            const __m512 u = F::load(w[r] + i * F::kBytes, rest);
            for (int c = 0; c < C; ++c)
                acc[r][c] = _mm512_fmadd_ps(u, _mm512_maskz_loadu_ps(rest, x[c] + i), acc[r][c]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) m.y[(t + c) * m.y_stride + o + r] = fold(acc[r][c]);
}

// The columns [t, t+n) of R rows: full tiles of C, then one of what is left.
template <class F, int R, int C>
void columns(const MatmulTask& m, int64_t o, int64_t t, int64_t n) {
    if constexpr (C > 0) {
        for (; n >= C; n -= C, t += C) tile<F, R, C>(m, o, t);
        columns<F, R, C - 1>(m, o, t, n);
    }
}

template <class F>
void matmul_float(const MatmulTask& m) {
    for (int64_t t = 0; t < m.n_row; t += kColumns) {
        const int64_t n = smaller(kColumns, m.n_row - t);
        int64_t o = 0;
        for (; o + 4 <= m.n_out; o += 4) columns<F, 4, 5>(m, o, t, n);
        for (; o < m.n_out; ++o) columns<F, 1, 5>(m, o, t, n);
    }
}

// --- attention's value half --------------------

// Adds n rows from `begin` on to H mixtures of V vectors of sixteen columns; the last vector has the columns of `last`.
template <int H, int V>
void tile_mix(const MixTask& m, int64_t h, int64_t d, __mmask16 last, int64_t begin, int64_t n) {
    const bool from_y = m.accumulate || begin > 0;
    const auto lanes = [last](int v) { return v + 1 == V ? last : __mmask16{0xffff}; };
    __m512 acc[H][V];
    for (int k = 0; k < H; ++k)
        for (int v = 0; v < V; ++v)
            acc[k][v] =
                from_y ? _mm512_maskz_loadu_ps(lanes(v), m.y + (h + k) * m.y_stride + d + 16 * v) : _mm512_setzero_ps();
    const float* row = m.rows + begin * m.row_stride + d;
    const float* p = m.p + h * m.p_stride + begin;
    for (int64_t i = 0; i < n; ++i, row += m.row_stride) {
        __m512 x[V];
        for (int v = 0; v < V; ++v) x[v] = _mm512_maskz_loadu_ps(lanes(v), row + 16 * v);
        for (int k = 0; k < H; ++k) {
            const __m512 share = _mm512_set1_ps(p[k * m.p_stride + i]);
            for (int v = 0; v < V; ++v) acc[k][v] = _mm512_fmadd_ps(share, x[v], acc[k][v]);
        }
    }
    for (int k = 0; k < H; ++k)
        for (int v = 0; v < V; ++v) _mm512_mask_storeu_ps(m.y + (h + k) * m.y_stride + d + 16 * v, lanes(v), acc[k][v]);
}

template <int H>
void rows_mix(const MixTask& m, int64_t h, int64_t begin, int64_t n) {
    int64_t d = 0;
    for (; d + 64 <= m.n_col; d += 64) tile_mix<H, 4>(m, h, d, 0xffff, begin, n);
    for (; d < m.n_col; d += 16) tile_mix<H, 1>(m, h, d, first(smaller(16, m.n_col - d)), begin, n);
}

void mix(const MixTask& m) {
    constexpr int64_t kRows = 16;  // 16 rows of 512 are 32 KiB: they stay in L1 while every mixture passes over them
    int64_t begin = 0;
    do {
        const int64_t n = smaller(kRows, m.n_row - begin);
        int64_t h = 0;
        for (; h + 4 <= m.n_mix; h += 4) rows_mix<4>(m, h, begin, n);
        for (; h < m.n_mix; ++h) rows_mix<1>(m, h, begin, n);
        begin += kRows;
    } while (begin < m.n_row);
}

// --- elementwise --------------------

void scale_mul(float* y, const float* x, float s, const float* w, int64_t n) {
    const __m512 factor = _mm512_set1_ps(s);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first(smaller(16, n - i));
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), factor);
        if (w != nullptr) v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(lanes, w + i));
        _mm512_mask_storeu_ps(y + i, lanes, v);
    }
}

void axpy(float* y, float a, const float* x, int64_t n) {
    const __m512 factor = _mm512_set1_ps(a);
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first(smaller(16, n - i));
        const __m512 v =
            _mm512_fmadd_ps(factor, _mm512_maskz_loadu_ps(lanes, x + i), _mm512_maskz_loadu_ps(lanes, y + i));
        _mm512_mask_storeu_ps(y + i, lanes, v);
    }
}

bool processor_has_it() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("avx512bf16");  // not used, but this file is compiled with it
}

Kernels table() {
    Kernels k = *avx2_kernels();
    k.name = "avx512";
    k.a16 = kA16;
    k.matmul_f32 = matmul_float<F32>;
    k.matmul_f16 = matmul_float<F16>;
    k.matmul_bf16 = matmul_float<Bf16>;
    k.mix = mix;
    k.scale_mul = scale_mul;
    k.axpy = axpy;
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
