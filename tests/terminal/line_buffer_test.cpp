#include "line_buffer.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text_width.h"

namespace vesta::app {
namespace {

using Action = LineBuffer::Action;

struct Editing {
    History history;
    KeyDecoder decoder;
    LineBuffer buffer{history};
    Action last = Action::edit;

    explicit Editing(std::initializer_list<const char*> entries = {}) {
        for (const char* e : entries) history.add(e);
        buffer = LineBuffer(history);
    }
    Editing(const Editing&) = delete;
    Editing& type(std::string_view bytes) {
        for (const char b : bytes)
            if (auto key = decoder.feed(b)) last = buffer.handle(*key);
        return *this;
    }
    // Text with the cursor shown as |.
    std::string shown() const {
        std::string out = buffer.text().substr(0, buffer.cursor());
        out.push_back('|');
        return out.append(buffer.text(), buffer.cursor());
    }
};

constexpr const char *kLeft = "\x1b[D", *kRight = "\x1b[C", *kUp = "\x1b[A", *kDown = "\x1b[B";

TEST(LineBuffer, TypesMovesAndDeletesByCluster) {
    Editing e;
    EXPECT_EQ(e.type("aé中").shown(), "aé中|");
    EXPECT_EQ(e.type(kLeft).type(kLeft).shown(), "a|é中");
    EXPECT_EQ(e.type("x").shown(), "ax|é中");
    EXPECT_EQ(e.type("\x1b[3~").shown(), "ax|中");
    EXPECT_EQ(e.type("\x7f\x7f\x7f").shown(), "|中");
    EXPECT_EQ(e.type(kLeft).shown(), "|中");
    EXPECT_EQ(e.type(kRight).type(kRight).shown(), "中|");
    Editing family;
    EXPECT_EQ(family.type("a👩‍👩‍👧b").type(kLeft).type("\x7f").shown(), "a|b");
    Editing accent;
    EXPECT_EQ(accent.type("xe\u0301").type(kLeft).shown(), "x|e\u0301");
}

TEST(LineBuffer, ACombiningMarkTypedLaterJoinsItsBase) {
    Editing e;
    e.type("ab").type(kLeft).type("\u0301");
    EXPECT_EQ(e.shown(), "a\u0301|b");
    EXPECT_EQ(e.type("\x7f").shown(), "|b");
}

TEST(LineBuffer, HomeEndAndKillsWorkOnTheLogicalLine) {
    Editing e;
    e.type("one\ntwo words\nthree");
    e.type(kUp);
    EXPECT_EQ(e.shown(), "one\ntwo w|ords\nthree");
    EXPECT_EQ(e.type("\x01").shown(), "one\n|two words\nthree");
    EXPECT_EQ(e.type("\x05").shown(), "one\ntwo words|\nthree");
    EXPECT_EQ(e.type("\x17").shown(), "one\ntwo |\nthree");
    EXPECT_EQ(e.type("\x19\x19").shown(), "one\ntwo wordswords|\nthree");
    EXPECT_EQ(e.type("\x15").shown(), "one\n|\nthree");
    EXPECT_EQ(e.type("\x0b").shown(), "one\n|three");  // at a line's end Ctrl+K joins
    EXPECT_EQ(e.type("\x0b").shown(), "one\n|");
}

TEST(LineBuffer, MovesByWords) {
    Editing e;
    e.type("alpha, beta_2 — gamma");
    EXPECT_EQ(e.type("\x1b"
                     "b")
                  .shown(),
              "alpha, beta_2 — |gamma");
    EXPECT_EQ(e.type("\x1b"
                     "b")
                  .shown(),
              "alpha, |beta_2 — gamma");
    EXPECT_EQ(e.type("\x1b"
                     "f")
                  .shown(),
              "alpha, beta_2| — gamma");
    EXPECT_EQ(e.type("\x1b"
                     "d")
                  .shown(),
              "alpha, beta_2|");
    EXPECT_EQ(e.type("\x17\x17\x17\x17").shown(), "|");
}

TEST(LineBuffer, VerticalMovesRememberTheColumn) {
    Editing e;
    e.type("abcdef\nx\nuvwxyz").type(kLeft);
    EXPECT_EQ(e.type(kUp).shown(), "abcdef\nx|\nuvwxyz");
    EXPECT_EQ(e.type(kUp).shown(), "abcde|f\nx\nuvwxyz");
    EXPECT_EQ(e.type(kDown).type(kDown).shown(), "abcdef\nx\nuvwxy|z");
    Editing wide;
    wide.type("abcd\n中中").type(kUp);
    EXPECT_EQ(wide.shown(), "abcd|\n中中");
    EXPECT_EQ(wide.type(kLeft).type(kDown).shown(), "abcd\n中|中");  // column 3 is inside the second
}

TEST(LineBuffer, EnterSubmitsAndAltEnterAndBackslashDoNot) {
    Editing e;
    EXPECT_EQ(e.type("a\x1b\r").shown(), "a\n|");
    EXPECT_EQ(e.last, Action::edit);
    EXPECT_EQ(e.type("b\\\r").shown(), "a\nb\n|");
    EXPECT_EQ(e.last, Action::edit);
    e.type("c\r");
    EXPECT_EQ(e.last, Action::submit);
    EXPECT_EQ(e.buffer.text(), "a\nb\nc");
}

TEST(LineBuffer, APasteOfManyLinesDoesNotSubmit) {
    Editing e;
    e.type("say: \x1b[200~1\r2\r3\r\x1b[201~!");
    EXPECT_EQ(e.last, Action::edit);
    EXPECT_EQ(e.shown(), "say: 1\n2\n3\n!|");
}

TEST(LineBuffer, ControlDEndsOnlyAnEmptyLine) {
    Editing e;
    e.type("ab").type(kLeft).type("\x04");
    EXPECT_EQ(e.shown(), "a|");
    EXPECT_EQ(e.last, Action::edit);
    e.type("\x7f\x04");
    EXPECT_EQ(e.last, Action::end_of_input);
    EXPECT_EQ(e.type("\x03").last, Action::interrupt);
}

TEST(LineBuffer, BrowsesTheHistoryAndKeepsTheDraft) {
    Editing e{"first", "second\nline"};
    e.type("draft");
    EXPECT_EQ(e.type(kUp).shown(), "second\nline|");
    EXPECT_EQ(e.type(kUp).shown(), "seco|nd\nline");  // inside the entry first
    EXPECT_EQ(e.type(kUp).shown(), "first|");
    EXPECT_EQ(e.type(kUp).shown(), "first|");
    EXPECT_EQ(e.type(kDown).type(kDown).shown(), "draft|");
    EXPECT_EQ(e.type(kDown).shown(), "draft|");
}

TEST(LineBuffer, RandomKeysKeepTheCursorOnAClusterBoundary) {
    std::mt19937 random(7);
    const std::vector<std::string> pieces = {"a",
                                             "é",
                                             "\u0301",
                                             "中",
                                             "👩",
                                             "\u200D",
                                             "🇮",
                                             "🇹",
                                             "\n",
                                             "\x1b[D",
                                             "\x1b[C",
                                             "\x1b[A",
                                             "\x1b[B",
                                             " ",
                                             "\x7f",
                                             "\x1b[3~",
                                             "\x17",
                                             "\x0b",
                                             "\x19",
                                             "\x01",
                                             "\x05",
                                             "\x1b"
                                             "b",
                                             "\x1b"
                                             "f",
                                             "\t"};
    for (int round = 0; round < 300; ++round) {
        Editing e{"old 中 entry", "two\nlines"};
        for (int i = 0; i < 80; ++i) {
            e.type(pieces[random() % pieces.size()]);
            const std::string& text = e.buffer.text();
            ASSERT_TRUE(is_valid_utf8(text));
            ASSERT_LE(e.buffer.cursor(), text.size());
            size_t at = 0;
            while (at < e.buffer.cursor()) at = next_boundary(text, at);
            ASSERT_EQ(at, e.buffer.cursor());
            const Frame f = lay_out("> ", text, e.buffer.cursor(), 1 + random() % 20, 1 + random() % 5);
            ASSERT_LT(f.cursor_row, f.rows.size());
        }
    }
}

using Rows = std::vector<std::string>;

TEST(LayOut, PutsPromptAndIndentBeforeTheLines) {
    const Frame f = lay_out("\x1b[1m> \x1b[0m", "ab\ncd", 4, 20, 10);
    EXPECT_EQ(f.rows, (Rows{"\x1b[1m> \x1b[0mab", "  cd"}));
    EXPECT_EQ(f.cursor_row, 1u);
    EXPECT_EQ(f.cursor_column, 3u);
}

TEST(LayOut, WrapsBetweenClusters) {
    Frame f = lay_out("> ", "abcd中中", 0, 7, 10);
    EXPECT_EQ(f.rows, (Rows{"> abcd", "中中"}));  // one column stays empty: a wide character is not cut
    EXPECT_EQ(f.cursor_column, 2u);
    f = lay_out("> ", "abcd中中", 10, 7, 10);
    EXPECT_EQ(f.cursor_row, 1u);
    EXPECT_EQ(f.cursor_column, 4u);
}

TEST(LayOut, AFullRowPutsTheCursorOnTheNextOne) {
    Frame f = lay_out("> ", "abc", 3, 5, 10);
    EXPECT_EQ(f.rows, (Rows{"> abc", ""}));
    EXPECT_EQ(f.cursor_row, 1u);
    EXPECT_EQ(f.cursor_column, 0u);
    f = lay_out("> ", "abc", 2, 5, 10);
    EXPECT_EQ(f.rows, Rows{"> abc"});
    f = lay_out("> ", "abc\nd", 0, 5, 10);
    EXPECT_EQ(f.rows, (Rows{"> abc", "  d"}));
}

TEST(LayOut, ShowsTheRowsAroundTheCursorWhenTheTerminalIsShort) {
    const std::string text = "0\n1\n2\n3\n4\n5";
    Frame f = lay_out("", text, 0, 10, 3);
    EXPECT_EQ(f.rows, (Rows{"0", "1", "2"}));
    f = lay_out("", text, text.size(), 10, 3);
    EXPECT_EQ(f.rows, (Rows{"3", "4", "5"}));
    EXPECT_EQ(f.cursor_row, 2u);
}

TEST(LayOut, NeverExceedsTheColumns) {
    std::mt19937 random(3);
    const char* pieces[] = {"a", "中", "e\u0301", "\n", "\t", "👩‍👩‍👧", "\xFF"};
    for (int round = 0; round < 2000; ++round) {
        std::string text;
        for (size_t i = random() % 30; i > 0; --i) text += pieces[random() % std::size(pieces)];
        const size_t columns = 4 + random() % 12;
        for (const std::string& row : lay_out("> ", text, 0, columns, 100).rows)
            ASSERT_LE(static_cast<size_t>(text_width(row)), columns);
    }
}

}  // namespace
}  // namespace vesta::app
