// The kernels for AVX2, FMA and F16C (x86 since 2013/2015). Compiled with those flags on, so nothing here may be an
// inline function or template shared with other files: the linker would keep one copy of it, possibly ours, for every
// processor. That is why small things such as the e8m0 scale are written again. Block formats: kernels_a16_avx2.cpp.
#include "backend/cpu/kernels_tables.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#include "backend/cpu/kernels_float_tiles.h"

namespace vesta::backend {
namespace avx2 {
namespace {

// The one way eight running sums become a number.
float fold(__m256 v) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));  // 0+4 1+5 2+6 3+7
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

__m128i load16(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
uint16_t load_u16(const std::byte* p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

// --- matmul with f32 activations --------------------

struct F32 {
    static constexpr int64_t kBytes = 4;
    static __m256 load(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct F16 {
    static constexpr int64_t kBytes = 2;
    static __m256 load(const std::byte* p) { return _mm256_cvtph_ps(load16(p)); }
};
struct Bf16 {
    static constexpr int64_t kBytes = 2;
    static __m256 load(const std::byte* p) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16));
    }
};

struct Isa {
    using Vec = __m256;
    using Sums = __m256;
    using F32 = avx2::F32;
    static constexpr int kLanes = 8;
    static Vec load(const float* p) { return _mm256_loadu_ps(p); }
    static void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
    static Vec zero() { return _mm256_setzero_ps(); }
    static Vec broadcast(const float* p) { return _mm256_broadcast_ss(p); }
    static Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
    static Sums zero_sums() { return _mm256_setzero_ps(); }
    static float fold(Sums s) { return avx2::fold(s); }

    // Adds the products of n elements to the running sums of an R × C tile, and meanwhile fetches the bytes `ahead` of w.
    // A rest of fewer than eight elements is padded with zeros, in w and in x, so it is one more step of the same kind.
    template <class F, int R, int C>
    static void add_products(__m256 (&acc)[R][C], const std::byte* const (&w)[R], const float* const (&x)[C], int64_t n,
                      int64_t ahead) {
        constexpr int64_t kLine = 64 / F::kBytes;  // elements in a cache line
        const auto step = [&](int64_t at) {
            __m256 v[C];
            for (int c = 0; c < C; ++c) v[c] = _mm256_loadu_ps(x[c] + at);
            for (int r = 0; r < R; ++r) {
                const __m256 u = F::load(w[r] + at * F::kBytes);
                for (int c = 0; c < C; ++c) acc[r][c] = _mm256_fmadd_ps(u, v[c], acc[r][c]);
            }
        };
        int64_t i = 0;
        for (; i + kLine <= n; i += kLine) {
            for (int r = 0; r < R; ++r)
                _mm_prefetch(reinterpret_cast<const char*>(w[r] + i * F::kBytes + ahead), _MM_HINT_T0);
            for (int64_t at = i; at < i + kLine; at += 8) step(at);
        }
        for (; i + 8 <= n; i += 8) step(i);
        if (i == n) return;
        const auto rest = static_cast<size_t>(n - i);
        for (int r = 0; r < R; ++r) {
            std::byte padded[32] = {};
            memcpy(padded, w[r] + i * F::kBytes, rest * F::kBytes);
            const __m256 u = F::load(padded);
            for (int c = 0; c < C; ++c) {
                float xs[8] = {};
                memcpy(xs, x[c] + i, rest * sizeof(float));
                acc[r][c] = _mm256_fmadd_ps(u, _mm256_loadu_ps(xs), acc[r][c]);
            }
        }
    }
};
using Tiles = FloatTiles<Isa>;

// --- elementwise and reductions --------------------

// Loads and stores of the last n < 8 elements; missing lanes read as zero.
__m256i first_lanes(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
__m256 load_lanes(const float* x, __m256i mask) { return _mm256_maskload_ps(x, mask); }

double sum_squares(const float* x, int64_t n) {
    __m256d a = _mm256_setzero_pd(), b = _mm256_setzero_pd();
    const auto add = [&](__m256 v) {
        const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v)),
                      high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
        a = _mm256_fmadd_pd(low, low, a);
        b = _mm256_fmadd_pd(high, high, b);
    };
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) add(_mm256_loadu_ps(x + i));
    if (i < n) add(load_lanes(x + i, first_lanes(n - i)));
    const __m256d four = _mm256_add_pd(a, b);
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

// Applies f to eight elements at a time, index by index; the last few through a mask.
template <class F>
void for_each8(float* y, int64_t n, F f) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, f([&](const float* p) { return _mm256_loadu_ps(p + i); }));
    if (i == n) return;
    const __m256i mask = first_lanes(n - i);
    _mm256_maskstore_ps(y + i, mask, f([&](const float* p) { return load_lanes(p + i, mask); }));
}

void scale_mul(float* y, const float* x, float s, const float* w, int64_t n) {
    const __m256 factor = _mm256_set1_ps(s);
    if (w == nullptr)
        for_each8(y, n, [&](auto load) { return _mm256_mul_ps(load(x), factor); });
    else
        for_each8(y, n, [&](auto load) { return _mm256_mul_ps(_mm256_mul_ps(load(x), factor), load(w)); });
}

void axpy(float* y, float a, const float* x, int64_t n) {
    const __m256 factor = _mm256_set1_ps(a);
    for_each8(y, n, [&](auto load) { return _mm256_fmadd_ps(factor, load(x), load(y)); });
}

float max(const float* x, int64_t n) {
    __m256 top = _mm256_set1_ps(-__builtin_inff());
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) top = _mm256_max_ps(top, _mm256_loadu_ps(x + i));
    float lane[8];
    _mm256_storeu_ps(lane, top);
    float result = lane[0];
    for (int l = 1; l < 8; ++l) result = lane[l] > result ? lane[l] : result;
    for (; i < n; ++i) result = x[i] > result ? x[i] : result;
    return result;
}

// e^x = 2^k · e^r with k = round(x / ln 2), |r| <= ln(2)/2. The Taylor series to r^7 leaves r^8/8! < 5.2e-9 relative, a
// tenth of a unit in the last place. 2^k is applied in two halves so that results reach the subnormals and infinity.
__m256 exp8(__m256 x) {
    // The second operand is the result when either is NaN: a NaN passes both.
    x = _mm256_max_ps(_mm256_set1_ps(-104.0f), _mm256_min_ps(_mm256_set1_ps(89.0f), x));
    const __m256 k = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0x1.62e43p-1f), x);  // ln 2 as a sum of two floats
    r = _mm256_fnmadd_ps(k, _mm256_set1_ps(-0x1.05c61p-29f), r);
    const float coefficient[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    for (int c = 0; c < 7; ++c) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(coefficient[c]));
    const __m256i exponent = _mm256_cvtps_epi32(k), half = _mm256_srai_epi32(exponent, 1);
    const auto power = [](__m256i e) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
    };
    return _mm256_mul_ps(_mm256_mul_ps(p, power(half)), power(_mm256_sub_epi32(exponent, half)));
}

float exp_sum(float* x, int64_t n, float top) {
    const __m256 shift = _mm256_set1_ps(top);
    __m256 sum = _mm256_setzero_ps();
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(x + i), shift));
        _mm256_storeu_ps(x + i, e);
        sum = _mm256_add_ps(sum, e);
    }
    if (i < n) {
        const __m256i mask = first_lanes(n - i);
        const __m256 e = exp8(_mm256_sub_ps(load_lanes(x + i, mask), shift));
        _mm256_maskstore_ps(x + i, mask, e);
        sum = _mm256_add_ps(sum, _mm256_and_ps(e, _mm256_castsi256_ps(mask)));
    }
    return fold(sum);
}

void swiglu(float* y, const float* gate, const float* up, float clamp, float scale, int64_t n) {
    const __m256 high = _mm256_set1_ps(clamp), low = _mm256_set1_ps(-clamp), one = _mm256_set1_ps(1.0f),
                 zero = _mm256_setzero_ps();
    const __m256 factor = _mm256_set1_ps(scale);
    for_each8(y, n, [&](auto load) {
        const __m256 g = _mm256_min_ps(high, load(gate)), u = _mm256_max_ps(low, _mm256_min_ps(high, load(up)));
        const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, exp8(_mm256_sub_ps(zero, g))));
        return _mm256_mul_ps(_mm256_mul_ps(silu, u), factor);
    });
}

// --- cache rows --------------------

float e8m0(std::byte code) {
    const auto e = static_cast<uint32_t>(code);
    const uint32_t bits = e == 255 ? 0x7fc00000u : e == 0 ? 0x00400000u : e << 23;
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
}

// e4m3 to f32: magnitudes of 8 and more are the f32 bits moved and rebiased; below, the code is a multiple of 2^-9. (As
// f32 bits those would be subnormal, which some processors multiply slowly.) 0x7f becomes NaN.
__m256 e4m3(const std::byte* codes) {
    const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
    const __m256i a = _mm256_and_si256(b, _mm256_set1_epi32(0x7f));
    const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(a, 20), _mm256_set1_epi32(120 << 23));
    const __m256 small = _mm256_mul_ps(_mm256_cvtepi32_ps(a), _mm256_set1_ps(0x1p-9f));
    const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), a),
                  is_nan = _mm256_cmpeq_epi32(a, _mm256_set1_epi32(0x7f));
    __m256i bits = _mm256_blendv_epi8(normal, _mm256_castps_si256(small), is_small);
    bits = _mm256_or_si256(bits, _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7fc00000)));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(b, _mm256_set1_epi32(0x80)), 24);
    return _mm256_castsi256_ps(_mm256_or_si256(bits, sign));
}

void decode_attn_fp8(const std::byte* src, int dim, int n_rot, float* dst) {
    const int n_nope = dim - n_rot, n_block = n_nope / 64;
    const std::byte* scales = src + n_nope;
    for (int b = 0; b < n_block; ++b) {
        const __m256 s = _mm256_set1_ps(e8m0(scales[b]));
        for (int i = 64 * b; i < 64 * b + 64; i += 8) _mm256_storeu_ps(dst + i, _mm256_mul_ps(s, e4m3(src + i)));
    }
    // The rotary part: int16 under one more scale byte.
    const std::byte* rot = scales + (n_block + 1 + 7) / 8 * 8;
    const __m256 s = _mm256_set1_ps(e8m0(scales[n_block]));
    float* y = dst + n_nope;
    int i = 0;
    for (; i + 8 <= n_rot; i += 8)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(s, _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(load16(rot + 2 * i)))));
    for (; i < n_rot; ++i) y[i] = _mm256_cvtss_f32(s) * static_cast<float>(static_cast<int16_t>(load_u16(rot + 2 * i)));
}

void decode_index_fp8(const std::byte* src, int dim, float* dst) {
    const __m128i doubled = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i nibble = _mm_set1_epi8(15);
    for (int b = 0; b < dim / 32; ++b, dst += 32) {
        const __m128i codes = load16(src + 16 * b);
        const __m128i even = _mm_shuffle_epi8(doubled, _mm_and_si128(codes, nibble));
        const __m128i odd = _mm_shuffle_epi8(doubled, _mm_and_si128(_mm_srli_epi16(codes, 4), nibble));
        const __m128i first = _mm_unpacklo_epi8(even, odd), second = _mm_unpackhi_epi8(even, odd);
        const __m256 half = _mm256_set1_ps(0.5f), s = _mm256_set1_ps(e8m0(src[dim / 2 + b]));
        const auto put = [&](int at, __m128i eight) {
            const __m256 v = _mm256_mul_ps(half, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)));
            _mm256_storeu_ps(dst + at, _mm256_mul_ps(s, v));
        };
        put(0, first);
        put(8, _mm_srli_si128(first, 8));
        put(16, second);
        put(24, _mm_srli_si128(second, 8));
    }
}

const Kernels kTable = {
    .name = "avx2",
    .matmul_f32 = Tiles::matmul<F32>,
    .matmul_f16 = Tiles::matmul<F16>,
    .matmul_bf16 = Tiles::matmul<Bf16>,
    .a16 = kA16,
    .matmul_decoded = Tiles::matmul_decoded,
    .mix = Tiles::mix,
    .sum_squares = sum_squares,
    .scale_mul = scale_mul,
    .axpy = axpy,
    .max = max,
    .exp_sum = exp_sum,
    .swiglu = swiglu,
    .decode_attn_fp8 = decode_attn_fp8,
    .decode_index_fp8 = decode_index_fp8,
};

bool processor_has_it() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

}  // namespace
}  // namespace avx2

const Kernels* avx2_kernels() {
    static const bool usable = avx2::processor_has_it();
    return usable ? &avx2::kTable : nullptr;
}

}  // namespace vesta::backend

#else

namespace vesta::backend {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace vesta::backend

#endif
