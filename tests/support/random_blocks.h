// Weights in formats this build can read but not write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "quant/format.h"

namespace vesta::test {

// Random blocks of a format without an encoder: any bits, with 2^-9 wherever the format keeps an f16 factor.
inline void random_blocks(const quant::Format& f, std::byte* row, int64_t n, std::mt19937& rng) {
    for (int64_t b = 0; b < n / f.block_elems; ++b) {
        std::byte* block = row + b * f.block_bytes;
        for (int i = 0; i < f.block_bytes; ++i) block[i] = static_cast<std::byte>(rng());
        const auto factor = [&](int at) {
            block[at] = std::byte{0};
            block[at + 1] = std::byte{0x18};
        };
        switch (f.type) {
            case quant::Type::q2_k:
                factor(80), factor(82);
                break;
            case quant::Type::q3_k:
                factor(108);
                break;
            case quant::Type::q6_k:
                factor(208);
                break;
            case quant::Type::q4_k:
            case quant::Type::q5_k:
            case quant::Type::q4_1:
            case quant::Type::q5_1:
                factor(0), factor(2);
                break;
            default:
                factor(0);
                break;
        }
    }
}

}  // namespace vesta::test
