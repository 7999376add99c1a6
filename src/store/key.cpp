#include "store/key.h"

#include <algorithm>

#include "base/utf8.h"

namespace vesta::store {
namespace {

using tokenizer::Segment;
using tokenizer::Tokenizer;

constexpr char kEscape = '\xFF', kBegin = '\x01', kEnd = '\x02';

void append_escaped(std::string_view bytes, std::string& out) {
    for (const char b : bytes) {
        if (b == kEscape) out += kEscape;
        out += b;
    }
}

// The token whose bytes hold position `at`, or end there: the first with ends[i] >= at. 0 for at == 0.
size_t token_at(const Key& key, size_t at) {
    return static_cast<size_t>(std::lower_bound(key.ends.begin(), key.ends.end(), at) - key.ends.begin());
}

bool is_token_end(const Key& key, size_t at) {
    const size_t i = token_at(key, at);
    return at == 0 || (i < key.ends.size() && key.ends[i] == at);
}

// Whether a valid character begins before `at` and ends after it. Escapes are of bytes no character has.
bool parts_a_character(std::string_view bytes, size_t at) {
    for (size_t back = 1; back <= std::min<size_t>(3, at); ++back) {
        const Utf8Char c = decode_utf8(bytes.substr(at - back));
        if (c.valid && static_cast<size_t>(c.length) > back) return true;
    }
    return false;
}

Error no_key(size_t at, const char* found) {
    return Error{Code::bad_file, strf("not a key: {} at byte {}", found, at)};
}

}  // namespace

Result<Key> key_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
    Key key;
    key.ends.reserve(tokens.size());
    std::string bytes;
    for (size_t i = 0; i < tokens.size(); ++i) {
        const int32_t id = tokens[i];
        if (id < 0 || id >= tokenizer.n_vocab())
            return Error{Code::invalid_argument, strf("token id {} (number {} of {}) is not in the vocabulary; ids are "
                                                      "0 to {}",
                                                      id, i + 1, tokens.size(), tokenizer.n_vocab() - 1)};
        bytes.clear();
        tokenizer.append_token_bytes(id, bytes);
        const bool control = tokenizer.is_special(id);
        if (control) key.bytes.append({kEscape, kBegin});
        append_escaped(bytes, key.bytes);
        if (control) key.bytes.append({kEscape, kEnd});
        key.ends.push_back(key.bytes.size());
    }
    return key;
}

Result<std::vector<Segment>> segments_of(std::string_view key) {
    std::vector<Segment> out;
    bool open = false;  // inside a control token
    for (size_t i = 0; i < key.size(); ++i) {
        char b = key[i];
        if (b == kEscape) {
            if (++i == key.size()) return no_key(i - 1, "half an escape");
            b = key[i];
            if (b == kBegin) {
                if (open) return no_key(i - 1, "a control token inside a control token");
                open = true;
                out.push_back({.control = true, .text = {}});
                continue;
            }
            if (b == kEnd) {
                if (!open) return no_key(i - 1, "the end of a control token that did not begin");
                open = false;
                continue;
            }
            if (b != kEscape) return no_key(i - 1, "an unknown escape");
        }
        if (!open && (out.empty() || out.back().control)) out.push_back({.control = false, .text = {}});
        out.back().text += b;
    }
    if (open) return no_key(key.size(), "a control token without an end");
    return out;
}

std::string readable(std::string_view key) {
    const Result<std::vector<Segment>> segments = segments_of(key);
    if (!segments.ok()) return std::string(key);
    std::string out;
    for (const Segment& s : segments.value()) out += s.text;
    return out;
}

bool can_continue_at(const Tokenizer& tokenizer, std::span<const int32_t> prompt, const Key& key, size_t at) {
    VESTA_CHECK(at <= key.bytes.size() && key.ends.size() == prompt.size());
    if (is_token_end(key, at)) return true;
    const size_t i = token_at(key, at);
    if (tokenizer.is_special(prompt[i])) return false;
    const size_t begin = i == 0 ? 0 : key.ends[i - 1];
    size_t n_escape = 0;  // 0xFF bytes of this token just before `at`: an odd one is waiting for its second half
    while (at - n_escape > begin && key.bytes[at - n_escape - 1] == kEscape) ++n_escape;
    return n_escape % 2 == 0 && !parts_a_character(key.bytes, at);
}

Result<std::vector<int32_t>> tokens_after(const Tokenizer& tokenizer, std::span<const int32_t> prompt, const Key& key,
                                          size_t at) {
    VESTA_CHECK(can_continue_at(tokenizer, prompt, key, at));
    std::vector<int32_t> out;
    size_t next = at == 0 ? 0 : token_at(key, at) + 1;  // the first of the prompt's own tokens
    if (!is_token_end(key, at)) {
        while (next < prompt.size() && !tokenizer.is_special(prompt[next])) ++next;
        const std::string_view rest = std::string_view(key.bytes).substr(at, key.ends[next - 1] - at);
        VESTA_TRY(const std::vector<Segment> segments, segments_of(rest));
        VESTA_TRY_STATUS(tokenizer.encode_segments(segments, out));
    }
    out.insert(out.end(), prompt.begin() + static_cast<ptrdiff_t>(next), prompt.end());
    return out;
}

}  // namespace vesta::store
