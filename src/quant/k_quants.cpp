// The K formats: super-blocks of 256 elements with one or two f16 factors and small integer scales per group of 16
// or 32. Layouts with byte offsets: docs/formats.md.
#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/codecs.h"
#include "quant/half.h"

namespace vesta::quant {
namespace {

constexpr int kSuper = 256;

float f16_at(const std::byte* p) { return f16_to_f32(load<uint16_t>(p)); }

// Q4_K and Q5_K pack eight 6-bit (scale, min) pairs into 12 bytes: pairs 0..3 take the low six bits of bytes 0..3
// (scale) and 4..7 (min); pairs 4..7 take the nibbles of bytes 8..11, with their upper two bits on top of bytes 0..7.
struct ScaleMin {
    float scale, min;
};
ScaleMin scale_min(const std::byte* s, int pair) {
    if (pair < 4) return {static_cast<float>(load_u8(s + pair) & 63), static_cast<float>(load_u8(s + pair + 4) & 63)};
    const int low = load_u8(s + pair + 4);
    return {static_cast<float>((low & 15) | (load_u8(s + pair - 4) >> 6) << 4),
            static_cast<float>((low >> 4) | (load_u8(s + pair) >> 6) << 4)};
}

}  // namespace

// @0 u8 sc[16] (low nibble scale, high nibble min), @16 u8 qs[64], @80 f16 d, @82 f16 dmin
// y = d · scale · q - dmin · min;  q (2 bits) of element 128a + 32j + l is bits 2j.. of qs[32a + l]
void decode_q2_k(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / kSuper; ++b, src += 84, dst += kSuper) {
        const float d = f16_at(src + 80), dmin = f16_at(src + 82);
        for (int group = 0; group < 16; ++group) {
            const int a = group / 8, j = group % 8 / 2, first = group % 2 * 16;
            const int sc = load_u8(src + group);
            const float scale = d * static_cast<float>(sc & 15), min = dmin * static_cast<float>(sc >> 4);
            for (int l = 0; l < 16; ++l) {
                const int q = (load_u8(src + 16 + 32 * a + first + l) >> (2 * j)) & 3;
                dst[16 * group + l] = scale * static_cast<float>(q) - min;
            }
        }
    }
}

// @0 u8 hm[32], @32 u8 qs[64], @96 u8 s[12], @108 f16 d
// y = d · (scale - 32) · (q - 4·(1 - h));  q as in Q2_K, h of element 128a + 32j + l is bit 4a + j of hm[l]. A 6-bit
// scale has its low nibble in s[0..7] (scales 0..7 low, 8..15 high) and its upper two bits in s[8..11], four scales a
// byte.
void decode_q3_k(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / kSuper; ++b, src += 110, dst += kSuper) {
        const std::byte* s = src + 96;
        const float d = f16_at(src + 108);
        for (int group = 0; group < 16; ++group) {
            const int a = group / 8, j = group % 8 / 2, first = group % 2 * 16;
            const int low = group < 8 ? load_u8(s + group) & 15 : load_u8(s + group - 8) >> 4;
            const int high = (load_u8(s + 8 + group % 4) >> (2 * (group / 4))) & 3;
            const float scale = d * static_cast<float>((low | high << 4) - 32);
            for (int l = first; l < first + 16; ++l) {
                const int q = (load_u8(src + 32 + 32 * a + l) >> (2 * j)) & 3;
                const int h = (load_u8(src + l) >> (4 * a + j)) & 1;
                dst[16 * group + l - first] = scale * static_cast<float>(q - 4 * (1 - h));
            }
        }
    }
}

// @0 f16 d, @2 f16 dmin, @4 u8 s[12], @16 u8 qs[128]
// y = d · scale · q - dmin · min;  elements 64c + l are the low, 64c + 32 + l the high nibbles of qs[32c + l]
void decode_q4_k(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / kSuper; ++b, src += 144, dst += kSuper) {
        const float d = f16_at(src), dmin = f16_at(src + 2);
        for (int sub = 0; sub < 8; ++sub) {
            const ScaleMin sm = scale_min(src + 4, sub);
            const float scale = d * sm.scale, min = dmin * sm.min;
            for (int l = 0; l < 32; ++l) {
                const int q = (load_u8(src + 16 + 32 * (sub / 2) + l) >> (4 * (sub % 2))) & 15;
                dst[32 * sub + l] = scale * static_cast<float>(q) - min;
            }
        }
    }
}

// @0 f16 d, @2 f16 dmin, @4 u8 s[12], @16 u8 qh[32], @48 u8 qs[128]
// As Q4_K, with a fifth bit: bit sub of qh[l] for element 32·sub + l.
void decode_q5_k(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / kSuper; ++b, src += 176, dst += kSuper) {
        const float d = f16_at(src), dmin = f16_at(src + 2);
        for (int sub = 0; sub < 8; ++sub) {
            const ScaleMin sm = scale_min(src + 4, sub);
            const float scale = d * sm.scale, min = dmin * sm.min;
            for (int l = 0; l < 32; ++l) {
                const int q = (load_u8(src + 48 + 32 * (sub / 2) + l) >> (4 * (sub % 2))) & 15;
                const int h = (load_u8(src + 16 + l) >> sub) & 1;
                dst[32 * sub + l] = scale * static_cast<float>(q | h << 4) - min;
            }
        }
    }
}

// @0 u8 ql[128], @128 u8 qh[64], @192 int8 sc[16], @208 f16 d
// y = d · scale · (q - 32).  In half a, quarter k (elements 128a + 32k + l): the low four bits are the low (k < 2) or
// high (k >= 2) nibble of ql[64a + 32(k mod 2) + l], the upper two are bits 2k.. of qh[32a + l]; one scale per 16
// elements.
void decode_q6_k(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / kSuper; ++b, src += 210, dst += kSuper) {
        const float d = f16_at(src + 208);
        for (int group = 0; group < 16; ++group) {
            const int a = group / 8, k = group % 8 / 2, first = group % 2 * 16;
            const float scale = d * static_cast<float>(load<int8_t>(src + 192 + group));
            for (int l = first; l < first + 16; ++l) {
                const int low = (load_u8(src + 64 * a + 32 * (k % 2) + l) >> (4 * (k / 2))) & 15;
                const int high = (load_u8(src + 128 + 32 * a + l) >> (2 * k)) & 3;
                dst[16 * group + l - first] = scale * static_cast<float>((low | high << 4) - 32);
            }
        }
    }
}

// @0 f32 d, @4 int8 q[256], @260 int16 sums of 16 consecutive q
void decode_q8_k(const std::byte* src, float* dst, int64_t n) {
    for (int64_t b = 0; b < n / kSuper; ++b, src += 292, dst += kSuper) {
        const float d = load<float>(src);
        for (int i = 0; i < kSuper; ++i) dst[i] = d * static_cast<float>(load<int8_t>(src + 4 + i));
    }
}

// With m the signed element of largest magnitude: q = round_half_even(-127/m · x), d = -m/127 as 1/(-127/m). A block
// whose largest magnitude is below about 4e-37 becomes zero: the factor would overflow.
void encode_q8_k(const float* src, std::byte* dst, int64_t n) {
    for (int64_t b = 0; b < n / kSuper; ++b, src += kSuper, dst += 292) {
        float m = 0.0f;
        bool finite = true;
        for (int i = 0; i < kSuper; ++i) {
            finite = finite && std::isfinite(src[i]);
            if (std::fabs(src[i]) > std::fabs(m)) m = src[i];
        }
        const float factor = -127.0f / m;
        const bool ok = finite && std::isfinite(factor);
        store<float>(dst, ok ? 1.0f / factor : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN());
        for (int group = 0; group < 16; ++group) {
            int sum = 0;
            for (int l = 16 * group; l < 16 * group + 16; ++l) {
                const float q = ok ? std::clamp(std::nearbyint(factor * src[l]), -128.0f, 127.0f) : 0.0f;
                store<int8_t>(dst + 4 + l, static_cast<int8_t>(q));
                sum += static_cast<int>(q);
            }
            store<int16_t>(dst + 260 + 2 * group, static_cast<int16_t>(sum));
        }
    }
}

}  // namespace vesta::quant
