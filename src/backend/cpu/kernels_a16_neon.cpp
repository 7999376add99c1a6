// Products with block formats for NEON as every 64-bit Arm has it: codes are widened to int16 and multiplied by int16
// activations, four products to an instruction. The way not taken is int8 by int8: it would be eight, but activations
// are two bytes each, and its int16 sums hold only two products.
#include "backend/cpu/kernels_tables.h"

#if defined(__aarch64__)

#include "backend/cpu/kernels_a16_neon_product.h"

namespace vesta::backend {
namespace neon {
namespace {

struct Plain {
    static constexpr bool kSplit = false;
    static constexpr int kRows = 4;  // 16 registers of sums, 4 of x, 4 of w

    VESTA_INLINE static int32x4_t add16(int32x4_t sum, int8x16_t code, const std::byte* x) {
        const auto* q = reinterpret_cast<const int16_t*>(x);
        const int16x8_t low = vmovl_s8(vget_low_s8(code)), high = vmovl_high_s8(code);
        const int16x8_t x0 = vld1q_s16(q), x1 = vld1q_s16(q + 8);
        sum = vmlal_s16(sum, vget_low_s16(low), vget_low_s16(x0));
        sum = vmlal_high_s16(sum, low, x0);
        sum = vmlal_s16(sum, vget_low_s16(high), vget_low_s16(x1));
        return vmlal_high_s16(sum, high, x1);
    }
    template <int B>
    VESTA_INLINE static int32x4_t dot(Codes c, const std::byte* x) {
        return add16(add16(vdupq_n_s32(0), c.half[0], x + 64 * B), c.half[1], x + 64 * B + 32);
    }
    template <int B, int H>
    VESTA_INLINE static int32x4_t dot16(int8x16_t code, const std::byte* x) {
        return add16(vdupq_n_s32(0), code, x + 64 * B + 32 * H);
    }

    using Panel = int16_t[kPanelRows / 4][kUnit][4];  // element, row

    template <int B>
    VESTA_INLINE static void put(Panel& panel, int r, const Codes (&rows)[4]) {
        constexpr uint8_t kByElement[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
        for (int h = 0; h < 2; ++h) {
            const auto as_floats = [&](int i) { return vreinterpretq_f32_s8(rows[i].half[h]); };
            float32x4_t v[4] = {as_floats(0), as_floats(1), as_floats(2), as_floats(3)};
            transpose4(v);  // four elements of each of the four rows
            for (int i = 0; i < 4; ++i) {
                const int8x16_t codes = vqtbl1q_s8(vreinterpretq_s8_f32(v[i]), vld1q_u8(kByElement));
                int16_t* to = panel[r / 4][32 * B + 16 * h + 4 * i];
                vst1q_s16(to, vmovl_s8(vget_low_s8(codes)));
                vst1q_s16(to + 8, vmovl_high_s8(codes));
            }
        }
    }

    template <int n, int C>
    VESTA_INLINE static void multiply(const Panel& panel, int64_t g, const std::byte* const (&x)[C],
                                      int32x4_t (&dot)[C][4]) {
        for (int c = 0; c < C; ++c)
            for (int k = 0; k < 4; ++k) dot[c][k] = vdupq_n_s32(0);
        for (int64_t e = n * g; e < n * (g + 1); e += 8) {
            int16x8_t q[C];
            for (int c = 0; c < C; ++c) q[c] = vld1q_s16(reinterpret_cast<const int16_t*>(x[c] + 2 * e));
            const auto two_elements = [&](auto first) {
                constexpr int kE = decltype(first)::kValue;
                for (int k = 0; k < 4; ++k) {
                    const int16x8_t w = vld1q_s16(panel[k][e + kE]);
                    for (int c = 0; c < C; ++c) {
                        dot[c][k] = vmlal_laneq_s16(dot[c][k], vget_low_s16(w), q[c], kE);
                        dot[c][k] = vmlal_high_laneq_s16(dot[c][k], w, q[c], kE + 1);
                    }
                }
            };
            two_elements(Int<0>()), two_elements(Int<2>()), two_elements(Int<4>()), two_elements(Int<6>());
        }
    }
};

}  // namespace
}  // namespace neon

const A16Kernels* neon_a16() { return &neon::kTable<neon::Plain>; }

}  // namespace vesta::backend

#else

namespace vesta::backend {
const A16Kernels* neon_a16() { return nullptr; }
}  // namespace vesta::backend

#endif
