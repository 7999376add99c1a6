// Rows of activations as the kernels of block formats read them ("a16"), and the sums those kernels compute.
//
// Per 32 values: int16 codes q = round(x · 32512/amax) and the scale amax/32512. 32512 = 127·256, so that a code splits
// into two signed bytes, q = 256·high + low, which is what byte instructions (VNNI) need. The choice not taken is int8
// activations, the usual one: half the work, but steps 256 times coarser; this backend is to agree with the f32
// definition, and with one row it waits for the weights in any case.
//
// The definition, for output o and row t; b runs over blocks of 32 in order, every operation rounds to f32 once:
//
//   sum = 0
//   for b:  for every group g of the block (one of 32 elements, or two of 16: q6_k, q3_k):
//             v = float(sum_i code[i] · q[i]) · ws[g]            the sum is exact in int32
//             v = fma(wm[m], total[m], v) for every minimum m    q4_k, q5_k: one for 32 elements; q2_k: two, for 16
//             each sum = fma(v, scale_b, sum)
//
// code, ws and wm of each format: kernels_a16_scalar.cpp. total[m] is the sum of the codes q that m covers. Nothing
// else is left open, so all tables give the same bits, for any number of rows, tile or cut (tested).
#pragma once

#include <cstddef>
#include <cstdint>

namespace vesta::backend::a16 {

// A row of n values (n % 32 == 0): codes, then per block of 32 the arrays below. The functions are `static` so that
// every file has its own copy: files compiled for an instruction set must not share inline functions with others.
//
// Codes are padded to whole units of 256 values. The pad may hold anything: kernels compute with it and drop the
// result. Order of codes: int16 in order of the elements, or "split": per 64 elements first the 64 high bytes, then the
// 64 low.
constexpr int64_t kBlock = 32, kUnit = 256, kTop = 32512;
static inline int64_t padded(int64_t n) { return (n + kUnit - 1) / kUnit * kUnit; }
static inline int64_t scale_at(int64_t n) { return 2 * padded(n); }              // f32 [n/32]
static inline int64_t sum_at(int64_t n) { return scale_at(n) + padded(n) / 8; }  // f32 [n/32] sum of 32 codes
static inline int64_t low_at(int64_t n) { return sum_at(n) + padded(n) / 8; }    // f32 [n/32] of the first 16
static inline int64_t high_at(int64_t n) { return low_at(n) + padded(n) / 8; }   // f32 [n/32] of the last 16
// In split rows only, whose kernels add 128 to signed codes of weights: i32 [n/32] and [n/16], -128 · sum of q.
static inline int64_t offset_at(int64_t n) { return high_at(n) + padded(n) / 8; }
static inline int64_t offset16_at(int64_t n) { return offset_at(n) + padded(n) / 8; }
static inline int64_t row_bytes(int64_t n) { return (offset16_at(n) + padded(n) / 4 + 63) / 64 * 64; }

}  // namespace vesta::backend::a16
