// Keys: what is equal, what begins what, and the way back to tokens.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/utf8.h"
#include "store_helpers.h"

namespace vesta::store {
namespace {

using tokenizer::Segment;
using Ids = std::vector<int32_t>;

std::string key_bytes(std::span<const int32_t> tokens) { return key_of(toy_tokenizer(), tokens).value().bytes; }

// All sequences of up to three tokens out of those that could be confused: the bytes of the escapes, two control
// tokens, and the beginning of a marker's spelling.
std::vector<Ids> confusing() {
    const Ids alphabet = joined(byte_tokens("\xFF\x01\x02<h"), Ids{kUser, kBos, 260 /* he */});
    std::vector<Ids> out = {{}};
    for (size_t begin = 0, length = 1; length <= 3; ++length) {
        const size_t end = out.size();
        for (size_t i = begin; i < end; ++i)
            for (const int32_t id : alphabet) out.push_back(joined(out[i], Ids{id}));
        begin = end;
    }
    return out;
}

TEST(Key, IsEqualExactlyWhereTheUnitsAre) {
    std::map<std::string, Ids> seen;
    for (const Ids& tokens : confusing()) {
        const auto [at, is_new] = seen.emplace(key_bytes(tokens), units(tokens));
        EXPECT_EQ(at->second, units(tokens)) << testing::PrintToString(tokens);
    }
    std::map<Ids, std::string> back;
    for (const auto& [key, u] : seen) EXPECT_TRUE(back.emplace(u, key).second);
}

TEST(Key, BeginsAnotherExactlyWhereTheUnitsDo) {
    std::vector<Ids> all = confusing();
    std::mt19937 rng(1);
    std::shuffle(all.begin(), all.end(), rng);
    all.resize(250);
    for (const Ids& a : all)
        for (const Ids& b : all) {
            const Ids ua = units(a), ub = units(b);
            const bool begins = ua.size() <= ub.size() && std::equal(ua.begin(), ua.end(), ub.begin());
            EXPECT_EQ(key_bytes(b).starts_with(key_bytes(a)), begins);
        }
}

TEST(Key, TextThatSpellsAControlTokenIsNotIt) {
    const std::string spelled = "<｜User｜>";
    ASSERT_EQ(toy_tokenizer().special(spelled), kUser);
    EXPECT_NE(key_bytes(encode(spelled)), key_bytes(Ids{kUser}));
    EXPECT_NE(key_bytes(encode("\xFF\x01" + spelled + "\xFF\x02")), key_bytes(Ids{kUser}));
    EXPECT_EQ(toy_tokenizer().decode(encode(spelled)).value(), toy_tokenizer().decode(Ids{kUser}).value());
    EXPECT_EQ(readable(key_bytes(joined(Ids{kUser}, encode("hi \xFF")))), spelled + "hi \xFF");
}

TEST(Key, IsTheSameForEveryTokenizationOfAText) {
    const std::string text = "hello world, hell\xFF";
    ASSERT_NE(encode(text), byte_tokens(text));
    EXPECT_EQ(key_bytes(encode(text)), key_bytes(byte_tokens(text)));
}

TEST(Key, SegmentsComeBack) {
    const Ids tokens = joined(joined(Ids{kBos, kUser}, encode("a\xFF\x02 hello")), Ids{kAssistant});
    const auto segments = segments_of(key_bytes(tokens));
    ASSERT_TRUE(segments.ok());
    ASSERT_EQ(segments.value().size(), 4u);
    EXPECT_TRUE(segments.value()[1].control);
    EXPECT_EQ(segments.value()[1].text, "<｜User｜>");
    EXPECT_FALSE(segments.value()[2].control);
    EXPECT_EQ(segments.value()[2].text, "a\xFF\x02 hello");
    Ids again;
    ASSERT_TRUE(toy_tokenizer().encode_segments(segments.value(), again).ok());
    EXPECT_EQ(again, tokens);
}

TEST(Key, BytesThatAreNoKeyAreRefusedWithTheirPlace) {
    const std::pair<std::string, const char*> bad[] = {
        {"ab\xFF", "half an escape at byte 2"},
        {"\xFF\x03", "an unknown escape at byte 0"},
        {"x\xFF\x02", "did not begin at byte 1"},
        {"\xFF\x01<a>", "without an end at byte 5"},
        {"\xFF\x01<a\xFF\x01>\xFF\x02", "inside a control token at byte 4"},
    };
    for (const auto& [bytes, message] : bad) {
        const auto segments = segments_of(bytes);
        ASSERT_FALSE(segments.ok());
        EXPECT_EQ(segments.error().code, Code::bad_file);
        EXPECT_NE(segments.error().message.find(message), std::string::npos) << segments.error().message;
        EXPECT_EQ(readable(bytes), bytes);
    }
    const auto outside = key_of(toy_tokenizer(), Ids{1, 268});
    ASSERT_FALSE(outside.ok());
    EXPECT_NE(outside.error().message.find("268 (number 2 of 2)"), std::string::npos);
}

// A prompt with everything in it: control tokens, merged tokens, characters of two to four bytes in one token per byte,
// 0xFF in text, and bytes that are no UTF-8.
Ids long_prompt() {
    Ids p = joined(Ids{kBos}, encode("hello world"));
    p.push_back(kUser);
    p = joined(p, byte_tokens("é€𝄞\xFF\xFF\xE2\x82"));
    p = joined(p, encode("hellhello"));
    p.push_back(kAssistant);
    return joined(p, encode("worldly world\xFFhello"));
}

TEST(Key, APrefixEndsWhereNothingIsParted) {
    const Ids prompt = long_prompt();
    const Key key = key_of(toy_tokenizer(), prompt).value();
    const std::string_view bytes = key.bytes;
    for (size_t at = 0; at <= bytes.size(); ++at) {
        // Independently: the first `at` bytes are a key, and so are the others, and no character is in both.
        const auto before = segments_of(bytes.substr(0, at)), after = segments_of(bytes.substr(at));
        bool expected = before.ok() && after.ok();
        const bool token_end = at == 0 || std::count(key.ends.begin(), key.ends.end(), at) == 1;
        if (expected && !token_end && !before.value().back().control) {
            const std::string text = before.value().back().text, more = after.value().front().text;
            for (size_t from = text.size() > 3 ? text.size() - 3 : 0; from < text.size(); ++from) {
                const std::string both = text.substr(from) + more;
                const Utf8Char c = decode_utf8(both);
                if (c.valid && from + static_cast<size_t>(c.length) > text.size()) expected = false;
            }
        }
        EXPECT_EQ(can_continue_at(toy_tokenizer(), prompt, key, at), expected) << "at " << at;
    }
}

TEST(Key, WhatFollowsAPrefixRendersToTheRest) {
    const Ids prompt = long_prompt();
    const Key key = key_of(toy_tokenizer(), prompt).value();
    int n_inside = 0;
    for (size_t at = 0; at <= key.bytes.size(); ++at) {
        if (!can_continue_at(toy_tokenizer(), prompt, key, at)) continue;
        const auto rest = tokens_after(toy_tokenizer(), prompt, key, at);
        ASSERT_TRUE(rest.ok());
        EXPECT_EQ(key.bytes.substr(0, at) + key_bytes(rest.value()), key.bytes) << "at " << at;
        const auto end = std::find(key.ends.begin(), key.ends.end(), at);
        if (at == 0 || end != key.ends.end()) {  // the prompt's own tokens, however they were made
            const auto n = at == 0 ? 0 : end - key.ends.begin() + 1;
            EXPECT_EQ(rest.value(), Ids(prompt.begin() + n, prompt.end()));
        } else {
            ++n_inside;
        }
    }
    EXPECT_GT(n_inside, 20);
}

TEST(Key, InsideATokenTheTextIsTokenizedAnewUpToTheNextControlToken) {
    // "hello" is one token; the stored sequence ends after "he".
    const Ids after_control = byte_tokens("hello");  // not what encode() makes: must stay as it is
    const Ids prompt = joined(joined(encode("hello world"), Ids{kUser}), after_control);
    const Key key = key_of(toy_tokenizer(), prompt).value();
    const Ids rest = tokens_after(toy_tokenizer(), prompt, key, 2).value();
    EXPECT_EQ(rest, joined(joined(encode("llo world"), Ids{kUser}), after_control));
}

}  // namespace
}  // namespace vesta::store
