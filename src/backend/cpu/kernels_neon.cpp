// The kernels for NEON, which every 64-bit Arm has. Sums have AVX2's order (eight running sums, folded in its tree) and
// its fused multiply-add, so they have AVX2's bits. Block formats, the only kernels that gain from later instructions:
// kernels_a16_neon*.cpp. See kernels_avx2.cpp for why nothing here may be shared with other files as an inline
// function.
//
// Not used: FP16 and BF16 arithmetic (FMLAL, BFDOT). Their products round differently or their sums have another order;
// a bf16 or f16 weight costs one instruction to widen, and with one row of x it waits for memory in any case.
#include "backend/cpu/kernels_tables.h"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <string.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#include "backend/cpu/kernels_float_tiles.h"

namespace vesta::backend {
namespace neon {
namespace {

// Eight running sums: sum i is lane i % 4 of half i / 4.
struct Sums {
    float32x4_t low, high;
};
// The one way they become a number.
float fold(Sums s) {
    const float32x4_t four = vaddq_f32(s.low, s.high);  // 0+4 1+5 2+6 3+7
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

uint16_t load_u16(const std::byte* p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

// --- matmul with f32 activations --------------------

// Four weights.
struct F32 {
    static constexpr int64_t kBytes = 4;
    static float32x4_t load(const std::byte* p) { return vld1q_f32(reinterpret_cast<const float*>(p)); }
};
struct F16 {
    static constexpr int64_t kBytes = 2;
    static float32x4_t load(const std::byte* p) {
        return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(reinterpret_cast<const uint8_t*>(p))));
    }
};
struct Bf16 {
    static constexpr int64_t kBytes = 2;
    static float32x4_t load(const std::byte* p) {
        const uint16x4_t bits = vreinterpret_u16_u8(vld1_u8(reinterpret_cast<const uint8_t*>(p)));
        return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
    }
};

struct Isa {
    using Vec = float32x4_t;
    using Sums = neon::Sums;
    using F32 = neon::F32;
    static constexpr int kLanes = 4;
    static Vec load(const float* p) { return vld1q_f32(p); }
    static void store(float* p, Vec v) { vst1q_f32(p, v); }
    static Vec zero() { return vdupq_n_f32(0.0f); }
    static Vec broadcast(const float* p) { return vld1q_dup_f32(p); }
    static Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
    static Sums zero_sums() { return {zero(), zero()}; }
    static float fold(Sums s) { return neon::fold(s); }

    // Adds the products of n elements to the running sums of an R × C tile, and meanwhile fetches the bytes `ahead` of w.
    // A rest of fewer than eight elements is padded with zeros, in w and in x, so it is one more step of the same kind.
    template <class F, int R, int C>
    static void add_products(Sums (&acc)[R][C], const std::byte* const (&w)[R], const float* const (&x)[C], int64_t n,
                      int64_t ahead) {
        constexpr int64_t kLine = 64 / F::kBytes;  // elements in a cache line
        // Four elements at a time: 2·R·C sums, C of x and a weight are 28 registers for 4 × 3.
        const auto step = [&](int64_t at, float32x4_t Sums::*half) {
            float32x4_t v[C];
            for (int c = 0; c < C; ++c) v[c] = vld1q_f32(x[c] + at);
            for (int r = 0; r < R; ++r) {
                const float32x4_t u = F::load(w[r] + at * F::kBytes);
                for (int c = 0; c < C; ++c) acc[r][c].*half = vfmaq_f32(acc[r][c].*half, u, v[c]);
            }
        };
        int64_t i = 0;
        for (; i + kLine <= n; i += kLine) {
            for (int r = 0; r < R; ++r) __builtin_prefetch(w[r] + i * F::kBytes + ahead);
            for (int64_t at = i; at < i + kLine; at += 8) step(at, &Sums::low), step(at + 4, &Sums::high);
        }
        for (; i + 8 <= n; i += 8) step(i, &Sums::low), step(i + 4, &Sums::high);
        if (i == n) return;
        const auto rest = static_cast<size_t>(n - i);
        for (int r = 0; r < R; ++r) {
            std::byte padded[32] = {};
            memcpy(padded, w[r] + i * F::kBytes, rest * F::kBytes);
            const float32x4_t low = F::load(padded), high = F::load(padded + 4 * F::kBytes);
            for (int c = 0; c < C; ++c) {
                float xs[8] = {};
                memcpy(xs, x[c] + i, rest * sizeof(float));
                acc[r][c].low = vfmaq_f32(acc[r][c].low, low, vld1q_f32(xs));
                acc[r][c].high = vfmaq_f32(acc[r][c].high, high, vld1q_f32(xs + 4));
            }
        }
    }
};
using Tiles = FloatTiles<Isa>;

// --- elementwise and reductions --------------------

double sum_squares(const float* x, int64_t n) {
    float64x2_t sum[4] = {vdupq_n_f64(0.0), vdupq_n_f64(0.0), vdupq_n_f64(0.0), vdupq_n_f64(0.0)};
    const auto add = [&](const float* p) {
        for (int k = 0; k < 2; ++k) {
            const float32x4_t v = vld1q_f32(p + 4 * k);
            const float64x2_t low = vcvt_f64_f32(vget_low_f32(v)), high = vcvt_high_f64_f32(v);
            sum[2 * k] = vfmaq_f64(sum[2 * k], low, low);
            sum[2 * k + 1] = vfmaq_f64(sum[2 * k + 1], high, high);
        }
    };
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) add(x + i);
    if (i < n) {
        float rest[8] = {};
        memcpy(rest, x + i, static_cast<size_t>(n - i) * sizeof(float));
        add(rest);
    }
    const float64x2_t two = vaddq_f64(vaddq_f64(sum[0], sum[2]), vaddq_f64(sum[1], sum[3]));
    return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
}

// Applies f to four elements at a time, index by index. The last few are copied out and back; in their place, lanes
// that do not exist read as zero.
template <class F>
void for_each4(float* y, int64_t n, F f) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(y + i, f([i](const float* p) { return vld1q_f32(p + i); }));
    if (i == n) return;
    const size_t rest = static_cast<size_t>(n - i) * sizeof(float);
    float last[4];
    vst1q_f32(last, f([i, rest](const float* p) {
                  float some[4] = {};
                  memcpy(some, p + i, rest);
                  return vld1q_f32(some);
              }));
    memcpy(y + i, last, rest);
}

void scale_mul(float* y, const float* x, float s, const float* w, int64_t n) {
    if (w == nullptr)
        for_each4(y, n, [&](auto load) { return vmulq_n_f32(load(x), s); });
    else
        for_each4(y, n, [&](auto load) { return vmulq_f32(vmulq_n_f32(load(x), s), load(w)); });
}

void axpy(float* y, float a, const float* x, int64_t n) {
    for_each4(y, n, [&](auto load) { return vfmaq_n_f32(load(y), load(x), a); });
}

float max(const float* x, int64_t n) {
    float32x4_t top = vdupq_n_f32(-__builtin_inff());
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        top = vmaxnmq_f32(top, vld1q_f32(x + i));  // a NaN is passed over, as in the scalar table
    float result = vmaxnmvq_f32(top);
    for (; i < n; ++i) result = x[i] > result ? x[i] : result;
    return result;
}

// e^x = 2^k · e^r with k = round(x / ln 2), |r| <= ln(2)/2. The Taylor series to r^7 leaves r^8/8! < 5.2e-9 relative, a
// tenth of a unit in the last place. 2^k is applied in two halves so that results reach the subnormals and infinity.
float32x4_t exp4(float32x4_t x) {
    x = vmaxq_f32(vdupq_n_f32(-104.0f), vminq_f32(vdupq_n_f32(89.0f), x));  // a NaN passes both
    const float32x4_t k = vrndnq_f32(vmulq_n_f32(x, 0x1.715476p+0f));
    float32x4_t r = vfmsq_f32(x, k, vdupq_n_f32(0x1.62e43p-1f));  // ln 2 as a sum of two floats
    r = vfmsq_f32(r, k, vdupq_n_f32(-0x1.05c61p-29f));
    const float coefficient[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    for (int c = 0; c < 7; ++c) p = vfmaq_f32(vdupq_n_f32(coefficient[c]), p, r);
    const int32x4_t exponent = vcvtq_s32_f32(k), half = vshrq_n_s32(exponent, 1);
    const auto power = [](int32x4_t e) {
        return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23));
    };
    return vmulq_f32(vmulq_f32(p, power(half)), power(vsubq_s32(exponent, half)));
}

float exp_sum(float* x, int64_t n, float top) {
    Sums sum = Isa::zero_sums();
    const auto both = [&](float* p) {
        const float32x4_t low = exp4(vsubq_f32(vld1q_f32(p), vdupq_n_f32(top))),
                          high = exp4(vsubq_f32(vld1q_f32(p + 4), vdupq_n_f32(top)));
        vst1q_f32(p, low);
        vst1q_f32(p + 4, high);
        return Sums{low, high};
    };
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const Sums e = both(x + i);
        sum = {vaddq_f32(sum.low, e.low), vaddq_f32(sum.high, e.high)};
    }
    if (i < n) {
        float rest[8];  // what is missing becomes e^-inf, zero
        for (int64_t l = 0; l < 8; ++l) rest[l] = i + l < n ? x[i + l] : -__builtin_inff();
        both(rest);
        for (int64_t l = n - i; l < 8; ++l) rest[l] = 0.0f;  // also where `top` is infinite too
        memcpy(x + i, rest, static_cast<size_t>(n - i) * sizeof(float));
        sum = {vaddq_f32(sum.low, vld1q_f32(rest)), vaddq_f32(sum.high, vld1q_f32(rest + 4))};
    }
    return fold(sum);
}

void swiglu(float* y, const float* gate, const float* up, float clamp, float scale, int64_t n) {
    const float32x4_t high = vdupq_n_f32(clamp), low = vdupq_n_f32(-clamp), one = vdupq_n_f32(1.0f);
    for_each4(y, n, [&](auto load) {
        const float32x4_t g = vminq_f32(high, load(gate)), u = vmaxq_f32(low, vminq_f32(high, load(up)));
        const float32x4_t silu = vdivq_f32(g, vaddq_f32(one, exp4(vnegq_f32(g))));
        return vmulq_n_f32(vmulq_f32(silu, u), scale);
    });
}

// --- cache rows --------------------

float e8m0(std::byte code) {
    const auto e = static_cast<uint32_t>(code);
    const uint32_t bits = e == 255 ? 0x7fc00000u : e == 0 ? 0x00400000u : e << 23;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// Eight e4m3 codes times s. Without its sign a code moved into f16 is 2^-8 of its value, subnormals too; 0x7f is NaN.
void scaled_e4m3(const std::byte* codes, float s, float* dst) {
    const uint8x8_t b = vld1_u8(reinterpret_cast<const uint8_t*>(codes)), a = vand_u8(b, vdup_n_u8(0x7f));
    const uint16x8_t sign = vshll_n_u8(vand_u8(b, vdup_n_u8(0x80)), 8);
    const uint16x8_t nan = vandq_u16(vceqq_u16(vmovl_u8(a), vdupq_n_u16(0x7f)), vdupq_n_u16(0x7e00));
    const float16x8_t half = vreinterpretq_f16_u16(vorrq_u16(vorrq_u16(vshll_n_u8(a, 7), sign), nan));
    // Two products, as 256·s may be infinite.
    vst1q_f32(dst, vmulq_n_f32(vmulq_n_f32(vcvt_f32_f16(vget_low_f16(half)), 256.0f), s));
    vst1q_f32(dst + 4, vmulq_n_f32(vmulq_n_f32(vcvt_high_f32_f16(half), 256.0f), s));
}

void decode_attn_fp8(const std::byte* src, int dim, int n_rot, float* dst) {
    const int n_nope = dim - n_rot, n_block = n_nope / 64;
    const std::byte* scales = src + n_nope;
    for (int b = 0; b < n_block; ++b) {
        const float s = e8m0(scales[b]);
        for (int i = 64 * b; i < 64 * b + 64; i += 8) scaled_e4m3(src + i, s, dst + i);
    }
    // The rotary part: int16 under one more scale byte.
    const std::byte* rot = scales + (n_block + 1 + 7) / 8 * 8;
    const float s = e8m0(scales[n_block]);
    float* y = dst + n_nope;
    int i = 0;
    for (; i + 8 <= n_rot; i += 8) {
        const int16x8_t q = vreinterpretq_s16_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(rot + 2 * i)));
        vst1q_f32(y + i, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(q))), s));
        vst1q_f32(y + i + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(q)), s));
    }
    for (; i < n_rot; ++i) y[i] = s * static_cast<float>(static_cast<int16_t>(load_u16(rot + 2 * i)));
}

void decode_index_fp8(const std::byte* src, int dim, float* dst) {
    constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const int8x16_t doubled = vld1q_s8(kDoubled);
    for (int b = 0; b < dim / 32; ++b, dst += 32) {
        const float s = e8m0(src[dim / 2 + b]);
        const uint8x16_t codes = vld1q_u8(reinterpret_cast<const uint8_t*>(src + 16 * b));
        const int8x16_t even = vqtbl1q_s8(doubled, vandq_u8(codes, vdupq_n_u8(15))),
                        odd = vqtbl1q_s8(doubled, vshrq_n_u8(codes, 4));
        const auto put = [&](int at, int8x16_t sixteen) {
            const int16x8_t wide[2] = {vmovl_s8(vget_low_s8(sixteen)), vmovl_high_s8(sixteen)};
            for (int k = 0; k < 2; ++k) {
                const float32x4_t low = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide[k]))), 0.5f),
                                  high = vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(wide[k])), 0.5f);
                vst1q_f32(dst + at + 8 * k, vmulq_n_f32(low, s));
                vst1q_f32(dst + at + 8 * k + 4, vmulq_n_f32(high, s));
            }
        };
        put(0, vzip1q_s8(even, odd));
        put(16, vzip2q_s8(even, odd));
    }
}

Kernels table(const char* name, const A16Kernels& a16) {
    return {
        .name = name,
        .matmul_f32 = Tiles::matmul<F32>,
        .matmul_f16 = Tiles::matmul<F16>,
        .matmul_bf16 = Tiles::matmul<Bf16>,
        .a16 = a16,
        .matmul_decoded = Tiles::matmul_decoded,
        .mix = Tiles::mix,
        .sum_squares = sum_squares,
        .scale_mul = scale_mul,
        .axpy = axpy,
        .max = max,
        .exp_sum = exp_sum,
        .swiglu = swiglu,
        .decode_attn_fp8 = decode_attn_fp8,
        .decode_index_fp8 = decode_index_fp8,
    };
}

#if defined(__linux__)
bool has_dotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool has_i8mm() { return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
#else  // another way to ask is needed there
bool has_dotprod() { return false; }
bool has_i8mm() { return false; }
#endif

}  // namespace
}  // namespace neon

const Kernels* neon_kernels() {
    if (neon_a16() == nullptr) return nullptr;
    static const Kernels table = neon::table("neon", *neon_a16());
    return &table;
}

const Kernels* neon_dotprod_kernels() {
    if (neon_dotprod_a16() == nullptr || !neon::has_dotprod()) return nullptr;
    static const Kernels table = neon::table("neon+dotprod", *neon_dotprod_a16());
    return &table;
}

const Kernels* neon_i8mm_kernels() {
    if (neon_i8mm_a16() == nullptr || !neon::has_i8mm()) return nullptr;
    static const Kernels table = neon::table("neon+i8mm", *neon_i8mm_a16());
    return &table;
}

}  // namespace vesta::backend

#else

namespace vesta::backend {
const Kernels* neon_kernels() { return nullptr; }
const Kernels* neon_dotprod_kernels() { return nullptr; }
const Kernels* neon_i8mm_kernels() { return nullptr; }
}  // namespace vesta::backend

#endif
