// One row of x for the instruction sets with SDOT, which multiplies signed bytes, four products to an int32 lane. An
// activation is two signed bytes: sum = 256 · (w · high) + w · low, exactly. Included by kernels_a16_neon_dotprod.cpp
// and kernels_a16_neon_i8mm.cpp only, see kernels_a16_neon_formats.h.
#pragma once

#include "backend/cpu/kernels_a16_neon_product.h"

namespace vesta::backend {
namespace neon {
namespace {

// From the start of a unit of a row of x to the high byte of element e. The low byte is 64 bytes on.
constexpr int64_t high_byte(int64_t e) { return e + (e & ~int64_t{63}); }

struct Split {
    static constexpr bool kSplit = true;

    template <int B>
    VESTA_INLINE static int32x4_t dot(Codes c, const std::byte* x) {
        x += high_byte(32 * B);
        int32x4_t sum = vdotq_s32(vdupq_n_s32(0), c.half[0], load16s(x));
        sum = vshlq_n_s32(vdotq_s32(sum, c.half[1], load16s(x + 16)), 8);
        return vdotq_s32(vdotq_s32(sum, c.half[0], load16s(x + 64)), c.half[1], load16s(x + 80));
    }
    template <int B, int H>
    VESTA_INLINE static int32x4_t dot16(int8x16_t code, const std::byte* x) {
        x += high_byte(32 * B + 16 * H);
        const int32x4_t high = vdotq_s32(vdupq_n_s32(0), code, load16s(x));
        return vdotq_s32(vshlq_n_s32(high, 8), code, load16s(x + 64));
    }
};

}  // namespace
}  // namespace neon
}  // namespace vesta::backend
