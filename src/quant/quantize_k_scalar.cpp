// The searches as the definition: eight lanes are a loop over eight f32. Any processor.
#include "quant/half.h"

namespace vesta::quant {
namespace {

struct F8 {
    float v[8];
};
struct M8 {
    bool v[8];
};
#define VESTA_EIGHT(type, expression)                  \
    type r;                                            \
    for (int l = 0; l < 8; ++l) r.v[l] = (expression); \
    return r
inline F8 all(float x) { VESTA_EIGHT(F8, x); }
inline F8 read(const float* p) { VESTA_EIGHT(F8, p[l]); }
inline void write(float* p, const F8& a) {
    for (int l = 0; l < 8; ++l) p[l] = a.v[l];
}
inline F8 operator+(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] + b.v[l]); }
inline F8 operator-(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] - b.v[l]); }
inline F8 operator*(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] * b.v[l]); }
inline F8 operator/(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] / b.v[l]); }
// As the x86 instructions: the second operand when the comparison says no, so also when one is NaN.
inline F8 smaller(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] < b.v[l] ? a.v[l] : b.v[l]); }
inline F8 larger(const F8& a, const F8& b) { VESTA_EIGHT(F8, a.v[l] > b.v[l] ? a.v[l] : b.v[l]); }
inline M8 operator<(const F8& a, const F8& b) { VESTA_EIGHT(M8, a.v[l] < b.v[l]); }
inline F8 pick(const M8& m, const F8& yes, const F8& no) { VESTA_EIGHT(F8, m.v[l] ? yes.v[l] : no.v[l]); }
inline F8 to_f16(const F8& a) { VESTA_EIGHT(F8, f16_to_f32(f32_to_f16(a.v[l]))); }
#undef VESTA_EIGHT

}  // namespace
}  // namespace vesta::quant

#include "quant/quantize_k_search.h"

namespace vesta::quant {

const SearchKernels& scalar_search() {
    static constexpr SearchKernels kKernels = search_kernels("scalar");
    return kKernels;
}

}  // namespace vesta::quant
