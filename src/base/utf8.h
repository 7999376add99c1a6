// UTF-8, one code point at a time, on bytes that may not be UTF-8 at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vesta {

struct Utf8Char {
    uint32_t code_point;  // U+FFFD when not valid
    int length;           // bytes consumed: 1..4; 1 for a byte that starts no valid sequence
    bool valid;
};

// Decodes at text[0]. Overlong forms, surrogates and values above U+10FFFF are invalid. Requires: !text.empty().
Utf8Char decode_utf8(std::string_view text);

void append_utf8(std::string& out, uint32_t code_point);
bool is_valid_utf8(std::string_view text);

// Length of the longest prefix that does not end inside a (so far valid) multi-byte character: what may be shown now
// while more bytes are coming. Bytes that can never become valid count as complete.
size_t complete_utf8_prefix(std::string_view text);

// Every byte that is not part of a valid sequence becomes U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// For messages and terminals: control characters (C0, DEL, C1) and bytes that are not UTF-8 become \xNN, so that a
// name out of a hostile file can neither move the cursor nor break a log line. Everything else stays.
std::string printable(std::string_view text);

}  // namespace vesta
