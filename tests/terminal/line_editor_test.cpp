// The editor on a real pseudo-terminal, and on a pipe.
#include "line_editor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/file.h"

namespace vesta::app {
namespace {

struct Terminal {
    UniqueFd master, slave;
    Terminal() {
        ::setenv("TERM", "xterm", 1);  // whatever the tests are run under
        int m = -1, s = -1;
        winsize size{24, 80, 0, 0};
        EXPECT_EQ(::openpty(&m, &s, nullptr, nullptr, &size), 0);
        master = UniqueFd(m);
        slave = UniqueFd(s);
        ::fcntl(m, F_SETFL, O_NONBLOCK);
    }
    void type(std::string_view bytes) const {
        EXPECT_EQ(::write(master.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    }
    // All that was ever drawn.
    const std::string& screen() {
        char b[4096];
        for (ssize_t n; (n = ::read(master.get(), b, sizeof b)) > 0;) drawn.append(b, static_cast<size_t>(n));
        return drawn;
    }
    // Reads a line while a second thread waits for the prompt and then types. Ctrl+C needs this: before the prompt it
    // is a signal, not a key.
    InputLine read(LineEditor& editor, std::string_view bytes) {
        const size_t before = screen().size();
        std::thread person([&] {
            for (int i = 0; i < 500 && screen().find("\x1b[?25h", before) == std::string::npos; ++i) ::usleep(2000);
            type(bytes);
        });
        InputLine line = editor.read("> ");
        person.join();
        return line;
    }
    std::string drawn;
    termios mode() const {
        termios t{};
        EXPECT_EQ(::tcgetattr(slave.get(), &t), 0);
        return t;
    }
};

TEST(LineEditor, ReadsEditedLinesAndWhatWasTypedAhead) {
    Terminal t;
    LineEditor editor(t.slave.get(), t.slave.get(), "");
    ASSERT_TRUE(editor.interactive());
    t.type("helo\x1b[Dl\rtyped ahead\r");
    InputLine line = editor.read("> ");
    EXPECT_EQ(line.kind, InputLine::line);
    EXPECT_EQ(line.text, "hello");
    EXPECT_EQ(editor.read("> ").text, "typed ahead");
    t.type("more\r");  // while "generating": quiet mode
    EXPECT_EQ(editor.read("> ").text, "more");
    EXPECT_EQ(t.read(editor, "x\x03").kind, InputLine::interrupt);
    EXPECT_EQ(t.read(editor, "\x1b[A\x1b[A\r").text, "typed ahead");
    EXPECT_EQ(t.read(editor, "\x04").kind, InputLine::end_of_input);
    EXPECT_NE(t.screen().find("> hel"), std::string::npos);
}

TEST(LineEditor, RestoresTheTerminal) {
    Terminal t;
    const termios before = t.mode();
    {
        LineEditor editor(t.slave.get(), t.slave.get(), "");
        EXPECT_EQ(t.mode().c_lflag & ECHO, 0u);
        EXPECT_NE(t.mode().c_lflag & ISIG, 0u);  // Ctrl+C works while the program is busy
        t.read(editor, "a\r");
    }
    const termios after = t.mode();
    EXPECT_EQ(after.c_lflag, before.c_lflag);
    EXPECT_EQ(after.c_iflag, before.c_iflag);
    const std::string& screen = t.screen();
    EXPECT_GT(screen.rfind("\x1b[?2004l"), screen.rfind("\x1b[?2004h"));
}

TEST(LineEditor, RestoresTheTerminalWhenASignalEndsTheProgram) {
    Terminal t;
    const termios before = t.mode();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        LineEditor editor(t.slave.get(), t.slave.get(), "");
        editor.read("ready> ");
        ::_exit(9);
    }
    for (int i = 0; i < 500 && t.screen().find("ready>") == std::string::npos; ++i) ::usleep(10000);
    EXPECT_EQ(t.mode().c_lflag & ISIG, 0u);
    ::kill(child, SIGTERM);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    EXPECT_EQ(t.mode().c_lflag, before.c_lflag);
}

TEST(LineEditor, RedrawsAfterAResize) {
    Terminal t;
    LineEditor editor(t.slave.get(), t.slave.get(), "");
    std::thread person([&] {
        t.type("abcdefghij");
        ::usleep(100000);
        winsize narrow{24, 6, 0, 0};
        ::ioctl(t.master.get(), TIOCSWINSZ, &narrow);
        ::kill(::getpid(), SIGWINCH);  // the terminal is not this process's controlling one
        ::usleep(100000);
        t.type("\r");
    });
    EXPECT_EQ(editor.read("> ").text, "abcdefghij");
    person.join();
    // The terminal itself turns our LF into CR LF.
    const std::string& screen = t.screen();
    EXPECT_NE(screen.find("> abcd\r\r\nefghij"), std::string::npos) << screen;
}

TEST(LineEditor, WritesTheHistoryFile) {
    std::string folder = std::string(VESTA_TEST_TMP) + "/editor-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    Terminal t;
    {
        LineEditor editor(t.slave.get(), t.slave.get(), folder + "/history");
        t.type("one\x1b\rtwo\r");
        EXPECT_EQ(editor.read("> ").text, "one\ntwo");
    }
    LineEditor again(t.slave.get(), t.slave.get(), folder + "/history");
    t.type("\x1b[A\r");
    EXPECT_EQ(again.read("> ").text, "one\ntwo");
    EXPECT_EQ(again.warning(), "");
}

TEST(LineEditor, SaysOnceThatTheHistoryCannotBeWritten) {
    Terminal t;
    LineEditor editor(t.slave.get(), t.slave.get(), "/proc/nowhere/history");
    t.type("a\rb\r");
    editor.read("> ");
    EXPECT_NE(editor.warning().find("/proc/nowhere"), std::string::npos);
    EXPECT_EQ(editor.read("> ").text, "b");
}

TEST(LineEditor, ADumbTerminalGetsAPromptAndNoEscapeSequences) {
    Terminal t;
    ::setenv("TERM", "dumb", 1);
    LineEditor editor(t.slave.get(), t.slave.get(), "");
    t.type("plain\n");
    EXPECT_EQ(editor.read("> ").text, "plain");
    EXPECT_EQ(t.screen().find('\x1b'), std::string::npos);
    EXPECT_NE(t.screen().find("> "), std::string::npos);
}

TEST(LineEditor, ReadsLinesFromAPipe) {
    int fds[2];
    ASSERT_EQ(::pipe(fds), 0);
    const UniqueFd in(fds[0]);
    {
        const UniqueFd out(fds[1]);
        const std::string text = "one\r\n\ntw\x1bo \xFF\nlast";
        ASSERT_EQ(::write(out.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    }
    LineEditor editor(in.get(), in.get(), "");
    EXPECT_FALSE(editor.interactive());
    EXPECT_EQ(editor.read("> ").text, "one");
    EXPECT_EQ(editor.read("> ").text, "");
    EXPECT_EQ(editor.read("> ").text, "two \uFFFD");
    EXPECT_EQ(editor.read("> ").text, "last");
    EXPECT_EQ(editor.read("> ").kind, InputLine::end_of_input);
}

TEST(LineEditor, AClosedInputIsTheEnd) {
    LineEditor editor(-1, -1, "");
    EXPECT_EQ(editor.read("> ").kind, InputLine::end_of_input);
}

}  // namespace
}  // namespace vesta::app
