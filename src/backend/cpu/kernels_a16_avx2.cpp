// Products with block formats for AVX2. Weights are unpacked 256 elements at a time (a unit: one super-block, or eight
// blocks of 32) to int8 codes in order; kernels_a16.h defines what is summed.
//
// One row of x: eight rows of w at a time. Each row gives the integer sums of its eight blocks; then lanes become rows,
// and the blocks are added in order. Many rows of x: 16 rows of w are unpacked to int16 pairs with lanes as rows (a
// panel, 8 KiB), and every row of x passes over the panel while it is in L1; sums need no folding there.
#include "backend/cpu/kernels_tables.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>
#include <string.h>

#include "backend/cpu/kernels_a16_units.h"
#include "quant/iq2xxs_grid.h"

namespace vesta::backend {
namespace avx2 {
namespace {

using a16::kUnit;

// The pieces of a unit's work are small and meet in registers.
#define VESTA_INLINE [[gnu::always_inline]] inline

constexpr int64_t kColumns = 64;  // rows of x per sweep over the weights: 64 rows of 4096 are 0.5 MiB of codes

VESTA_INLINE uint64_t load_u64(const std::byte* p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
VESTA_INLINE uint32_t load_u32(const std::byte* p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
VESTA_INLINE uint16_t load_u16(const std::byte* p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
float load_f32(const std::byte* p) {
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}
VESTA_INLINE float f16_at(const std::byte* p) { return _cvtsh_ss(load_u16(p)); }
VESTA_INLINE __m128i load16(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
VESTA_INLINE __m256i load32(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
VESTA_INLINE __m256i in_lanes(__m128i low, __m128i high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}
VESTA_INLINE __m128i load_u64x2(uint64_t low, uint64_t high) {
    return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}
// Eight unsigned or signed bytes to f32.
VESTA_INLINE __m256 from_u8(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)); }
VESTA_INLINE __m256 from_i8(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }

// --- formats: codes in order, and the factors ws and wm of each block (or half of one) --------------------

struct Unit {
    alignas(32) int8_t code[256];
    alignas(32) float ws[16];
    alignas(32) float wm[16];  // two minima per block: first those of the first halves, then of the second

    void put(int block, __m256i codes) { _mm256_store_si256(reinterpret_cast<__m256i*>(code + 32 * block), codes); }
};

struct Q8_0 {
    static constexpr int kElems = 32, kBytes = 34, kGroups = 1, kMins = 0;
    VESTA_INLINE static void unpack(const std::byte* p, Unit& u) {
        alignas(16) uint16_t d[8];
        for (int b = 0; b < 8; ++b) {
            d[b] = load_u16(p + kBytes * b);
            u.put(b, load32(p + kBytes * b + 2));
        }
        _mm256_store_ps(u.ws, _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(d))));
    }
};

struct Mxfp4 {
    static constexpr int kElems = 32, kBytes = 17, kGroups = 1, kMins = 0;
    VESTA_INLINE static void unpack(const std::byte* p, Unit& u) {
        const __m256i doubled =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
        const __m256i nibble = _mm256_set1_epi8(15), shifts = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
        alignas(8) uint8_t e[8];
        for (int b = 0; b < 8; ++b) {
            e[b] = static_cast<uint8_t>(p[kBytes * b]);
            const __m256i twice = _mm256_broadcastsi128_si256(load16(p + kBytes * b + 1));
            u.put(b, _mm256_shuffle_epi8(doubled, _mm256_and_si256(_mm256_srlv_epi32(twice, shifts), nibble)));
        }
        // 2^(e-127) is e as the exponent field. One mantissa bit makes e = 0 the subnormal 2^-127, and 255 the NaN it
        // means. The codes are doubled, hence the half.
        const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(e)));
        const __m256i special = _mm256_or_si256(_mm256_cmpeq_epi32(wide, _mm256_setzero_si256()),
                                                _mm256_cmpeq_epi32(wide, _mm256_set1_epi32(255)));
        const __m256i bits =
            _mm256_or_si256(_mm256_slli_epi32(wide, 23), _mm256_and_si256(special, _mm256_set1_epi32(1 << 22)));
        _mm256_store_ps(u.ws, _mm256_mul_ps(_mm256_set1_ps(0.5f), _mm256_castsi256_ps(bits)));
    }
};

// Bits `shift` and `shift`+1 of every byte.
VESTA_INLINE __m256i crumbs(__m256i bytes, int shift) {
    return _mm256_and_si256(_mm256_srli_epi16(bytes, shift), _mm256_set1_epi8(3));
}

struct Q2K {
    static constexpr int kElems = 256, kBytes = 84, kGroups = 1, kMins = 2;
    VESTA_INLINE static void unpack(const std::byte* p, Unit& u) {
        const __m128i both = load16(p), sc = _mm_and_si128(both, _mm_set1_epi8(15));
        const __m128i minima = _mm_and_si128(_mm_srli_epi16(both, 4), _mm_set1_epi8(15));
        // A table per group: code -> code · scale.
        const __m128i twice = _mm_add_epi8(sc, sc), thrice = _mm_add_epi8(sc, twice), zero = _mm_setzero_si128();
        const __m128i low_a = _mm_unpacklo_epi8(zero, sc), low_b = _mm_unpackhi_epi8(zero, sc);
        const __m128i high_a = _mm_unpacklo_epi8(twice, thrice), high_b = _mm_unpackhi_epi8(twice, thrice);
        alignas(16) uint32_t table[16];
        const auto store = [&](int at, __m128i v) { _mm_store_si128(reinterpret_cast<__m128i*>(table + at), v); };
        store(0, _mm_unpacklo_epi16(low_a, high_a));
        store(4, _mm_unpackhi_epi16(low_a, high_a));
        store(8, _mm_unpacklo_epi16(low_b, high_b));
        store(12, _mm_unpackhi_epi16(low_b, high_b));
        for (int half = 0; half < 2; ++half) {
            const __m256i bytes = load32(p + 16 + 32 * half);
            for (int j = 0; j < 4; ++j) {
                const int b = 4 * half + j;
                const __m256i t = in_lanes(_mm_set1_epi32(static_cast<int>(table[2 * b])),
                                           _mm_set1_epi32(static_cast<int>(table[2 * b + 1])));
                u.put(b, _mm256_shuffle_epi8(t, crumbs(bytes, 2 * j)));
            }
        }
        _mm256_store_ps(u.ws, _mm256_set1_ps(f16_at(p + 80)));
        // Even groups are the first halves of blocks.
        const __m128i split =
            _mm_shuffle_epi8(minima, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
        const __m256 factor = _mm256_set1_ps(-f16_at(p + 82));
        _mm256_store_ps(u.wm, _mm256_mul_ps(factor, from_u8(split)));
        _mm256_store_ps(u.wm + 8, _mm256_mul_ps(factor, from_u8(_mm_srli_si128(split, 8))));
    }
};

struct Q3K {
    static constexpr int kElems = 256, kBytes = 110, kGroups = 2, kMins = 0;
    VESTA_INLINE static void unpack(const std::byte* p, Unit& u) {
        const __m256i high = load32(p);
        for (int b = 0; b < 8; ++b) {
            const __m256i two = crumbs(load32(p + 32 + 32 * (b / 4)), 2 * (b % 4));
            const __m256i bit = _mm256_and_si256(_mm256_srli_epi16(high, b), _mm256_set1_epi8(1));
            const __m256i code = _mm256_or_si256(two, _mm256_slli_epi16(bit, 2));
            u.put(b, _mm256_sub_epi8(code, _mm256_set1_epi8(4)));
        }
        // 16 scales of 6 bits: nibbles of s[0..7], upper bits by fours in s[8..11].
        const uint64_t s = load_u64(p + 96), nibbles = 0x0f0f0f0f0f0f0f0f;
        const uint32_t top = load_u32(p + 104), two = 0x03030303;
        const auto top64 = [&](int shift) {
            return static_cast<uint64_t>((top >> shift) & two) | static_cast<uint64_t>((top >> (shift + 2)) & two)
                                                                     << 32;
        };
        const __m128i low = load_u64x2(s & nibbles, s >> 4 & nibbles), upper = load_u64x2(top64(0), top64(4));
        const __m128i scale = _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(upper, 4)), _mm_set1_epi8(32));
        const __m256 d = _mm256_set1_ps(f16_at(p + 108));
        _mm256_store_ps(u.ws, _mm256_mul_ps(d, from_i8(scale)));
        _mm256_store_ps(u.ws + 8, _mm256_mul_ps(d, from_i8(_mm_srli_si128(scale, 8))));
    }
};

// The eight 6-bit scales and minima of q4_k and q5_k.
VESTA_INLINE void scales_k4(const std::byte* p, Unit& u) {
    const uint32_t low = load_u32(p + 4), mid = load_u32(p + 8), top = load_u32(p + 12);
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
    const uint64_t scale = (low & six) | static_cast<uint64_t>((top & four) | (low >> 6 & two) << 4) << 32;
    const uint64_t min = (mid & six) | static_cast<uint64_t>((top >> 4 & four) | (mid >> 6 & two) << 4) << 32;
    const __m128i both = load_u64x2(scale, min);
    _mm256_store_ps(u.ws, _mm256_mul_ps(_mm256_set1_ps(f16_at(p)), from_u8(both)));
    _mm256_store_ps(u.wm, _mm256_mul_ps(_mm256_set1_ps(-f16_at(p + 2)), from_u8(_mm_srli_si128(both, 8))));
}

struct Q4K {
    static constexpr int kElems = 256, kBytes = 144, kGroups = 1, kMins = 1;
    VESTA_INLINE static void unpack(const std::byte* p, Unit& u) {
        const __m256i nibble = _mm256_set1_epi8(15);
        for (int c = 0; c < 4; ++c) {
            const __m256i bytes = load32(p + 16 + 32 * c);
            u.put(2 * c, _mm256_and_si256(bytes, nibble));
            u.put(2 * c + 1, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble));
        }
        scales_k4(p, u);
    }
};

struct Q5K {
    static constexpr int kElems = 256, kBytes = 176, kGroups = 1, kMins = 1;
    VESTA_INLINE static void unpack(const std::byte* p, Unit& u) {
        const __m256i nibble = _mm256_set1_epi8(15), high = load32(p + 16);
        for (int b = 0; b < 8; ++b) {
            const __m256i low = _mm256_srli_epi16(load32(p + 48 + 32 * (b / 2)), 4 * (b % 2));
            const __m256i bit = _mm256_and_si256(_mm256_srli_epi16(high, b), _mm256_set1_epi8(1));
            u.put(b, _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_slli_epi16(bit, 4)));
        }
        scales_k4(p, u);
    }
};

struct Q6K {
    static constexpr int kElems = 256, kBytes = 210, kGroups = 2, kMins = 0;
    VESTA_INLINE static void unpack(const std::byte* p, Unit& u) {
        const __m256i nibble = _mm256_set1_epi8(15);
        for (int b = 0; b < 8; ++b) {
            const int half = b / 4, k = b % 4;
            const __m256i low = _mm256_srli_epi16(load32(p + 64 * half + 32 * (k % 2)), 4 * (k / 2));
            const __m256i two = crumbs(load32(p + 128 + 32 * half), 2 * k);
            const __m256i code = _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_slli_epi16(two, 4));
            u.put(b, _mm256_sub_epi8(code, _mm256_set1_epi8(32)));
        }
        const __m256 d = _mm256_set1_ps(f16_at(p + 208));
        const __m128i scale = load16(p + 192);
        _mm256_store_ps(u.ws, _mm256_mul_ps(d, from_i8(scale)));
        _mm256_store_ps(u.ws + 8, _mm256_mul_ps(d, from_i8(_mm_srli_si128(scale, 8))));
    }
};

struct Iq2xxs {
    static constexpr int kElems = 256, kBytes = 66, kGroups = 1, kMins = 0;
    VESTA_INLINE static void unpack(const std::byte* p, Unit& u) {
        // The words behind the grid indices, one per block: four 7-bit sign codes and the scale.
        const __m256i a = load32(p + 2), b = load32(p + 34);
        const __m256i words = _mm256_permute4x64_epi64(
            _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd)), 0xd8);
        // Each sign code into a byte of its own, and the eighth sign, which makes the number of negatives even.
        const auto field = [&](int l) {
            return _mm256_and_si256(_mm256_slli_epi32(words, l), _mm256_set1_epi32(127 << (8 * l)));
        };
        const __m256i seven = _mm256_or_si256(_mm256_or_si256(field(0), field(1)), _mm256_or_si256(field(2), field(3)));
        __m256i parity = _mm256_xor_si256(seven, _mm256_srli_epi16(seven, 4));
        parity = _mm256_xor_si256(parity, _mm256_srli_epi16(parity, 2));
        parity = _mm256_xor_si256(parity, _mm256_srli_epi16(parity, 1));
        const __m256i eighth = _mm256_slli_epi16(_mm256_and_si256(parity, _mm256_set1_epi8(1)), 7);
        alignas(32) uint32_t signs[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(signs), _mm256_or_si256(seven, eighth));

        const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                                2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
        const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
        for (int block = 0; block < 8; ++block) {
            const std::byte* g = p + 2 + 8 * block;
            const auto point = [&](int l) { return quant::kIq2xxsGrid[static_cast<uint8_t>(g[l])]; };
            const __m256i grid = in_lanes(load_u64x2(point(0), point(1)), load_u64x2(point(2), point(3)));
            const __m256i own = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(signs[block])), spread);
            const __m256i negative = _mm256_cmpeq_epi8(_mm256_and_si256(own, bit), bit);
            u.put(block, _mm256_sub_epi8(_mm256_xor_si256(grid, negative), negative));
        }
        const __m256i odd = _mm256_add_epi32(_mm256_slli_epi32(_mm256_srli_epi32(words, 28), 1), _mm256_set1_epi32(1));
        const __m256 eighths = _mm256_mul_ps(_mm256_set1_ps(0.125f), _mm256_cvtepi32_ps(odd));
        _mm256_store_ps(u.ws, _mm256_mul_ps(_mm256_set1_ps(f16_at(p)), eighths));
    }
};

// --- shared pieces --------------------

// Lanes become rows: out[c][r] = in[r][c].
VESTA_INLINE void transpose8(__m256 (&v)[8]) {
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        v[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

// The sums over the lanes of eight vectors.
VESTA_INLINE __m256i sums_of(const __m256i (&v)[8]) {
    const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

VESTA_INLINE __m256i products(const int8_t* code, const std::byte* q) {  // 16 elements
    return _mm256_madd_epi16(_mm256_cvtepi8_epi16(load16(reinterpret_cast<const std::byte*>(code))), load32(q));
}

// --- one row of x --------------------

// Outputs [o, o + n), n <= 8, of row t. The rows after these are fetched meanwhile: a row is about one page, and the
// processor's own prefetch stops at pages.
template <class F>
void eight_outputs(const MatmulTask& m, int64_t o, int64_t n, int64_t t) {
    constexpr int64_t kUnitBytes = Weights<F>::kUnitBytes;
    const std::byte* row = row_of(m, t);
    const int64_t n_unit = (m.n_in + kUnit - 1) / kUnit, ahead = o + 16 <= m.n_out ? 8 * m.w_stride : 0;
    // The first rows of a task have been fetched by nobody: four units at once, then ahead in their own row.
    constexpr int64_t kUnitsAhead = 4;
    for (int64_t u = 0; o == 0 && u < smaller(kUnitsAhead, n_unit); ++u)
        for (int64_t r = 0; r < n; ++r) Weights<F>::fetch(m.w + r * m.w_stride + u * kUnitBytes);
    std::byte pad[kUnitBytes];
    Unit w;
    __m256 sum = _mm256_setzero_ps();
    __m256 v[F::kGroups][8];
    for (int64_t u = 0; u < n_unit; ++u) {
        const std::byte* q = row + 2 * kUnit * u;
        for (int r = 0; r < 8; ++r) {
            const std::byte* p = Weights<F>::unit(m, o + smaller(r, n - 1), u, pad);
            Weights<F>::fetch(p + ahead);
            if (o == 0) Weights<F>::fetch(p + kUnitsAhead * kUnitBytes);
            F::unpack(p, w);
            __m256i part[8];
            if constexpr (F::kGroups == 1) {
                for (int b = 0; b < 8; ++b)
                    part[b] = _mm256_add_epi32(products(w.code + 32 * b, q + 64 * b),
                                               products(w.code + 32 * b + 16, q + 64 * b + 32));
                v[0][r] = _mm256_mul_ps(_mm256_cvtepi32_ps(sums_of(part)), _mm256_load_ps(w.ws));
                const auto add_min = [&](int which, int64_t array) {
                    const auto* total = reinterpret_cast<const float*>(row + array) + 8 * u;
                    v[0][r] = _mm256_fmadd_ps(_mm256_load_ps(w.wm + 8 * which), _mm256_loadu_ps(total), v[0][r]);
                };
                if constexpr (F::kMins == 1) add_min(0, a16::sum_at(m.n_in));
                if constexpr (F::kMins == 2) add_min(0, a16::low_at(m.n_in)), add_min(1, a16::high_at(m.n_in));
            } else {
                for (int h = 0; h < 2; ++h) {
                    for (int g = 0; g < 8; ++g) part[g] = products(w.code + 128 * h + 16 * g, q + 256 * h + 32 * g);
                    v[h][r] = _mm256_mul_ps(_mm256_cvtepi32_ps(sums_of(part)), _mm256_load_ps(w.ws + 8 * h));
                }
            }
        }
        const auto* scale = reinterpret_cast<const float*>(row + a16::scale_at(m.n_in)) + 8 * u;
        const int64_t n_block = smaller(8, m.n_in / 32 - 8 * u);
        if constexpr (F::kGroups == 1) {
            transpose8(v[0]);
            for (int64_t b = 0; b < n_block; ++b) sum = _mm256_fmadd_ps(v[0][b], _mm256_broadcast_ss(scale + b), sum);
        } else {
            for (int h = 0; h < 2; ++h) {
                transpose8(v[h]);
                for (int g = 0; g < 8; ++g)
                    sum = _mm256_fmadd_ps(v[h][g], _mm256_broadcast_ss(scale + 4 * h + g / 2), sum);
            }
        }
    }
    float y[8];
    _mm256_storeu_ps(y, sum);
    memcpy(m.y + t * m.y_stride + o, y, static_cast<size_t>(n) * sizeof(float));
}

// --- many rows of x --------------------

constexpr int kPanelRows = 16;

struct Panel {
    alignas(32) int16_t code[128][kPanelRows][2];  // pair of elements, row of w
    alignas(32) float ws[16][kPanelRows];
    alignas(32) float wm[16][kPanelRows];
};

// Eight rows of w into columns [8·side, 8·side + 8) of the panel.
template <class F>
void fill(Panel& panel, const Unit (&w)[8], int side) {
    for (int k = 0; k < 256; k += 16) {
        __m256 v[8];
        for (int r = 0; r < 8; ++r)
            v[r] = _mm256_castsi256_ps(
                _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(w[r].code + k))));
        transpose8(v);
        for (int i = 0; i < 8; ++i) _mm256_store_ps(reinterpret_cast<float*>(panel.code[k / 2 + i][8 * side]), v[i]);
    }
    const auto columns = [&](float(*to)[kPanelRows], const float* (*from)(const Unit&)) {
        __m256 v[8];
        for (int r = 0; r < 8; ++r) v[r] = _mm256_load_ps(from(w[r]));
        transpose8(v);
        for (int i = 0; i < 8; ++i) _mm256_store_ps(to[i] + 8 * side, v[i]);
    };
    columns(panel.ws, [](const Unit& u) -> const float* { return u.ws; });
    if constexpr (F::kGroups == 2) columns(panel.ws + 8, [](const Unit& u) -> const float* { return u.ws + 8; });
    if constexpr (F::kMins > 0) columns(panel.wm, [](const Unit& u) -> const float* { return u.wm; });
    if constexpr (F::kMins > 1) columns(panel.wm + 8, [](const Unit& u) -> const float* { return u.wm + 8; });
}

// Adds one unit to the sums of C rows of x.
template <class F, int C>
void add_unit(const Panel& panel, const std::byte* const* rows, int64_t n_in, int64_t u, float (*sum)[kPanelRows]) {
    constexpr int kPairs = 16 / F::kGroups;  // pairs of elements in a group
    const int64_t n_block = smaller(8, n_in / 32 - 8 * u);
    const int64_t totals[2] = {F::kMins == 1 ? a16::sum_at(n_in) : a16::low_at(n_in), a16::high_at(n_in)};
    for (int64_t b = 0; b < n_block; ++b) {
        const int64_t at = 4 * (8 * u + b);
        for (int h = 0; h < F::kGroups; ++h) {
            const int64_t g = F::kGroups * b + h;
            __m256i dot[C][2];
            for (int c = 0; c < C; ++c) dot[c][0] = dot[c][1] = _mm256_setzero_si256();
            for (int i = 0; i < kPairs; ++i) {
                const auto* code = reinterpret_cast<const __m256i*>(panel.code[kPairs * g + i]);
                const __m256i w0 = _mm256_load_si256(code), w1 = _mm256_load_si256(code + 1);
                for (int c = 0; c < C; ++c) {
                    const auto pair = static_cast<int>(load_u32(rows[c] + 2 * kUnit * u + 4 * (kPairs * g + i)));
                    const __m256i q = _mm256_set1_epi32(pair);
                    dot[c][0] = _mm256_add_epi32(dot[c][0], _mm256_madd_epi16(w0, q));
                    dot[c][1] = _mm256_add_epi32(dot[c][1], _mm256_madd_epi16(w1, q));
                }
            }
            for (int c = 0; c < C; ++c) {
                const __m256 scale = _mm256_set1_ps(load_f32(rows[c] + a16::scale_at(n_in) + at));
                for (int side = 0; side < 2; ++side) {
                    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(dot[c][side]), _mm256_load_ps(panel.ws[g] + 8 * side));
                    for (int i = 0; i < F::kMins; ++i) {
                        const __m256 total = _mm256_set1_ps(load_f32(rows[c] + totals[i] + at));
                        v = _mm256_fmadd_ps(_mm256_load_ps(panel.wm[8 * i + b] + 8 * side), total, v);
                    }
                    float* s = sum[c] + 8 * side;
                    _mm256_store_ps(s, _mm256_fmadd_ps(v, scale, _mm256_load_ps(s)));
                }
            }
        }
    }
}

template <class F, int C>
void add_unit_to_rows(const Panel& panel, const std::byte* const* rows, int64_t n_row, int64_t n_in, int64_t u,
                      float (*sum)[kPanelRows]) {
    if constexpr (C > 0) {
        for (; n_row >= C; n_row -= C, rows += C, sum += C) add_unit<F, C>(panel, rows, n_in, u, sum);
        add_unit_to_rows<F, C - 1>(panel, rows, n_row, n_in, u, sum);
    }
}

template <class F>
void sixteen_outputs(const MatmulTask& m, int64_t o, int64_t n_out, int64_t t, int64_t n_row) {
    alignas(32) float sum[kColumns][kPanelRows];
    Panel panel;
    Unit w[8];
    std::byte pad[Weights<F>::kUnitBytes];
    const std::byte* rows[kColumns];
    for (int64_t c = 0; c < n_row; ++c) rows[c] = row_of(m, t + c);
    memset(sum, 0, static_cast<size_t>(n_row) * sizeof sum[0]);
    for (int64_t u = 0; u * kUnit < m.n_in; ++u) {
        for (int side = 0; side < 2; ++side) {
            for (int r = 0; r < 8; ++r) {
                const std::byte* p = Weights<F>::unit(m, o + smaller(8 * side + r, n_out - 1), u, pad);
                F::unpack(p, w[r]);
                Weights<F>::fetch(p + 2 * Weights<F>::kUnitBytes);
            }
            fill<F>(panel, w, side);
        }
        add_unit_to_rows<F, 4>(panel, rows, n_row, m.n_in, u, sum);
    }
    for (int64_t c = 0; c < n_row; ++c)
        memcpy(m.y + (t + c) * m.y_stride + o, sum[c], static_cast<size_t>(n_out) * sizeof(float));
}

template <class F>
void product(const MatmulTask& m) {
    constexpr int64_t kPanelPays = 3;  // rows of x from which unpacking to a panel is the faster way
    for (int64_t t = 0; t < m.n_row; t += kColumns) {
        const int64_t n_row = smaller(kColumns, m.n_row - t);
        if (n_row < kPanelPays) {
            for (int64_t o = 0; o < m.n_out; o += 8)
                for (int64_t c = 0; c < n_row; ++c) eight_outputs<F>(m, o, smaller(8, m.n_out - o), t + c);
        } else {
            for (int64_t o = 0; o < m.n_out; o += kPanelRows)
                sixteen_outputs<F>(m, o, smaller(kPanelRows, m.n_out - o), t, n_row);
        }
    }
}

// --- activations --------------------

__m256i magnitude_bits(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }

int sum8(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

void quantize(const float* x, int64_t n, std::byte* row) {
    auto* scale = reinterpret_cast<float*>(row + a16::scale_at(n));
    auto* sum = reinterpret_cast<float*>(row + a16::sum_at(n));
    auto* low_sum = reinterpret_cast<float*>(row + a16::low_at(n));
    auto* high_sum = reinterpret_cast<float*>(row + a16::high_at(n));
    for (int64_t b = 0; b < n / 32; ++b, x += 32) {
        const __m256 x0 = _mm256_loadu_ps(x), x1 = _mm256_loadu_ps(x + 8), x2 = _mm256_loadu_ps(x + 16),
                     x3 = _mm256_loadu_ps(x + 24);
        // The largest magnitude as bits: integers compare like non-negative floats, and NaN counts as larger than inf.
        const __m256i m8 = _mm256_max_epi32(_mm256_max_epi32(magnitude_bits(x0), magnitude_bits(x1)),
                                            _mm256_max_epi32(magnitude_bits(x2), magnitude_bits(x3)));
        __m128i m4 = _mm_max_epi32(_mm256_castsi256_si128(m8), _mm256_extracti128_si256(m8, 1));
        m4 = _mm_max_epi32(m4, _mm_shuffle_epi32(m4, 0x4e));
        m4 = _mm_max_epi32(m4, _mm_shuffle_epi32(m4, 0xb1));
        const float amax = _mm_cvtss_f32(_mm_castsi128_ps(m4));
        const bool finite = _mm_cvtsi128_si32(m4) < 0x7f800000;
        auto* q = reinterpret_cast<__m256i*>(row + 64 * b);
        if (!finite || amax < 1e-30f) {
            scale[b] = finite ? 0.0f : __builtin_nanf("");
            sum[b] = low_sum[b] = high_sum[b] = 0.0f;
            _mm256_storeu_si256(q, _mm256_setzero_si256());
            _mm256_storeu_si256(q + 1, _mm256_setzero_si256());
            continue;
        }
        scale[b] = amax / static_cast<float>(a16::kTop);
        const __m256 inverse = _mm256_set1_ps(static_cast<float>(a16::kTop) / amax);
        const __m256i q0 = _mm256_cvtps_epi32(_mm256_mul_ps(x0, inverse)),
                      q1 = _mm256_cvtps_epi32(_mm256_mul_ps(x1, inverse)),
                      q2 = _mm256_cvtps_epi32(_mm256_mul_ps(x2, inverse)),
                      q3 = _mm256_cvtps_epi32(_mm256_mul_ps(x3, inverse));
        // packs works inside 128-bit halves; the permutation puts the quarters back in order.
        _mm256_storeu_si256(q, _mm256_permute4x64_epi64(_mm256_packs_epi32(q0, q1), 0xd8));
        _mm256_storeu_si256(q + 1, _mm256_permute4x64_epi64(_mm256_packs_epi32(q2, q3), 0xd8));
        const int low = sum8(_mm256_add_epi32(q0, q1)), high = sum8(_mm256_add_epi32(q2, q3));
        sum[b] = static_cast<float>(low + high);
        low_sum[b] = static_cast<float>(low);
        high_sum[b] = static_cast<float>(high);
    }
}

}  // namespace

extern const A16Kernels kA16 = {
    .split = false,
    .quantize = quantize,
    .q8_0 = product<Q8_0>,
    .mxfp4 = product<Mxfp4>,
    .q2_k = product<Q2K>,
    .q3_k = product<Q3K>,
    .q4_k = product<Q4K>,
    .q5_k = product<Q5K>,
    .q6_k = product<Q6K>,
    .iq2_xxs = product<Iq2xxs>,
};

}  // namespace avx2
}  // namespace vesta::backend

#endif
