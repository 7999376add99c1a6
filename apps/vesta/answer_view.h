// Shows an answer while it is written: the answer itself, and the thinking before it, dimmed or folded to one line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace vesta::app {

struct ViewOptions {
    std::FILE* answer = stdout;
    std::FILE* thinking = stdout;  // null: thinking is not shown
    bool answer_is_tty = false;    // then control characters are dropped: a model must not steer the terminal
    bool thinking_is_tty = false;
    bool colour = false;  // dim the thinking
    bool fold = false;    // "thinking… N tokens" instead of the text
};

class AnswerView {
 public:
    explicit AnswerView(const ViewOptions& options) : options_(options) {}

    // Complete characters only. `n_token`: thinking tokens so far, for the folded line.
    void thinking(std::string_view text, int64_t n_token);
    void answer(std::string_view text);
    // Closes what is open; on a terminal the last line is ended.
    void end();
    bool write_failed() const { return failed_; }

 private:
    enum class State { nothing, thinking, answer };
    void write(std::FILE* file, std::string_view text, bool is_tty);
    void leave_thinking();

    ViewOptions options_;
    State state_ = State::nothing;
    int64_t n_thinking_ = 0;
    bool at_line_start_ = true, failed_ = false;
};

}  // namespace vesta::app
