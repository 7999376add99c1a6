// The checkpoint's and the model file's number formats, decoded the slow way from their definitions (spec 6). On
// purpose nothing here comes from src/quant: the tests compare two independent readings.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "quant/format.h"
#include "safetensors/file.h"

namespace vesta::convert {

inline double e4m3_number(uint8_t b) {
    const int sign = b >> 7, e = b >> 3 & 15, m = b & 7;
    const double magnitude = e == 0 ? std::ldexp(m, -9) : std::ldexp(8 + m, e - 10);
    return sign != 0 ? -magnitude : magnitude;
}
inline double e2m1_number(int code) {
    const int e = code >> 1 & 3, m = code & 1;
    const double magnitude = e == 0 ? 0.5 * m : std::ldexp(2 + m, e - 2);
    return (code & 8) != 0 ? -magnitude : magnitude;
}
inline double e8m0_number(uint8_t e) { return std::ldexp(1.0, e - 127); }
inline double f16_number(uint16_t h) {
    const int sign = h >> 15, e = h >> 10 & 31, m = h & 1023;
    const double magnitude = e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, e - 25);
    return sign != 0 ? -magnitude : magnitude;
}

template <class T>
T read_as(std::span<const std::byte> bytes, uint64_t i) {
    T v;
    std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof(T));
    return v;
}

// All values of a checkpoint tensor; `scale` for FP8 (128 x 128 blocks, E8M0 or F32) and FP4.
inline std::vector<double> checkpoint_numbers(const safetensors::TensorInfo& t, const safetensors::TensorInfo* scale) {
    using safetensors::DType;
    std::vector<double> out;
    const uint64_t n = t.n_elem();
    const auto scale_at = [&](uint64_t i) {
        return scale->dtype == DType::f32 ? double{read_as<float>(scale->bytes, i)}
                                          : e8m0_number(read_as<uint8_t>(scale->bytes, i));
    };
    for (uint64_t i = 0; i < n; ++i) switch (t.dtype) {
            case DType::f32:
                out.push_back(read_as<float>(t.bytes, i));
                break;
            case DType::bf16:
                out.push_back(std::bit_cast<float>(uint32_t{read_as<uint16_t>(t.bytes, i)} << 16));
                break;
            case DType::i64:
                out.push_back(static_cast<double>(read_as<int64_t>(t.bytes, i)));
                break;
            case DType::f8_e4m3: {
                const uint64_t row = i / t.shape[1], col = i % t.shape[1];
                out.push_back(e4m3_number(read_as<uint8_t>(t.bytes, i)) *
                              scale_at(row / 128 * scale->shape[1] + col / 128));
                break;
            }
            case DType::i8: {
                const auto b = read_as<uint8_t>(t.bytes, i);
                const double s = scale_at(2 * i / 32);  // rows of both tensors are contiguous: 32 values per scale
                out.push_back(e2m1_number(b & 15) * s);
                out.push_back(e2m1_number(b >> 4) * s);
                break;
            }
            default:
                break;
        }
    return out;
}

// Values of GGUF tensor bytes in the formats that recipes produce.
inline std::vector<double> gguf_numbers(quant::Type type, std::span<const std::byte> bytes, uint64_t n) {
    std::vector<double> out;
    out.reserve(n);
    for (uint64_t i = 0; i < n; ++i) switch (type) {
            case quant::Type::f32:
                out.push_back(read_as<float>(bytes, i));
                break;
            case quant::Type::i32:
                out.push_back(read_as<int32_t>(bytes, i));
                break;
            case quant::Type::f16:
                out.push_back(f16_number(read_as<uint16_t>(bytes, i)));
                break;
            case quant::Type::bf16:
                out.push_back(std::bit_cast<float>(uint32_t{read_as<uint16_t>(bytes, i)} << 16));
                break;
            case quant::Type::q8_0: {
                const auto block = bytes.subspan(i / 32 * 34, 34);
                out.push_back(f16_number(read_as<uint16_t>(block, 0)) * read_as<int8_t>(block.subspan(2), i % 32));
                break;
            }
            case quant::Type::mxfp4: {
                const auto block = bytes.subspan(i / 32 * 17, 17);
                const auto q = read_as<uint8_t>(block.subspan(1), i % 16);
                out.push_back(e2m1_number(i % 32 < 16 ? q & 15 : q >> 4) * e8m0_number(read_as<uint8_t>(block, 0)));
                break;
            }
            default:
                return {};
        }
    return out;
}

}  // namespace vesta::convert
