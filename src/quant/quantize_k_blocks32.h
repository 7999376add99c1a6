// The searches of q8_0 and mxfp4: a block of 32 is a whole of its own, so each lane has one. A part of
// quantize_k_search.h, which includes it.
#pragma once

namespace vesta::quant {
namespace {

// d = amax / (127 + t) for a row of t: smaller steps round finer and may clip the largest, larger ones may happen to
// fit better. f16 has steps of about 1/8 of a code here.
constexpr int kQ80Trials = 48;
constexpr float kQ80First = 1.5f, kQ80Step = -0.25f;

F8 q8_0_error(const SearchInput& in, const F8& d) {
    const F8 zero = all(0.0f), inverse = pick(zero < d, all(1.0f) / d, zero);
    F8 error = zero;
    for (int i = 0; i < 32; ++i) {
        const F8 x = read(in.x + 8 * i);
        const F8 r = x - d * nearest(clamp(x * inverse, all(-127.0f), all(127.0f)));
        error = error + read(in.w + 8 * i) * (r * r);
    }
    return error;
}

void search_q8_0(const SearchInput& in, SearchResult& out) {
    const F8 zero = all(0.0f), unit = read(in.unit), per_unit = all(1.0f) / unit;
    F8 amax = zero;
    for (int i = 0; i < 32; ++i) amax = larger(amax, magnitude(read(in.x + 8 * i)));
    const F8 obvious = to_f16(amax * all(1.0f / 127.0f) * unit);
    F8 best_d = obvious * per_unit, best = q8_0_error(in, best_d);
    for (int k = -1; k < kQ80Trials; ++k) {
        // Among f16's subnormals a factor does not reach the next number.
        const F8 trial = k < 0 ? obvious + all(kSmallestF16)
                               : amax * unit * all(1.0f / (127.0f + kQ80First + kQ80Step * static_cast<float>(k)));
        const F8 d = to_f16(trial) * per_unit, error = q8_0_error(in, d);
        const M8 better = error < best;
        best = pick(better, error, best);
        best_d = pick(better, d, best_d);
    }
    const F8 inverse = pick(zero < best_d, all(1.0f) / best_d, zero);
    for (int i = 0; i < 32; ++i)
        write(out.code + 8 * i, nearest(clamp(read(in.x + 8 * i) * inverse, all(-127.0f), all(127.0f))));
    write(out.d, best_d * unit);
}

// Scales 1, 1/2 and 1/4 of the smallest one that clips nothing. A larger one has no level that this one lacks below
// amax.
void search_mxfp4(const SearchInput& in, SearchResult& out) {
    const F8 zero = all(0.0f), one = all(1.0f), two = all(2.0f), half = all(0.5f);
    F8 best_scale = read(in.obvious), best = all(kHuge), scale = best_scale;
    for (int k = 0; k < 3; ++k) {
        const F8 inverse = one / scale;
        F8 error = zero;
        for (int i = 0; i < 32; ++i) {
            const F8 x = magnitude(read(in.x + 8 * i));
            const F8 a = smaller(x * inverse, all(6.0f));
            // The levels are 1/2 apart below 2, 1 below 4, 2 above.
            const F8 fine = pick(a < two, two, pick(a < all(4.0f), one, half));
            const F8 step = pick(a < two, half, pick(a < all(4.0f), one, two));
            const F8 r = x - scale * (nearest(a * fine) * step);
            error = error + read(in.w + 8 * i) * (r * r);
        }
        const M8 better = error < best;
        best = pick(better, error, best);
        best_scale = pick(better, scale, best_scale);
        scale = scale * half;
    }
    write(out.d, best_scale);
}

}  // namespace
}  // namespace vesta::quant
