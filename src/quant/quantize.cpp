#include "quant/quantize.h"

#include <array>
#include <iterator>
#include <vector>

#include "base/result.h"
#include "quant/quantize_iq2xxs.h"
#include "quant/quantize_k.h"

namespace vesta::quant {

namespace {

using QuantizeFn = void (*)(Type type, const float* src, int64_t n_row, int64_t n_col, const float* importance,
                            std::byte* dst);

// Nothing to search for: each value has one nearest.
void quantize_nearest(Type type, const float* src, int64_t n_row, int64_t n_col, const float*, std::byte* dst) {
    format(type).encode(src, dst, n_row * n_col);
}

void quantize_searching(Type type, const float* src, int64_t n_row, int64_t n_col, const float* importance,
                        std::byte* dst) {
    const SearchKernels* avx2 = avx2_search();
    quantize_rows_searching(avx2 != nullptr ? *avx2 : scalar_search(), type, src, n_row, n_col, importance, dst);
}

void quantize_on_the_grid(Type, const float* src, int64_t n_row, int64_t n_col, const float* importance,
                          std::byte* dst) {
    quantize_iq2_xxs(src, n_row, n_col, importance, dst);
}

struct Quantizer {
    Type type;
    QuantizeFn quantize;
};
// By bits per weight.
constexpr Quantizer kQuantizers[] = {
    {Type::f32, quantize_nearest},    {Type::f16, quantize_nearest},     {Type::bf16, quantize_nearest},
    {Type::q8_0, quantize_searching}, {Type::q6_k, quantize_searching},  {Type::q5_k, quantize_searching},
    {Type::q4_k, quantize_searching}, {Type::mxfp4, quantize_searching}, {Type::q3_k, quantize_searching},
    {Type::q2_k, quantize_searching}, {Type::iq2_xxs, quantize_on_the_grid},
};
constexpr auto kTypes = [] {
    std::array<Type, std::size(kQuantizers)> types{};
    for (size_t i = 0; i < types.size(); ++i) types[i] = kQuantizers[i].type;
    return types;
}();

const Quantizer* find_quantizer(Type type) {
    for (const Quantizer& q : kQuantizers)
        if (q.type == type) return &q;
    return nullptr;
}

}  // namespace

bool can_quantize(Type type) { return find_quantizer(type) != nullptr; }
std::span<const Type> quantizable_types() { return kTypes; }

void quantize_rows(Type type, const float* src, int64_t n_row, int64_t n_col, const float* importance, std::byte* dst) {
    const Quantizer* q = find_quantizer(type);
    VESTA_CHECK(q != nullptr);
    q->quantize(type, src, n_row, n_col, importance, dst);
}

void column_energy(const float* src, int64_t n_row, int64_t n_col, double* energy) {
    for (int64_t r = 0; r < n_row; ++r)
        for (int64_t c = 0; c < n_col; ++c) {
            const double x = src[r * n_col + c];
            energy[c] += x * x;
        }
}

void add_error(Type type, const float* src, const std::byte* encoded, int64_t n_row, int64_t n_col,
               const float* importance, ErrorSum& sum) {
    std::vector<float> row(static_cast<size_t>(n_col));
    const int64_t bytes = row_bytes(type, n_col);
    for (int64_t r = 0; r < n_row; ++r) {
        format(type).decode(encoded + r * bytes, row.data(), n_col);
        for (int64_t c = 0; c < n_col; ++c) {
            const double x = src[r * n_col + c], d = x - row[static_cast<size_t>(c)];
            const double w = importance != nullptr ? importance[c] : 1.0;
            sum.error += w * d * d;
            sum.energy += w * x * x;
        }
    }
}

}  // namespace vesta::quant
