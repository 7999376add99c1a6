#include "support/weight_difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "quant/fp8.h"

namespace vesta::test {
namespace {

using safetensors::DType;

template <class T>
constexpr T kSign = static_cast<T>(T{1} << (8 * sizeof(T) - 1));

template <class T>
T zigzag(T d) {
    return static_cast<T>(static_cast<T>(d << 1) ^ static_cast<T>(-(d >> (8 * sizeof(T) - 1))));
}
template <class T>
T unzigzag(T z) {
    return static_cast<T>(static_cast<T>(z >> 1) ^ static_cast<T>(-(z & 1)));
}

// Sign and magnitude -> rank: the largest negative number first. Its own inverse but for the test of the sign.
template <class T>
T rank_of(T bits) {
    return static_cast<T>(bits & kSign<T> ? ~bits : bits | kSign<T>);
}
template <class T>
T of_rank(T rank) {
    return static_cast<T>(rank & kSign<T> ? rank ^ kSign<T> : ~rank);
}

// Position of each element when they are sorted by group, in order inside one.
std::vector<uint32_t> grouped(const std::vector<uint8_t>& group) {
    std::array<uint32_t, 257> start{};
    for (const uint8_t g : group) ++start[g + 1u];
    for (size_t g = 1; g < start.size(); ++g) start[g] += start[g - 1];
    std::vector<uint32_t> position(group.size());
    for (size_t i = 0; i < group.size(); ++i) position[i] = start[group[i]]++;
    return position;
}

// By the upper byte of the prediction's rank, sign and exponent.
template <class T>
std::vector<uint32_t> positions_of(std::span<const std::byte> predicted, bool ranked) {
    std::vector<uint8_t> group(predicted.size() / sizeof(T));
    for (size_t i = 0; ranked && i < group.size(); ++i) {
        T b;
        std::memcpy(&b, predicted.data() + i * sizeof(T), sizeof(T));
        group[i] = static_cast<uint8_t>(static_cast<uint64_t>(rank_of(b)) >> (8 * (sizeof(T) - 1)));
    }
    return grouped(group);
}

template <class T>
Bytes difference_of(std::span<const std::byte> original, std::span<const std::byte> predicted, bool ranked) {
    Bytes planes(original.size());
    const size_t n = original.size() / sizeof(T);
    const std::vector<uint32_t> position = positions_of<T>(predicted, ranked);
    for (size_t i = 0; i < n; ++i) {
        T a, b;
        std::memcpy(&a, original.data() + i * sizeof(T), sizeof(T));
        std::memcpy(&b, predicted.data() + i * sizeof(T), sizeof(T));
        if (ranked) a = rank_of(a), b = rank_of(b);
        const T z = zigzag(static_cast<T>(a - b));
        for (size_t k = 0; k < sizeof(T); ++k)
            planes[k * n + position[i]] = static_cast<std::byte>(static_cast<uint64_t>(z) >> (8 * k));
    }
    return planes;
}

template <class T>
Bytes restore_of(std::span<const std::byte> planes, std::span<const std::byte> predicted, bool ranked) {
    Bytes original(planes.size());
    const size_t n = planes.size() / sizeof(T);
    const std::vector<uint32_t> position = positions_of<T>(predicted, ranked);
    for (size_t i = 0; i < n; ++i) {
        uint64_t wide = 0;
        for (size_t k = 0; k < sizeof(T); ++k) wide |= static_cast<uint64_t>(planes[k * n + position[i]]) << (8 * k);
        const T d = unzigzag(static_cast<T>(wide));
        T b;
        std::memcpy(&b, predicted.data() + i * sizeof(T), sizeof(T));
        const T a = ranked ? of_rank(static_cast<T>(rank_of(b) + d)) : static_cast<T>(b + d);
        std::memcpy(original.data() + i * sizeof(T), &a, sizeof(T));
    }
    return original;
}

bool is_float(DType t) {
    return t == DType::f64 || t == DType::f32 || t == DType::f16 || t == DType::bf16 || t == DType::f8_e4m3;
}

template <class F>
auto by_width(DType dtype, const F& f) {
    switch (safetensors::dtype_bytes(dtype)) {
        case 1:
            return f(uint8_t{});
        case 2:
            return f(uint16_t{});
        case 4:
            return f(uint32_t{});
        default:
            return f(uint64_t{});
    }
}

// ---- FP4

constexpr size_t kBlock = 32;

uint8_t predicted_scale(std::span<const float> block) {
    float largest = 0;
    for (const float v : block) largest = std::max(largest, std::fabs(v));
    return largest > 0 && std::isfinite(largest) ? quant::e8m0_for_e2m1(largest) : 0;
}

// e2m1 code <-> its place among the 16 in the order of the values.
constexpr uint8_t place_of(uint8_t code) { return static_cast<uint8_t>(code < 8 ? 8 + code : 15 - code); }
constexpr uint8_t code_at(uint8_t place) { return static_cast<uint8_t>(place < 8 ? 15 - place : place - 8); }

uint8_t nibble(const Bytes& codes, size_t i) { return static_cast<uint8_t>(codes[i / 2]) >> (i % 2 * 4) & 15; }
void put_nibble(Bytes& codes, size_t i, unsigned v) { codes[i / 2] |= static_cast<std::byte>((v & 15) << (i % 2 * 4)); }

// What predicts a code, and where it is stored. Codes below a negative prediction are mirrored, so that a group has a
// prediction and its negative.
struct Layout {
    std::vector<uint8_t> predicted;  // places
    std::vector<uint32_t> position;
};
constexpr uint8_t mirrored(uint8_t place, uint8_t predicted) { return predicted < 8 ? 15 - place : place; }

Layout layout_of(std::span<const float> values, const Bytes& scales) {
    Layout layout{std::vector<uint8_t>(values.size()), {}};
    std::vector<uint8_t> group(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
        const auto scale = static_cast<uint8_t>(scales[i / kBlock]);
        const float inverse = scale == quant::kE8m0Nan ? 1 : quant::e8m0_inverse(scale);
        const uint8_t p = layout.predicted[i] = place_of(quant::f32_to_e2m1(values[i] * inverse));
        group[i] = mirrored(p, p);
    }
    layout.position = grouped(group);
    return layout;
}

}  // namespace

Bytes difference(DType dtype, std::span<const std::byte> original, std::span<const std::byte> predicted, Key key) {
    const bool ranked = key == Key::rank && is_float(dtype);
    return by_width(dtype, [&](auto zero) { return difference_of<decltype(zero)>(original, predicted, ranked); });
}

Bytes restore(DType dtype, std::span<const std::byte> stored, std::span<const std::byte> predicted, Key key) {
    const bool ranked = key == Key::rank && is_float(dtype);
    return by_width(dtype, [&](auto zero) { return restore_of<decltype(zero)>(stored, predicted, ranked); });
}

Fp4 difference(const Fp4& original, std::span<const float> predicted) {
    Fp4 stored{Bytes(original.codes.size()), Bytes(original.scales.size())};
    for (size_t b = 0; b < original.scales.size(); ++b) {
        const auto scale = static_cast<uint8_t>(original.scales[b]);
        const uint8_t guess = predicted_scale(predicted.subspan(b * kBlock, kBlock));
        stored.scales[b] = static_cast<std::byte>(zigzag(static_cast<uint8_t>(scale - guess)));
    }
    const Layout layout = layout_of(predicted, original.scales);
    for (size_t i = 0; i < predicted.size(); ++i) {
        const uint8_t p = layout.predicted[i];
        const unsigned d = (mirrored(place_of(nibble(original.codes, i)), p) - mirrored(p, p)) & 15u;
        put_nibble(stored.codes, layout.position[i], d < 8 ? 2 * d : 31 - 2 * d);
    }
    return stored;
}

Fp4 restore(const Fp4& stored, std::span<const float> predicted) {
    Fp4 original{Bytes(stored.codes.size()), Bytes(stored.scales.size())};
    for (size_t b = 0; b < stored.scales.size(); ++b) {
        const uint8_t guess = predicted_scale(predicted.subspan(b * kBlock, kBlock));
        original.scales[b] = static_cast<std::byte>(guess + unzigzag(static_cast<uint8_t>(stored.scales[b])));
    }
    const Layout layout = layout_of(predicted, original.scales);
    for (size_t i = 0; i < predicted.size(); ++i) {
        const unsigned z = nibble(stored.codes, layout.position[i]);
        const unsigned d = z % 2 == 0 ? z / 2 : 15 - z / 2;
        const uint8_t p = layout.predicted[i];
        put_nibble(original.codes, i, code_at(mirrored((mirrored(p, p) + d) & 15u, p)));
    }
    return original;
}

}  // namespace vesta::test
