#include "quant/quantize.h"

#include <vector>

#include "base/result.h"
#include "quant/quantize_iq2xxs.h"

namespace vesta::quant {

bool can_quantize(Type type) {
    return type == Type::iq2_xxs || (format(type).encode != nullptr && type != Type::q8_k);
}

void quantize_rows(Type type, const float* src, int64_t n_row, int64_t n_col, const float* importance, std::byte* dst) {
    VESTA_CHECK(can_quantize(type));
    if (type == Type::iq2_xxs) return quantize_iq2_xxs(src, n_row, n_col, importance, dst);
    format(type).encode(src, dst, n_row * n_col);
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
