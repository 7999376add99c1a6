#include "synth/blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/result.h"
#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/iq2xxs_grid.h"

namespace vesta::synth {
namespace {

using quant::Type;

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio, odd

uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// Random bytes [8·first_word, 8·first_word + n) of the stream.
void random_bytes(Stream s, uint64_t first_word, std::byte* dst, size_t n) {
    uint64_t state = s.key + first_word * kGolden;
    for (; n >= 8; n -= 8, dst += 8) {
        state += kGolden;
        const uint64_t w = mix(state);
        std::memcpy(dst, &w, 8);
    }
    if (n == 0) return;
    const uint64_t w = mix(state + kGolden);
    std::memcpy(dst, &w, n);
}

// Mean of x^2 over the 16 values of each of IQ2_XXS's parts: the grid's magnitudes, and (2s+1)/8 for s = 0..15.
double iq2_xxs_square() {
    double grid = 0, scale = 0;
    for (const uint64_t point : quant::kIq2xxsGrid)
        for (int j = 0; j < 8; ++j) {
            const auto magnitude = static_cast<double>((point >> (8 * j)) & 255u);
            grid += magnitude * magnitude;
        }
    grid /= 8.0 * static_cast<double>(std::size(quant::kIq2xxsGrid));
    for (int v = 0; v < 16; ++v) scale += (2 * v + 1) * (2 * v + 1) / 64.0 / 16.0;
    return grid * scale;
}

// Where a super-block format keeps its f16 factors, and what random codes and scales give.
struct Shape {
    int d_at;          // offset of d
    int dmin_at;       // offset of dmin, -1: none
    double min_ratio;  // dmin / d that makes the mean zero: E[scale·q] / E[min]
    double unit;       // standard deviation of the values for d = 1
};

// With scale s, code q, minimum m independent and uniform: var = E[s²]E[q²] − (E[s]E[q])² + ratio²·var(m). Over 0..n:
// E[x] = n/2, E[x²] = n(2n+1)/6, var = n(n+2)/12.
constexpr double mean(double n) { return n / 2; }
constexpr double square(double n) { return n * (2 * n + 1) / 6; }
constexpr double variance(double n) { return n * (n + 2) / 12; }
double with_minimum(double n_scale, double n_code) {
    const double ratio = mean(n_code);  // minimum and scale have the same range in these formats
    const double product = mean(n_scale) * mean(n_code);
    return std::sqrt(square(n_scale) * square(n_code) - product * product + ratio * ratio * variance(n_scale));
}
// Two's complement codes of n values, -n/2 .. n/2 - 1: mean -1/2.
constexpr double signed_square(double n) { return (n * n - 1) / 12 + 0.25; }

Shape shape_of(Type type) {
    switch (type) {
        case Type::q2_k:
            return {80, 82, mean(3), with_minimum(15, 3)};
        case Type::q3_k:
            return {108, -1, 0, std::sqrt(signed_square(64) * signed_square(8) - 0.0625)};
        case Type::q4_k:
            return {0, 2, mean(15), with_minimum(63, 15)};
        case Type::q5_k:
            return {0, 2, mean(31), with_minimum(63, 31)};
        case Type::q6_k:
            return {208, -1, 0, std::sqrt(signed_square(256) * signed_square(64) - 0.0625)};
        case Type::iq2_xxs:
            return {0, -1, 0, std::sqrt(iq2_xxs_square())};
        case Type::q8_0:
            return {0, -1, 0, std::sqrt(127.0 * 128.0 / 3 * 255 / 256)};  // -128 becomes 0
        default:
            break;
    }
    VESTA_CHECK(false);  // can_fill() was asked before
    return {};
}

// Blocks with f16 factors: random bytes, then d (and dmin) from one of 16 sizes within ±12 %, so that scales differ.
void fill_scaled(Type type, Stream s, uint64_t block, int64_t n, double deviation, std::byte* dst) {
    const Shape shape = shape_of(type);
    const int bytes = quant::format(type).block_bytes;
    std::array<uint16_t, 16> d{}, dmin{};
    // The mean of the squared factors is 1, so that the deviation is kept.
    double mean_square = 0;
    for (int i = 0; i < 16; ++i) mean_square += std::pow(0.88 + 0.016 * i, 2) / 16;
    for (size_t i = 0; i < 16; ++i) {
        const double v = deviation / shape.unit * (0.88 + 0.016 * static_cast<double>(i)) / std::sqrt(mean_square);
        d[i] = quant::f32_to_f16(static_cast<float>(v));
        dmin[i] = quant::f32_to_f16(static_cast<float>(v * shape.min_ratio));
    }
    for (int64_t b = 0; b < n; ++b, dst += bytes) {
        const uint64_t size = mix(s.key ^ ((block + static_cast<uint64_t>(b)) * kGolden)) & 15u;
        quant::store(dst + shape.d_at, d[size]);
        if (shape.dmin_at >= 0) quant::store(dst + shape.dmin_at, dmin[size]);
        if (type != Type::q8_0) continue;
        // Encoders never write -128, and kernels may rely on it.
        for (int i = 2; i < bytes; ++i)
            if (dst[i] == std::byte{0x80}) dst[i] = std::byte{0};
    }
}

// y = 2^(e-127) · e2m1, and E[e2m1²] = 137/16. A share of the blocks takes the next power of two, so that the mean
// square comes out right.
void fill_mxfp4(Stream s, uint64_t block, int64_t n, double deviation, std::byte* dst) {
    const double wanted = deviation * deviation * 16 / 137;  // mean of 4^(e-127)
    const int low = static_cast<int>(std::floor(std::log2(wanted) / 2));
    const double share = (wanted / std::ldexp(1.0, 2 * low) - 1) / 3;
    const auto limit = static_cast<uint64_t>(share * 65536.0);
    for (int64_t b = 0; b < n; ++b, dst += 17) {
        const uint64_t r = mix(s.key ^ ((block + static_cast<uint64_t>(b)) * kGolden)) & 0xffffu;
        quant::store(dst, static_cast<uint8_t>(std::clamp(low + 127 + (r < limit ? 1 : 0), 0, 254)));
    }
}

// 16-bit floats: each 12 random bits choose one of 4096 equally spaced values of a uniform distribution.
template <class Narrow>
void fill_floats16(int64_t n, double deviation, std::byte* dst, Narrow narrow) {
    std::array<uint16_t, 4096> level{};
    for (size_t i = 0; i < level.size(); ++i)
        level[i] =
            narrow(static_cast<float>((2 * static_cast<double>(i) + 1 - 4096) / 4096 * std::sqrt(3.0) * deviation));
    for (int64_t i = 0; i < n; ++i, dst += 2) quant::store(dst, level[quant::load<uint16_t>(dst) & 4095u]);
}

void fill_f32(int64_t n, double deviation, std::byte* dst) {
    const auto unit = static_cast<float>(std::sqrt(3.0) * deviation / 2147483648.0);
    for (int64_t i = 0; i < n; ++i, dst += 4)
        quant::store(dst, (static_cast<float>(quant::load<int32_t>(dst)) + 0.5f) * unit);
}

}  // namespace

uint64_t Stream::word(uint64_t i) const { return mix(key + (i + 1) * kGolden); }
double Stream::uniform(uint64_t i) const { return static_cast<double>(word(i) >> 11) * 0x1p-53; }

// FNV-1a over the name, stirred with the seed.
Stream stream(uint64_t seed, std::string_view name) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return {mix(h ^ mix(seed + kGolden))};
}

bool can_fill(Type type) {
    switch (type) {
        case Type::f32:
        case Type::f16:
        case Type::bf16:
        case Type::q8_0:
        case Type::q2_k:
        case Type::q3_k:
        case Type::q4_k:
        case Type::q5_k:
        case Type::q6_k:
        case Type::iq2_xxs:
        case Type::mxfp4:
            return true;
        default:
            return false;
    }
}

void fill_blocks(Type type, Stream s, int64_t first_block, int64_t n_block, double deviation, std::byte* dst) {
    VESTA_CHECK(can_fill(type) && first_block % kBlockStep == 0);
    const auto bytes = static_cast<uint64_t>(quant::format(type).block_bytes);
    const auto block = static_cast<uint64_t>(first_block);
    random_bytes(s, block * bytes / 8, dst, static_cast<size_t>(n_block) * bytes);
    switch (type) {
        case Type::f32:
            return fill_f32(n_block, deviation, dst);
        case Type::f16:
            return fill_floats16(n_block, deviation, dst, quant::f32_to_f16);
        case Type::bf16:
            return fill_floats16(n_block, deviation, dst, quant::f32_to_bf16);
        case Type::mxfp4:
            return fill_mxfp4(s, block, n_block, deviation, dst);
        default:
            return fill_scaled(type, s, block, n_block, deviation, dst);
    }
}

}  // namespace vesta::synth
