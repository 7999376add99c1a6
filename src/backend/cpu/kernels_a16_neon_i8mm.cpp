// Products with block formats for NEON with 8-bit matrix products (FEAT_I8MM: servers since 2021, and with FEAT_DotProd
// always). SMMLA multiplies 2 × 8 signed bytes by 8 × 2, twice the products of SDOT in an instruction. With many rows
// of x the 2 × 8 are two rows of w and the 8 × 2 the high and the low bytes of one row of x: any number of rows is full
// use. The pairing not taken, two rows of x, saves some shifts and wastes half the work on an odd last row. One row of
// x is SDOT's: for SMMLA, codes would have to be shuffled as often as that saves multiplications.
#include "backend/cpu/kernels_tables.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_MATMUL_INT8)

#include "backend/cpu/kernels_a16_neon_split.h"

namespace vesta::backend {
namespace neon {
namespace {

struct I8mm : Split {
    static constexpr int kRows = 2;  // 16 registers of sums, 2 of x, 8 of w; with 3 rows g++ 12 runs out of registers

    using Panel = int8_t[kUnit / 8][kPanelRows / 2][2][8];  // eight elements of the two rows of a pair

    template <int B>
    VESTA_INLINE static void put(Panel& panel, int r, const Codes (&rows)[4]) {
        const auto wide = [&](int i, int h) { return vreinterpretq_s64_s8(rows[i].half[h]); };
        for (int h = 0; h < 2; ++h) {
            for (int i = 0; i < 4; i += 2) {
                const int64x2_t first = vzip1q_s64(wide(i, h), wide(i + 1, h)),
                                second = vzip2q_s64(wide(i, h), wide(i + 1, h));
                vst1q_s8(panel[4 * B + 2 * h][(r + i) / 2][0], vreinterpretq_s8_s64(first));
                vst1q_s8(panel[4 * B + 2 * h + 1][(r + i) / 2][0], vreinterpretq_s8_s64(second));
            }
        }
    }

    template <int n, int C>
    VESTA_INLINE static void multiply(const Panel& panel, int64_t g, const std::byte* const (&x)[C],
                                      int32x4_t (&dot)[C][4]) {
        int32x4_t sum[C][kPanelRows / 2];  // first row with high bytes, with low; second row likewise
        for (int c = 0; c < C; ++c)
            for (int k = 0; k < kPanelRows / 2; ++k) sum[c][k] = vdupq_n_s32(0);
        for (int64_t e = n * g; e < n * (g + 1); e += 8) {
            int8x16_t q[C];
            for (int c = 0; c < C; ++c) {
                const auto* at = reinterpret_cast<const int8_t*>(x[c] + high_byte(e));
                q[c] = vcombine_s8(vld1_s8(at), vld1_s8(at + 64));
            }
            for (int k = 0; k < kPanelRows / 2; ++k) {
                const int8x16_t w = vld1q_s8(panel[e / 8][k][0]);
                for (int c = 0; c < C; ++c) sum[c][k] = vmmlaq_s32(sum[c][k], w, q[c]);
            }
        }
        constexpr int32_t kShift[4] = {8, 0, 8, 0};
        const int32x4_t shift = vld1q_s32(kShift);
        for (int c = 0; c < C; ++c)
            for (int k = 0; k < 4; ++k)
                dot[c][k] = vpaddq_s32(vshlq_s32(sum[c][2 * k], shift), vshlq_s32(sum[c][2 * k + 1], shift));
    }
};

}  // namespace
}  // namespace neon

const A16Kernels* neon_i8mm_a16() { return &neon::kTable<neon::I8mm>; }

}  // namespace vesta::backend

#else

namespace vesta::backend {
const A16Kernels* neon_i8mm_a16() { return nullptr; }
}  // namespace vesta::backend

#endif
