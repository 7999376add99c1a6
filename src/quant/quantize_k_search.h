// The searches of quantize_k.h, written once in eight lanes (one sub-block each) and compiled twice.
//
// A K format decodes to   y = (d·sc)·q − (dmin·mn)   with codes q, small integers sc and mn per sub-block, and f16 d
// and dmin per super-block (q3_k and q6_k: no minimum). All four kinds of unknown depend on each other; the search goes
//
//   1. per sub-block, as if its scale s = d·sc and minimum m = dmin·mn were free: for a row of trial steps, round to
//   codes and
//      solve the weighted least squares for (s, m) given the codes; the best one then iterates codes <-> (s, m);
//   2. per super-block, with the codes of 1 and therefore a quadratic error: a grid of (d, dmin), each with the best
//      sc and mn it allows;
//   3. alternate, with codes rounded by the scales the file will hold: neighbours of every (sc, mn); then the least
//      squares for (d, dmin) given codes, sc and mn. What is kept is always the best E seen.
//
// Ties keep the earlier trial, and trials come in a fixed order, the obvious one first.
//
// The including file defines the lanes first, in the unnamed namespace of vesta::quant: F8 (eight f32), M8 (eight
// truths), all, read, write, + - * / <, smaller, larger, pick, to_f16. Each is the IEEE operation of every lane, so
// both compilations give the same bits. Everything here is in that unnamed namespace too: two files compiled for
// different processors must not share a function.
#pragma once

#include "quant/quantize_k.h"

namespace vesta::quant {
namespace {

// To the nearest integer, ties to even, for |a| < 2^22: adding 1.5·2^23 leaves no bits below 1.
inline F8 nearest(const F8& a) { return (a + all(12582912.0f)) - all(12582912.0f); }
inline F8 clamp(const F8& a, const F8& low, const F8& high) { return smaller(larger(a, low), high); }
inline F8 magnitude(const F8& a) { return larger(a, all(0.0f) - a); }

// Across lanes, in this order, for the few sums over a whole super-block.
inline float sum(const F8& a) {
    alignas(32) float t[8];
    write(t, a);
    return ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
}
inline float largest(const F8& a) {
    alignas(32) float t[8];
    write(t, a);
    float m = t[0];
    for (int l = 1; l < 8; ++l) m = t[l] > m ? t[l] : m;
    return m;
}

constexpr float kHuge = 3e38f;
constexpr float kLargestF16 = 65504.0f;
constexpr float kSmallestF16 = 0x1p-24f;

// The f16 the file will hold for a factor `a` > 0. Never zero: one step of f16 times a small integer may still be what
// a tiny block needs.
float stored(float a) {
    alignas(32) float t[8];
    write(t, to_f16(all(a)));
    return a > 0.0f && t[0] < kSmallestF16 ? kSmallestF16 : t[0];
}

}  // namespace
}  // namespace vesta::quant

#include "quant/quantize_k_blocks32.h"
#include "quant/quantize_k_scale.h"
#include "quant/quantize_k_scale_min.h"

namespace vesta::quant {
namespace {

constexpr SearchKernels search_kernels(const char* name) {
    return {.name = name,
            .q2_k = [](const SearchInput& in, SearchResult& out) { ScaleMinSearch<16, 2, 4, 16>(in).run(out); },
            .q3_k = [](const SearchInput& in, SearchResult& out) { ScaleSearch<4, 32>(in).run(out); },
            .q4_k = [](const SearchInput& in, SearchResult& out) { ScaleMinSearch<32, 1, 16, 64>(in).run(out); },
            .q5_k = [](const SearchInput& in, SearchResult& out) { ScaleMinSearch<32, 1, 32, 64>(in).run(out); },
            .q6_k = [](const SearchInput& in, SearchResult& out) { ScaleSearch<32, 128>(in).run(out); },
            .q8_0 = search_q8_0,
            .mxfp4 = search_mxfp4};
}

}  // namespace
}  // namespace vesta::quant
