// The alphabet of byte-level vocabularies: every byte has a printable character, so that a vocabulary is plain text.
// Bytes 33-126, 161-172 and 174-255 stand for the code point of the same number; the other 68 take U+0100, U+0101, … in
// increasing order (space is U+0120 'Ġ', newline U+010A 'Ċ').
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace vesta::tokenizer {

struct ByteAlphabet {
    static constexpr uint32_t kEnd = 0x100 + 68;  // one past the largest code point in use
    std::array<uint16_t, 256> code_point_of{};
    std::array<int16_t, kEnd> byte_of{};  // -1: not in the alphabet
};

inline constexpr ByteAlphabet kByteAlphabet = [] {
    ByteAlphabet a;
    for (int16_t& b : a.byte_of) b = -1;
    uint16_t next = 0x100;
    for (uint16_t b = 0; b < 256; ++b) {
        const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        const uint16_t c = itself ? b : next++;
        a.code_point_of[b] = c;
        a.byte_of[c] = static_cast<int16_t>(b);
    }
    return a;
}();

// "Ġthe" -> " the". False, with `out` as before, when a character is not in the alphabet: then the token is no product
// of bytes but an added one, and stands for its own spelling.
inline bool append_mapped_bytes(std::string_view spelling, std::string& out) {
    const size_t before = out.size();
    while (!spelling.empty()) {
        const Utf8Char c = decode_utf8(spelling);
        if (!c.valid || c.code_point >= ByteAlphabet::kEnd || kByteAlphabet.byte_of[c.code_point] < 0) {
            out.resize(before);
            return false;
        }
        out.push_back(static_cast<char>(static_cast<unsigned char>(kByteAlphabet.byte_of[c.code_point])));
        spelling.remove_prefix(static_cast<size_t>(c.length));
    }
    return true;
}

// " the" -> "Ġthe".
inline void append_mapped_spelling(std::string_view bytes, std::string& out) {
    for (const char b : bytes) append_utf8(out, kByteAlphabet.code_point_of[static_cast<unsigned char>(b)]);
}

}  // namespace vesta::tokenizer
