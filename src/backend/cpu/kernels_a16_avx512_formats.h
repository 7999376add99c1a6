// The block formats as AVX-512 registers: codes and factors of a unit of 256 elements. A part of
// kernels_a16_avx512.cpp, kept in a file of its own for its length; included there only, and therefore in an unnamed
// namespace.
#pragma once

#include "backend/cpu/kernels_tables.h"

// GCC 12's own headers pass an undefined register where a result has no masked-out lanes (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#include <string.h>

#include "quant/iq2xxs_grid.h"

namespace vesta::backend {
namespace avx512 {
namespace {

using a16::kUnit;

// The pieces of a unit's work are small and meet in registers.
#define VESTA_INLINE [[gnu::always_inline]] inline

template <class T>
T load(const std::byte* p) {
    T v;
    memcpy(&v, p, sizeof v);
    return v;
}
int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
VESTA_INLINE float f16_at(const std::byte* p) { return _cvtsh_ss(load<uint16_t>(p)); }
VESTA_INLINE __m128i load16(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
VESTA_INLINE __m256i load32(const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
VESTA_INLINE __m512i load64(const std::byte* p) { return _mm512_loadu_si512(p); }
VESTA_INLINE __m512i twice(__m256i v) { return _mm512_broadcast_i64x4(v); }
VESTA_INLINE __m512i join(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
__m128i load_u64x2(uint64_t low, uint64_t high) {
    return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}
// One value for the lower eight lanes and one for the upper: what two rows of w have.
VESTA_INLINE __m512 halves(float low, float high) {
    return _mm512_insertf32x8(_mm512_set1_ps(low), _mm256_set1_ps(high), 1);
}
VESTA_INLINE __m512 from_u8(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }
VESTA_INLINE __m512 from_i8(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }

constexpr int8_t kBias = -128;  // what is added to signed codes, as a byte

// --- formats --------------------
//
// codes: a unit (256 elements) as unsigned bytes, in one of two orders. Plain: q[j] has elements 64j .. 64j+63.
// kByBlock: quadword b of q[k] has elements 8k .. 8k+7 of block b, so that the sums of all eight blocks add up in lanes
// of their own; the row of x is brought into the same order once per sixteen rows of w. factors: with one group per
// block, of the eight blocks of rows p0 and p1 (lanes 0..7 and 8..15); with two, of the sixteen groups of row p0. ws,
// and -wm of the first and second halves of blocks.

struct Factors {
    __m512 ws, wm[2];
};

struct Q8_0 {
    static constexpr int kElems = 32, kBytes = 34, kGroups = 1, kMins = 0;
    static constexpr bool kSigned = true, kByBlock = false;
    VESTA_INLINE static void codes(const std::byte* p, __m512i (&q)[4]) {
        for (int j = 0; j < 4; ++j)
            q[j] = _mm512_xor_si512(join(load32(p + 68 * j + 2), load32(p + 68 * j + 36)), _mm512_set1_epi8(kBias));
    }
    // d of block b is word 17·b of the unit's 136; the last four are looked up from byte 128 on, where word 64 is 0.
    VESTA_INLINE static __m512i scales(const std::byte* p, int to) {
        const __m512i low = _mm512_inserti64x4(
            _mm512_setzero_si512(), _mm256_setr_epi16(0, 17, 34, 51, 0, 0, 0, 0, 0, 17, 34, 51, 0, 0, 0, 0), 0);
        const __m512i high = _mm512_inserti64x4(
            _mm512_setzero_si512(), _mm256_setr_epi16(0, 0, 0, 0, 4, 21, 38, 55, 0, 0, 0, 0, 4, 21, 38, 55), 0);
        const auto first = static_cast<__mmask32>(0x0fu << to), second = static_cast<__mmask32>(0xf0u << to);
        return _mm512_or_si512(_mm512_maskz_permutex2var_epi16(first, load64(p), low, load64(p + 64)),
                               _mm512_maskz_permutex2var_epi16(second, load64(p + 128), high, load64(p + 192)));
    }
    VESTA_INLINE static void factors(const std::byte* p0, const std::byte* p1, Factors& f) {
        f.ws = _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_or_si512(scales(p0, 0), scales(p1, 8))));
    }
};

struct Mxfp4 {
    static constexpr int kElems = 32, kBytes = 17, kGroups = 1, kMins = 0;
    static constexpr bool kSigned = true, kByBlock = true;
    VESTA_INLINE static void codes(const std::byte* p, __m512i (&q)[4]) {
        // Doubled values plus 128. The lookup takes six bits of its index, of which the upper two are the next
        // nibble's: the table is there four times.
        const __m512i table = _mm512_broadcast_i32x4(
            _mm_setr_epi8(-128, -127, -126, -125, -124, -122, -120, -116, -128, 127, 126, 125, 124, 122, 120, 116));
        // Bytes 17b + 1 .. 17b + 8: elements 0..7 and 16..23 of block b; eight bytes on, 8..15 and 24..31.
        const __m512i seventeens =
            _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(0x1111111111111111));
        const __m512i index = _mm512_add_epi8(seventeens, _mm512_set1_epi64(0x0807060504030201));
        const __m512i a = _mm512_permutex2var_epi8(load64(p), index, load64(p + 64));
        const __m512i b = _mm512_permutex2var_epi8(load64(p + 8), index, load64(p + 72));
        q[0] = _mm512_permutexvar_epi8(a, table);
        q[1] = _mm512_permutexvar_epi8(b, table);
        q[2] = _mm512_permutexvar_epi8(_mm512_srli_epi16(a, 4), table);
        q[3] = _mm512_permutexvar_epi8(_mm512_srli_epi16(b, 4), table);
    }
    // Scales are bytes 0, 17, .. 119 of the 136; they go to the top bytes of their lanes.
    VESTA_INLINE static void factors(const std::byte* p0, const std::byte* p1, Factors& f) {
        const __m512i index =
            _mm512_slli_epi32(_mm512_setr_epi32(0, 17, 34, 51, 68, 85, 102, 119, 0, 17, 34, 51, 68, 85, 102, 119), 24);
        constexpr __mmask64 kLow = 0x0000000088888888, kHigh = 0x8888888800000000;
        const __m512i top = _mm512_or_si512(_mm512_maskz_permutex2var_epi8(kLow, load64(p0), index, load64(p0 + 64)),
                                            _mm512_maskz_permutex2var_epi8(kHigh, load64(p1), index, load64(p1 + 64)));
        // 2^(e-127) is e as the exponent field. One mantissa bit makes e = 0 the subnormal 2^-127, and 255 the NaN it
        // means. The codes are doubled, hence the half.
        const __m512i again = _mm512_add_epi32(top, _mm512_set1_epi32(1 << 24));  // e + 1 mod 256: 0 and 1 are special
        const __mmask16 special = _mm512_cmple_epu32_mask(again, _mm512_set1_epi32(1 << 24));
        const __m512i bits = _mm512_srli_epi32(top, 1);
        f.ws =
            _mm512_mul_ps(_mm512_set1_ps(0.5f),
                          _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, special, bits, _mm512_set1_epi32(1 << 22))));
    }
};

// Two bits of every byte: bits `low` for the first 32 elements, `low` + 2 for the others.
VESTA_INLINE __m512i crumbs(const std::byte* p, int low) {
    const __m512i shifts = _mm512_inserti64x4(_mm512_set1_epi64(low), _mm256_set1_epi64x(low + 2), 1);
    return _mm512_and_si512(_mm512_srlv_epi64(twice(load32(p)), shifts), _mm512_set1_epi8(3));
}
// Bit `low` of every byte for the first 32 elements, bit `low` + 1 for the others, as bit `to`.
VESTA_INLINE __m512i bits(__m512i bytes, int low, int to) {
    const __m512i turns =
        _mm512_inserti64x4(_mm512_set1_epi64((to - low) & 63), _mm256_set1_epi64x((to - low - 1) & 63), 1);
    return _mm512_and_si512(_mm512_rolv_epi64(bytes, turns), _mm512_set1_epi8(static_cast<int8_t>(1 << to)));
}

struct Q2K {
    static constexpr int kElems = 256, kBytes = 84, kGroups = 1, kMins = 2;
    static constexpr bool kSigned = false, kByBlock = true;
    VESTA_INLINE static void codes(const std::byte* p, __m512i (&q)[4]) {
        // Scale s of a group of 16 as the table 0, s, 2s, 3s, which is s · 0x03020100; four of them, those of blocks 2i
        // and 2i + 1, in 128-bit lane i.
        const __m128i sc = _mm_and_si128(load16(p), _mm_set1_epi8(15));
        const __m512i table = _mm512_mullo_epi32(_mm512_cvtepu8_epi32(sc), _mm512_set1_epi32(0x03020100));
        const __m512i bytes = load64(p + 16), shifts = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
        const __m512i odd = _mm512_setr_epi64(0, 0x0808080808080808, 0, 0x0808080808080808, 0, 0x0808080808080808, 0,
                                              0x0808080808080808);
        for (int k = 0; k < 4; ++k) {
            const __m512i own =
                _mm512_permutexvar_epi64(_mm512_setr_epi64(k, k, k, k, 4 + k, 4 + k, 4 + k, 4 + k), bytes);
            const __m512i which = _mm512_or_si512(odd, _mm512_set1_epi8(k < 2 ? 0 : 4));
            const __m512i code = _mm512_and_si512(_mm512_srlv_epi64(own, shifts), _mm512_set1_epi8(3));
            q[k] = _mm512_shuffle_epi8(table, _mm512_or_si512(code, which));
        }
    }
    VESTA_INLINE static void factors(const std::byte* p0, const std::byte* p1, Factors& f) {
        f.ws = halves(f16_at(p0 + 80), f16_at(p1 + 80));
        // Even groups are the first halves of blocks.
        const __m256i split =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
        const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(p0)), load16(p1), 1);
        const __m256i min = _mm256_permute4x64_epi64(
            _mm256_shuffle_epi8(_mm256_and_si256(_mm256_srli_epi16(both, 4), _mm256_set1_epi8(15)), split), 0xd8);
        const __m512 factor = halves(f16_at(p0 + 82), f16_at(p1 + 82));
        f.wm[0] = _mm512_mul_ps(factor, from_u8(_mm256_castsi256_si128(min)));
        f.wm[1] = _mm512_mul_ps(factor, from_u8(_mm256_extracti128_si256(min, 1)));
    }
};

struct Q3K {
    static constexpr int kElems = 256, kBytes = 110, kGroups = 2, kMins = 0;
    static constexpr bool kSigned = true, kByBlock = false;
    VESTA_INLINE static void codes(const std::byte* p, __m512i (&q)[4]) {
        const __m512i high = twice(load32(p));
        for (int j = 0; j < 4; ++j) {
            const __m512i code = _mm512_or_si512(crumbs(p + 32 + 32 * (j / 2), j % 2 * 4), bits(high, 2 * j, 2));
            q[j] = _mm512_add_epi8(code, _mm512_set1_epi8(124));
        }
    }
    VESTA_INLINE static void factors(const std::byte* p, const std::byte*, Factors& f) {
        // 16 scales of 6 bits: nibbles of s[0..7], upper bits by fours in s[8..11].
        const auto s = load<uint64_t>(p + 96), nibbles = uint64_t{0x0f0f0f0f0f0f0f0f};
        const auto top = load<uint32_t>(p + 104), two = 0x03030303u;
        const auto top64 = [&](int shift) {
            return static_cast<uint64_t>((top >> shift) & two) | static_cast<uint64_t>((top >> (shift + 2)) & two)
                                                                     << 32;
        };
        const __m128i low = load_u64x2(s & nibbles, s >> 4 & nibbles), upper = load_u64x2(top64(0), top64(4));
        const __m128i scale = _mm_sub_epi8(_mm_or_si128(low, _mm_slli_epi16(upper, 4)), _mm_set1_epi8(32));
        f.ws = _mm512_mul_ps(_mm512_set1_ps(f16_at(p + 108)), from_i8(scale));
    }
};

// The eight 6-bit scales and minima of q4_k and q5_k. In the header's four words: d and dmin, then low (scales 0..3,
// with two bits of scales 4..7 on top), mid (minima likewise) and top (four bits each of scales and minima 4..7).
VESTA_INLINE void factors_k4(const std::byte* p0, const std::byte* p1, Factors& f) {
    const __m256i header = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(p0)), load16(p1), 1);
    // Words of scales 0..3, 4..7 and minima 0..3, 4..7, per row of w.
    const __m256i own =
        _mm256_srlv_epi32(_mm256_shuffle_epi32(header, 0xed), _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4));
    const __m256i six = _mm256_and_si256(own, _mm256_set1_epi64x(0x0f0f0f0f3f3f3f3f));
    const __m256i tops = _mm256_srli_epi32(_mm256_shuffle_epi32(header, 0x84), 2);
    const __m256i both = _mm256_or_si256(six, _mm256_and_si256(tops, _mm256_set1_epi64x(0x3030303000000000)));
    const __m256i split = _mm256_permute4x64_epi64(both, 0xd8);  // scales of both rows, minima of both
    const __m128i halfs = _mm_unpacklo_epi32(_mm256_castsi256_si128(header), _mm256_extracti128_si256(header, 1));
    const __m512 d = _mm512_castps128_ps512(_mm_cvtph_ps(halfs));  // d and dmin of one row, of the other
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    f.ws = _mm512_mul_ps(_mm512_permutexvar_ps(first, d), from_u8(_mm256_castsi256_si128(split)));
    f.wm[0] = _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_or_si512(first, _mm512_set1_epi32(1)), d),
                            from_u8(_mm256_extracti128_si256(split, 1)));
}
// Elements 8k .. 8k+7 of all blocks: low and high nibbles of quadword k of every 32 bytes.
VESTA_INLINE __m512i nibbles(__m512i first64, __m512i second64, int k) {
    const __m512i index = _mm512_setr_epi64(k, k, 4 + k, 4 + k, 8 + k, 8 + k, 12 + k, 12 + k);
    const __m512i own = _mm512_permutex2var_epi64(first64, index, second64);
    return _mm512_and_si512(_mm512_srlv_epi64(own, _mm512_setr_epi64(0, 4, 0, 4, 0, 4, 0, 4)), _mm512_set1_epi8(15));
}

struct Q4K {
    static constexpr int kElems = 256, kBytes = 144, kGroups = 1, kMins = 1;
    static constexpr bool kSigned = false, kByBlock = true;
    VESTA_INLINE static void codes(const std::byte* p, __m512i (&q)[4]) {
        for (int k = 0; k < 4; ++k) q[k] = nibbles(load64(p + 16), load64(p + 80), k);
    }
    VESTA_INLINE static void factors(const std::byte* p0, const std::byte* p1, Factors& f) { factors_k4(p0, p1, f); }
};

struct Q5K {
    static constexpr int kElems = 256, kBytes = 176, kGroups = 1, kMins = 1;
    static constexpr bool kSigned = false, kByBlock = true;
    VESTA_INLINE static void codes(const std::byte* p, __m512i (&q)[4]) {
        // Bit b of the byte of an element is the fifth bit of its code in block b.
        const __m512i turns = _mm512_setr_epi64(4, 3, 2, 1, 0, 63, 62, 61);
        for (int k = 0; k < 4; ++k) {
            const __m512i fifths = _mm512_rolv_epi64(_mm512_set1_epi64(load<int64_t>(p + 16 + 8 * k)), turns);
            q[k] = _mm512_or_si512(nibbles(load64(p + 48), load64(p + 112), k),
                                   _mm512_and_si512(fifths, _mm512_set1_epi8(16)));
        }
    }
    VESTA_INLINE static void factors(const std::byte* p0, const std::byte* p1, Factors& f) { factors_k4(p0, p1, f); }
};

struct Q6K {
    static constexpr int kElems = 256, kBytes = 210, kGroups = 2, kMins = 0;
    static constexpr bool kSigned = true, kByBlock = false;
    VESTA_INLINE static void codes(const std::byte* p, __m512i (&q)[4]) {
        const __m512i nibble = _mm512_set1_epi8(15), two = _mm512_set1_epi8(0x30), bias = _mm512_set1_epi8(96);
        for (int half = 0; half < 2; ++half) {
            const __m512i low = load64(p + 64 * half), high = twice(load32(p + 128 + 32 * half));
            // Bits 2k, 2k + 1 of a byte go to 4 and 5: k = 0, 1 and then 2, 3.
            const __m512i first = _mm512_rolv_epi64(high, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2));
            const __m512i second = _mm512_rolv_epi64(high, _mm512_setr_epi64(0, 0, 0, 0, 62, 62, 62, 62));
            q[2 * half] =
                _mm512_add_epi8(_mm512_or_si512(_mm512_and_si512(low, nibble), _mm512_and_si512(first, two)), bias);
            q[2 * half + 1] = _mm512_add_epi8(
                _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(low, 4), nibble), _mm512_and_si512(second, two)),
                bias);
        }
    }
    VESTA_INLINE static void factors(const std::byte* p, const std::byte*, Factors& f) {
        f.ws = _mm512_mul_ps(_mm512_set1_ps(f16_at(p + 208)), from_i8(load16(p + 192)));
    }
};

// The grid as two bits per magnitude, eight to a word, and all eight signs for every seven.
struct Iq2Tables {
    alignas(64) uint16_t grid[256];
    alignas(64) uint8_t signs[128];
    constexpr Iq2Tables() : grid(), signs() {
        for (int i = 0; i < 256; ++i)
            for (int j = 0; j < 8; ++j) {
                const uint64_t magnitude = (quant::kIq2xxsGrid[i] >> (8 * j)) & 255u;  // 8, 25 or 43
                grid[i] = static_cast<uint16_t>(grid[i] | (magnitude / 17) << (2 * j));
            }
        for (unsigned i = 0; i < 128; ++i) {
            unsigned parity = 0;
            for (unsigned bit = i; bit != 0; bit >>= 1) parity ^= bit & 1u;
            signs[i] = static_cast<uint8_t>(i | parity << 7);
        }
    }
};
constexpr Iq2Tables kIq2;

struct Iq2xxs {
    static constexpr int kElems = 256, kBytes = 66, kGroups = 1, kMins = 0;
    static constexpr bool kSigned = true, kByBlock = true;
    VESTA_INLINE static void codes(const std::byte* p, __m512i (&q)[4]) {
        const __m512i groups =
            load64(p + 2);  // a quadword per block: four grid indices, four 7-bit sign codes, the scale
        // The indices as 32 words, and their grid points from eight registers of 32 (a lookup takes six bits of its
        // index).
        const __m512i pairs =
            _mm512_setr_epi64(0x0303020201010000, 0x0b0b0a0a09090808, 0x1313121211111010, 0x1b1b1a1a19191818,
                              0x2323222221212020, 0x2b2b2a2a29292828, 0x3333323231313030, 0x3b3b3a3a39393838);
        const __m512i index = _mm512_permutexvar_epi8(pairs, groups);
        const auto grid = [](int i) { return _mm512_load_si512(kIq2.grid + 32 * i); };
        const auto lookup = [&](int i) { return _mm512_permutex2var_epi16(grid(i), index, grid(i + 1)); };
        const __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64)),
                        bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
        const __m512i points = _mm512_mask_blend_epi16(bit7, _mm512_mask_blend_epi16(bit6, lookup(0), lookup(2)),
                                                       _mm512_mask_blend_epi16(bit6, lookup(4), lookup(6)));
        // Sign codes (at bits 32, 39, 46, 53) into bytes of their own, then with the eighth sign.
        const __m512i sevens = _mm512_multishift_epi64_epi8(_mm512_set1_epi64(0x352e2720), groups);
        const __m512i signs =
            _mm512_permutex2var_epi8(_mm512_load_si512(kIq2.signs), sevens, _mm512_load_si512(kIq2.signs + 64));
        // Element 8k + i of a block has two bits of magnitude at 16k + 2i and its sign at 8k + i, which goes to bit 2.
        // Codes by these three bits; the lookup takes six, so the table is there eight times.
        const __m512i table = _mm512_set1_epi64(0x0055677800ab9988);  // 128 +- 8, 25, 43
        for (int k = 0; k < 4; ++k) {
            const __m512i magnitude = _mm512_multishift_epi64_epi8(
                _mm512_add_epi8(_mm512_set1_epi64(0x0e0c0a0806040200), _mm512_set1_epi8(static_cast<int8_t>(16 * k))),
                points);
            const __m512i sign = _mm512_multishift_epi64_epi8(
                _mm512_and_si512(_mm512_add_epi8(_mm512_set1_epi64(0x0504030201003f3e),
                                                 _mm512_set1_epi8(static_cast<int8_t>(8 * k))),
                                 _mm512_set1_epi8(63)),
                signs);
            const __m512i which = _mm512_ternarylogic_epi64(_mm512_set1_epi8(3), magnitude, sign, 0xca);
            q[k] = _mm512_permutexvar_epi8(which, table);
        }
    }
    VESTA_INLINE static void factors(const std::byte* p0, const std::byte* p1, Factors& f) {
        const auto scale = [](const std::byte* p) {
            return _mm512_cvtepi64_epi32(_mm512_srli_epi64(load64(p + 2), 60));
        };
        const __m512i odd = _mm512_or_si512(_mm512_slli_epi32(join(scale(p0), scale(p1)), 1), _mm512_set1_epi32(1));
        f.ws = _mm512_mul_ps(halves(f16_at(p0), f16_at(p1)),
                             _mm512_mul_ps(_mm512_set1_ps(0.125f), _mm512_cvtepi32_ps(odd)));
    }
};

}  // namespace
}  // namespace avx512
}  // namespace vesta::backend
