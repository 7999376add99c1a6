#include "imatrix/text.h"

#include <gtest/gtest.h>

namespace vesta::imatrix {
namespace {

using Texts = std::vector<std::string>;

Texts split(std::string_view bytes, const std::string& name = "t.txt") {
    auto r = split_texts(bytes, name);
    if (!r.ok()) ADD_FAILURE() << r.error().message;
    return r.ok() ? std::move(r).value() : Texts{};
}

TEST(SplitTexts, AFileWithoutMarkersIsOneText) {
    EXPECT_EQ(split("one\ntwo\n"), (Texts{"one\ntwo\n"}));
    EXPECT_EQ(split(" \n\t\r\n"), Texts{});
    EXPECT_EQ(split(""), Texts{});
}

TEST(SplitTexts, MarkerLinesBeginTexts) {
    EXPECT_EQ(split("\n\n===== VESTA_PROMPT chat 1 =====\nHello\n\nyou\n\n===== VESTA_PROMPT 2 =====\nBye</think>"),
              (Texts{"Hello\n\nyou", "Bye</think>"}));
    EXPECT_EQ(split("===== DS4_IMATRIX_PROMPT id a nothink b =====\nx\n\n\n===== VESTA_PROMPT\ny\n"),
              (Texts{"x", "y"}));
    EXPECT_EQ(split("before\n===== VESTA_PROMPT\nafter"), (Texts{"before", "after"}));
    EXPECT_EQ(split("===== VESTA_PROMPT\n===== VESTA_PROMPT\nx"), Texts{"x"});      // an empty prompt is none
    EXPECT_EQ(split("===== VESTA_PROMPT"), Texts{});                                // at the very end
    EXPECT_EQ(split("x ===== VESTA_PROMPT\n"), (Texts{"x ===== VESTA_PROMPT\n"}));  // only at the start of a line
}

TEST(SplitTexts, JsonLinesHoldPromptsOrTexts) {
    EXPECT_EQ(split("{\"prompt\": \"a\\nb\", \"text\": \"no\"}\n\n{\"text\": \"c\"}\n{\"text\": \" \"}", "t.jsonl"),
              (Texts{"a\nb", "c"}));
    for (const auto& [bytes, says] : {std::pair("{\"text\": \"a\"}\n{\"x\"", "t.jsonl:2: not a JSON object"),
                                      std::pair("[1]", "t.jsonl:1: not a JSON object"),
                                      std::pair("{\"text\": 1}", "t.jsonl:1: \"text\" is not a string"),
                                      std::pair("{\"txt\": \"\"}", "t.jsonl:1: neither")}) {
        const auto r = split_texts(bytes, "t.jsonl");
        ASSERT_FALSE(r.ok()) << bytes;
        EXPECT_EQ(r.error().code, Code::bad_file);
        EXPECT_EQ(r.error().message.rfind(says, 0), 0u) << r.error().message;
    }
    std::string deep(200000, '[');
    EXPECT_FALSE(split_texts(deep, "t.jsonl").ok());
}

tokenizer::Tokenizer letters(bool with_bos) {
    tokenizer::Vocab v;
    for (char c = 'a'; c <= 'z'; ++c) v.tokens.emplace_back(1, c);
    // The tokenizer wants a token for every byte.
    for (int b = 0; b < 256; ++b) {
        if (b >= 'a' && b <= 'z') continue;
        std::string mapped;
        const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
        static int other;
        if (b == 0) other = 0x100;
        const int c = itself ? b : other++;
        if (c < 0x80) {
            mapped += static_cast<char>(c);
        } else {
            mapped += static_cast<char>(0xc0 | (c >> 6));
            mapped += static_cast<char>(0x80 | (c & 0x3f));
        }
        v.tokens.push_back(mapped);
    }
    v.tokens.emplace_back("<think>");
    if (with_bos) {
        v.tokens.emplace_back("<S>");
        v.bos = static_cast<int32_t>(v.tokens.size()) - 1;
    }
    auto t = tokenizer::Tokenizer::from_vocab(std::move(v));
    if (!t.ok()) throw std::runtime_error(t.error().message);
    return std::move(t).value();
}

TEST(AppendSequences, LongTextsAreCutAndEveryPieceBeginsWithBos) {
    const auto t = letters(true);
    const int32_t bos = *t.bos();
    std::vector<Sequence> out;
    append_sequences(t, "abcdefg", 4, out);
    EXPECT_EQ(out, (std::vector<Sequence>{{bos, 0, 1, 2}, {bos, 3, 4, 5}, {bos, 6}}));
    out.clear();
    append_sequences(t, "<S>abc", 4, out);  // a rendered prompt brings its own
    EXPECT_EQ(out, (std::vector<Sequence>{{bos, 0, 1, 2}}));
    out.clear();
    append_sequences(t, "", 4, out);
    EXPECT_TRUE(out.empty());
}

TEST(AppendSequences, MarkersBecomeTheirTokensAndNoBosIsMadeUp) {
    const auto t = letters(false);
    std::vector<Sequence> out;
    append_sequences(t, "a<think>b", 16, out);
    EXPECT_EQ(out, (std::vector<Sequence>{{0, *t.special("<think>"), 1}}));
}

TEST(HashSequences, KnowsWhereASequenceEnds) {
    const std::vector<Sequence> a = {{1, 2}, {3}}, b = {{1}, {2, 3}};
    EXPECT_NE(hash_sequences(a, 2), hash_sequences(b, 2));
    EXPECT_EQ(hash_sequences(a, 1), hash_sequences({{1, 2}, {4}}, 1));
    EXPECT_NE(hash_sequences(a, 1), hash_sequences(a, 2));
    EXPECT_EQ(hash_sequences(a, 0), hash_sequences(b, 0));
}

}  // namespace
}  // namespace vesta::imatrix
