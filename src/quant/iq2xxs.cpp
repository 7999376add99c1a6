// IQ2_XXS: 256 elements in 66 bytes. Eight values at a time are one of 256 grid points (magnitudes 8, 25, 43), seven
// sign bits and an implied eighth, and a 4-bit scale for 32 values.
#include <bit>

#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/iq2xxs_grid.h"

namespace vesta::quant {

// @0 f16 d, then eight groups of 8 bytes: 4 grid indices, u32 with four 7-bit sign codes and (bits 28..31) the scale s.
// y = ± d · (2s+1)/8 · grid
void decode_iq2_xxs(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / 256; ++b, src += 66) {
        const float d = f16_to_f32(load<uint16_t>(src));
        for (int group = 0; group < 8; ++group) {
            const std::byte* g = src + 2 + 8 * group;
            const uint32_t u = load<uint32_t>(g + 4);
            const float scale = d * (0.125f * static_cast<float>(2 * (u >> 28) + 1));
            for (int l = 0; l < 4; ++l, dst += 8) {
                const uint64_t point = kIq2xxsGrid[load_u8(g + l)];
                const uint32_t code = (u >> (7 * l)) & 127u;
                // The eighth sign makes the number of negatives even, so it need not be stored.
                const uint32_t signs = code | (static_cast<uint32_t>(std::popcount(code)) & 1u) << 7;
                for (int j = 0; j < 8; ++j) {
                    const float y = scale * static_cast<float>((point >> (8 * j)) & 255u);
                    dst[j] = (signs >> j) & 1u ? -y : y;
                }
            }
        }
    }
}

}  // namespace vesta::quant
