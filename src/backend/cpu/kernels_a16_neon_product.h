// Products with block formats for NEON: what the three instruction sets have in common. kernels_a16.h defines what is
// summed. Included by the kernels_a16_neon*.cpp only, see kernels_a16_neon_formats.h.
//
// One row of x: four rows of w at a time. Each row gives the integer sums of its eight blocks (or sixteen groups); then
// lanes become rows, and the blocks are added in order. Many rows of x: 16 rows of w are unpacked once per unit to a
// panel of 4 or 8 KiB, and every row of x passes over the panel while it is in L1; sums need no folding there.
//
// An instruction set is a class with
//   kSplit                          the order of codes in the rows of x it reads
//   dot<B>(codes, x)                int32x4_t whose lanes add up to the sum of block B of the unit at x
//   dot16<B, H>(codes, x)           the same of half H of block B
//   Panel, put<B>(panel, r, c)      the codes of a panel; puts those of block B of rows r .. r+3
//   kRows, multiply<n, C>(...)      most rows of x at a time, and the sums of n elements with C rows of x
#pragma once

#include "backend/cpu/kernels_a16_neon_formats.h"
#include "backend/cpu/kernels_a16_units.h"

namespace vesta::backend {
namespace neon {
namespace {

constexpr int64_t kColumns = 64;  // rows of x per sweep over the weights: 64 rows of 4096 are 0.5 MiB of codes
constexpr int kPanelRows = 16;    // rows of w in a panel: four registers of sums per row of x

VESTA_INLINE int32x4_t fold4(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {  // the sums over the lanes of each
    return vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
}
VESTA_INLINE void transpose4(float32x4_t (&v)[4]) {
    const float32x4_t a = vzip1q_f32(v[0], v[2]), b = vzip2q_f32(v[0], v[2]), c = vzip1q_f32(v[1], v[3]),
                      d = vzip2q_f32(v[1], v[3]);
    v[0] = vzip1q_f32(a, c);
    v[1] = vzip2q_f32(a, c);
    v[2] = vzip1q_f32(b, d);
    v[3] = vzip2q_f32(b, d);
}

// --- one row of x --------------------

// The integer sums of a unit with one row of x: eight blocks in s[0..1], or sixteen groups in s[0..3].
template <class Isa, class F>
VESTA_INLINE void unit_sums(const F& w, const std::byte* x, int32x4_t (&s)[2 * F::kGroups]) {
    if constexpr (F::kGroups == 1) {
        s[0] = fold4(Isa::template dot<0>(w.template codes<0>(), x), Isa::template dot<1>(w.template codes<1>(), x),
                     Isa::template dot<2>(w.template codes<2>(), x), Isa::template dot<3>(w.template codes<3>(), x));
        s[1] = fold4(Isa::template dot<4>(w.template codes<4>(), x), Isa::template dot<5>(w.template codes<5>(), x),
                     Isa::template dot<6>(w.template codes<6>(), x), Isa::template dot<7>(w.template codes<7>(), x));
    } else {
        const auto two_blocks = [x](Codes a, Codes b, auto first) {
            constexpr int kB = decltype(first)::kValue;
            return fold4(Isa::template dot16<kB, 0>(a.half[0], x), Isa::template dot16<kB, 1>(a.half[1], x),
                         Isa::template dot16<kB + 1, 0>(b.half[0], x), Isa::template dot16<kB + 1, 1>(b.half[1], x));
        };
        s[0] = two_blocks(w.template codes<0>(), w.template codes<1>(), Int<0>());
        s[1] = two_blocks(w.template codes<2>(), w.template codes<3>(), Int<2>());
        s[2] = two_blocks(w.template codes<4>(), w.template codes<5>(), Int<4>());
        s[3] = two_blocks(w.template codes<6>(), w.template codes<7>(), Int<6>());
    }
}

// Outputs [o, o + n), n <= 4, of row t. Meanwhile the next four rows of w are fetched, and in the first rows of a task,
// which nobody has fetched, the units to come: the form that pays most on x86 (kernels_a16_avx2.cpp), where the
// processor's own prefetch stops at pages. Not measured on Arm hardware.
template <class Isa, class F>
void four_outputs(const MatmulTask& m, int64_t o, int64_t n, int64_t t) {
    constexpr int64_t kUnitBytes = Weights<F>::kUnitBytes, kUnitsAhead = 4;
    const std::byte* row = row_of(m, t);
    const int64_t n_unit = (m.n_in + kUnit - 1) / kUnit, ahead = o + 8 <= m.n_out ? 4 * m.w_stride : 0;
    for (int64_t u = 0; o == 0 && u < smaller(kUnitsAhead, n_unit); ++u)
        for (int64_t r = 0; r < n; ++r) Weights<F>::fetch(m.w + r * m.w_stride + u * kUnitBytes);
    std::byte pad[kUnitBytes];
    Factors f;
    float32x4_t sum = vdupq_n_f32(0.0f);
    float32x4_t v[2 * F::kGroups][4];
    for (int64_t u = 0; u < n_unit; ++u) {
        const auto totals = [&](int64_t array, int k) {
            return vld1q_f32(reinterpret_cast<const float*>(row + array) + 8 * u + 4 * k);
        };
        for (int r = 0; r < 4; ++r) {
            const std::byte* p = Weights<F>::unit(m, o + smaller(r, n - 1), u, pad);
            Weights<F>::fetch(p + ahead);
            if (o == 0) Weights<F>::fetch(p + kUnitsAhead * kUnitBytes);
            const F w{p};
            int32x4_t s[2 * F::kGroups];
            unit_sums<Isa, F>(w, row + 2 * kUnit * u, s);
            w.factors(f);
            for (int k = 0; k < 2 * F::kGroups; ++k) {
                float32x4_t value = vmulq_f32(vcvtq_f32_s32(s[k]), f.ws[k]);
                if constexpr (F::kMins == 1) value = vfmaq_f32(value, f.wm[k], totals(a16::sum_at(m.n_in), k));
                if constexpr (F::kMins == 2) {
                    value = vfmaq_f32(value, f.wm[k], totals(a16::low_at(m.n_in), k));
                    value = vfmaq_f32(value, f.wm[2 + k], totals(a16::high_at(m.n_in), k));
                }
                v[k][r] = value;
            }
        }
        const auto* scale = reinterpret_cast<const float*>(row + a16::scale_at(m.n_in)) + 8 * u;
        const int64_t n_group = F::kGroups * smaller(8, m.n_in / 32 - 8 * u);
        for (int k = 0; k < 2 * F::kGroups; ++k) {
            transpose4(v[k]);
            for (int64_t g = 4 * k; g < smaller(n_group, 4 * k + 4); ++g)
                sum = vfmaq_n_f32(sum, v[k][g - 4 * k], scale[g / F::kGroups]);
        }
    }
    float y[4];
    vst1q_f32(y, sum);
    memcpy(m.y + t * m.y_stride + o, y, static_cast<size_t>(n) * sizeof(float));
}

// --- many rows of x --------------------

template <class Isa>
struct Panel {
    alignas(64) typename Isa::Panel codes;
    alignas(64) float ws[16][kPanelRows];
    alignas(64) float wm[16][kPanelRows];
};

// Rows r .. r+3 of w into the panel.
template <class Isa, class F>
void fill(Panel<Isa>& panel, int r, const std::byte* const (&unit)[4]) {
    const F w[4] = {F{unit[0]}, F{unit[1]}, F{unit[2]}, F{unit[3]}};
    const auto block = [&](auto b) {
        constexpr int kB = decltype(b)::kValue;
        const Codes c[4] = {w[0].template codes<kB>(), w[1].template codes<kB>(), w[2].template codes<kB>(),
                            w[3].template codes<kB>()};
        Isa::template put<kB>(panel.codes, r, c);
    };
    block(Int<0>()), block(Int<1>()), block(Int<2>()), block(Int<3>());
    block(Int<4>()), block(Int<5>()), block(Int<6>()), block(Int<7>());
    Factors f[4];
    for (int i = 0; i < 4; ++i) w[i].factors(f[i]);
    const auto columns = [r](float(*to)[kPanelRows], float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
        float32x4_t v[4] = {a, b, c, d};
        transpose4(v);
        for (int i = 0; i < 4; ++i) vst1q_f32(to[i] + r, v[i]);
    };
    for (int k = 0; k < 2 * F::kGroups; ++k) columns(panel.ws + 4 * k, f[0].ws[k], f[1].ws[k], f[2].ws[k], f[3].ws[k]);
    for (int k = 0; k < 2 * F::kMins; ++k) columns(panel.wm + 4 * k, f[0].wm[k], f[1].wm[k], f[2].wm[k], f[3].wm[k]);
}

// Adds one unit to the sums of C rows of x.
template <class Isa, class F, int C>
void add_unit(const Panel<Isa>& panel, const std::byte* const* rows, int64_t n_in, int64_t u,
              float (*sum)[kPanelRows]) {
    constexpr int kGroup = 32 / F::kGroups;
    const int64_t n_group = F::kGroups * smaller(8, n_in / 32 - 8 * u);
    const int64_t totals[2] = {F::kMins == 1 ? a16::sum_at(n_in) : a16::low_at(n_in), a16::high_at(n_in)};
    const std::byte* x[C];
    for (int c = 0; c < C; ++c) x[c] = rows[c] + 2 * kUnit * u;
    for (int64_t g = 0; g < n_group; ++g) {
        const int64_t b = g / F::kGroups, at = 4 * (8 * u + b);
        int32x4_t dot[C][4];
        Isa::template multiply<kGroup, C>(panel.codes, g, x, dot);
        for (int c = 0; c < C; ++c) {
            const auto scale = load<float>(rows[c] + a16::scale_at(n_in) + at);
            for (int k = 0; k < 4; ++k) {
                float32x4_t v = vmulq_f32(vcvtq_f32_s32(dot[c][k]), vld1q_f32(panel.ws[g] + 4 * k));
                for (int i = 0; i < F::kMins; ++i)
                    v = vfmaq_n_f32(v, vld1q_f32(panel.wm[8 * i + b] + 4 * k), load<float>(rows[c] + totals[i] + at));
                float* s = sum[c] + 4 * k;
                vst1q_f32(s, vfmaq_n_f32(vld1q_f32(s), v, scale));
            }
        }
    }
}

template <class Isa, class F, int C>
void add_unit_to_rows(const Panel<Isa>& panel, const std::byte* const* rows, int64_t n_row, int64_t n_in, int64_t u,
                      float (*sum)[kPanelRows]) {
    if constexpr (C > 0) {
        for (; n_row >= C; n_row -= C, rows += C, sum += C) add_unit<Isa, F, C>(panel, rows, n_in, u, sum);
        add_unit_to_rows<Isa, F, C - 1>(panel, rows, n_row, n_in, u, sum);
    }
}

template <class Isa, class F>
void sixteen_outputs(const MatmulTask& m, int64_t o, int64_t n_out, int64_t t, int64_t n_row) {
    constexpr int64_t kUnitBytes = Weights<F>::kUnitBytes;
    float sum[kColumns][kPanelRows];
    Panel<Isa> panel;
    std::byte pad[4][kUnitBytes];
    const std::byte* rows[kColumns];
    for (int64_t c = 0; c < n_row; ++c) rows[c] = row_of(m, t + c);
    memset(sum, 0, static_cast<size_t>(n_row) * sizeof sum[0]);
    for (int64_t u = 0; u * kUnit < m.n_in; ++u) {
        for (int r = 0; r < kPanelRows; r += 4) {
            const std::byte* unit[4];
            for (int i = 0; i < 4; ++i) {
                unit[i] = Weights<F>::unit(m, o + smaller(r + i, n_out - 1), u, pad[i]);
                Weights<F>::fetch(unit[i] + 2 * kUnitBytes);
            }
            fill<Isa, F>(panel, r, unit);
        }
        add_unit_to_rows<Isa, F, Isa::kRows>(panel, rows, n_row, m.n_in, u, sum);
    }
    for (int64_t c = 0; c < n_row; ++c)
        memcpy(m.y + (t + c) * m.y_stride + o, sum[c], static_cast<size_t>(n_out) * sizeof(float));
}

template <class Isa, class F>
void product(const MatmulTask& m) {
    constexpr int64_t kPanelPays = 3;  // rows of x from which a panel is the faster way on x86; not measured on Arm
    for (int64_t t = 0; t < m.n_row; t += kColumns) {
        const int64_t n_row = smaller(kColumns, m.n_row - t);
        if (n_row < kPanelPays) {
            for (int64_t o = 0; o < m.n_out; o += 4)
                for (int64_t c = 0; c < n_row; ++c) four_outputs<Isa, F>(m, o, smaller(4, m.n_out - o), t + c);
        } else {
            for (int64_t o = 0; o < m.n_out; o += kPanelRows)
                sixteen_outputs<Isa, F>(m, o, smaller(kPanelRows, m.n_out - o), t, n_row);
        }
    }
}

// --- activations --------------------

template <bool kSplit>
void quantize(const float* x, int64_t n, std::byte* row) {
    const auto put = [&](int64_t array, int64_t i, auto value) { memcpy(row + array + 4 * i, &value, 4); };
    const auto top_code = static_cast<float>(a16::kTop);
    for (int64_t b = 0; b < n / 32; ++b, x += 32) {
        float32x4_t v[8];
        // The largest magnitude as bits: integers compare like non-negative floats, and NaN counts as larger than inf.
        uint32x4_t bits = vdupq_n_u32(0);
        for (int i = 0; i < 8; ++i) {
            v[i] = vld1q_f32(x + 4 * i);
            bits = vmaxq_u32(bits, vreinterpretq_u32_f32(vabsq_f32(v[i])));
        }
        const uint32_t top = vmaxvq_u32(bits);
        float amax;
        memcpy(&amax, &top, sizeof amax);
        const bool finite = top < 0x7f800000u, nonzero = finite && amax >= 1e-30f;
        const float inverse = nonzero ? top_code / amax : 0.0f;
        int32x4_t q[8];
        for (int i = 0; i < 8; ++i) q[i] = nonzero ? vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse)) : vdupq_n_s32(0);
        const int low = vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3]))),
                  high = vaddvq_s32(vaddq_s32(vaddq_s32(q[4], q[5]), vaddq_s32(q[6], q[7])));
        put(a16::scale_at(n), b, !finite ? __builtin_nanf("") : nonzero ? amax / top_code : 0.0f);
        put(a16::sum_at(n), b, static_cast<float>(low + high));
        put(a16::low_at(n), b, static_cast<float>(low));
        put(a16::high_at(n), b, static_cast<float>(high));
        for (int i = 0; i < 4; ++i) {
            const int16x8_t eight = vmovn_high_s32(vmovn_s32(q[2 * i]), q[2 * i + 1]);
            if constexpr (kSplit) {
                // q = 256 · (q + 128 >> 8) + the low byte as a signed one
                auto* to = reinterpret_cast<int8_t*>(row + b / 2 * 128 + b % 2 * 32 + 8 * i);
                vst1_s8(to, vrshrn_n_s16(eight, 8));
                vst1_s8(to + 64, vmovn_s16(eight));
            } else {
                vst1q_s16(reinterpret_cast<int16_t*>(row + 64 * b + 16 * i), eight);
            }
        }
        if constexpr (kSplit) {  // a part of every split row, though signed products do not read it
            put(a16::offset_at(n), b, -128 * (low + high));
            put(a16::offset16_at(n), 2 * b, -128 * low);
            put(a16::offset16_at(n), 2 * b + 1, -128 * high);
        }
    }
}

template <class Isa>
constexpr A16Kernels kTable = {
    .split = Isa::kSplit,
    .quantize = quantize<Isa::kSplit>,
    .q8_0 = product<Isa, Q8_0>,
    .mxfp4 = product<Isa, Mxfp4>,
    .q2_k = product<Isa, Q2K>,
    .q3_k = product<Isa, Q3K>,
    .q4_k = product<Isa, Q4K>,
    .q5_k = product<Isa, Q5K>,
    .q6_k = product<Isa, Q6K>,
    .iq2_xxs = product<Isa, Iq2xxs>,
};

}  // namespace
}  // namespace neon
}  // namespace vesta::backend
