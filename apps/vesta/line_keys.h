// Bytes from a terminal to keys. Pure: no terminal, no clock. Terminals send a key such as Home as an escape sequence
// (ECMA-48; the xterm and VT220 variants), a paste between ESC[200~ and ESC[201~, and everything else as UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace vesta::app {

struct Key {
    enum Kind {
        characters,  // `text` holds whole UTF-8 characters
        paste,       // `text` holds the pasted text: valid UTF-8, LF line ends, no control characters but LF and TAB
        enter,       // send the line
        newline,     // Alt+Enter (and Shift+Enter where the terminal tells them apart), Ctrl+J
        backspace,
        delete_forward,
        left,
        right,
        up,
        down,
        home,
        end,
        word_left,
        word_right,
        kill_to_end,    // Ctrl+K
        kill_to_start,  // Ctrl+U
        kill_word,      // Ctrl+W, Alt+Backspace
        kill_word_forward,
        yank,          // Ctrl+Y: what was killed last
        clear_screen,  // Ctrl+L
        interrupt,     // Ctrl+C
        end_of_input,  // Ctrl+D
        suspend,       // Ctrl+Z
        unknown,       // recognised as a sequence, has no meaning here
    };
    Kind kind;
    std::string text = {};
};

class KeyDecoder {
 public:
    // Takes one byte; returns a key when one is complete.
    std::optional<Key> feed(char byte);

    // No more bytes came for a while (50 ms): a lone ESC, or a sequence that broke off, is dropped. A paste goes on.
    void timeout();

    // True in the middle of an escape sequence or a character: the caller should wait with a time limit.
    bool pending() const { return state_ != State::ground || !character_.empty(); }
    bool in_paste() const { return state_ == State::paste; }

 private:
    enum class State { ground, escape, csi, ss3, paste };
    std::optional<Key> ground(char byte);
    std::optional<Key> control_sequence(char final);
    std::optional<Key> end_paste();

    State state_ = State::ground;
    std::string parameters_;  // of the CSI sequence so far; bounded
    std::string character_;   // bytes of an unfinished UTF-8 character
    std::string paste_;
};

// What may enter the buffer from outside: CRLF and CR become LF, invalid UTF-8 becomes U+FFFD, and control characters
// go, except LF and TAB. Pasted text must not be able to send escape sequences to the terminal when it is echoed.
std::string clean_text(std::string_view text);

}  // namespace vesta::app
