// Rows of w and of x as the block kernels of AVX2 and NEON walk over them. Included by their files only, in an unnamed
// namespace: see kernels_float_tiles.h. (AVX-512 walks sixteen rows at once.)
#pragma once

#include <string.h>

#include "backend/cpu/kernels_tables.h"

namespace vesta::backend {
namespace {

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

const std::byte* row_of(const MatmulTask& m, int64_t t) {
    return m.a16 + (m.pick == nullptr ? t : m.pick[t]) * a16::row_bytes(m.n_in);
}

// A row of w, unit by unit. The last unit of 32-element blocks may be short: it is read from a padded copy.
template <class F>
struct Weights {
    static constexpr int64_t kUnitBytes = a16::kUnit / F::kElems * F::kBytes;
    static const std::byte* unit(const MatmulTask& m, int64_t o, int64_t u, std::byte (&pad)[kUnitBytes]) {
        const std::byte* p = m.w + o * m.w_stride + u * kUnitBytes;
        if (a16::kUnit * (u + 1) <= m.n_in) return p;
        memset(pad, 0, sizeof pad);
        memcpy(pad, p, static_cast<size_t>((m.n_in - a16::kUnit * u) / F::kElems * F::kBytes));
        return pad;
    }
    static void fetch(const std::byte* p) {
        for (int64_t at = 0; at < kUnitBytes; at += 64) __builtin_prefetch(p + at);
    }
};

}  // namespace
}  // namespace vesta::backend
