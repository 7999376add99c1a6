#include "line_keys.h"

#include <cstdlib>

#include "base/utf8.h"

namespace vesta::app {
namespace {

constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr size_t kMaxParameters = 32;          // the longest real one, "27;2;13", has 7
constexpr size_t kMaxPaste = size_t{1} << 26;  // 64 MiB; more is cut, so that a stuck terminal cannot fill the memory

constexpr char control(char letter) { return static_cast<char>(letter & 0x1F); }

// CSI parameters "1;5" -> {1, 5}; a missing one is 0.
struct Parameters {
    int first = 0, second = 0, third = 0;
    explicit Parameters(const std::string& text) {
        int* const slots[] = {&first, &second, &third};
        size_t slot = 0;
        for (const char c : text) {
            if (c == ';') {
                if (++slot == std::size(slots)) return;
            } else if (c >= '0' && c <= '9' && *slots[slot] < 10000) {
                *slots[slot] = *slots[slot] * 10 + (c - '0');
            }
        }
    }
    // xterm: 1 + bit mask of shift 1, alt 2, control 4
    bool alt_or_control() const { return second > 1 && ((second - 1) & 6) != 0; }
};

}  // namespace

std::string clean_text(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
        const Utf8Char c = decode_utf8(text.substr(i));
        const size_t begin = i;
        i += static_cast<size_t>(c.length);
        if (!c.valid) {
            append_utf8(out, 0xFFFD);
        } else if (c.code_point == '\r') {
            out.push_back('\n');
            if (i < text.size() && text[i] == '\n') ++i;
        } else if (c.code_point == '\n' || c.code_point == '\t') {
            out.push_back(static_cast<char>(c.code_point));
        } else if (c.code_point >= 0x20 && (c.code_point < 0x7F || c.code_point >= 0xA0)) {
            out.append(text.substr(begin, i - begin));
        }
    }
    return out;
}

void KeyDecoder::timeout() {
    if (state_ != State::paste) state_ = State::ground;
    parameters_.clear();
    character_.clear();
}

std::optional<Key> KeyDecoder::feed(char byte) {
    switch (state_) {
        case State::ground:
            return ground(byte);
        case State::escape:
            state_ = State::ground;
            switch (byte) {
                case '[':
                    state_ = State::csi;
                    parameters_.clear();
                    return {};
                case 'O':
                    state_ = State::ss3;
                    return {};
                case '\x1b':
                    state_ = State::escape;
                    return {};  // ESC ESC [ D: some terminals' Alt+Left
                case '\r':
                case '\n':
                    return Key{Key::newline};
                case 'b':
                    return Key{Key::word_left};
                case 'f':
                    return Key{Key::word_right};
                case 'd':
                    return Key{Key::kill_word_forward};
                case '\x7f':
                case '\b':
                    return Key{Key::kill_word};
                default:
                    return Key{Key::unknown};
            }
        case State::csi:
            if (byte >= 0x40 && byte <= 0x7E) {
                state_ = State::ground;
                return control_sequence(byte);
            }
            if (byte < 0x20 || byte > 0x3F || parameters_.size() == kMaxParameters) {  // not part of any sequence
                state_ = State::ground;
                return Key{Key::unknown};
            }
            parameters_.push_back(byte);
            return {};
        case State::ss3:
            state_ = State::ground;
            parameters_.clear();
            return control_sequence(byte);
        case State::paste:
            paste_.push_back(byte);
            if (paste_.ends_with(kPasteEnd)) return end_paste();
            if (paste_.size() > kMaxPaste + kPasteEnd.size())  // keep the tail: the end mark may be half there
                paste_.erase(kMaxPaste - kPasteEnd.size(), kPasteEnd.size());
            return {};
    }
    return {};
}

std::optional<Key> KeyDecoder::end_paste() {
    paste_.resize(paste_.size() - kPasteEnd.size());
    state_ = State::ground;
    Key key{Key::paste, clean_text(paste_)};
    paste_.clear();
    paste_.shrink_to_fit();
    return key;
}

std::optional<Key> KeyDecoder::ground(char byte) {
    if (static_cast<unsigned char>(byte) >= 0x80 || !character_.empty()) {
        character_.push_back(byte);
        if (complete_utf8_prefix(character_) < character_.size()) return {};  // more bytes to come
        Key key{Key::characters, clean_text(character_)};
        character_.clear();
        return key;
    }
    switch (byte) {
        case '\x1b':
            state_ = State::escape;
            return {};
        case '\r':
            return Key{Key::enter};
        case control('J'):
            return Key{Key::newline};
        case '\x7f':
        case control('H'):
            return Key{Key::backspace};
        case control('A'):
            return Key{Key::home};
        case control('E'):
            return Key{Key::end};
        case control('B'):
            return Key{Key::left};
        case control('F'):
            return Key{Key::right};
        case control('P'):
            return Key{Key::up};
        case control('N'):
            return Key{Key::down};
        case control('K'):
            return Key{Key::kill_to_end};
        case control('U'):
            return Key{Key::kill_to_start};
        case control('W'):
            return Key{Key::kill_word};
        case control('Y'):
            return Key{Key::yank};
        case control('L'):
            return Key{Key::clear_screen};
        case control('C'):
            return Key{Key::interrupt};
        case control('D'):
            return Key{Key::end_of_input};
        case control('Z'):
            return Key{Key::suspend};
        case '\t':
            return Key{Key::characters, "\t"};
        default:
            break;
    }
    if (byte >= 0x20) return Key{Key::characters, std::string(1, byte)};
    return Key{Key::unknown};
}

std::optional<Key> KeyDecoder::control_sequence(char final) {
    const Parameters p(parameters_);
    switch (final) {
        case 'A':
            return Key{Key::up};
        case 'B':
            return Key{Key::down};
        case 'C':
            return Key{p.alt_or_control() ? Key::word_right : Key::right};
        case 'D':
            return Key{p.alt_or_control() ? Key::word_left : Key::left};
        case 'H':
            return Key{Key::home};
        case 'F':
            return Key{Key::end};
        case 'M':
            return Key{Key::enter};  // keypad Enter in application mode (SS3 M)
        case 'u':                    // "CSI code ; modifier u": terminals that tell Shift+Enter from Enter
            if (p.first == 13) return Key{p.second > 1 ? Key::newline : Key::enter};
            return Key{Key::unknown};
        case '~':
            switch (p.first) {
                case 1:
                case 7:
                    return Key{Key::home};
                case 4:
                case 8:
                    return Key{Key::end};
                case 3:
                    return Key{p.alt_or_control() ? Key::kill_word_forward : Key::delete_forward};
                case 27:
                    return Key{p.third == 13 ? Key::newline : Key::unknown};  // xterm modifyOtherKeys
                case 200:
                    state_ = State::paste;
                    return {};
                default:
                    return Key{Key::unknown};
            }
        default:
            return Key{Key::unknown};
    }
}

}  // namespace vesta::app
