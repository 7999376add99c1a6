#include "base/utf8.h"

namespace vesta {
namespace {

// Bytes a sequence starting with `lead` has, 0 if no sequence starts so.
int sequence_length(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

// The second byte carries the rules against overlong forms, surrogates and code points that are too large.
bool second_byte_ok(unsigned char lead, unsigned char b) {
    switch (lead) {
        case 0xE0: return b >= 0xA0 && b <= 0xBF;
        case 0xED: return b >= 0x80 && b <= 0x9F;
        case 0xF0: return b >= 0x90 && b <= 0xBF;
        case 0xF4: return b >= 0x80 && b <= 0x8F;
        default: return b >= 0x80 && b <= 0xBF;
    }
}

}  // namespace

Utf8Char decode_utf8(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return {lead, 1, true};
    const int n = sequence_length(lead);
    if (n == 0 || text.size() < static_cast<size_t>(n) || !second_byte_ok(lead, byte(1))) return {0xFFFD, 1, false};
    uint32_t code_point = lead & (0x7Fu >> n);
    for (int i = 1; i < n; ++i) {
        const unsigned char b = byte(static_cast<size_t>(i));
        if ((b & 0xC0) != 0x80) return {0xFFFD, 1, false};
        code_point = code_point << 6 | (b & 0x3F);
    }
    return {code_point, n, true};
}

void append_utf8(std::string& out, uint32_t c) {
    const auto put = [&](uint32_t b) { out.push_back(static_cast<char>(static_cast<unsigned char>(b))); };
    if (c < 0x80) {
        put(c);
    } else if (c < 0x800) {
        put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
    } else {
        put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
    }
}

bool is_valid_utf8(std::string_view text) {
    while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        if (!c.valid) return false;
        text.remove_prefix(static_cast<size_t>(c.length));
    }
    return true;
}

size_t complete_utf8_prefix(std::string_view text) {
    // Only the last three bytes can belong to an unfinished character.
    const size_t n = text.size();
    for (size_t back = 1; back <= 3 && back <= n; ++back) {
        const auto lead = static_cast<unsigned char>(text[n - back]);
        if ((lead & 0xC0) == 0x80) continue;  // continuation: look further left for its lead byte
        const int length = sequence_length(lead);
        if (length <= static_cast<int>(back)) return n;  // complete, or not a lead byte at all
        if (back >= 2 && !second_byte_ok(lead, static_cast<unsigned char>(text[n - back + 1]))) return n;
        return n - back;
    }
    return n;
}

std::string replace_invalid_utf8(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        if (c.valid)
            out.append(text.substr(0, static_cast<size_t>(c.length)));
        else
            append_utf8(out, 0xFFFD);
        text.remove_prefix(static_cast<size_t>(c.length));
    }
    return out;
}

std::string printable(std::string_view text) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const Utf8Char c = decode_utf8(text);
        const auto length = static_cast<size_t>(c.length);
        const bool control = c.code_point < 0x20 || (c.code_point >= 0x7F && c.code_point < 0xA0);
        if (c.valid && !control) {
            out.append(text.substr(0, length));
        } else {
            for (size_t i = 0; i < length; ++i) {
                const auto b = static_cast<unsigned char>(text[i]);
                out.append({'\\', 'x', kHex[b >> 4], kHex[b & 15]});
            }
        }
        text.remove_prefix(length);
    }
    return out;
}

}  // namespace vesta
