#include "answer_view.h"

#include <gtest/gtest.h>

#include <memory>

namespace vesta::app {
namespace {

struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
};

struct Screen {
    std::unique_ptr<std::FILE, Close> file{std::tmpfile()};
    std::string text() const {
        std::string out(static_cast<size_t>(std::ftell(file.get())), 0);
        std::rewind(file.get());
        EXPECT_EQ(std::fread(out.data(), 1, out.size(), file.get()), out.size());
        return out;
    }
};

TEST(AnswerView, OnAPipeTheAnswerIsExact) {
    const Screen out, err;
    AnswerView view({.answer = out.file.get(), .thinking = err.file.get()});
    view.thinking("\nhm", 1);
    view.thinking(" so\n", 2);
    view.answer("a\x1b[1m\tb");
    view.answer("\n");
    view.end();
    EXPECT_EQ(out.text(), "a\x1b[1m\tb\n");
    EXPECT_EQ(err.text(), "hm so\n\n");
    EXPECT_FALSE(view.write_failed());
}

TEST(AnswerView, OnATerminalThinkingIsDimAndControlCharactersAreDropped) {
    const Screen out;
    AnswerView view({.answer = out.file.get(),
                     .thinking = out.file.get(),
                     .answer_is_tty = true,
                     .thinking_is_tty = true,
                     .colour = true});
    view.thinking("why\x1b]0;title\x07", 1);
    view.answer(
        "be\x1b"
        "c");
    view.end();
    EXPECT_EQ(out.text(), "\x1b[2mwhy]0;title\x1b[0m\n\nbec\n");
}

TEST(AnswerView, FoldedThinkingIsOneLine) {
    const Screen out, err;
    AnswerView view({.answer = out.file.get(), .thinking = err.file.get(), .fold = true});
    view.thinking("long", 1);
    view.thinking(" text", 2);
    view.answer("answer");
    view.end();
    EXPECT_EQ(out.text(), "answer");
    EXPECT_EQ(err.text(), "thinking… 2 tokens\n");
}

TEST(AnswerView, ThinkingCanBeHidden) {
    const Screen out;
    AnswerView view({.answer = out.file.get(), .thinking = nullptr});
    view.thinking("secret", 1);
    view.answer("answer");
    view.end();
    EXPECT_EQ(out.text(), "answer");
}

TEST(AnswerView, AFullDiskIsNoticed) {
    const std::unique_ptr<std::FILE, Close> full(std::fopen("/dev/full", "w"));
    if (full == nullptr) GTEST_SKIP() << "/dev/full is missing here";
    AnswerView view({.answer = full.get(), .thinking = nullptr});
    view.answer("answer");
    EXPECT_TRUE(view.write_failed());
}

}  // namespace
}  // namespace vesta::app
