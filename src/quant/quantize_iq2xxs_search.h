// What is inside the IQ2_XXS encoder, for its files and their test: the two loops that cost time, as a table with one
// entry per instruction set. A super-block is turned so that lane b (0..7) is its 32-block b: eight blocks are searched
// at once, each at a scale of its own, and since no sum crosses lanes every instruction set computes the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/iq2xxs_grid.h"

namespace vesta::quant::iq2xxs {

constexpr int kLanes = 8;       // 32-blocks in a super-block
constexpr int kMaxCurves = 16;  // see Curves
constexpr float kLevel[3] = {8, 25, 43};

// One super-block. Element e (0..31) of 32-block b; magnitudes scaled by a power of two so that the largest is in
// [1, 2), and weights likewise: products of four of them stay far inside f32.
struct alignas(32) Problem {
    float w[32][kLanes];   // weight, not -0
    float x[32][kLanes];   // |x|
    float odd[4][kLanes];  // 1 where values 8g..8g+7 of the block have an odd number of negatives, else 0
};

// What the best points for some scales are. With signs as stored, block b decoded at any scale s has the error
//   E_b(s) = sum w (|x| - s·g)^2 = X_b - 2 s·p[b] + s^2·q[b]      X = sum w x^2
struct alignas(32) Points {
    int32_t point[4][kLanes];  // index into the grid
    int32_t flip[4][kLanes];   // the element (0..7) stored with the wrong sign; 8 for none
    float p[kLanes];           // sum ± w |x| g, minus for a flipped element
    float q[kLanes];           // sum w g^2
};

// The parabolas found so far for each block; their lower envelope bounds E_b(s) - X_b from above at every s.
struct alignas(32) Curves {
    float p[kMaxCurves][kLanes], q[kMaxCurves][kLanes];
    float best_s[kLanes];  // where the envelope is lowest
    float share[kLanes];   // 1, or 0 for a block without a say in d
    int n = 0;
};

struct Kernels {
    // For every block and group of 8, over all points g of the grid the least of
    //   sum_i w[i] (y[i] - g[i])^2  +  odd·min_i 4 w[i] y[i] g[i],   y = x/s
    // which is E/s^2 with the cheapest sign flipped where the number of negatives must change. The first of equal
    // points and of equal flips. No term is negative, so that floats compare as the integers of their bits: on Zen 5
    // integer minima go through four pipes, float ones through the two that also add. Requires: s > 0.
    void (*best_points)(const Problem& problem, const float s[kLanes], Points& out);
    // error[i] = sum over blocks of share · (envelope at the better of the two codes next to best_s, for d[i])
    void (*envelope)(const Curves& curves, const float* d, int n_d, float* error);
};
const Kernels& scalar_kernels();
const Kernels* avx2_kernels();  // nullptr when this build or this processor has none

// quantize_iq2_xxs with these kernels.
void quantize(const Kernels& kernels, const float* src, int64_t n_row, int64_t n_col, const float* importance,
              std::byte* dst);

// The grid as two halves. A point is one of 64 low quads (elements 0..3) and one of 72 high quads (4..7), so that its
// cost is the sum of two table entries. Quads are 9·(pair code of the upper two) + pair code, pairs 3·upper + lower.
struct Halves {
    static constexpr int kLow = 64, kHigh = 72;
    uint8_t low_quad[kLow] = {}, high_quad[kHigh] = {};
    uint16_t high_start[kHigh + 1] = {};  // the points of a high quad are consecutive, the grid being ascending
    uint8_t low_of[256] = {};             // slot of point's low quad
    uint32_t levels[256] = {};            // 2 bits per element: index into kLevel
};
consteval Halves split_grid() {
    Halves h;
    int n_low = 0, n_high = 0;
    for (int p = 0; p < 256; ++p) {
        int code[8] = {};
        for (int i = 0; i < 8; ++i) {
            const uint64_t v = (kIq2xxsGrid[p] >> (8 * i)) & 255u;
            code[i] = v == 8 ? 0 : v == 25 ? 1 : 2;
            h.levels[p] |= static_cast<uint32_t>(code[i]) << (2 * i);
        }
        const int low = 27 * code[3] + 9 * code[2] + 3 * code[1] + code[0];
        const int high = 27 * code[7] + 9 * code[6] + 3 * code[5] + code[4];
        int slot = 0;
        while (slot < n_low && h.low_quad[slot] != low) ++slot;
        if (slot == n_low) h.low_quad[n_low++] = static_cast<uint8_t>(low);
        h.low_of[p] = static_cast<uint8_t>(slot);
        if (n_high == 0 || h.high_quad[n_high - 1] != high) {
            h.high_start[n_high] = static_cast<uint16_t>(p);
            h.high_quad[n_high++] = static_cast<uint8_t>(high);
        }
    }
    h.high_start[n_high] = 256;
    // One too many would not compile (the arrays end); one too few:
    if (n_low != Halves::kLow || n_high != Halves::kHigh) h.high_start[Halves::kHigh + 1] = 0;
    return h;
}
inline constexpr Halves kHalves = split_grid();

}  // namespace vesta::quant::iq2xxs
