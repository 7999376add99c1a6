// Random weights written as the blocks a file would hold, at the speed of memory: the bits of a block are random, its
// scales are computed so that the weights have mean 0 and the wanted standard deviation. No encoder runs; a 3 GB model
// takes seconds.
//
// One result: a byte depends on the seed, the tensor's name and its offset in the tensor, never on how the work was
// cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "quant/format.h"

namespace vesta::synth {

// Random words by index: word(i) is splitmix64's output i (Steele, Lea & Flood 2014) for the state `key`, so any part
// of a stream can be made without the parts before it.
struct Stream {
    uint64_t key = 0;
    uint64_t word(uint64_t i) const;
    double uniform(uint64_t i) const;  // [0, 1), 53 bits
};
Stream stream(uint64_t seed, std::string_view name);

// Formats fill_blocks can write: those of published model files.
bool can_fill(quant::Type type);

// A range handed to fill_blocks begins at a multiple of this many blocks: every format's blocks then begin on a whole
// random word.
constexpr int64_t kBlockStep = 8;

// Blocks [first_block, first_block + n_block) of a tensor, to dst. Values have mean about 0 and the given standard
// deviation (mxfp4: on average over blocks, its scales being powers of two).
// Requires: can_fill(type), first_block % kBlockStep == 0, deviation within the format's range (2^-20 .. 2^4 always
// is).
void fill_blocks(quant::Type type, Stream s, int64_t first_block, int64_t n_block, double deviation, std::byte* dst);

}  // namespace vesta::synth
