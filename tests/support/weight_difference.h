// What a checkpoint's weights have beyond what a model file already knows of them, laid out so that zstd finds little
// in it. Lossless: restore(difference(original)) is the original bit for bit, whatever the prediction. The closer the
// prediction, the smaller the numbers.
//
//   numbers:  d = key(original) - key(predicted) modulo 2^w, zigzag (0, -1, 1, -2, ... -> 0, 1, 2, 3, ...), then the
//             little-endian bytes of all d split into planes. Two keys: the bits as they are; or, for floating point,
//             the rank among all values, so that small numbers of different sign are neighbours.
//   FP4:      block scales as numbers against the smallest power of two the predicted block fits under; codes against
//             the predicted values rounded to e2m1 with the *original* scale. A code's d is modulo 16 in the order of
//             the values, -6 .. -0, 0 .. 6, mirrored below a negative prediction.
//
// How far off a prediction is depends on where it is: between 4 and 6 nothing fits, near 0 much does. So codes, and
// numbers with Key::rank, are stored grouped by their prediction (its magnitude; the upper byte of its rank), in order
// inside a group: zstd codes 128 KiB at a time with one table, and now those have one distribution. The reader knows
// the predictions, so the grouping costs nothing. The pocket's 56.6 M codes with experts of 2 and 3 bits: 28.3 MB
// plain, 14.3 MB in natural order, 12.8 MB grouped; the entropy of a code given its prediction is 11.7 MB.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "safetensors/file.h"

namespace vesta::test {

using Bytes = std::vector<std::byte>;

enum class Key { bits, rank };

// `predicted` has as many bytes as the other argument, and the same type.
Bytes difference(safetensors::DType dtype, std::span<const std::byte> original, std::span<const std::byte> predicted,
                 Key key);
Bytes restore(safetensors::DType dtype, std::span<const std::byte> stored, std::span<const std::byte> predicted,
              Key key);

// Blocks of 32: 16 bytes of codes, element 2k in the low nibble of byte k, and one e8m0 scale.
struct Fp4 {
    Bytes codes, scales;
};
// `predicted`: values, a multiple of 32; the other argument has half as many bytes of codes and one scale per block.
Fp4 difference(const Fp4& original, std::span<const float> predicted);
Fp4 restore(const Fp4& stored, std::span<const float> predicted);

}  // namespace vesta::test
