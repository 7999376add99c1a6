// How a row of the attention cache is stored. DeepSeek V4 was trained with its cache rows rounded: attention rows to
// e4m3 in blocks of 64 with a power-of-two scale, indexer rows and queries to e2m1 in blocks of 32 after a Hadamard
// transform. The fp8 formats keep exactly those rounded values, so storing a row small and rounding it as the official
// graph does are one step. The f16 and f32 formats keep the row as it comes and leave that rounding out.
//
//   attention row of width D, last R rotary, N = D - R:
//     fp8        N e4m3 | N/64 e8m0, then one e8m0 of the rotary part, zero-padded to a multiple of 8 | R int16
//     fp8_exact  N e4m3 | the same scale bytes, rotary one unused | R f32
//   indexer row of width I, both fp8 formats:  I/2 bytes, element 2k in the low nibble | I/32 e8m0
//   either kind of row, f16 and f32:           plain values
//
// The official graph leaves the rotary part alone, so fp8_exact is its cache to the last bit; it is what the reference
// backend keeps. fp8 is the same row in 584 instead of 712 bytes (D = 512): 16-bit integers under one power-of-two scale
// are within amax · 2^-16, five times closer than f16 in the mean, since a rotated pair has no reason to be small. The
// difference matters because what comes out of it is rounded to FP8 again in the next layer.
//
// Rounding, per block (amax = the largest |x|):
//   e4m3:  s = 2^ceil(log2(max(amax, 1e-4) / 448)),      x -> s · e4m3(clamp(x/s, ±448))
//   int16: s = 2^ceil(log2(amax / 32767)),               x -> s · round(x/s), ties to even
//   e2m1:  s = 2^ceil(log2(max(amax, 6·2^-126) / 6)),    x -> s · e2m1(clamp(x/s, ±6))
// A block with a NaN or an infinity gets the scale byte 255 and reads back as NaN. Byte pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vesta::quant {

enum class RowFormat { f32, f16, fp8, fp8_exact };

// Whether rows (and the indexer's queries) are rounded as the model was trained.
inline bool is_fp8(RowFormat f) { return f == RowFormat::fp8 || f == RowFormat::fp8_exact; }

// Requires, everywhere below: 0 <= n_rot < dim and (dim - n_rot) % 64 == 0; index widths are powers of two >= 32.
int64_t attn_row_bytes(RowFormat format, int dim, int n_rot);
void encode_attn_row(RowFormat format, const float* x, int dim, int n_rot, std::byte* dst);
void decode_attn_row(RowFormat format, const std::byte* src, int dim, int n_rot, float* dst);

int64_t index_row_bytes(RowFormat format, int dim);
// Both fp8 formats: store FP4sim(Hadamard(x)); decoding returns that, not an approximation of x. Dot products with queries that
// went through round_index_query are those of the original vectors, up to the rounding, because the transform is
// orthonormal.
void encode_index_row(RowFormat format, const float* x, int dim, std::byte* dst);
void decode_index_row(RowFormat format, const std::byte* src, int dim, float* dst);
void round_index_query(float* x, int dim);  // Hadamard, then FP4sim, in place

// x <- H x / sqrt(n), H[a][b] = (-1)^popcount(a & b). Requires: n a power of two.
void hadamard_inplace(float* x, int n);
void fp8_sim_block64(float* x);  // the e4m3 rounding of one block, in place
void fp4_sim_block32(float* x);  // the e2m1 rounding of one block, in place

}  // namespace vesta::quant
