// Reads lines from a person (a terminal, with editing) or from a file or pipe (plainly).
#pragma once

#include <termios.h>

#include <string>

#include "base/result.h"
#include "line_history.h"

namespace vesta::app {

// Puts a terminal into a quiet state for a chat and back: while the program works, typed characters are not echoed into
// its output (they wait and become the next line's beginning) and Ctrl+C raises SIGINT; while a line is read, the
// editor takes every key itself. The original state returns with the destructor, and also when SIGTERM, SIGHUP or
// SIGQUIT ends the program. At most one may exist; with a descriptor that is no tty it does nothing.
class TerminalMode {
 public:
    explicit TerminalMode(int fd);
    ~TerminalMode();
    TerminalMode(const TerminalMode&) = delete;
    TerminalMode& operator=(const TerminalMode&) = delete;

    bool is_tty() const { return is_tty_; }
    void quiet();  // the program works
    void keys();   // the editor reads
    void original();

 private:
    int fd_;
    bool is_tty_ = false;
    termios saved_{};
};

struct InputLine {
    enum Kind { line, interrupt, end_of_input } kind;
    std::string text = {};
};

class LineEditor {
 public:
    // Draws on `out_fd` (a terminal when `in_fd` is one). `history_path` empty: the history is kept in memory only.
    // The descriptors are borrowed. Not thread-safe.
    LineEditor(int in_fd, int out_fd, std::string history_path);

    // The next line or multi-line text. `interrupt`: Ctrl+C; text is what had been typed. On a pipe: up to a line feed,
    // cleaned like a paste. A history file that cannot be written is reported once in warning().
    InputLine read(const std::string& prompt);

    bool interactive() const { return mode_.is_tty(); }
    const std::string& warning() const { return warning_; }

 private:
    InputLine read_terminal(const std::string& prompt);
    InputLine read_plain();
    void draw(const std::string& prompt, const class LineBuffer& buffer);
    void leave_frame();
    void write_all(const std::string& bytes) const;
    void remember(const std::string& line);

    int in_, out_;
    bool dumb_;  // TERM=dumb: the system's own line editing, with a prompt
    TerminalMode mode_;
    History history_;
    std::string history_path_, warning_;
    std::string unread_;  // bytes read from the descriptor and not used yet
    size_t drawn_rows_ = 0, drawn_cursor_row_ = 0;
};

}  // namespace vesta::app
