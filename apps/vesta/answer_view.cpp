#include "answer_view.h"

#include <fmt/format.h>

#include "line_keys.h"

namespace vesta::app {

void AnswerView::write(std::FILE* file, std::string_view text, bool is_tty) {
    if (text.empty()) return;
    const std::string clean = is_tty ? clean_text(text) : std::string();
    if (is_tty) text = clean;
    if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0) failed_ = true;
    if (!text.empty()) at_line_start_ = text.back() == '\n';
}

void AnswerView::thinking(std::string_view text, int64_t n_token) {
    if (options_.thinking == nullptr) return;
    n_thinking_ = n_token;
    if (state_ == State::nothing) {
        state_ = State::thinking;
        if (!options_.fold && options_.colour) fmt::print(options_.thinking, "\x1b[2m");
        if (!options_.fold) {  // the model often begins with a line feed
            const size_t begin = text.find_first_not_of("\r\n");
            text.remove_prefix(begin == std::string_view::npos ? text.size() : begin);
        }
    }
    if (!options_.fold) {
        write(options_.thinking, text, options_.thinking_is_tty);
    } else if (options_.thinking_is_tty) {
        fmt::print(options_.thinking, "\r\x1b[K{}thinking… {} token{}{}", options_.colour ? "\x1b[2m" : "", n_token,
                   n_token == 1 ? "" : "s", options_.colour ? "\x1b[0m" : "");
        std::fflush(options_.thinking);
        at_line_start_ = false;
    }
}

void AnswerView::leave_thinking() {
    if (state_ != State::thinking) return;
    if (options_.fold) {
        if (options_.thinking_is_tty)
            fmt::print(options_.thinking, "\n");
        else
            fmt::print(options_.thinking, "thinking… {} token{}\n", n_thinking_, n_thinking_ == 1 ? "" : "s");
    } else {
        fmt::print(options_.thinking, "{}{}", options_.colour ? "\x1b[0m" : "", at_line_start_ ? "\n" : "\n\n");
    }
    std::fflush(options_.thinking);
    at_line_start_ = true;
    state_ = State::nothing;
}

void AnswerView::answer(std::string_view text) {
    if (text.empty()) return;
    leave_thinking();
    state_ = State::answer;
    write(options_.answer, text, options_.answer_is_tty);
}

void AnswerView::end() {
    leave_thinking();
    if (options_.answer_is_tty && !at_line_start_) fmt::print(options_.answer, "\n");
    if (std::fflush(options_.answer) != 0) failed_ = true;
    at_line_start_ = true;
    state_ = State::nothing;
}

}  // namespace vesta::app
