// Against the definition: UTF-8 is the shortest encoding of a Unicode scalar value (0..10FFFF without D800..DFFF), and
// nothing else is valid (RFC 3629, section 3).
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace vesta {
namespace {

constexpr uint32_t kEnd = 0x110000;
bool is_scalar(uint32_t c) { return c < kEnd && !(c >= 0xD800 && c <= 0xDFFF); }

// The table of RFC 3629, written with arithmetic instead of bit fields.
std::string encode(uint32_t c) {
    const auto byte = [](uint32_t b) { return static_cast<char>(static_cast<unsigned char>(b)); };
    if (c < 0x80) return {byte(c)};
    if (c < 0x800) return {byte(192 + c / 64), byte(128 + c % 64)};
    if (c < 0x10000) return {byte(224 + c / 4096), byte(128 + c / 64 % 64), byte(128 + c % 64)};
    return {byte(240 + c / 262144), byte(128 + c / 4096 % 64), byte(128 + c / 64 % 64), byte(128 + c % 64)};
}

// The scalar whose encoding `text` begins with, by its value: payload bits are added up, and the result counts only if
// encoding it gives the same bytes back. That excludes overlong forms, surrogates and large values without naming them.
std::optional<std::pair<uint32_t, int>> decode(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
    for (const size_t n : {1u, 2u, 3u, 4u}) {
        if (text.size() < n) break;
        uint32_t c = n == 1 ? byte(0) : byte(0) % (128u >> n);
        for (size_t i = 1; i < n; ++i) c = c * 64 + byte(i) % 64;
        if (is_scalar(c) && encode(c) == text.substr(0, n)) return {{c, static_cast<int>(n)}};
    }
    return {};
}

TEST(Utf8, EveryScalarRoundTrips) {
    for (uint32_t c = 0; c < kEnd; ++c) {
        if (!is_scalar(c)) continue;
        std::string text;
        append_utf8(text, c);
        ASSERT_EQ(text, encode(c)) << c;
        const Utf8Char d = decode_utf8(text);
        ASSERT_TRUE(d.valid) << c;
        ASSERT_EQ(d.code_point, c);
        ASSERT_EQ(static_cast<size_t>(d.length), text.size());
        ASSERT_TRUE(is_valid_utf8(text));
    }
}

void check(std::string_view text) {
    const auto expected = decode(text);
    const Utf8Char got = decode_utf8(text);
    ASSERT_EQ(got.valid, expected.has_value());
    ASSERT_EQ(got.length, expected ? expected->second : 1);
    ASSERT_EQ(got.code_point, expected ? expected->first : 0xFFFDu);
}

TEST(Utf8, EverySequenceOfUpToThreeBytesDecodesByTheDefinition) {
    std::string text(3, 0);
    for (uint32_t v = 0; v < 0x1000000; ++v) {
        for (size_t i = 0; i < 3; ++i) text[i] = static_cast<char>(static_cast<unsigned char>(v >> (16 - 8 * i)));
        check(text);
        if (HasFatalFailure()) FAIL() << v;
    }
    for (uint32_t v = 0; v < 0x10000; ++v) {
        text = {static_cast<char>(static_cast<unsigned char>(v >> 8)),
                static_cast<char>(static_cast<unsigned char>(v))};
        check(text);
        check(text.substr(0, 1));
        if (HasFatalFailure()) FAIL() << v;
    }
}

TEST(Utf8, FourByteSequencesDecodeByTheDefinition) {
    // Every lead byte and every second byte, with the edges of the continuation range for the others.
    constexpr unsigned char kEdges[] = {0x00, 0x7F, 0x80, 0x81, 0xBE, 0xBF, 0xC0, 0xFF};
    for (int lead = 0xE8; lead < 0x100; ++lead)
        for (int second = 0; second < 0x100; ++second)
            for (const unsigned char third : kEdges)
                for (const unsigned char fourth : kEdges) {
                    const std::string text = {static_cast<char>(lead), static_cast<char>(second),
                                              static_cast<char>(third), static_cast<char>(fourth)};
                    check(text);
                    if (HasFatalFailure()) FAIL() << lead << " " << second;
                }
}

TEST(Utf8, ValidityAndReplacementFollowFromDecoding) {
    std::mt19937 random(11);
    constexpr std::string_view kBytes = "aé中😀\xFF\xC0\xED\xA0\x80\xF4\x90";
    for (int round = 0; round < 50000; ++round) {
        std::string text;
        for (size_t i = random() % 12; i > 0; --i) text.push_back(kBytes[random() % kBytes.size()]);
        bool valid = true;
        std::string replaced;
        for (size_t at = 0; at < text.size();) {
            const auto c = decode(std::string_view(text).substr(at));
            valid = valid && c;
            replaced += c ? encode(c->first) : "\uFFFD";
            at += c ? static_cast<size_t>(c->second) : 1;
        }
        ASSERT_EQ(is_valid_utf8(text), valid);
        ASSERT_EQ(replace_invalid_utf8(text), replaced);
    }
}

// By the definition: the tail that is held back is the longest proper beginning of some valid character.
size_t complete_by_definition(std::string_view text) {
    for (size_t tail = std::min<size_t>(3, text.size()); tail > 0; --tail) {
        const std::string_view begin = text.substr(text.size() - tail);
        // Completing with every mix of edge bytes covers every kind of character.
        for (const char a : {'\x80', '\x8F', '\x90', '\x9F', '\xA0', '\xBF'}) {
            for (size_t n = tail + 1; n <= 4; ++n) {
                const std::string whole = std::string(begin) + std::string(n - tail, a);
                const auto c = decode(whole);
                if (c && static_cast<size_t>(c->second) == n) return text.size() - tail;
            }
        }
    }
    return text.size();
}

TEST(Utf8, CompletePrefixHoldsBackOnlyWhatCanStillBecomeACharacter) {
    EXPECT_EQ(complete_utf8_prefix(""), 0u);
    std::string text(4, 'x');
    // All last three bytes, coarsely: every byte class and its edges.
    constexpr unsigned char kClasses[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF,
                                          0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFF};
    for (const unsigned char a : kClasses)
        for (const unsigned char b : kClasses)
            for (const unsigned char c : kClasses) {
                text = {'x', static_cast<char>(a), static_cast<char>(b), static_cast<char>(c)};
                ASSERT_EQ(complete_utf8_prefix(text), complete_by_definition(text))
                    << static_cast<int>(a) << " " << static_cast<int>(b) << " " << static_cast<int>(c);
            }
}

}  // namespace
}  // namespace vesta
