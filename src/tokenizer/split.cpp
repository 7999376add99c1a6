// The matcher relies on the classes being disjoint: with that, every alternative of pass 3 is one forward scan and the
// backtracking of the expressions reduces to the few cases noted below.
#include "tokenizer/split.h"

#include <cstdint>

#include "base/utf8.h"
#include "tokenizer/char_class.h"

namespace vesta::tokenizer {
namespace {

struct Char {
    uint32_t code_point;
    CharClass char_class;
    size_t length;  // bytes
};

// Requires: at < s.size().
Char read(std::string_view s, size_t at) {
    const auto byte = static_cast<unsigned char>(s[at]);
    if (byte < 0x80) return {byte, char_class(byte), 1};
    const Utf8Char c = decode_utf8(s.substr(at));
    if (!c.valid) return {0xFFFD, CharClass::other, 1};  // U+FFFD itself is a symbol; a stray byte is nothing
    return {c.code_point, char_class(c.code_point), static_cast<size_t>(c.length)};
}

// Where the run of characters that satisfy `in` ends.
template <class Predicate>
size_t run_end(std::string_view s, size_t at, Predicate in) {
    while (at < s.size()) {
        const Char c = read(s, at);
        if (!in(c)) break;
        at += c.length;
    }
    return at;
}

bool is_number(const Char& c) { return c.char_class == CharClass::number; }
bool is_space(const Char& c) { return c.char_class == CharClass::space; }
bool is_word(const Char& c) { return c.char_class == CharClass::letter || c.char_class == CharClass::mark; }
bool is_sign(const Char& c) { return c.char_class == CharClass::punctuation || c.char_class == CharClass::symbol; }
bool is_newline(const Char& c) { return c.code_point == '\r' || c.code_point == '\n'; }
bool is_ascii_letter(const Char& c) { return (c.code_point | 0x20) >= 'a' && (c.code_point | 0x20) <= 'z'; }

// Pass 2. The blocks as the expression writes them: they hold marks, symbols and punctuation too, so pass 3 still
// divides such a run.
bool is_cjk(const Char& c) {
    return (c.code_point >= 0x4E00 && c.code_point <= 0x9FA5) || (c.code_point >= 0x3040 && c.code_point <= 0x30FF);
}

// \s*[\r\n]+ | \s+(?!\S) | \s+   at a white space character. Greedy \s* takes the whole run and gives back until a
// newline follows, so the first alternative ends after the last newline of the run. Without a newline, the second takes
// the run if nothing follows it, else all but the last character; a run of one character is left to the third.
size_t match_space(std::string_view s) {
    size_t end = 0, last = 0, after_newline = 0;
    while (end < s.size()) {
        const Char c = read(s, end);
        if (!is_space(c)) break;
        last = end;
        end += c.length;
        if (is_newline(c)) after_newline = end;
    }
    if (after_newline != 0) return after_newline;
    return end == s.size() || last == 0 ? end : last;
}

// Length of the match of pass 3 at the start of `s`, 0 when no alternative matches there. Requires: !s.empty().
size_t match(std::string_view s) {
    const Char c = read(s, 0);
    const bool more = c.length < s.size();
    // [ASCII punctuation][A-Za-z]+   The 32 characters listed are exactly the ASCII ones of classes P and S.
    if (c.code_point < 0x80 && is_sign(c) && more && is_ascii_letter(read(s, c.length)))
        return run_end(s, c.length, is_ascii_letter);
    // [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+   A leading mark fits the optional part and the run alike; both readings
    // give the whole run.
    if (is_word(c)) return run_end(s, c.length, is_word);
    if (!is_newline(c) && !is_sign(c) && more && is_word(read(s, c.length))) return run_end(s, c.length, is_word);
    //  ?[\p{P}\p{S}]+[\r\n]*
    if (is_sign(c) || (c.code_point == ' ' && more && is_sign(read(s, 1))))
        return run_end(s, run_end(s, c.length, is_sign), is_newline);
    return is_space(c) ? match_space(s) : 0;
}

}  // namespace

// Cuts the next piece of passes 1 and 2 off rest_.
std::string_view Splitter::take_segment() {
    const Char c = read(rest_, 0);
    size_t end = c.length;
    if (is_number(c)) {
        for (int n = 1; n < 3 && end < rest_.size(); ++n) {
            const Char digit = read(rest_, end);
            if (!is_number(digit)) break;
            end += digit.length;
        }
    } else if (is_cjk(c)) {
        end = run_end(rest_, end, is_cjk);
    } else {
        end = run_end(rest_, end, [](const Char& x) { return !is_number(x) && !is_cjk(x); });
    }
    const std::string_view segment = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return segment;
}

bool Splitter::next(std::string_view& piece) {
    if (segment_.empty()) {
        if (rest_.empty()) return false;
        segment_ = take_segment();
    }
    size_t length = known_match_ != 0 ? known_match_ : match(segment_);
    known_match_ = 0;
    if (length == 0) {  // a gap: everything up to the next match
        while (length < segment_.size() && known_match_ == 0) {
            length += read(segment_, length).length;
            if (length < segment_.size()) known_match_ = match(segment_.substr(length));
        }
    }
    piece = segment_.substr(0, length);
    segment_.remove_prefix(length);
    return true;
}

}  // namespace vesta::tokenizer
