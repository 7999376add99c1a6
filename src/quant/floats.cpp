// Formats without blocks.
#include "quant/codecs.h"
#include "quant/half.h"

namespace vesta::quant {

void decode_f32(const std::byte* src, float* dst, int64_t n) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

void decode_f16(const std::byte* src, float* dst, int64_t n) {
    for (int64_t i = 0; i < n; ++i) dst[i] = f16_to_f32(load<uint16_t>(src + 2 * i));
}

void decode_bf16(const std::byte* src, float* dst, int64_t n) {
    for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_f32(load<uint16_t>(src + 2 * i));
}

void encode_f32(const float* src, std::byte* dst, int64_t n) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
}

void encode_f16(const float* src, std::byte* dst, int64_t n) {
    for (int64_t i = 0; i < n; ++i) store(dst + 2 * i, f32_to_f16(src[i]));
}

void encode_bf16(const float* src, std::byte* dst, int64_t n) {
    for (int64_t i = 0; i < n; ++i) store(dst + 2 * i, f32_to_bf16(src[i]));
}

}  // namespace vesta::quant
