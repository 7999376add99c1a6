// The definition of products with block formats (kernels_a16.h) in plain code: codes, scales and minima of each format,
// 32 elements at a time. What the vector tables are compared with, bit for bit.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/kernels_tables.h"
#include "quant/codecs.h"
#include "quant/fp8.h"
#include "quant/half.h"
#include "quant/iq2xxs_grid.h"

namespace vesta::backend {
namespace scalar {
namespace {

using quant::load_u8;

// A block of 32 elements: element i is ws[i / (32 / groups)] · code[i] + wm[i / (32 / minima)].
struct Block {
    int code[32];
    float ws[2];
    float wm[2];
};

float f16_at(const std::byte* p) { return quant::f16_to_f32(quant::load<uint16_t>(p)); }

// @0 f16 d, @2 int8 q[32]
struct Q8_0 {
    static constexpr int kElems = 32, kBytes = 34, kGroups = 1, kMins = 0;
    static void unpack(const std::byte* p, int, Block& out) {
        out.ws[0] = f16_at(p);
        for (int i = 0; i < 32; ++i) out.code[i] = quant::load<int8_t>(p + 2 + i);
    }
};

// Codes are doubled to be integers; the scale is halved.
struct Mxfp4 {
    static constexpr int kElems = 32, kBytes = 17, kGroups = 1, kMins = 0;
    static void unpack(const std::byte* p, int, Block& out) {
        static constexpr int kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        out.ws[0] = 0.5f * quant::e8m0_to_f32(quant::load<uint8_t>(p));
        for (int j = 0; j < 16; ++j) {
            const int byte = load_u8(p + 1 + j);
            out.code[j] = kDoubled[byte & 15];
            out.code[j + 16] = kDoubled[byte >> 4];
        }
    }
};

// The 4-bit scale of 16 elements goes into the codes (at most 3 · 15), so that 32 elements are one integer sum.
struct Q2K {
    static constexpr int kElems = 256, kBytes = 84, kGroups = 1, kMins = 2;
    static void unpack(const std::byte* p, int b, Block& out) {
        const float d = f16_at(p + 80), dmin = f16_at(p + 82);
        out.ws[0] = d;
        for (int h = 0; h < 2; ++h) {
            const int sc = load_u8(p + 2 * b + h);
            out.wm[h] = -(dmin * static_cast<float>(sc >> 4));
            for (int i = 16 * h; i < 16 * h + 16; ++i)
                out.code[i] = (sc & 15) * ((load_u8(p + 16 + 32 * (b / 4) + i) >> (2 * (b % 4))) & 3);
        }
    }
};

struct Q3K {
    static constexpr int kElems = 256, kBytes = 110, kGroups = 2, kMins = 0;
    static void unpack(const std::byte* p, int b, Block& out) {
        const std::byte* s = p + 96;
        const float d = f16_at(p + 108);
        for (int h = 0; h < 2; ++h) {
            const int g = 2 * b + h;
            const int low = (load_u8(s + g % 8) >> (4 * (g / 8))) & 15,
                      high = (load_u8(s + 8 + g % 4) >> (2 * (g / 4))) & 3;
            out.ws[h] = d * static_cast<float>((low | high << 4) - 32);
        }
        for (int i = 0; i < 32; ++i) {
            const int q = (load_u8(p + 32 + 32 * (b / 4) + i) >> (2 * (b % 4))) & 3, high = (load_u8(p + i) >> b) & 1;
            out.code[i] = q + 4 * high - 4;
        }
    }
};

// Scale and minimum of sub-block b of q4_k and q5_k, 6 bits each in 12 bytes.
void scale_min_k4(const std::byte* s, int b, float d, float dmin, Block& out) {
    const int low = load_u8(s + b % 4), mid = load_u8(s + 4 + b % 4), top = load_u8(s + 8 + b % 4);
    const int scale = b < 4 ? low & 63 : (top & 15) | (low >> 6) << 4;
    const int min = b < 4 ? mid & 63 : top >> 4 | (mid >> 6) << 4;
    out.ws[0] = d * static_cast<float>(scale);
    out.wm[0] = -(dmin * static_cast<float>(min));
}

struct Q4K {
    static constexpr int kElems = 256, kBytes = 144, kGroups = 1, kMins = 1;
    static void unpack(const std::byte* p, int b, Block& out) {
        scale_min_k4(p + 4, b, f16_at(p), f16_at(p + 2), out);
        for (int i = 0; i < 32; ++i) out.code[i] = (load_u8(p + 16 + 32 * (b / 2) + i) >> (4 * (b % 2))) & 15;
    }
};

struct Q5K {
    static constexpr int kElems = 256, kBytes = 176, kGroups = 1, kMins = 1;
    static void unpack(const std::byte* p, int b, Block& out) {
        scale_min_k4(p + 4, b, f16_at(p), f16_at(p + 2), out);
        for (int i = 0; i < 32; ++i) {
            const int low = (load_u8(p + 48 + 32 * (b / 2) + i) >> (4 * (b % 2))) & 15,
                      high = (load_u8(p + 16 + i) >> b) & 1;
            out.code[i] = low | high << 4;
        }
    }
};

struct Q6K {
    static constexpr int kElems = 256, kBytes = 210, kGroups = 2, kMins = 0;
    static void unpack(const std::byte* p, int b, Block& out) {
        const float d = f16_at(p + 208);
        for (int h = 0; h < 2; ++h) out.ws[h] = d * static_cast<float>(quant::load<int8_t>(p + 192 + 2 * b + h));
        const int half = b / 4, k = b % 4;
        for (int i = 0; i < 32; ++i) {
            const int low = (load_u8(p + 64 * half + 32 * (k % 2) + i) >> (4 * (k / 2))) & 15;
            const int high = (load_u8(p + 128 + 32 * half + i) >> (2 * k)) & 3;
            out.code[i] = (low | high << 4) - 32;
        }
    }
};

struct Iq2xxs {
    static constexpr int kElems = 256, kBytes = 66, kGroups = 1, kMins = 0;
    static void unpack(const std::byte* p, int b, Block& out) {
        const std::byte* g = p + 2 + 8 * b;
        const auto u = quant::load<uint32_t>(g + 4);
        out.ws[0] = f16_at(p) * (0.125f * static_cast<float>(2 * (u >> 28) + 1));
        for (int l = 0; l < 4; ++l) {
            const uint64_t point = quant::kIq2xxsGrid[load_u8(g + l)];
            const uint32_t seven = (u >> (7 * l)) & 127u;
            const uint32_t signs = seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7;
            for (int j = 0; j < 8; ++j) {
                const auto magnitude = static_cast<int>((point >> (8 * j)) & 255u);
                out.code[8 * l + j] = (signs >> j) & 1u ? -magnitude : magnitude;
            }
        }
    }
};

template <class F>
void product(const MatmulTask& m) {
    constexpr int64_t kColumns = 32;
    constexpr int kInBlock = F::kElems / 32, kGroup = 32 / F::kGroups;
    const int64_t n_block = m.n_in / 32, stride = a16::row_bytes(m.n_in);
    float sum[kColumns];
    Block w;
    for (int64_t t0 = 0; t0 < m.n_row; t0 += kColumns) {
        const int64_t n_col = std::min(kColumns, m.n_row - t0);
        for (int64_t o = 0; o < m.n_out; ++o) {
            std::fill(sum, sum + n_col, 0.0f);
            for (int64_t b = 0; b < n_block; ++b) {
                F::unpack(m.w + o * m.w_stride + b / kInBlock * F::kBytes, static_cast<int>(b % kInBlock), w);
                for (int64_t c = 0; c < n_col; ++c) {
                    const std::byte* row = m.a16 + (m.pick == nullptr ? t0 + c : m.pick[t0 + c]) * stride;
                    const auto at = [&](int64_t array) { return quant::load<float>(row + array + 4 * b); };
                    int16_t q[32];
                    std::memcpy(q, row + 64 * b, sizeof q);
                    for (int g = 0; g < F::kGroups; ++g) {
                        int32_t dot = 0;
                        for (int i = kGroup * g; i < kGroup * (g + 1); ++i) dot += w.code[i] * q[i];
                        float v = static_cast<float>(dot) * w.ws[g];
                        if (F::kMins == 1) v = std::fma(w.wm[0], at(a16::sum_at(m.n_in)), v);
                        if (F::kMins == 2) {
                            v = std::fma(w.wm[0], at(a16::low_at(m.n_in)), v);
                            v = std::fma(w.wm[1], at(a16::high_at(m.n_in)), v);
                        }
                        sum[c] = std::fma(v, at(a16::scale_at(m.n_in)), sum[c]);
                    }
                }
            }
            for (int64_t c = 0; c < n_col; ++c) m.y[(t0 + c) * m.y_stride + o] = sum[c];
        }
    }
}

void quantize(const float* x, int64_t n, std::byte* row) {
    for (int64_t b = 0; b < n / 32; ++b, x += 32) {
        uint32_t top = 0;
        for (int i = 0; i < 32; ++i) top = std::max(top, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
        const float amax = std::bit_cast<float>(top);
        const bool finite = top < 0x7f800000u, zero = amax < 1e-30f;
        const float inverse = finite && !zero ? static_cast<float>(a16::kTop) / amax : 0.0f;
        int sum[2] = {};
        for (int i = 0; i < 32; ++i) {
            const auto q = finite ? static_cast<int16_t>(std::nearbyint(x[i] * inverse)) : int16_t{0};
            quant::store(row + 64 * b + 2 * i, q);
            sum[i / 16] += q;
        }
        const auto put = [&](int64_t array, int64_t i, auto value) { quant::store(row + array + 4 * i, value); };
        put(a16::scale_at(n), b,
            !finite ? std::numeric_limits<float>::quiet_NaN()
            : zero  ? 0.0f
                    : amax / static_cast<float>(a16::kTop));
        put(a16::sum_at(n), b, static_cast<float>(sum[0] + sum[1]));
        put(a16::low_at(n), b, static_cast<float>(sum[0]));
        put(a16::high_at(n), b, static_cast<float>(sum[1]));
    }
}

}  // namespace

extern const A16Kernels kA16 = {
    .split = false,
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

}  // namespace scalar
}  // namespace vesta::backend
