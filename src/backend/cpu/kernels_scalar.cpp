// The kernels without any instruction set: what runs on a processor nobody wrote a table for. Same numbers as the
// vector tables up to the last bits, one output at a time.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/cpu/kernels_tables.h"
#include "quant/codecs.h"
#include "quant/fp8.h"
#include "quant/half.h"
#include "quant/kv_row.h"

namespace vesta::backend {
namespace scalar {
namespace {

constexpr int kLanes = 8;
constexpr int64_t kChunk = 256;

int64_t row_of(const MatmulTask& m, int64_t t) { return m.pick == nullptr ? t : m.pick[t]; }

float fold(const float* lane) {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

// Adds the products of n elements to the eight sums.
void add_products(float* lane, const float* w, const float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) lane[i % kLanes] += w[i] * x[i];
}

// Any format, decoded 256 elements at a time. kColumns sums are kept so that a decoded piece serves many rows of x.
template <class Decode>
void matmul_by_pieces(const MatmulTask& m, int64_t elem_bytes_x256, Decode decode) {
    constexpr int64_t kColumns = 32;
    float lane[kColumns][kLanes], w[kChunk];
    for (int64_t t0 = 0; t0 < m.n_row; t0 += kColumns) {
        const int64_t n_col = std::min(kColumns, m.n_row - t0);
        for (int64_t o = 0; o < m.n_out; ++o) {
            for (int64_t c = 0; c < n_col; ++c) std::fill(lane[c], lane[c] + kLanes, 0.0f);
            for (int64_t i = 0; i < m.n_in; i += kChunk) {
                const int64_t n = std::min(kChunk, m.n_in - i);
                decode(m.w + o * m.w_stride + i / kChunk * elem_bytes_x256, w, n);
                for (int64_t c = 0; c < n_col; ++c)
                    add_products(lane[c], w, m.x + row_of(m, t0 + c) * m.x_stride + i, n);
            }
            for (int64_t c = 0; c < n_col; ++c) m.y[(t0 + c) * m.y_stride + o] = fold(lane[c]);
        }
    }
}

void matmul_f32(const MatmulTask& m) { matmul_by_pieces(m, 4 * kChunk, quant::decode_f32); }
void matmul_f16(const MatmulTask& m) { matmul_by_pieces(m, 2 * kChunk, quant::decode_f16); }
void matmul_bf16(const MatmulTask& m) { matmul_by_pieces(m, 2 * kChunk, quant::decode_bf16); }
void matmul_decoded(const MatmulTask& m, const quant::Format& format) {
    matmul_by_pieces(m, quant::row_bytes(format, kChunk), format.decode);
}

void mix(const MixTask& m) {
    for (int64_t h = 0; h < m.n_mix; ++h) {
        float* y = m.y + h * m.y_stride;
        if (!m.accumulate) std::fill(y, y + m.n_col, 0.0f);
        for (int64_t i = 0; i < m.n_row; ++i) {
            const float p = m.p[h * m.p_stride + i];
            const float* row = m.rows + i * m.row_stride;
            for (int64_t d = 0; d < m.n_col; ++d) y[d] += p * row[d];
        }
    }
}

double sum_squares(const float* x, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return sum;
}

void scale_mul(float* y, const float* x, float s, const float* w, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = w == nullptr ? x[i] * s : x[i] * s * w[i];
}

void axpy(float* y, float a, const float* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

float max(const float* x, int64_t n) {
    float top = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < n; ++i) top = std::max(top, x[i]);
    return top;
}

float exp_sum(float* x, int64_t n, float top) {
    float lane[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) lane[i % kLanes] += x[i] = std::exp(x[i] - top);
    return fold(lane);
}

void swiglu(float* y, const float* gate, const float* up, float clamp, float scale, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const float g = std::min(gate[i], clamp), u = std::clamp(up[i], -clamp, clamp);
        y[i] = g / (1.0f + std::exp(-g)) * u * scale;
    }
}

void decode_attn_fp8(const std::byte* src, int dim, int n_rot, float* dst) {
    quant::decode_attn_row(quant::RowFormat::fp8, src, dim, n_rot, dst);
}

void decode_index_fp8(const std::byte* src, int dim, float* dst) {
    quant::decode_index_row(quant::RowFormat::fp8, src, dim, dst);
}

const Kernels kTable = {
    .name = "scalar",
    .matmul_f32 = matmul_f32,
    .matmul_f16 = matmul_f16,
    .matmul_bf16 = matmul_bf16,
    .a16 = kA16,
    .matmul_decoded = matmul_decoded,
    .mix = mix,
    .sum_squares = sum_squares,
    .scale_mul = scale_mul,
    .axpy = axpy,
    .max = max,
    .exp_sum = exp_sum,
    .swiglu = swiglu,
    .decode_attn_fp8 = decode_attn_fp8,
    .decode_index_fp8 = decode_index_fp8,
};

}  // namespace
}  // namespace scalar

const Kernels& scalar_kernels() { return scalar::kTable; }

}  // namespace vesta::backend
