// Products with block formats for AVX-512 with VNNI and VBMI. kernels_a16.h defines what is summed.
//
// VNNI multiplies unsigned by signed bytes, four products to an int32 lane. Codes of weights are unpacked to unsigned
// bytes (signed ones plus 128; the rows of x bring -128 times their sums), and 16-bit activations are two signed bytes:
// sum = 256 · (w · high) + w · low, exactly. That is as many multiplications as with int16, and no widening.
//
// One row of x: sixteen rows of w at a time, two by two. Each row gives the integer sums of its eight blocks of 32;
// then lanes become rows, and the blocks are added in order. Many rows of x: 32 rows of w are unpacked with lanes as
// rows (a panel, 8 KiB), and every row of x passes over the panel while it is in L1; sums need no folding there.
#include "backend/cpu/kernels_tables.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__) && defined(__AVX512VBMI__)

#include "backend/cpu/kernels_a16_avx512_formats.h"

namespace vesta::backend {
namespace avx512 {
namespace {

constexpr int64_t kColumns = 64;  // rows of x per sweep over the weights: 64 rows of 4096 are 0.5 MiB of codes

// --- shared pieces --------------------

// Sixteen rows of w from output o on, of which n exist (the last one stands in for the others), unit by unit. The last
// unit of 32-element blocks may be short: it is read from a padded copy.
template <class F>
struct Rows {
    static constexpr int64_t kUnitBytes = kUnit / F::kElems * F::kBytes;
    const std::byte* start[16];
    const std::byte* at[16];
    std::byte pad[16][kUnitBytes];

    Rows(const MatmulTask& m, int64_t o, int64_t n) {
        for (int64_t r = 0; r < 16; ++r) start[r] = m.w + (o + smaller(r, n - 1)) * m.w_stride;
    }
    void go_to(int64_t u, int64_t n_in) {
        for (int r = 0; r < 16; ++r) at[r] = start[r] + u * kUnitBytes;
        if (kUnit * (u + 1) <= n_in) return;
        memset(pad, 0, sizeof pad);
        for (int r = 0; r < 16; ++r) {
            memcpy(pad[r], at[r], static_cast<size_t>((n_in - kUnit * u) / F::kElems * F::kBytes));
            at[r] = pad[r];
        }
    }
};

const std::byte* row_of(const MatmulTask& m, int64_t t) {
    return m.a16 + (m.pick == nullptr ? t : m.pick[t]) * a16::row_bytes(m.n_in);
}

// A unit of a row of x: high bytes, then low bytes, each in the order of the codes they meet.
struct Activations {
    __m512i high[4], low[4];
};
template <class F>
VESTA_INLINE Activations activations(const std::byte* x) {
    Activations a;
    for (int j = 0; j < 4; ++j) {
        a.high[j] = load64(x + 128 * j);
        a.low[j] = load64(x + 128 * j + 64);
    }
    if constexpr (F::kByBlock) {
        // From v[j] with blocks 2j and 2j + 1 to quadwords k of all blocks.
        const auto by_block = [](__m512i(&v)[4]) {
            const __m512i even = _mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13),
                          odd = _mm512_setr_epi64(2, 6, 10, 14, 3, 7, 11, 15);
            const __m512i a01 = _mm512_permutex2var_epi64(v[0], even, v[1]),
                          b01 = _mm512_permutex2var_epi64(v[2], even, v[3]);
            const __m512i a23 = _mm512_permutex2var_epi64(v[0], odd, v[1]),
                          b23 = _mm512_permutex2var_epi64(v[2], odd, v[3]);
            v[0] = _mm512_shuffle_i64x2(a01, b01, 0x44);
            v[1] = _mm512_shuffle_i64x2(a01, b01, 0xee);
            v[2] = _mm512_shuffle_i64x2(a23, b23, 0x44);
            v[3] = _mm512_shuffle_i64x2(a23, b23, 0xee);
        };
        by_block(a.high);
        by_block(a.low);
    }
    return a;
}

// The int32 sums of a unit with one row of x, four elements to a lane. By block: block b is lanes 2b and 2b + 1.
VESTA_INLINE __m512i multiply_by_block(const __m512i (&q)[4], const Activations& x) {
    __m512i dot = _mm512_setzero_si512();
    for (int k = 0; k < 4; ++k) dot = _mm512_dpbusd_epi32(dot, q[k], x.high[k]);
    dot = _mm512_slli_epi32(dot, 8);
    for (int k = 0; k < 4; ++k) dot = _mm512_dpbusd_epi32(dot, q[k], x.low[k]);
    return dot;
}
VESTA_INLINE void multiply(const __m512i (&q)[4], const Activations& x, __m512i (&dot)[4]) {
    for (int j = 0; j < 4; ++j) {
        const __m512i high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q[j], x.high[j]);
        dot[j] = _mm512_dpbusd_epi32(_mm512_slli_epi32(high, 8), q[j], x.low[j]);
    }
}
// Adds lanes by fours: 128-bit lane k of the result has the sums of lanes k of the four.
VESTA_INLINE __m512i fold4(const __m512i (&v)[4]) {
    const auto pair = [](__m512i a, __m512i b) {
        return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    };
    const __m512i a = pair(v[0], v[1]), b = pair(v[2], v[3]);
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

VESTA_INLINE __m512i as_int(__m512 v) { return _mm512_castps_si512(v); }
VESTA_INLINE __m512 as_float(__m512i v) { return _mm512_castsi512_ps(v); }

// 4 x 4 lanes of 32 bits inside every 128-bit lane.
VESTA_INLINE void transpose4(__m512i& a, __m512i& b, __m512i& c, __m512i& d) {
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b),
                  cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    a = _mm512_unpacklo_epi64(ab_low, cd_low);
    b = _mm512_unpackhi_epi64(ab_low, cd_low);
    c = _mm512_unpacklo_epi64(ab_high, cd_high);
    d = _mm512_unpackhi_epi64(ab_high, cd_high);
}
// out[c] lane r = in[r] lane c
VESTA_INLINE void transpose16(__m512i (&v)[16]) {
    for (int i = 0; i < 16; i += 4) transpose4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    // Now v[4a + k] has, in 128-bit lane l, column 4l + k of rows 4a .. 4a+3.
    for (int k = 0; k < 4; ++k) {
        const __m512i a = _mm512_shuffle_i32x4(v[k], v[4 + k], 0x88), b = _mm512_shuffle_i32x4(v[k], v[4 + k], 0xdd),
                      c = _mm512_shuffle_i32x4(v[8 + k], v[12 + k], 0x88),
                      d = _mm512_shuffle_i32x4(v[8 + k], v[12 + k], 0xdd);
        v[k] = _mm512_shuffle_i32x4(a, c, 0x88);
        v[8 + k] = _mm512_shuffle_i32x4(a, c, 0xdd);
        v[4 + k] = _mm512_shuffle_i32x4(b, d, 0x88);
        v[12 + k] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}
// Rows come in pairs, eight lanes each: v[i] has rows i and i + 4, v[4 + i] rows i + 8 and i + 12 (i < 4).
// out[c] lane r = column c of row r
VESTA_INLINE void transpose8(__m512i (&v)[8]) {
    transpose4(v[0], v[1], v[2], v[3]);
    transpose4(v[4], v[5], v[6], v[7]);
    for (int k = 0; k < 4; ++k) {
        const __m512i a = v[k], b = v[4 + k];
        v[k] = _mm512_shuffle_i32x4(a, b, 0x88);
        v[4 + k] = _mm512_shuffle_i32x4(a, b, 0xdd);
    }
}

// --- one row of x --------------------

// Row of w in the lower half of register i of transpose8, in order of i; the upper half has the row four on.
constexpr int kPairRow[8] = {0, 1, 2, 3, 8, 9, 10, 11};

// Fetches what comes after these sixteen rows: a row is about one page, and the processor's own prefetch stops at
// pages. While sixteen rows fit L1 (q4_k up to n_in = 4096), the next sixteen are fetched in the order of memory;
// longer ones, some 600 bytes ahead in their own row. GB/s of one thread with these two ways, a read loop having 36:
// q4_k 28 and 27, mxfp4 30 and 29, q8_0 25 and 31. Without either 8, 8 and 14; into L2 only 20, 19 and 23
// (bench/NOTES.md).
template <class F>
struct Prefetch {
    static constexpr int64_t kUnitBytes = Rows<F>::kUnitBytes, kUnitsAhead = kUnitBytes > 256 ? 2 : 4;
    const std::byte* next;  // of the next sixteen rows
    int64_t jump;           // from a unit's address to that of the next sixteen rows
    int64_t n_unit, ahead = 0;
    bool in_order;
    bool cold;  // the first rows of a task, which nobody has fetched: some at once, then ahead in their own row
                // too

    Prefetch(const MatmulTask& m, int64_t o, int64_t units, const Rows<F>& rows) : n_unit(units), cold(o == 0) {
        jump = o + 32 <= m.n_out ? 16 * m.w_stride : 0;
        next = m.w + o * m.w_stride + jump;
        in_order = 16 * m.w_stride <= 40960;
        if (!cold) return;
        for (int64_t u = 0; u < smaller(kUnitsAhead, n_unit); ++u)
            for (int r = 0; r < 16; ++r) fetch(rows.start[r] + u * kUnitBytes);
        cold = in_order;
    }
    VESTA_INLINE static void fetch(const std::byte* p) {
        for (int64_t at = 0; at < kUnitBytes; at += 64)
            _mm_prefetch(reinterpret_cast<const char*>(p + at), _MM_HINT_T0);
    }
    VESTA_INLINE void go_to(int64_t u) {
        ahead = (u + kUnitsAhead < n_unit ? kUnitsAhead : kUnitsAhead - n_unit) * kUnitBytes +
                (u + kUnitsAhead < n_unit ? 0 : jump);
    }
    VESTA_INLINE void operator()(const std::byte* unit) {
        fetch(in_order ? next : unit + ahead);
        if (cold) fetch(unit + ahead);
        next += kUnitBytes;
    }
};

// Outputs [o, o + n), n <= 16, of row t.
template <class F>
void sixteen_outputs(const MatmulTask& m, int64_t o, int64_t n, int64_t t) {
    const std::byte* row = row_of(m, t);
    const int64_t n_unit = (m.n_in + kUnit - 1) / kUnit;
    Rows<F> w(m, o, n);
    Prefetch<F> prefetch(m, o, n_unit, w);
    Factors f;
    __m512i dot[4], q[4];
    __m512 sum = _mm512_setzero_ps();
    for (int64_t u = 0; u < n_unit; ++u) {
        const Activations x = activations<F>(row + 2 * kUnit * u);
        const auto* scale = reinterpret_cast<const float*>(row + a16::scale_at(m.n_in)) + 8 * u;
        const int64_t n_block = smaller(8, m.n_in / 32 - 8 * u);
        w.go_to(u, m.n_in);
        prefetch.go_to(u);
        if constexpr (F::kGroups == 1) {
            __m512i v[8];
            const auto totals = [&](int64_t array) {
                return _mm512_broadcast_f32x8(_mm256_loadu_ps(reinterpret_cast<const float*>(row + array) + 8 * u));
            };
            const __m512i offset = twice(load32(row + a16::offset_at(m.n_in) + 32 * u));
            const auto block_sums = [&](const std::byte* p) {
                F::codes(p, q);
                if constexpr (F::kByBlock) {
                    return multiply_by_block(q, x);
                } else {
                    multiply(q, x, dot);
                    return fold4(dot);
                }
            };
            for (int i = 0; i < 8; ++i) {
                const std::byte *p0 = w.at[kPairRow[i]], *p1 = w.at[kPairRow[i] + 4];
                prefetch(p0);
                prefetch(p1);
                const __m512i a = block_sums(p0), b = block_sums(p1);
                __m512i sums;
                if constexpr (F::kByBlock) {
                    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
                    sums =
                        _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b),
                                         _mm512_permutex2var_epi32(a, _mm512_or_si512(even, _mm512_set1_epi32(1)), b));
                } else {
                    // 128-bit lanes 0 and 1 are halves of the even blocks, 2 and 3 of the odd.
                    sums = _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
                    sums = _mm512_permutexvar_epi32(
                        _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), sums);
                }
                if constexpr (F::kSigned) sums = _mm512_add_epi32(sums, offset);
                F::factors(p0, p1, f);
                __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), f.ws);
                if constexpr (F::kMins == 1) value = _mm512_fnmadd_ps(f.wm[0], totals(a16::sum_at(m.n_in)), value);
                if constexpr (F::kMins == 2) {
                    value = _mm512_fnmadd_ps(f.wm[0], totals(a16::low_at(m.n_in)), value);
                    value = _mm512_fnmadd_ps(f.wm[1], totals(a16::high_at(m.n_in)), value);
                }
                v[i] = as_int(value);
            }
            transpose8(v);
            for (int64_t b = 0; b < n_block; ++b) sum = _mm512_fmadd_ps(as_float(v[b]), _mm512_set1_ps(scale[b]), sum);
        } else {
            __m512i v[16];
            const __m512i offset = load64(row + a16::offset16_at(m.n_in) + 64 * u);
            for (int r = 0; r < 16; ++r) {
                const std::byte* p = w.at[r];
                prefetch(p);
                F::codes(p, q);
                multiply(q, x, dot);
                // 128-bit lane k has groups k, 4 + k, 8 + k, 12 + k.
                const __m512i sums = _mm512_permutexvar_epi32(
                    _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), fold4(dot));
                F::factors(p, p, f);
                v[r] = as_int(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(sums, offset)), f.ws));
            }
            transpose16(v);
            for (int64_t g = 0; g < 16; ++g) sum = _mm512_fmadd_ps(as_float(v[g]), _mm512_set1_ps(scale[g / 2]), sum);
        }
    }
    _mm512_mask_storeu_ps(m.y + t * m.y_stride + o, static_cast<__mmask16>((1u << n) - 1), sum);
}

// --- many rows of x --------------------

constexpr int kPanelRows = 32;

struct Panel {
    alignas(64) uint8_t code[64][kPanelRows][4];  // four elements, row of w
    alignas(64) float ws[16][kPanelRows];
    alignas(64) float wm[16][kPanelRows];
};

// Sixteen rows of w into columns [16·side, 16·side + 16) of the panel.
template <class F>
void fill(Panel& panel, const Rows<F>& w, int side) {
    __m512i v[16];
    alignas(64) __m512i q[16][4];
    for (int r = 0; r < 16; ++r) {
        F::codes(w.at[r], q[r]);
        // From memory, 6 rows of x, q4_k: 53 GMAC/s without, 102 with.
        for (int64_t at = 0; at < Rows<F>::kUnitBytes; at += 64)
            _mm_prefetch(reinterpret_cast<const char*>(w.at[r] + 2 * Rows<F>::kUnitBytes + at), _MM_HINT_T0);
    }
    for (int j = 0; j < 4; ++j) {
        for (int r = 0; r < 16; ++r) v[r] = q[r][j];
        transpose16(v);
        for (int i = 0; i < 16; ++i)
            _mm512_store_si512(panel.code[F::kByBlock ? i / 2 * 8 + 2 * j + i % 2 : 16 * j + i][16 * side], v[i]);
    }
    Factors f;
    if constexpr (F::kGroups == 2) {
        for (int r = 0; r < 16; ++r) {
            F::factors(w.at[r], w.at[r], f);
            v[r] = as_int(f.ws);
        }
        transpose16(v);
        for (int g = 0; g < 16; ++g) _mm512_store_si512(panel.ws[g] + 16 * side, v[g]);
    } else {
        __m512i ws[8], low[8], high[8];
        for (int i = 0; i < 8; ++i) {
            F::factors(w.at[kPairRow[i]], w.at[kPairRow[i] + 4], f);
            ws[i] = as_int(f.ws);
            if constexpr (F::kMins > 0) low[i] = as_int(f.wm[0]);
            if constexpr (F::kMins > 1) high[i] = as_int(f.wm[1]);
        }
        const auto store = [&](__m512i(&from)[8], float(*to)[kPanelRows]) {
            transpose8(from);
            for (int b = 0; b < 8; ++b) _mm512_store_si512(to[b] + 16 * side, from[b]);
        };
        store(ws, panel.ws);
        if constexpr (F::kMins > 0) store(low, panel.wm);
        if constexpr (F::kMins > 1) store(high, panel.wm + 8);
    }
}

// Adds one unit to the sums of C rows of x.
template <class F, int C>
void add_unit(const Panel& panel, const std::byte* const* rows, int64_t n_in, int64_t u, float (*sum)[kPanelRows]) {
    constexpr int kQuads = 8 / F::kGroups;  // fours of elements in a group
    const int64_t n_block = smaller(8, n_in / 32 - 8 * u);
    const int64_t totals[2] = {F::kMins == 1 ? a16::sum_at(n_in) : a16::low_at(n_in), a16::high_at(n_in)};
    for (int64_t b = 0; b < n_block; ++b) {
        const int64_t at = 4 * (8 * u + b);
        for (int h = 0; h < F::kGroups; ++h) {
            const int64_t g = F::kGroups * b + h;
            const uint8_t(*code)[kPanelRows][4] = panel.code + kQuads * g;
            const int64_t x = 2 * kUnit * u + b / 2 * 128 + b % 2 * 32 + 16 * h;
            __m512i dot[C][2];
            for (int c = 0; c < C; ++c) dot[c][0] = dot[c][1] = _mm512_setzero_si512();
            const auto multiply_quads = [&](int64_t byte) {
                for (int i = 0; i < kQuads; ++i) {
                    const __m512i w0 = _mm512_load_si512(code[i]), w1 = _mm512_load_si512(code[i][16]);
                    for (int c = 0; c < C; ++c) {
                        const __m512i four = _mm512_set1_epi32(load<int32_t>(rows[c] + x + byte + 4 * i));
                        dot[c][0] = _mm512_dpbusd_epi32(dot[c][0], w0, four);
                        dot[c][1] = _mm512_dpbusd_epi32(dot[c][1], w1, four);
                    }
                }
            };
            multiply_quads(0);
            for (int c = 0; c < C; ++c)
                for (int side = 0; side < 2; ++side) dot[c][side] = _mm512_slli_epi32(dot[c][side], 8);
            multiply_quads(64);
            const __m512 ws[2] = {_mm512_load_ps(panel.ws[g]), _mm512_load_ps(panel.ws[g] + 16)};
            for (int c = 0; c < C; ++c) {
                const __m512 scale = _mm512_set1_ps(load<float>(rows[c] + a16::scale_at(n_in) + at));
                __m512i offset = _mm512_setzero_si512();
                if constexpr (F::kSigned)
                    offset = _mm512_set1_epi32(
                        load<int32_t>(rows[c] + (F::kGroups == 1 ? a16::offset_at(n_in) + at
                                                                 : a16::offset16_at(n_in) + 2 * at + 4 * h)));
                for (int side = 0; side < 2; ++side) {
                    if constexpr (F::kSigned) dot[c][side] = _mm512_add_epi32(dot[c][side], offset);
                    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(dot[c][side]), ws[side]);
                    for (int i = 0; i < F::kMins; ++i) {
                        const __m512 total = _mm512_set1_ps(load<float>(rows[c] + totals[i] + at));
                        v = _mm512_fnmadd_ps(_mm512_load_ps(panel.wm[8 * i + b] + 16 * side), total, v);
                    }
                    float* s = sum[c] + 16 * side;
                    _mm512_store_ps(s, _mm512_fmadd_ps(v, scale, _mm512_load_ps(s)));
                }
            }
        }
    }
}

template <class F, int C>
void add_unit_to_rows(const Panel& panel, const std::byte* const* rows, int64_t n_row, int64_t n_in, int64_t u,
                      float (*sum)[kPanelRows]) {
    if constexpr (C > 0) {
        for (; n_row >= C; n_row -= C, rows += C, sum += C) add_unit<F, C>(panel, rows, n_in, u, sum);
        add_unit_to_rows<F, C - 1>(panel, rows, n_row, n_in, u, sum);
    }
}

template <class F>
void panel_outputs(const MatmulTask& m, int64_t o, int64_t n_out, int64_t t, int64_t n_row) {
    alignas(64) float sum[kColumns][kPanelRows];
    Panel panel;
    const std::byte* rows[kColumns];
    for (int64_t c = 0; c < n_row; ++c) rows[c] = row_of(m, t + c);
    memset(sum, 0, static_cast<size_t>(n_row) * sizeof sum[0]);
    Rows<F> w[2] = {{m, o, smaller(16, n_out)}, {m, n_out > 16 ? o + 16 : o, n_out > 16 ? n_out - 16 : n_out}};
    for (int64_t u = 0; u * kUnit < m.n_in; ++u) {
        for (int side = 0; side < 2; ++side) {
            w[side].go_to(u, m.n_in);
            fill<F>(panel, w[side], side);
        }
        add_unit_to_rows<F, 6>(panel, rows, n_row, m.n_in, u, sum);
    }
    for (int64_t c = 0; c < n_row; ++c)
        memcpy(m.y + (t + c) * m.y_stride + o, sum[c], static_cast<size_t>(n_out) * sizeof(float));
}

template <class F>
void product(const MatmulTask& m) {
    constexpr int64_t kPanelPays = 3;  // rows of x from which unpacking to a panel is the faster way
    for (int64_t t = 0; t < m.n_row; t += kColumns) {
        const int64_t n_row = smaller(kColumns, m.n_row - t);
        if (n_row < kPanelPays) {
            for (int64_t o = 0; o < m.n_out; o += 16)
                for (int64_t c = 0; c < n_row; ++c) sixteen_outputs<F>(m, o, smaller(16, m.n_out - o), t + c);
        } else {
            for (int64_t o = 0; o < m.n_out; o += kPanelRows)
                panel_outputs<F>(m, o, smaller(kPanelRows, m.n_out - o), t, n_row);
        }
    }
}

// --- activations --------------------

void quantize(const float* x, int64_t n, std::byte* row) {
    const auto put = [&](int64_t array, int64_t i, auto value) { memcpy(row + array + 4 * i, &value, 4); };
    for (int64_t b = 0; b < n / 32; ++b, x += 32) {
        const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        // The largest magnitude as bits: integers compare like non-negative floats, and NaN counts as larger than inf.
        const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
        const int top = _mm512_reduce_max_epi32(
            _mm512_max_epi32(_mm512_and_si512(as_int(x0), magnitude), _mm512_and_si512(as_int(x1), magnitude)));
        const bool finite = top < 0x7f800000;
        const float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(top)));
        const bool nonzero = finite && amax >= 1e-30f;
        const float top_code = static_cast<float>(a16::kTop);
        const __m512 inverse = _mm512_set1_ps(nonzero ? top_code / amax : 0.0f);
        __m512i q0 = _mm512_setzero_si512(), q1 = q0;
        if (nonzero) {
            q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse));
            q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse));
        }
        const int low = _mm512_reduce_add_epi32(q0), high = _mm512_reduce_add_epi32(q1);
        put(a16::scale_at(n), b, !finite ? __builtin_nanf("") : nonzero ? amax / top_code : 0.0f);
        put(a16::sum_at(n), b, static_cast<float>(low + high));
        put(a16::low_at(n), b, static_cast<float>(low));
        put(a16::high_at(n), b, static_cast<float>(high));
        put(a16::offset_at(n), b, -128 * (low + high));
        put(a16::offset16_at(n), 2 * b, -128 * low);
        put(a16::offset16_at(n), 2 * b + 1, -128 * high);
        // q = 256 · (q + 128 >> 8) + the low byte as a signed one
        std::byte* to = row + b / 2 * 128 + b % 2 * 32;
        const auto store = [](std::byte* p, __m512i v) {
            _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
        };
        const __m512i round = _mm512_set1_epi32(128);
        store(to, _mm512_srai_epi32(_mm512_add_epi32(q0, round), 8));
        store(to + 16, _mm512_srai_epi32(_mm512_add_epi32(q1, round), 8));
        store(to + 64, q0);
        store(to + 80, q1);
    }
}

}  // namespace

extern const A16Kernels kA16 = {
    .split = true,
    .quantize = quantize,
    .q8_0 = product<Q8_0>,
    .mxfp4 = product<Mxfp4>,
    .q2_k = product<Q2K>,
    .q3_k = product<Q3K>,
    .q4_k = product<Q4K>,
    .q5_k = product<Q5K>,
    .q6_k = product<Q6K>,
    .iq2_xxs = product<Iq2xxs>,
};

}  // namespace avx512
}  // namespace vesta::backend

#endif
