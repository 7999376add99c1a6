// The block formats as NEON registers: codes and factors of a unit of 256 elements (one super-block, or eight blocks of
// 32). Included by the kernels_a16_neon*.cpp only, each of which is compiled for another instruction set, and therefore
// in an unnamed namespace: every one of them has its own copy. Nothing here needs more than NEON itself.
#pragma once

#include <arm_neon.h>
#include <string.h>

#include "backend/cpu/kernels_tables.h"
#include "quant/iq2xxs_grid.h"

namespace vesta::backend {
namespace neon {
namespace {

using a16::kUnit;

// The pieces of a unit's work are small and meet in registers.
#define VESTA_INLINE [[gnu::always_inline]] inline

// A number as an argument, for functions that need it while they are compiled.
template <int N>
struct Int {
    static constexpr int kValue = N;
};

template <class T>
VESTA_INLINE T load(const std::byte* p) {
    T v;
    memcpy(&v, p, sizeof v);
    return v;
}
VESTA_INLINE uint8x16_t load16(const std::byte* p) { return vld1q_u8(reinterpret_cast<const uint8_t*>(p)); }
VESTA_INLINE int8x16_t load16s(const std::byte* p) { return vld1q_s8(reinterpret_cast<const int8_t*>(p)); }
VESTA_INLINE float f16_at(const std::byte* p) { return static_cast<float>(load<float16_t>(p)); }
VESTA_INLINE int8x16_t as_signed(uint8x16_t v) { return vreinterpretq_s8_u8(v); }

// Eight bytes, or sixteen, to f32, times a factor.
VESTA_INLINE void scaled(uint8x8_t bytes, float factor, float32x4_t* to) {
    const uint16x8_t wide = vmovl_u8(bytes);
    to[0] = vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide))), factor);
    to[1] = vmulq_n_f32(vcvtq_f32_u32(vmovl_high_u16(wide)), factor);
}
VESTA_INLINE void scaled(int8x16_t bytes, float factor, float32x4_t* to) {
    const int16x8_t wide[2] = {vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)};
    for (int i = 0; i < 2; ++i) {
        to[2 * i] = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide[i]))), factor);
        to[2 * i + 1] = vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(wide[i])), factor);
    }
}

// Shifts of every byte by a constant, which the instructions want to be at least 1 to the right.
template <int N>
VESTA_INLINE uint8x16_t right(uint8x16_t v) {
    if constexpr (N > 0) return vshrq_n_u8(v, N);
    return v;
}
template <int N>
VESTA_INLINE uint8x16_t nibble(uint8x16_t v) {  // N = 0: the low one
    if constexpr (N == 1) return vshrq_n_u8(v, 4);
    return vandq_u8(v, vdupq_n_u8(15));
}
template <int N>
VESTA_INLINE uint8x16_t crumb(uint8x16_t v) {  // bits 2N and 2N + 1
    if constexpr (N == 3) return vshrq_n_u8(v, 6);
    return vandq_u8(right<2 * N>(v), vdupq_n_u8(3));
}

// --- formats --------------------
//
// A format is made from the address of a unit. codes<B>(): block B, elements in order. factors(): ws and wm of
// kernels_a16.h; with one group per block ws[0..1] are the eight blocks, with two ws[0..3] are the sixteen groups in
// order; wm[0..1] are the minima of the blocks, or of their first halves, wm[2..3] of the second.

struct Codes {
    int8x16_t half[2];
};
struct Factors {
    float32x4_t ws[4], wm[4];
};

struct Q8_0 {
    static constexpr int kElems = 32, kBytes = 34, kGroups = 1, kMins = 0;
    const std::byte* p;
    template <int B>
    VESTA_INLINE Codes codes() const {
        return {{load16s(p + kBytes * B + 2), load16s(p + kBytes * B + 18)}};
    }
    VESTA_INLINE void factors(Factors& f) const {
        uint16x8_t d = vdupq_n_u16(0);
        d = vsetq_lane_u16(load<uint16_t>(p), d, 0);
        d = vsetq_lane_u16(load<uint16_t>(p + kBytes), d, 1);
        d = vsetq_lane_u16(load<uint16_t>(p + 2 * kBytes), d, 2);
        d = vsetq_lane_u16(load<uint16_t>(p + 3 * kBytes), d, 3);
        d = vsetq_lane_u16(load<uint16_t>(p + 4 * kBytes), d, 4);
        d = vsetq_lane_u16(load<uint16_t>(p + 5 * kBytes), d, 5);
        d = vsetq_lane_u16(load<uint16_t>(p + 6 * kBytes), d, 6);
        d = vsetq_lane_u16(load<uint16_t>(p + 7 * kBytes), d, 7);
        f.ws[0] = vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(d)));
        f.ws[1] = vcvt_high_f32_f16(vreinterpretq_f16_u16(d));
    }
};

struct Mxfp4 {
    static constexpr int kElems = 32, kBytes = 17, kGroups = 1, kMins = 0;
    const std::byte* p;
    template <int B>
    VESTA_INLINE Codes codes() const {
        constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        const int8x16_t doubled = vld1q_s8(kDoubled);
        const uint8x16_t bytes = load16(p + kBytes * B + 1);
        return {{vqtbl1q_s8(doubled, nibble<0>(bytes)), vqtbl1q_s8(doubled, nibble<1>(bytes))}};
    }
    VESTA_INLINE void factors(Factors& f) const {
        for (int i = 0; i < 2; ++i) {
            const std::byte* q = p + 4 * i * kBytes;
            uint32x4_t e = vdupq_n_u32(load<uint8_t>(q));
            e = vsetq_lane_u32(load<uint8_t>(q + kBytes), e, 1);
            e = vsetq_lane_u32(load<uint8_t>(q + 2 * kBytes), e, 2);
            e = vsetq_lane_u32(load<uint8_t>(q + 3 * kBytes), e, 3);
            // 2^(e-127) is e as the exponent field. One mantissa bit makes e = 0 the subnormal 2^-127, and 255 the NaN
            // it means. The codes are doubled, hence the half.
            const uint32x4_t special = vorrq_u32(vceqzq_u32(e), vceqq_u32(e, vdupq_n_u32(255)));
            const uint32x4_t bits = vorrq_u32(vshlq_n_u32(e, 23), vandq_u32(special, vdupq_n_u32(1u << 22)));
            f.ws[i] = vmulq_n_f32(vreinterpretq_f32_u32(bits), 0.5f);
        }
    }
};

struct Q2K {
    static constexpr int kElems = 256, kBytes = 84, kGroups = 1, kMins = 2;
    const std::byte* p;
    // The scale of 16 elements goes into their codes: at most 3 · 15.
    template <int B>
    VESTA_INLINE Codes codes() const {
        const uint8x16_t sc = nibble<0>(load16(p));
        const std::byte* q = p + 16 + 32 * (B / 4);
        return {{as_signed(vmulq_u8(crumb<B % 4>(load16(q)), vdupq_laneq_u8(sc, 2 * B))),
                 as_signed(vmulq_u8(crumb<B % 4>(load16(q + 16)), vdupq_laneq_u8(sc, 2 * B + 1)))}};
    }
    VESTA_INLINE void factors(Factors& f) const {
        f.ws[0] = f.ws[1] = vdupq_n_f32(f16_at(p + 80));
        // Even groups are the first halves of blocks.
        const uint8x16_t min = nibble<1>(load16(p));
        scaled(vget_low_u8(vuzp1q_u8(min, min)), -f16_at(p + 82), f.wm);
        scaled(vget_low_u8(vuzp2q_u8(min, min)), -f16_at(p + 82), f.wm + 2);
    }
};

struct Q3K {
    static constexpr int kElems = 256, kBytes = 110, kGroups = 2, kMins = 0;
    const std::byte* p;
    template <int B>
    VESTA_INLINE Codes codes() const {
        const auto half = [this](int at) {
            const uint8x16_t high = vtstq_u8(load16(p + at), vdupq_n_u8(1 << B));
            const uint8x16_t missing = vbicq_u8(vdupq_n_u8(4), high);
            return as_signed(vsubq_u8(crumb<B % 4>(load16(p + 32 + 32 * (B / 4) + at)), missing));
        };
        return {{half(0), half(16)}};
    }
    VESTA_INLINE void factors(Factors& f) const {
        // 16 scales of 6 bits: nibbles of s[0..7], upper bits by fours in s[8..11].
        const auto s = load<uint64_t>(p + 96), nibbles = uint64_t{0x0f0f0f0f0f0f0f0f};
        const auto top = load<uint32_t>(p + 104), two = 0x03030303u;
        const auto top64 = [&](int shift) {
            return static_cast<uint64_t>((top >> shift) & two) | static_cast<uint64_t>((top >> (shift + 2)) & two)
                                                                     << 32;
        };
        const uint8x16_t low = vcombine_u8(vcreate_u8(s & nibbles), vcreate_u8(s >> 4 & nibbles));
        const uint8x16_t upper = vcombine_u8(vcreate_u8(top64(0)), vcreate_u8(top64(4)));
        const uint8x16_t six = vorrq_u8(low, vshlq_n_u8(upper, 4));
        scaled(as_signed(vsubq_u8(six, vdupq_n_u8(32))), f16_at(p + 108), f.ws);
    }
};

// The eight 6-bit scales and minima of q4_k and q5_k.
VESTA_INLINE void factors_k4(const std::byte* p, Factors& f) {
    const auto low = load<uint32_t>(p + 4), mid = load<uint32_t>(p + 8), top = load<uint32_t>(p + 12);
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
    const uint64_t scale = (low & six) | static_cast<uint64_t>((top & four) | (low >> 6 & two) << 4) << 32;
    const uint64_t min = (mid & six) | static_cast<uint64_t>((top >> 4 & four) | (mid >> 6 & two) << 4) << 32;
    scaled(vcreate_u8(scale), f16_at(p), f.ws);
    scaled(vcreate_u8(min), -f16_at(p + 2), f.wm);
}

struct Q4K {
    static constexpr int kElems = 256, kBytes = 144, kGroups = 1, kMins = 1;
    const std::byte* p;
    template <int B>
    VESTA_INLINE Codes codes() const {
        const std::byte* q = p + 16 + 32 * (B / 2);
        return {{as_signed(nibble<B % 2>(load16(q))), as_signed(nibble<B % 2>(load16(q + 16)))}};
    }
    VESTA_INLINE void factors(Factors& f) const { factors_k4(p, f); }
};

struct Q5K {
    static constexpr int kElems = 256, kBytes = 176, kGroups = 1, kMins = 1;
    const std::byte* p;
    template <int B>
    VESTA_INLINE Codes codes() const {
        const auto half = [this](int at) {
            const uint8x16_t fifth = vtstq_u8(load16(p + 16 + at), vdupq_n_u8(1 << B));
            const uint8x16_t low = nibble<B % 2>(load16(p + 48 + 32 * (B / 2) + at));
            return as_signed(vorrq_u8(low, vandq_u8(fifth, vdupq_n_u8(16))));
        };
        return {{half(0), half(16)}};
    }
    VESTA_INLINE void factors(Factors& f) const { factors_k4(p, f); }
};

struct Q6K {
    static constexpr int kElems = 256, kBytes = 210, kGroups = 2, kMins = 0;
    const std::byte* p;
    template <int N>
    VESTA_INLINE static uint8x16_t to_bit_4(uint8x16_t v) {  // bits 2N and 2N + 1, among others, to 4 and 5
        if constexpr (N == 0) return vshlq_n_u8(v, 4);
        if constexpr (N == 1) return vshlq_n_u8(v, 2);
        if constexpr (N == 3) return vshrq_n_u8(v, 2);
        return v;
    }
    template <int B>
    VESTA_INLINE Codes codes() const {
        const auto half = [this](int at) {
            const uint8x16_t low = nibble<B % 4 / 2>(load16(p + 64 * (B / 4) + 32 * (B % 2) + at));
            const uint8x16_t moved = to_bit_4<B % 4>(load16(p + 128 + 32 * (B / 4) + at));
            const uint8x16_t code = vorrq_u8(low, vandq_u8(moved, vdupq_n_u8(0x30)));
            return as_signed(vsubq_u8(code, vdupq_n_u8(32)));
        };
        return {{half(0), half(16)}};
    }
    VESTA_INLINE void factors(Factors& f) const { scaled(load16s(p + 192), f16_at(p + 208), f.ws); }
};

struct Iq2xxs {
    static constexpr int kElems = 256, kBytes = 66, kGroups = 1, kMins = 0;
    const std::byte* p;
    uint8x16_t signs[2];  // byte 4·(b % 4) + l of signs[b / 4]: the eight signs of grid point l of block b

    VESTA_INLINE explicit Iq2xxs(const std::byte* unit) : p(unit) {
        for (int i = 0; i < 2; ++i) {
            // Each 7-bit sign code into a byte of its own, and the eighth sign, which makes the number of negatives
            // even.
            const uint32x4_t w = words(i);
            const uint32x4_t first = vandq_u32(w, vdupq_n_u32(127)),
                             second = vandq_u32(vshlq_n_u32(w, 1), vdupq_n_u32(127u << 8)),
                             third = vandq_u32(vshlq_n_u32(w, 2), vdupq_n_u32(127u << 16)),
                             fourth = vandq_u32(vshlq_n_u32(w, 3), vdupq_n_u32(127u << 24));
            const uint8x16_t seven =
                vreinterpretq_u8_u32(vorrq_u32(vorrq_u32(first, second), vorrq_u32(third, fourth)));
            signs[i] = vorrq_u8(seven, vshlq_n_u8(vcntq_u8(seven), 7));
        }
    }
    // The words behind the grid indices of blocks 4i .. 4i+3: four sign codes and the scale.
    VESTA_INLINE uint32x4_t words(int i) const {
        const uint32x4_t a = vreinterpretq_u32_u8(load16(p + 2 + 32 * i)),
                         b = vreinterpretq_u32_u8(load16(p + 18 + 32 * i));
        return vuzp2q_u32(a, b);
    }
    template <int B>
    VESTA_INLINE Codes codes() const {
        constexpr uint8_t kSpread[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
        const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
        const auto half = [&](int h) {
            const std::byte* index = p + 2 + 8 * B + 2 * h;
            const auto point = [&](int l) { return vcreate_u8(quant::kIq2xxsGrid[load<uint8_t>(index + l)]); };
            const uint8x16_t grid = vcombine_u8(point(0), point(1));
            const uint8x16_t which = vaddq_u8(vld1q_u8(kSpread), vdupq_n_u8(static_cast<uint8_t>(4 * (B % 4) + 2 * h)));
            const uint8x16_t negative = vtstq_u8(vqtbl1q_u8(signs[B / 4], which), bit);
            return as_signed(vsubq_u8(veorq_u8(grid, negative), negative));
        };
        return {{half(0), half(1)}};
    }
    VESTA_INLINE void factors(Factors& f) const {
        for (int i = 0; i < 2; ++i) {
            const uint32x4_t odd = vorrq_u32(vshlq_n_u32(vshrq_n_u32(words(i), 28), 1), vdupq_n_u32(1));
            f.ws[i] = vmulq_n_f32(vmulq_n_f32(vcvtq_f32_u32(odd), 0.125f), f16_at(p));
        }
    }
};

}  // namespace
}  // namespace neon
}  // namespace vesta::backend
