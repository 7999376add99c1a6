// A byte-level BPE vocabulary of any size without text behind it: the 256 bytes, then pairs and triples of bytes made
// by merges, and the markers that chat prompts need. Every reader of DeepSeek vocabularies accepts it.
#pragma once

#include <cstdint>

#include "convert/vocabulary.h"

namespace vesta::synth {

// Requires: 512 <= n_token <= 2^22. Ids 0, 1 and 2 are begin of sentence, end of sentence and padding; markers stand
// last.
convert::Vocabulary vocabulary(uint32_t n_token);

}  // namespace vesta::synth
