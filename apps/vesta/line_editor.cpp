#include "line_editor.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "line_buffer.h"
#include "line_keys.h"

namespace vesta::app {
namespace {

constexpr char kPasteOn[] = "\x1b[?2004h", kPasteOff[] = "\x1b[?2004l";
constexpr int kEscapeTimeoutMs = 50;  // a key's bytes arrive together; over ssh rarely more than 20 ms apart
constexpr size_t kMaxPlainLine = size_t{64} << 20;

// What the signal handler needs; written before the handler is installed, lock-free afterwards.
struct Restore {
    std::atomic<int> fd{-1};
    termios saved{};
};
Restore g_restore;
std::atomic<bool> g_resized{false};

void on_fatal_signal(int signal) {
    const int fd = g_restore.fd.load();
    if (fd >= 0) {
        ::tcsetattr(fd, TCSANOW, &g_restore.saved);  // tcsetattr and write are async-signal-safe
        [[maybe_unused]] const ssize_t n = ::write(fd, kPasteOff, sizeof kPasteOff - 1);
    }
    ::signal(signal, SIG_DFL);
    ::raise(signal);
}

void on_resize(int) { g_resized = true; }

constexpr int kFatal[] = {SIGTERM, SIGHUP, SIGQUIT};

void install(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);  // without SA_RESTART: poll() must return
}

// Emacs' shell and the like: a terminal that shows escape sequences instead of obeying them.
bool is_dumb_terminal(int fd) {
    const char* term = std::getenv("TERM");
    return ::isatty(fd) == 1 && term != nullptr && std::string_view(term) == "dumb";
}

struct Size {
    size_t columns, rows;
};

Size terminal_size(int fd) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
    return {size.ws_col, size.ws_row};
}

}  // namespace

TerminalMode::TerminalMode(int fd) : fd_(fd) {
    is_tty_ = ::isatty(fd) == 1 && ::tcgetattr(fd, &saved_) == 0;
    if (!is_tty_) return;
    g_restore.saved = saved_;
    g_restore.fd = fd;
    for (const int signal : kFatal) install(signal, on_fatal_signal);
    install(SIGWINCH, on_resize);
}

TerminalMode::~TerminalMode() {
    if (!is_tty_) return;
    original();
    g_restore.fd = -1;
    for (const int signal : kFatal) install(signal, SIG_DFL);
    install(SIGWINCH, SIG_DFL);
}

void TerminalMode::original() {
    if (is_tty_) ::tcsetattr(fd_, TCSANOW, &saved_);
}

void TerminalMode::quiet() {
    if (!is_tty_) return;
    termios t = saved_;
    t.c_iflag &= ~static_cast<tcflag_t>(ICRNL);          // an Enter typed ahead must still be an Enter for the editor
    t.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);  // ISIG stays: Ctrl+C must reach a busy program
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    ::tcsetattr(fd_, TCSANOW, &t);
}

void TerminalMode::keys() {
    if (!is_tty_) return;
    termios t = saved_;
    t.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INLCR | IGNCR | INPCK | ISTRIP | IXON);
    t.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | IEXTEN | ISIG);
    t.c_cflag |= CS8;
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    ::tcsetattr(fd_, TCSANOW, &t);  // not FLUSH: what was typed ahead counts
}

LineEditor::LineEditor(int in_fd, int out_fd, std::string history_path)
    : in_(in_fd),
      out_(out_fd),
      dumb_(is_dumb_terminal(in_fd)),
      mode_(dumb_ ? -1 : in_fd),
      history_path_(std::move(history_path)) {
    if (!interactive()) return;
    mode_.quiet();
    if (history_path_.empty()) return;
    auto loaded = load_history(history_path_);
    if (loaded.ok()) history_ = std::move(loaded).value();
    const Status trimmed = loaded.ok() ? trim_history(history_path_) : Status{loaded.error()};
    if (!trimmed.ok()) warning_ = trimmed.error().message;
}

InputLine LineEditor::read(const std::string& prompt) {
    if (dumb_) write_all(prompt);
    if (!interactive()) return read_plain();
    mode_.keys();
    write_all(kPasteOn);
    InputLine line = read_terminal(prompt);
    write_all(kPasteOff);
    mode_.quiet();
    if (line.kind == InputLine::line) remember(line.text);
    return line;
}

void LineEditor::remember(const std::string& line) {
    if (!history_.add(line) || history_path_.empty()) return;
    if (const Status s = append_history(history_path_, line); !s.ok()) {
        if (warning_.empty()) warning_ = s.error().message;
        history_path_.clear();  // do not try again
    }
}

InputLine LineEditor::read_terminal(const std::string& prompt) {
    KeyDecoder decoder;
    LineBuffer buffer(history_);
    drawn_rows_ = drawn_cursor_row_ = 0;
    draw(prompt, buffer);
    for (;;) {
        if (unread_.empty()) {
            pollfd ready{in_, POLLIN, 0};
            const int n = ::poll(&ready, 1, decoder.pending() && !decoder.in_paste() ? kEscapeTimeoutMs : -1);
            if (g_resized.exchange(false)) {
                // The terminal has already re-wrapped the old rows somewhere; start below them.
                drawn_rows_ = drawn_cursor_row_ = 0;
                write_all("\r\x1b[J");
                draw(prompt, buffer);
            }
            if (n == 0) decoder.timeout();
            if (n < 0 && errno != EINTR) return {InputLine::end_of_input};
            if (n <= 0) continue;
            char bytes[4096];
            const ssize_t got = ::read(in_, bytes, sizeof bytes);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) {
                leave_frame();
                return {InputLine::end_of_input};
            }
            unread_.assign(bytes, static_cast<size_t>(got));
        }
        // All keys of one read before one redraw: a paste without brackets would otherwise flicker.
        size_t used = 0;
        while (used < unread_.size()) {
            const std::optional<Key> key = decoder.feed(unread_[used++]);
            if (!key) continue;
            const LineBuffer::Action action = buffer.handle(*key);
            if (action == LineBuffer::Action::edit) continue;
            if (action == LineBuffer::Action::clear_screen) {
                write_all("\x1b[H\x1b[2J");
                drawn_rows_ = drawn_cursor_row_ = 0;
                continue;
            }
            if (action == LineBuffer::Action::suspend) {
                draw(prompt, buffer);
                leave_frame();
                write_all(kPasteOff);
                mode_.original();
                ::raise(SIGTSTP);  // returns when the shell brings us back
                mode_.keys();
                write_all(kPasteOn);
                continue;
            }
            unread_.erase(0, used);
            draw(prompt, buffer);
            leave_frame();
            if (action == LineBuffer::Action::submit) return {InputLine::line, buffer.text()};
            return {action == LineBuffer::Action::interrupt ? InputLine::interrupt : InputLine::end_of_input,
                    buffer.text()};
        }
        unread_.clear();
        draw(prompt, buffer);
    }
}

void LineEditor::draw(const std::string& prompt, const LineBuffer& buffer) {
    const Size size = terminal_size(out_);
    const Frame frame = lay_out(prompt, buffer.text(), buffer.cursor(), size.columns, size.rows);
    std::string out = "\x1b[?25l\r";  // hide the cursor while it travels
    if (drawn_cursor_row_ > 0) out += strf("\x1b[{}A", drawn_cursor_row_);
    out += "\x1b[J";
    for (size_t i = 0; i < frame.rows.size(); ++i) out += (i > 0 ? "\r\n" : "") + frame.rows[i];
    const size_t up = frame.rows.size() - 1 - frame.cursor_row;
    if (up > 0) out += strf("\x1b[{}A", up);
    out += "\r";
    if (frame.cursor_column > 0) out += strf("\x1b[{}C", frame.cursor_column);
    out += "\x1b[?25h";
    write_all(out);
    drawn_rows_ = frame.rows.size();
    drawn_cursor_row_ = frame.cursor_row;
}

// Leaves the cursor on the line below the text.
void LineEditor::leave_frame() {
    const size_t down = drawn_rows_ - 1 - drawn_cursor_row_;
    write_all((down > 0 ? strf("\x1b[{}B", down) : std::string()) + "\r\n");
    drawn_rows_ = drawn_cursor_row_ = 0;
}

InputLine LineEditor::read_plain() {
    for (;;) {
        const size_t feed = unread_.find('\n');
        if (feed != std::string::npos || unread_.size() > kMaxPlainLine) {
            const size_t length = std::min(feed, unread_.size());
            InputLine line{InputLine::line, clean_text(std::string_view(unread_).substr(0, length))};
            unread_.erase(0, std::min(length + 1, unread_.size()));
            if (line.text.ends_with('\n')) line.text.pop_back();  // CRLF
            return line;
        }
        char bytes[4096];
        const ssize_t got = ::read(in_, bytes, sizeof bytes);
        if (got < 0 && errno == EINTR) return {InputLine::interrupt};
        if (got <= 0) {  // the last line may lack its line feed
            if (unread_.empty()) return {InputLine::end_of_input};
            InputLine line{InputLine::line, clean_text(unread_)};
            unread_.clear();
            return line;
        }
        unread_.append(bytes, static_cast<size_t>(got));
    }
}

void LineEditor::write_all(const std::string& bytes) const {
    std::string_view rest = bytes;
    while (!rest.empty()) {
        const ssize_t n = ::write(out_, rest.data(), rest.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;  // the terminal is gone; read() will notice
        rest.remove_prefix(static_cast<size_t>(n));
    }
}

}  // namespace vesta::app
