// Products with block formats for NEON with the dot product of bytes (FEAT_DotProd: most 64-bit Arm cores since 2018).
// With many rows of x, SDOT by element: lanes are rows of w, and four elements of a row of x meet all of them.
#include "backend/cpu/kernels_tables.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)

#include "backend/cpu/kernels_a16_neon_split.h"

namespace vesta::backend {
namespace neon {
namespace {

struct Dotprod : Split {
    static constexpr int kRows = 4;  // 16 registers of sums, 4 of x, 4 of w

    using Panel = int8_t[kPanelRows / 4][kUnit / 4][4][4];  // four elements, row

    template <int B>
    VESTA_INLINE static void put(Panel& panel, int r, const Codes (&rows)[4]) {
        for (int h = 0; h < 2; ++h) {
            const auto as_floats = [&](int i) { return vreinterpretq_f32_s8(rows[i].half[h]); };
            float32x4_t v[4] = {as_floats(0), as_floats(1), as_floats(2), as_floats(3)};
            transpose4(v);
            for (int i = 0; i < 4; ++i) vst1q_s8(panel[r / 4][8 * B + 4 * h + i][0], vreinterpretq_s8_f32(v[i]));
        }
    }

    template <int n, int C>
    VESTA_INLINE static void multiply(const Panel& panel, int64_t g, const std::byte* const (&x)[C],
                                      int32x4_t (&dot)[C][4]) {
        for (int c = 0; c < C; ++c)
            for (int k = 0; k < 4; ++k) dot[c][k] = vdupq_n_s32(0);
        const auto add_bytes = [&](int64_t low) {
            for (int64_t e = n * g; e < n * (g + 1); e += 16) {
                int8x16_t q[C];
                for (int c = 0; c < C; ++c) q[c] = load16s(x[c] + high_byte(e) + low);
                const auto four_elements = [&](auto which) {
                    constexpr int kI = decltype(which)::kValue;
                    for (int k = 0; k < 4; ++k) {
                        const int8x16_t w = vld1q_s8(panel[k][e / 4 + kI][0]);
                        for (int c = 0; c < C; ++c) dot[c][k] = vdotq_laneq_s32(dot[c][k], w, q[c], kI);
                    }
                };
                four_elements(Int<0>()), four_elements(Int<1>()), four_elements(Int<2>()), four_elements(Int<3>());
            }
        };
        add_bytes(0);
        for (int c = 0; c < C; ++c)
            for (int k = 0; k < 4; ++k) dot[c][k] = vshlq_n_s32(dot[c][k], 8);
        add_bytes(64);
    }
};

}  // namespace
}  // namespace neon

const A16Kernels* neon_dotprod_a16() { return &neon::kTable<neon::Dotprod>; }

}  // namespace vesta::backend

#else

namespace vesta::backend {
const A16Kernels* neon_dotprod_a16() { return nullptr; }
}  // namespace vesta::backend

#endif
