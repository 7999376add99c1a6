// Products with plain numbers and attention's value half, cut into tiles of registers: what AVX2 and NEON have in
// common. (AVX-512 masks the ends of rows instead of padding them, and has its own.) Included by kernels_avx2.cpp and
// kernels_neon.cpp only, and in an unnamed namespace: files compiled for an instruction set must not share functions
// with others, the linker would keep one copy for every processor.
//
// An instruction set is a class Isa with
//   Vec, kLanes                       a vector of floats; load, store, zero, broadcast(address), fma(a, b, c) = a·b + c
//   Sums                              eight running sums; zero_sums, and fold: the one way they become a number
//   F32                               f32 weights, as a format of add_products
//   add_products<F, R, C>(acc, w, x, n, ahead)
//                                     adds the products of n elements to the sums of an R × C tile, and meanwhile
//                                     fetches the bytes `ahead` of w
#pragma once

#include "backend/cpu/kernels_tables.h"

namespace vesta::backend {
namespace {

template <class Isa>
struct FloatTiles {
    using Sums = typename Isa::Sums;
    using Vec = typename Isa::Vec;
    static constexpr int64_t kColumns =
        64;  // rows of x per sweep over the weights: 64 × 4096 int16 is half of a 1 MiB L2

    static int64_t row_of(const MatmulTask& m, int64_t t) { return m.pick == nullptr ? t : m.pick[t]; }
    static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

    // --- matmul with f32 activations --------------------

    template <class F, int R, int C>
    static void tile(const MatmulTask& m, int64_t o, int64_t t) {
        const std::byte* w[R];
        const float* x[C];
        Sums acc[R][C];
        for (int r = 0; r < R; ++r) w[r] = m.w + (o + r) * m.w_stride;
        for (int c = 0; c < C; ++c) {
            x[c] = m.x + row_of(m, t + c) * m.x_stride;
            for (int r = 0; r < R; ++r) acc[r][c] = Isa::zero_sums();
        }
        Isa::template add_products<F, R, C>(acc, w, x, m.n_in, o + 2 * R <= m.n_out ? R * m.w_stride : 0);
        for (int r = 0; r < R; ++r)
            for (int c = 0; c < C; ++c) m.y[(t + c) * m.y_stride + o + r] = Isa::fold(acc[r][c]);
    }

    // The columns [t, t+n) of R rows: full tiles of C, then one of what is left.
    template <class F, int R, int C>
    static void columns(const MatmulTask& m, int64_t o, int64_t t, int64_t n) {
        if constexpr (C > 0) {
            for (; n >= C; n -= C, t += C) tile<F, R, C>(m, o, t);
            columns<F, R, C - 1>(m, o, t, n);
        }
    }

    template <class F>
    static void matmul(const MatmulTask& m) {
        for (int64_t t = 0; t < m.n_row; t += kColumns) {
            const int64_t n = smaller(kColumns, m.n_row - t);
            int64_t o = 0;
            for (; o + 4 <= m.n_out; o += 4) columns<F, 4, 3>(m, o, t, n);
            for (; o < m.n_out; ++o) columns<F, 1, 3>(m, o, t, n);
        }
    }

    // --- the same through decoding to f32 --------------------

    static constexpr int64_t kPiece = 256;

    // One decoded piece of R rows against the columns [first, n_col): the sums wait in memory between pieces.
    template <int R, int C>
    static void columns_decoded(Sums (*sums)[R], const float (&piece)[R][kPiece], const MatmulTask& m, int64_t t,
                                int64_t n_col, int64_t i, int64_t n) {
        if constexpr (C > 0) {
            const std::byte* w[R];
            for (int r = 0; r < R; ++r) w[r] = reinterpret_cast<const std::byte*>(piece[r]);
            for (; n_col >= C; n_col -= C, t += C, sums += C) {
                const float* x[C];
                Sums acc[R][C];
                for (int c = 0; c < C; ++c) {
                    x[c] = m.x + row_of(m, t + c) * m.x_stride + i;
                    for (int r = 0; r < R; ++r) acc[r][c] = sums[c][r];
                }
                Isa::template add_products<typename Isa::F32, R, C>(acc, w, x, n, 0);
                for (int c = 0; c < C; ++c)
                    for (int r = 0; r < R; ++r) sums[c][r] = acc[r][c];
            }
            columns_decoded<R, C - 1>(sums, piece, m, t, n_col, i, n);
        }
    }

    template <int R>
    static void rows_decoded(const MatmulTask& m, const quant::Format& format, int64_t o, int64_t t, int64_t n_col) {
        alignas(32) float piece[R][kPiece];
        Sums sums[kColumns][R];
        for (int64_t c = 0; c < n_col; ++c)
            for (int r = 0; r < R; ++r) sums[c][r] = Isa::zero_sums();
        for (int64_t i = 0; i < m.n_in; i += kPiece) {
            const int64_t n = smaller(kPiece, m.n_in - i);
            for (int r = 0; r < R; ++r)
                format.decode(m.w + (o + r) * m.w_stride + i / format.block_elems * format.block_bytes, piece[r], n);
            columns_decoded<R, 3>(sums, piece, m, t, n_col, i, n);
        }
        for (int64_t c = 0; c < n_col; ++c)
            for (int r = 0; r < R; ++r) m.y[(t + c) * m.y_stride + o + r] = Isa::fold(sums[c][r]);
    }

    static void matmul_decoded(const MatmulTask& m, const quant::Format& format) {
        for (int64_t t = 0; t < m.n_row; t += kColumns) {
            const int64_t n = smaller(kColumns, m.n_row - t);
            int64_t o = 0;
            for (; o + 4 <= m.n_out; o += 4) rows_decoded<4>(m, format, o, t, n);
            for (; o < m.n_out; ++o) rows_decoded<1>(m, format, o, t, n);
        }
    }

    // --- attention's value half --------------------

    // Adds `n` rows from `first` on to H mixtures of V vectors.
    template <int H, int V>
    static void tile_mix(const MixTask& m, int64_t h, int64_t d, int64_t first, int64_t n) {
        const bool from_y = m.accumulate || first > 0;
        Vec acc[H][V];
        for (int k = 0; k < H; ++k)
            for (int v = 0; v < V; ++v)
                acc[k][v] = from_y ? Isa::load(m.y + (h + k) * m.y_stride + d + Isa::kLanes * v) : Isa::zero();
        const float* row = m.rows + first * m.row_stride + d;
        const float* p = m.p + h * m.p_stride + first;
        for (int64_t i = 0; i < n; ++i, row += m.row_stride) {
            Vec x[V];
            for (int v = 0; v < V; ++v) x[v] = Isa::load(row + Isa::kLanes * v);
            for (int k = 0; k < H; ++k) {
                const Vec share = Isa::broadcast(p + k * m.p_stride + i);
                for (int v = 0; v < V; ++v) acc[k][v] = Isa::fma(share, x[v], acc[k][v]);
            }
        }
        for (int k = 0; k < H; ++k)
            for (int v = 0; v < V; ++v) Isa::store(m.y + (h + k) * m.y_stride + d + Isa::kLanes * v, acc[k][v]);
    }

    template <int H>
    static void rows_mix(const MixTask& m, int64_t h, int64_t first, int64_t n) {
        int64_t d = 0;
        for (; d + 16 <= m.n_col; d += 16) tile_mix<H, 16 / Isa::kLanes>(m, h, d, first, n);
        for (; d + Isa::kLanes <= m.n_col; d += Isa::kLanes) tile_mix<H, 1>(m, h, d, first, n);
        for (; d < m.n_col; ++d) {
            for (int k = 0; k < H; ++k) {
                float& y = m.y[(h + k) * m.y_stride + d];
                float sum = m.accumulate || first > 0 ? y : 0.0f;
                for (int64_t i = first; i < first + n; ++i)
                    sum = __builtin_fmaf(m.p[(h + k) * m.p_stride + i], m.rows[i * m.row_stride + d], sum);
                y = sum;
            }
        }
    }

    static void mix(const MixTask& m) {
        // 16 rows of 512 are 32 KiB: they stay in L1 while every mixture passes over them. A column of all rows at once
        // would not: lines a power of two apart share a few cache sets.
        constexpr int64_t kRows = 16;
        int64_t first = 0;
        do {
            const int64_t n = smaller(kRows, m.n_row - first);
            int64_t h = 0;
            for (; h + 4 <= m.n_mix; h += 4) rows_mix<4>(m, h, first, n);
            for (; h < m.n_mix; ++h) rows_mix<1>(m, h, first, n);
            first += kRows;
        } while (first < m.n_row);
    }
};

}  // namespace
}  // namespace vesta::backend
