#include "synth/vocabulary.h"

#include <iterator>

#include "base/result.h"
#include "base/utf8.h"

namespace vesta::synth {
namespace {

using convert::TokenType;

constexpr const char* kFirst[] = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"};
constexpr const char* kLast[] = {"<｜User｜>",      "<｜Assistant｜>",       "<think>",      "</think>",
                                 "｜DSML｜",        "<｜latest_reminder｜>", "<｜action｜>", "<｜query｜>",
                                 "<｜authority｜>", "<｜domain｜>",          "<｜title｜>",  "<｜read_url｜>"};

// How byte-level vocabularies spell a byte: visible characters as themselves, the other 68 from U+0100 on.
std::vector<std::string> byte_spellings() {
    std::vector<std::string> out(256);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
        const bool visible = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        append_utf8(out[b], visible ? b : next++);
    }
    return out;
}

}  // namespace

convert::Vocabulary vocabulary(uint32_t n_token) {
    VESTA_CHECK(n_token >= 512 && n_token <= (1u << 22));
    const std::vector<std::string> bytes = byte_spellings();
    convert::Vocabulary v;
    v.tokens.reserve(n_token);
    const auto add = [&](const std::string& text, TokenType type) {
        v.tokens.push_back(text);
        v.types.push_back(static_cast<int32_t>(type));
    };
    for (const char* text : kFirst) add(text, TokenType::control);
    for (const std::string& b : bytes) add(b, TokenType::normal);
    // Letters first, so that small vocabularies hold pairs that text has: 'a'.. upward, wrapping around.
    const auto spelling = [&](uint32_t i) -> const std::string& { return bytes[(i + 'a') % 256]; };
    const auto n_made = static_cast<uint32_t>(n_token - v.tokens.size() - std::size(kLast));
    for (uint32_t i = 0; i < n_made; ++i) {
        std::string left, right;
        if (i < 65536) {
            left = spelling(i / 256), right = spelling(i % 256);
        } else {
            const uint32_t j = i - 65536;
            left = spelling(j / 65536) + spelling(j / 256 % 256), right = spelling(j % 256);
        }
        v.merges.push_back(left + " " + right);
        add(left + right, TokenType::normal);
    }
    for (const char* text : kLast) add(text, TokenType::user_defined);
    v.padding_token = 2;
    return v;
}

}  // namespace vesta::synth
