#include "quant/kv_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/result.h"
#include "quant/codecs.h"
#include "quant/fp8.h"
#include "quant/half.h"

namespace vesta::quant {
namespace {

constexpr int kFp8Block = 64, kFp4Block = 32;

int scale_bytes(int n_nope) { return (n_nope / kFp8Block + 1 + 7) / 8 * 8; }  // + 1: the rotary part's

void check_attn(int dim, int n_rot) { VESTA_CHECK(n_rot >= 0 && n_rot < dim && (dim - n_rot) % kFp8Block == 0); }

void check_index(int dim) { VESTA_CHECK(dim >= kFp4Block && std::has_single_bit(static_cast<unsigned>(dim))); }

// The largest magnitude, at least `floor`; infinity when an element is not finite (std::max would drop a NaN).
float block_amax(const float* x, int n, float floor) {
    uint32_t largest = std::bit_cast<uint32_t>(floor);
    for (int i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
    return std::bit_cast<float>(std::min(largest, 0x7f800000u));
}

// Returns the scale byte.
uint8_t encode_fp8_block(const float* x, std::byte* codes) {
    const float amax = block_amax(x, kFp8Block, 1e-4f);
    if (!std::isfinite(amax)) {
        std::memset(codes, kE4m3Nan, kFp8Block);
        return kE8m0Nan;
    }
    const uint8_t e = e8m0_for_e4m3(amax);
    const float inverse = e8m0_inverse(e);
    for (int i = 0; i < kFp8Block; ++i) codes[i] = std::byte{f32_to_e4m3(x[i] * inverse)};
    return e;
}

void decode_fp8_block(const std::byte* codes, uint8_t e, float* dst) {
    const float s = e8m0_to_f32(e);
    for (int i = 0; i < kFp8Block; ++i) dst[i] = s * kE4m3Value[std::to_integer<size_t>(codes[i])];
}

// The rotary part as integers under one power of two. Returns the scale byte.
uint8_t encode_int16(const float* x, int n, std::byte* dst) {
    const float amax = block_amax(x, n, 0.0f);
    if (!std::isfinite(amax)) {
        std::memset(dst, 0, 2 * static_cast<size_t>(n));
        return kE8m0Nan;
    }
    // frexp: amax / 32767 = m · 2^exponent with m in [1/2, 1), so 2^exponent is at least the step that amax needs, and
    // twice that only when amax / 32767 is itself a power of two.
    int exponent = 0;
    if (std::frexp(amax / 32767.0f, &exponent) == 0.5f) --exponent;
    const auto e = static_cast<uint8_t>(std::clamp(exponent + 127, 0, 254));
    const float inverse = e8m0_inverse(e);
    for (int i = 0; i < n; ++i) {
        const auto q = static_cast<int16_t>(std::clamp(std::nearbyint(x[i] * inverse), -32767.0f, 32767.0f));
        std::memcpy(dst + 2 * i, &q, sizeof q);
    }
    return e;
}

void decode_int16(const std::byte* src, uint8_t e, int n, float* dst) {
    const float s = e8m0_to_f32(e);
    for (int i = 0; i < n; ++i) {
        int16_t q;
        std::memcpy(&q, src + 2 * i, sizeof q);
        dst[i] = s * static_cast<float>(q);
    }
}

uint8_t encode_fp4_block(const float* x, std::byte* codes) {
    const float amax = block_amax(x, kFp4Block, 6.0f * 0x1p-126f);
    if (!std::isfinite(amax)) {
        std::memset(codes, 0, kFp4Block / 2);
        return kE8m0Nan;
    }
    const uint8_t e = e8m0_for_e2m1(amax);
    const float inverse = e8m0_inverse(e);
    for (int k = 0; k < kFp4Block / 2; ++k) {
        const int low = f32_to_e2m1(x[2 * k] * inverse), high = f32_to_e2m1(x[2 * k + 1] * inverse);
        codes[k] = static_cast<std::byte>(low | high << 4);
    }
    return e;
}

void decode_fp4_block(const std::byte* codes, uint8_t e, float* dst) {
    const float s = e8m0_to_f32(e);
    for (int k = 0; k < kFp4Block / 2; ++k) {
        const int q = std::to_integer<int>(codes[k]);
        dst[2 * k] = s * kE2m1Value[q & 15];
        dst[2 * k + 1] = s * kE2m1Value[q >> 4];
    }
}

}  // namespace

int64_t attn_row_bytes(RowFormat format, int dim, int n_rot) {
    check_attn(dim, n_rot);
    switch (format) {
        case RowFormat::f32:
            return int64_t{4} * dim;
        case RowFormat::f16:
            return int64_t{2} * dim;
        case RowFormat::fp8:
        case RowFormat::fp8_exact:
            break;
    }
    const int n_nope = dim - n_rot;
    return int64_t{n_nope} + scale_bytes(n_nope) + (format == RowFormat::fp8 ? 2 : 4) * n_rot;
}

void encode_attn_row(RowFormat format, const float* x, int dim, int n_rot, std::byte* dst) {
    check_attn(dim, n_rot);
    if (format == RowFormat::f32) return encode_f32(x, dst, dim);
    if (format == RowFormat::f16) return encode_f16(x, dst, dim);
    const int n_nope = dim - n_rot;
    std::byte* scales = dst + n_nope;
    std::memset(scales, 0, static_cast<size_t>(scale_bytes(n_nope)));
    for (int b = 0; b < n_nope / kFp8Block; ++b)
        scales[b] = std::byte{encode_fp8_block(x + b * kFp8Block, dst + b * kFp8Block)};
    std::byte* rotary = scales + scale_bytes(n_nope);
    if (format == RowFormat::fp8_exact) return encode_f32(x + n_nope, rotary, n_rot);
    scales[n_nope / kFp8Block] = std::byte{encode_int16(x + n_nope, n_rot, rotary)};
}

void decode_attn_row(RowFormat format, const std::byte* src, int dim, int n_rot, float* dst) {
    check_attn(dim, n_rot);
    if (format == RowFormat::f32) return decode_f32(src, dst, dim);
    if (format == RowFormat::f16) return decode_f16(src, dst, dim);
    const int n_nope = dim - n_rot;
    const std::byte* scales = src + n_nope;
    for (int b = 0; b < n_nope / kFp8Block; ++b)
        decode_fp8_block(src + b * kFp8Block, std::to_integer<uint8_t>(scales[b]), dst + b * kFp8Block);
    const std::byte* rotary = scales + scale_bytes(n_nope);
    if (format == RowFormat::fp8_exact) return decode_f32(rotary, dst + n_nope, n_rot);
    decode_int16(rotary, std::to_integer<uint8_t>(scales[n_nope / kFp8Block]), n_rot, dst + n_nope);
}

int64_t index_row_bytes(RowFormat format, int dim) {
    check_index(dim);
    switch (format) {
        case RowFormat::f32:
            return int64_t{4} * dim;
        case RowFormat::f16:
            return int64_t{2} * dim;
        case RowFormat::fp8:
        case RowFormat::fp8_exact:
            break;
    }
    return int64_t{dim} / 2 + dim / kFp4Block;
}

void encode_index_row(RowFormat format, const float* x, int dim, std::byte* dst) {
    check_index(dim);
    if (format == RowFormat::f32) return encode_f32(x, dst, dim);
    if (format == RowFormat::f16) return encode_f16(x, dst, dim);
    constexpr int kMaxDim = 1024;  // far above any indexer; keeps the copy on the stack
    VESTA_CHECK(dim <= kMaxDim);
    float y[kMaxDim];
    std::memcpy(y, x, static_cast<size_t>(dim) * sizeof(float));
    hadamard_inplace(y, dim);
    for (int b = 0; b < dim / kFp4Block; ++b)
        dst[dim / 2 + b] = std::byte{encode_fp4_block(y + b * kFp4Block, dst + b * kFp4Block / 2)};
}

void decode_index_row(RowFormat format, const std::byte* src, int dim, float* dst) {
    check_index(dim);
    if (format == RowFormat::f32) return decode_f32(src, dst, dim);
    if (format == RowFormat::f16) return decode_f16(src, dst, dim);
    for (int b = 0; b < dim / kFp4Block; ++b)
        decode_fp4_block(src + b * kFp4Block / 2, std::to_integer<uint8_t>(src[dim / 2 + b]), dst + b * kFp4Block);
}

void round_index_query(float* x, int dim) {
    check_index(dim);
    hadamard_inplace(x, dim);
    for (int b = 0; b < dim / kFp4Block; ++b) fp4_sim_block32(x + b * kFp4Block);
}

void hadamard_inplace(float* x, int n) {
    VESTA_CHECK(n > 0 && std::has_single_bit(static_cast<unsigned>(n)));
    for (int stride = 1; stride < n; stride *= 2) {
        for (int base = 0; base < n; base += 2 * stride) {
            for (int i = base; i < base + stride; ++i) {
                const float a = x[i], b = x[i + stride];
                x[i] = a + b;
                x[i + stride] = a - b;
            }
        }
    }
    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
    for (int i = 0; i < n; ++i) x[i] *= scale;
}

void fp8_sim_block64(float* x) {
    std::byte codes[kFp8Block];
    const uint8_t e = encode_fp8_block(x, codes);
    decode_fp8_block(codes, e, x);
}

void fp4_sim_block32(float* x) {
    std::byte codes[kFp4Block / 2];
    const uint8_t e = encode_fp4_block(x, codes);
    decode_fp4_block(codes, e, x);
}

}  // namespace vesta::quant
