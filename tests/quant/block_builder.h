// Builds quantised blocks in tests from the meaning of each element: scales, minima and codes chosen at random, placed
// bit by bit at the position the format's page (docs/formats.md) gives for that element. The decoders go group by group
// instead, so a slip in either shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "quant/format.h"

namespace vesta::quant::test {

struct Block {
    std::vector<std::byte> bytes;
    std::vector<double> values;  // exact; an f32 decoder may round once
};

// One random block of a format that has a decoder. Scales are f16 values in about ±2, codes uniform over all their
// bits.
Block random_block(Type type, std::mt19937& rng);

}  // namespace vesta::quant::test
