#include "line_buffer.h"

#include <algorithm>

#include "base/utf8.h"
#include "text_width.h"

namespace vesta::app {
namespace {

constexpr size_t kTabColumns = 4;

// A word is a run of letters and digits; outside ASCII everything but white space counts, which is right for most
// scripts.
bool is_word(std::string_view text, size_t at) {
    const uint32_t c = decode_utf8(text.substr(at)).code_point;
    if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return c != 0xA0 && c != 0x3000 && !(c >= 0x2000 && c <= 0x206F) && !(c >= 0x3001 && c <= 0x3003);
}

size_t columns_between(std::string_view text, size_t begin, size_t end) {
    size_t n = 0;
    for (size_t at = begin; at < end;) {
        const Cluster c = first_cluster(text.substr(at));
        n += text[at] == '\t' ? kTabColumns : static_cast<size_t>(c.width);
        at += c.length;
    }
    return n;
}

size_t width_without_colours(std::string_view prompt) {
    std::string plain;
    for (size_t i = 0; i < prompt.size(); ++i) {
        if (prompt[i] == '\x1b') {
            i = std::min(prompt.find('m', i), prompt.size());
        } else {
            plain.push_back(prompt[i]);
        }
    }
    return static_cast<size_t>(text_width(plain));
}

}  // namespace

void LineBuffer::set_text(std::string text) {
    text_ = std::move(text);
    cursor_ = text_.size();
    goal_column_ = -1;
}

void LineBuffer::insert(std::string_view text) {
    text_.insert(cursor_, text);
    // What was typed may join the cluster before it (a combining mark), or the one after it: stand on a boundary.
    const size_t wanted = cursor_ + text.size();
    size_t at = previous_boundary(text_, wanted);
    while (at < wanted) at = next_boundary(text_, at);
    cursor_ = at;
}

void LineBuffer::erase(size_t begin, size_t end) {
    text_.erase(begin, end - begin);
    size_t at = previous_boundary(text_, begin);
    while (at < begin) at = next_boundary(text_, at);
    cursor_ = at;
}

void LineBuffer::kill(size_t begin, size_t end) {
    if (begin == end) return;
    killed_ = text_.substr(begin, end - begin);
    erase(begin, end);
}

size_t LineBuffer::line_begin() const {
    if (cursor_ == 0) return 0;
    const size_t feed = text_.rfind('\n', cursor_ - 1);
    return feed == std::string::npos ? 0 : feed + 1;
}

size_t LineBuffer::line_end() const { return std::min(text_.find('\n', cursor_), text_.size()); }

size_t LineBuffer::word_left() const {
    size_t at = cursor_;
    while (at > 0 && !is_word(text_, previous_boundary(text_, at))) at = previous_boundary(text_, at);
    while (at > 0 && is_word(text_, previous_boundary(text_, at))) at = previous_boundary(text_, at);
    return at;
}

size_t LineBuffer::word_right() const {
    size_t at = cursor_;
    while (at < text_.size() && !is_word(text_, at)) at = next_boundary(text_, at);
    while (at < text_.size() && is_word(text_, at)) at = next_boundary(text_, at);
    return at;
}

// Up and down move between the lines of the text; from its first or last line they go on into the history.
void LineBuffer::vertical(int direction) {
    const size_t begin = line_begin(), end = line_end();
    if (direction < 0 && begin == 0) {
        if (browsing_ > 0) browse(browsing_ - 1);
        return;
    }
    if (direction > 0 && end == text_.size()) {
        if (browsing_ < history_->size()) browse(browsing_ + 1);
        return;
    }
    if (goal_column_ < 0) goal_column_ = static_cast<int>(columns_between(text_, begin, cursor_));
    cursor_ = direction < 0 ? begin - 1 : end + 1;  // onto the other line: its end, or its beginning
    size_t at = line_begin();
    const size_t stop = line_end();
    const size_t from = at;
    while (at < stop) {
        const size_t next = next_boundary(text_, at);
        if (columns_between(text_, from, next) > static_cast<size_t>(goal_column_)) break;
        at = next;
    }
    cursor_ = at;
}

void LineBuffer::browse(size_t index) {
    if (browsing_ == history_->size()) draft_ = text_;
    browsing_ = index;
    set_text(index == history_->size() ? draft_ : (*history_)[index]);
}

LineBuffer::Action LineBuffer::handle(const Key& key) {
    if (key.kind != Key::up && key.kind != Key::down) goal_column_ = -1;
    switch (key.kind) {
        case Key::characters:
        case Key::paste:
            insert(key.text);
            break;
        case Key::newline:
            insert("\n");
            break;
        case Key::enter:
            if (!text_.ends_with('\\')) return Action::submit;
            text_.back() = '\n';
            cursor_ = text_.size();
            break;
        case Key::backspace:
            erase(previous_boundary(text_, cursor_), cursor_);
            break;
        case Key::delete_forward:
            erase(cursor_, next_boundary(text_, cursor_));
            break;
        case Key::left:
            cursor_ = previous_boundary(text_, cursor_);
            break;
        case Key::right:
            cursor_ = next_boundary(text_, cursor_);
            break;
        case Key::up:
            vertical(-1);
            break;
        case Key::down:
            vertical(1);
            break;
        case Key::home:
            cursor_ = line_begin();
            break;
        case Key::end:
            cursor_ = line_end();
            break;
        case Key::word_left:
            cursor_ = word_left();
            break;
        case Key::word_right:
            cursor_ = word_right();
            break;
        case Key::kill_to_end:  // at the end of a line it takes the line feed, as in other editors
            kill(cursor_, line_end() == cursor_ ? next_boundary(text_, cursor_) : line_end());
            break;
        case Key::kill_to_start:
            kill(line_begin(), cursor_);
            break;
        case Key::kill_word:
            kill(word_left(), cursor_);
            break;
        case Key::kill_word_forward:
            kill(cursor_, word_right());
            break;
        case Key::yank:
            insert(killed_);
            break;
        case Key::clear_screen:
            return Action::clear_screen;
        case Key::interrupt:
            return Action::interrupt;
        case Key::end_of_input:
            if (text_.empty()) return Action::end_of_input;
            erase(cursor_, next_boundary(text_, cursor_));
            break;
        case Key::suspend:
            return Action::suspend;
        case Key::unknown:
            break;
    }
    return Action::edit;
}

Frame lay_out(std::string_view prompt, std::string_view text, size_t cursor, size_t columns, size_t max_rows) {
    Frame frame;
    // A prompt wider than half the terminal would leave no room to write: drop it rather than break.
    size_t indent = width_without_colours(prompt);
    if (indent * 2 > columns) {
        indent = 0;
        prompt = {};
    }
    frame.rows.emplace_back(prompt);
    size_t column = indent;
    const auto begin_row = [&](size_t width) {
        frame.rows.emplace_back(width, ' ');
        column = width;
    };
    for (size_t at = 0;;) {
        const bool feed = at < text.size() && text[at] == '\n';
        const Cluster c = at < text.size() && !feed ? first_cluster(text.substr(at)) : Cluster{1, 1};
        const bool tab = at < text.size() && text[at] == '\t';
        const size_t width = tab ? kTabColumns : static_cast<size_t>(c.width);
        // The cursor needs a column too: after a full row it stands at the start of the next one.
        if (column + width > columns && column > 0 && (!feed || at == cursor) && (at < text.size() || at == cursor))
            begin_row(0);
        if (at == cursor) {
            frame.cursor_row = frame.rows.size() - 1;
            frame.cursor_column = std::min(column, columns - 1);
        }
        if (at >= text.size()) break;
        if (feed) {
            begin_row(indent);
        } else if (width <= columns) {
            if (tab)
                frame.rows.back().append(width, ' ');
            else if (decode_utf8(text.substr(at)).valid)
                frame.rows.back().append(text.substr(at, c.length));
            else
                append_utf8(frame.rows.back(), 0xFFFD);
            column += width;
        }  // else: a wide character on a terminal of one column cannot be shown
        at += c.length;
    }
    if (frame.rows.size() > max_rows) {
        const size_t first = frame.cursor_row < max_rows ? 0 : frame.cursor_row - max_rows + 1;
        frame.rows.assign(frame.rows.begin() + static_cast<std::ptrdiff_t>(first),
                          frame.rows.begin() + static_cast<std::ptrdiff_t>(first + max_rows));
        frame.cursor_row -= first;
    }
    return frame;
}

}  // namespace vesta::app
