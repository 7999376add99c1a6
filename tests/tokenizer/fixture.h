// What the tokenizer tests share: DeepSeek-V3's vocabulary from tests/data, and small vocabularies made by hand.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace vesta::tokenizer {

// DeepSeek-V3's vocabulary, loaded once. Stops the program when the fixture cannot be read.
const Tokenizer& v3();
const gguf::File& v3_file();

// The 256 byte tokens (id = byte), then one token per merge ("ab cd", mapped form) with rank in that order, then
// `extra`. Types: 1 everywhere, and those of `extra` as given.
struct Extra {
    std::string text;
    int32_t type;
};
Vocab small_vocab(const std::vector<std::string>& merges, const std::vector<Extra>& extra = {});

std::vector<int32_t> encode(const Tokenizer& t, std::string_view text, SpecialMode mode = SpecialMode::text);
std::string decode(const Tokenizer& t, const std::vector<int32_t>& ids);

// Seeded; the same numbers on every machine.
class Random {
 public:
    explicit Random(uint32_t seed) : engine_(seed) {}
    uint32_t below(size_t n) { return static_cast<uint32_t>(engine_() % n); }

 private:
    std::mt19937 engine_;
};

std::string utf8(const std::vector<uint32_t>& code_points);
// Text of many scripts, emoji, white space, digits and punctuation; valid UTF-8, `n_bytes` or a few more.
std::string mixed_script_text(size_t n_bytes, uint32_t seed);

}  // namespace vesta::tokenizer
