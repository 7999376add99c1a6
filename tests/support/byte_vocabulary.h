// How byte-level vocabularies spell the 256 bytes, written from docs/tokenizer.md: visible characters as themselves,
// the others from U+0100 on.
#pragma once

#include <string>
#include <vector>

#include "base/utf8.h"

namespace vesta::test {

inline std::vector<std::string> byte_tokens() {
    std::vector<std::string> tokens;
    uint32_t other = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
        const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 255 && b != 173);
        append_utf8(tokens.emplace_back(), itself ? b : other++);
    }
    return tokens;
}

}  // namespace vesta::test
