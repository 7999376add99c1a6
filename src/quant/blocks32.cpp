// Formats of 32-element blocks. Where two 4-bit codes share a byte, element j (0..15) is the low nibble of byte j and
// element 16+j its high nibble.
#include <algorithm>
#include <cmath>

#include "quant/codecs.h"
#include "quant/fp8.h"
#include "quant/half.h"

namespace vesta::quant {
namespace {

// |x| of the largest element, or NaN when any is not finite.
float finite_amax(const float* x, int n) {
    float amax = 0.0f;
    bool finite = true;
    for (int i = 0; i < n; ++i) {
        finite = finite && std::isfinite(x[i]);
        amax = std::max(amax, std::fabs(x[i]));
    }
    return finite ? amax : std::numeric_limits<float>::quiet_NaN();
}

float f16_at(const std::byte* p) { return f16_to_f32(load<uint16_t>(p)); }

// The 16 codes of a fifth-bit format: nibbles in q[16], fifth bits of elements 0..31 in `high`.
struct FiveBit {
    int low, high;
};
FiveBit five_bit_pair(const std::byte* q, uint32_t high, int j) {
    const int byte = load_u8(q + j);
    return {(byte & 15) | static_cast<int>((high >> j) & 1u) << 4,
            (byte >> 4) | static_cast<int>((high >> (j + 16)) & 1u) << 4};
}

}  // namespace

// @0 f16 d, @2 codes: y = d · (q - 8)
void decode_q4_0(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / 32; ++b, src += 18, dst += 32) {
        const float d = f16_at(src);
        for (int j = 0; j < 16; ++j) {
            const int q = load_u8(src + 2 + j);
            dst[j] = d * static_cast<float>((q & 15) - 8);
            dst[j + 16] = d * static_cast<float>((q >> 4) - 8);
        }
    }
}

// @0 f16 d, @2 f16 m, @4 codes: y = d · q + m
void decode_q4_1(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / 32; ++b, src += 20, dst += 32) {
        const float d = f16_at(src), m = f16_at(src + 2);
        for (int j = 0; j < 16; ++j) {
            const int q = load_u8(src + 4 + j);
            dst[j] = d * static_cast<float>(q & 15) + m;
            dst[j + 16] = d * static_cast<float>(q >> 4) + m;
        }
    }
}

// @0 f16 d, @2 u32 fifth bits, @6 low four bits: y = d · (q - 16)
void decode_q5_0(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / 32; ++b, src += 22, dst += 32) {
        const float d = f16_at(src);
        const uint32_t high = load<uint32_t>(src + 2);
        for (int j = 0; j < 16; ++j) {
            const FiveBit q = five_bit_pair(src + 6, high, j);
            dst[j] = d * static_cast<float>(q.low - 16);
            dst[j + 16] = d * static_cast<float>(q.high - 16);
        }
    }
}

// @0 f16 d, @2 f16 m, @4 u32 fifth bits, @8 low four bits: y = d · q + m
void decode_q5_1(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / 32; ++b, src += 24, dst += 32) {
        const float d = f16_at(src), m = f16_at(src + 2);
        const uint32_t high = load<uint32_t>(src + 4);
        for (int j = 0; j < 16; ++j) {
            const FiveBit q = five_bit_pair(src + 8, high, j);
            dst[j] = d * static_cast<float>(q.low) + m;
            dst[j + 16] = d * static_cast<float>(q.high) + m;
        }
    }
}

// @0 f16 d, @2 int8 q[32]: y = d · q
void decode_q8_0(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / 32; ++b, src += 34, dst += 32) {
        const float d = f16_at(src);
        for (int j = 0; j < 32; ++j) dst[j] = d * static_cast<float>(load<int8_t>(src + 2 + j));
    }
}

void encode_q8_0(const float* src, std::byte* dst, int64_t n) {
    for (int64_t b = 0; b < n / 32; ++b, src += 32, dst += 34) {
        const float amax = finite_amax(src, 32);
        uint16_t d16 = f32_to_f16(amax / 127.0f);
        // Among f16 subnormals d may have been rounded down so far that 127·d no longer reaches amax.
        if (f16_to_f32(d16) * 127.5f < amax) ++d16;
        const float d = f16_to_f32(d16);
        const bool ok = std::isfinite(d);
        store<uint16_t>(dst, ok ? d16 : uint16_t{0x7e00});
        for (int j = 0; j < 32; ++j) {
            const float q = ok && d > 0.0f ? std::nearbyint(src[j] / d) : 0.0f;
            store<int8_t>(dst + 2 + j, static_cast<int8_t>(std::clamp(q, -127.0f, 127.0f)));
        }
    }
}

// @0 f16 d, @2 codes: y = d · level[q], 16 levels denser near zero
void decode_iq4_nl(const std::byte* src, float* dst, int64_t n) {
    static constexpr int8_t kLevel[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    for (int64_t b = 0; b < n / 32; ++b, src += 18, dst += 32) {
        const float d = f16_at(src);
        for (int j = 0; j < 16; ++j) {
            const int q = load_u8(src + 2 + j);
            dst[j] = d * static_cast<float>(kLevel[q & 15]);
            dst[j + 16] = d * static_cast<float>(kLevel[q >> 4]);
        }
    }
}

// @0 e8m0 scale, @1 e2m1 codes: y = 2^(e-127) · e2m1(q)
void decode_mxfp4(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / 32; ++b, src += 17, dst += 32) {
        const float scale = e8m0_to_f32(load<uint8_t>(src));
        for (int j = 0; j < 16; ++j) {
            const int q = load_u8(src + 1 + j);
            dst[j] = scale * kE2m1Value[q & 15];
            dst[j + 16] = scale * kE2m1Value[q >> 4];
        }
    }
}

// Why the smallest scale loses nothing on MXFP4 values: if the largest magnitude present is M, the scale can shrink by
// the largest 2^k with M · 2^k <= 6, and every smaller magnitude times that 2^k is again one of 0, .5, 1, 1.5, 2, 3,
// 4, 6.
void encode_mxfp4(const float* src, std::byte* dst, int64_t n) {
    for (int64_t b = 0; b < n / 32; ++b, src += 32, dst += 17) {
        const float amax = finite_amax(src, 32);
        if (std::isnan(amax)) {
            store(dst, kE8m0Nan);
            std::memset(dst + 1, 0, 16);
            continue;
        }
        const uint8_t e = amax > 0.0f ? e8m0_for_e2m1(amax) : uint8_t{127};
        const float inverse = e8m0_inverse(e);
        store(dst, e);
        for (int j = 0; j < 16; ++j) {
            const int low = f32_to_e2m1(src[j] * inverse), high = f32_to_e2m1(src[j + 16] * inverse);
            store(dst + 1 + j, static_cast<uint8_t>(low | high << 4));
        }
    }
}

}  // namespace vesta::quant
