#include "line_keys.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/utf8.h"

namespace vesta::app {
namespace {

std::vector<Key> decode(KeyDecoder& decoder, std::string_view bytes) {
    std::vector<Key> keys;
    for (const char b : bytes)
        if (auto key = decoder.feed(b)) keys.push_back(*key);
    return keys;
}

std::vector<Key> decode(std::string_view bytes) {
    KeyDecoder decoder;
    auto keys = decode(decoder, bytes);
    EXPECT_FALSE(decoder.pending());
    return keys;
}

Key::Kind only(std::string_view bytes) {
    const auto keys = decode(bytes);
    EXPECT_EQ(keys.size(), 1u);
    return keys.size() == 1 ? keys[0].kind : Key::unknown;
}

TEST(Keys, TextComesInWholeCharacters) {
    const auto keys = decode("aé中😀");
    ASSERT_EQ(keys.size(), 4u);
    EXPECT_EQ(keys[0].text, "a");
    EXPECT_EQ(keys[1].text, "é");
    EXPECT_EQ(keys[2].text, "中");
    EXPECT_EQ(keys[3].text, "😀");
    for (const Key& k : keys) EXPECT_EQ(k.kind, Key::characters);
}

TEST(Keys, InvalidBytesBecomeReplacementCharacters) {
    const auto keys = decode(
        "\xFF"
        "a\xC3z");
    std::string all;
    for (const Key& k : keys) all += k.text;
    EXPECT_EQ(all, "\uFFFDa\uFFFDz");
}

TEST(Keys, ControlLettersHaveTheirMeanings) {
    EXPECT_EQ(only("\x01"), Key::home);
    EXPECT_EQ(only("\x05"), Key::end);
    EXPECT_EQ(only("\x0b"), Key::kill_to_end);
    EXPECT_EQ(only("\x15"), Key::kill_to_start);
    EXPECT_EQ(only("\x17"), Key::kill_word);
    EXPECT_EQ(only("\x0c"), Key::clear_screen);
    EXPECT_EQ(only("\x03"), Key::interrupt);
    EXPECT_EQ(only("\x04"), Key::end_of_input);
    EXPECT_EQ(only("\x1a"), Key::suspend);
    EXPECT_EQ(only("\r"), Key::enter);
    EXPECT_EQ(only("\n"), Key::newline);
    EXPECT_EQ(only("\x7f"), Key::backspace);
    EXPECT_EQ(only("\b"), Key::backspace);
}

TEST(Keys, SequencesOfXtermVt220AndRxvt) {
    for (const char* s : {"\x1b[A", "\x1bOA"}) EXPECT_EQ(only(s), Key::up);
    for (const char* s : {"\x1b[B", "\x1bOB"}) EXPECT_EQ(only(s), Key::down);
    for (const char* s : {"\x1b[C", "\x1bOC"}) EXPECT_EQ(only(s), Key::right);
    for (const char* s : {"\x1b[D", "\x1bOD"}) EXPECT_EQ(only(s), Key::left);
    for (const char* s : {"\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"}) EXPECT_EQ(only(s), Key::home);
    for (const char* s : {"\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~"}) EXPECT_EQ(only(s), Key::end);
    EXPECT_EQ(only("\x1b[3~"), Key::delete_forward);
    for (const char* s : {"\x1b[1;5C", "\x1b[1;3C",
                          "\x1b"
                          "f"})
        EXPECT_EQ(only(s), Key::word_right);
    for (const char* s : {"\x1b[1;5D", "\x1b[1;3D",
                          "\x1b"
                          "b"})
        EXPECT_EQ(only(s), Key::word_left);
    EXPECT_EQ(only("\x1b[1;2C"), Key::right);  // with shift
    for (const char* s : {"\x1b\r", "\x1b\n", "\x1b[13;2u", "\x1b[27;2;13~"}) EXPECT_EQ(only(s), Key::newline);
    EXPECT_EQ(only("\x1b[13u"), Key::enter);
    EXPECT_EQ(only("\x1b\x7f"), Key::kill_word);
    EXPECT_EQ(only("\x1b[15~"), Key::unknown);      // F5
    EXPECT_EQ(only("\x1b[<0;10;20M"), Key::enter);  // a mouse report ends like keypad Enter; mouse mode is never on
}

TEST(Keys, BracketedPasteIsOneKeyAndDoesNotSubmit) {
    const auto keys = decode("x\x1b[200~one\r\ntwo\rthree\x1b[A\n\x1b[201~y");
    ASSERT_EQ(keys.size(), 3u);
    EXPECT_EQ(keys[1].kind, Key::paste);
    EXPECT_EQ(keys[1].text, "one\ntwo\nthree[A\n");  // the escape character is gone: harmless when echoed
    EXPECT_EQ(keys[2].text, "y");
}

TEST(Keys, ALoneEscapeIsForgottenAfterTheTimeout) {
    KeyDecoder decoder;
    EXPECT_TRUE(decode(decoder, "\x1b").empty());
    EXPECT_TRUE(decoder.pending());
    decoder.timeout();
    const auto keys = decode(decoder, "[A");
    ASSERT_EQ(keys.size(), 2u);
    EXPECT_EQ(keys[0].text, "[");
    EXPECT_EQ(keys[1].text, "A");
}

TEST(Keys, APasteSurvivesAPause) {
    KeyDecoder decoder;
    decode(decoder, "\x1b[200~ab");
    EXPECT_TRUE(decoder.in_paste());
    decoder.timeout();
    const auto keys = decode(decoder, "c\x1b[201~");
    ASSERT_EQ(keys.size(), 1u);
    EXPECT_EQ(keys[0].text, "abc");
}

TEST(Keys, EndlessParametersAreGivenUp) {
    KeyDecoder decoder;
    const auto keys = decode(decoder, "\x1b[" + std::string(100, '1') + "~");
    ASSERT_FALSE(keys.empty());
    EXPECT_EQ(keys[0].kind, Key::unknown);
}

TEST(Keys, AnyBytesGiveOnlyCleanText) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        KeyDecoder decoder;
        for (int i = 0; i < 60; ++i) {
            const auto b = static_cast<char>(random() % 4 == 0 ? "\x1b[~;201\r\n"[random() % 9] : random() % 256);
            if (const auto key = decoder.feed(b)) {
                ASSERT_TRUE(is_valid_utf8(key->text));
                ASSERT_EQ(clean_text(key->text), key->text);
            }
        }
        decoder.timeout();
    }
}

TEST(CleanText, NormalisesLineEndsAndDropsControls) {
    EXPECT_EQ(clean_text("a\r\nb\rc\nd\te"), "a\nb\nc\nd\te");
    EXPECT_EQ(clean_text("a\x1b[31mb\x07\x7f"), "a[31mb");
    EXPECT_EQ(clean_text("a\u009bb"), "ab");  // C1 CSI, which some terminals obey
    EXPECT_EQ(clean_text("ok \xC3"), "ok \uFFFD");
    EXPECT_EQ(clean_text(std::string_view("a\0b", 3)), "ab");
}

}  // namespace
}  // namespace vesta::app
