// The line being edited, as a value: keys go in, text and pictures come out. No terminal, so all of it is tested
// plainly; line_editor.cpp joins it to a tty.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "line_history.h"
#include "line_keys.h"

namespace vesta::app {

class LineBuffer {
 public:
    // The history is borrowed and must outlive the buffer; it is read while browsing and never changed.
    explicit LineBuffer(const History& history) : history_(&history), browsing_(history.size()) {}

    enum class Action { edit, submit, interrupt, end_of_input, clear_screen, suspend };

    // Applies one key. `submit`: the text is complete. `end_of_input`: Ctrl+D on an empty line. `interrupt`: Ctrl+C.
    // Enter after a trailing backslash replaces the backslash by a line feed instead of submitting.
    Action handle(const Key& key);

    const std::string& text() const { return text_; }
    size_t cursor() const { return cursor_; }  // byte position, always a cluster boundary
    void set_text(std::string text);           // cursor to the end

 private:
    void insert(std::string_view text);
    void erase(size_t begin, size_t end);
    void kill(size_t begin, size_t end);
    size_t line_begin() const;
    size_t line_end() const;
    size_t word_left() const;
    size_t word_right() const;
    void vertical(int direction);
    void browse(size_t index);

    const History* history_;
    std::string text_, killed_;
    size_t cursor_ = 0;
    size_t browsing_;       // index into the history; == size() means the line being written
    std::string draft_;     // that line, while an old one is shown
    int goal_column_ = -1;  // where up and down want to be; -1: where the cursor is
};

// What the terminal must show: rows of text and where the cursor stands.
struct Frame {
    std::vector<std::string> rows;
    size_t cursor_row = 0, cursor_column = 0;
};

// Lays `text` out in `columns`, with `prompt` before the first line and as many spaces before the others. Rows break
// between clusters and never exceed `columns`; TAB shows as four spaces. At most `max_rows` rows are returned, chosen
// so that the cursor's row is among them. Requires: columns > 0, max_rows > 0; `prompt` holds no control characters but
// colour sequences (SGR), which take no room.
Frame lay_out(std::string_view prompt, std::string_view text, size_t cursor, size_t columns, size_t max_rows);

}  // namespace vesta::app
