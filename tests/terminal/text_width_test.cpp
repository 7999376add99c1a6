#include "text_width.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vesta::app {
namespace {

std::vector<std::string> clusters(std::string_view text) {
    std::vector<std::string> out;
    for (size_t at = 0; at < text.size();) {
        const size_t next = next_boundary(text, at);
        out.emplace_back(text.substr(at, next - at));
        at = next;
    }
    return out;
}

TEST(Width, KnowsNarrowWideAndCombining) {
    EXPECT_EQ(code_point_width('a'), 1);
    EXPECT_EQ(code_point_width(0xE9), 1);     // é
    EXPECT_EQ(code_point_width(0x0416), 1);   // Ж
    EXPECT_EQ(code_point_width(0x4E2D), 2);   // 中
    EXPECT_EQ(code_point_width(0xAC00), 2);   // 가
    EXPECT_EQ(code_point_width(0xFF21), 2);   // Ａ fullwidth
    EXPECT_EQ(code_point_width(0xFF71), 1);   // ｱ halfwidth
    EXPECT_EQ(code_point_width(0x1F600), 2);  // 😀
    EXPECT_EQ(code_point_width(0x2764), 1);   // ❤ without emoji selector
    EXPECT_EQ(code_point_width(0x0301), 0);   // combining acute
    EXPECT_EQ(code_point_width(0x200D), 0);   // zero width joiner
    EXPECT_EQ(code_point_width(0x200B), 0);   // zero width space
    EXPECT_EQ(code_point_width(0x1161), 0);   // Hangul vowel joins its syllable
    EXPECT_EQ(code_point_width(0x1B), 0);
    EXPECT_EQ(code_point_width(0x10FFFF), 1);
}

TEST(Width, OfText) {
    EXPECT_EQ(text_width(""), 0);
    EXPECT_EQ(text_width("abc"), 3);
    EXPECT_EQ(text_width("日本語"), 6);
    EXPECT_EQ(text_width("e\u0301a"), 2);
    EXPECT_EQ(text_width("👩‍👩‍👧"), 2);
    EXPECT_EQ(text_width("👍🏽"), 2);
    EXPECT_EQ(text_width("❤️"), 2);
    EXPECT_EQ(text_width("🇮🇹🇩🇪"), 4);
}

TEST(Cluster, HoldsMarksJoinersAndFlagsTogether) {
    using V = std::vector<std::string>;
    EXPECT_EQ(clusters("ab"), (V{"a", "b"}));
    EXPECT_EQ(clusters("e\u0301\u0323x"), (V{"e\u0301\u0323", "x"}));
    EXPECT_EQ(clusters("👩‍👩‍👧!"), (V{"👩‍👩‍👧", "!"}));
    EXPECT_EQ(clusters("👍🏽👍"), (V{"👍🏽", "👍"}));
    EXPECT_EQ(clusters("🇮🇹🇩🇪🇫"), (V{"🇮🇹", "🇩🇪", "🇫"}));
    EXPECT_EQ(clusters("\u0301a"), (V{"\u0301", "a"}));          // a mark without a base
    EXPECT_EQ(clusters("a\n\u0301"), (V{"a", "\n", "\u0301"}));  // a line feed takes no marks
    EXPECT_EQ(clusters("a\xFF\xC3z"), (V{"a", "\xFF", "\xC3", "z"}));
}

TEST(Cluster, BoundariesBackwardsAreThoseForwards) {
    const std::string text = "ab e\u0301中👩‍👩‍👧\n🇮🇹🇩🇪\n\n\u0301x\xFF\xE4\xB8";
    std::vector<size_t> forwards = {0};
    while (forwards.back() < text.size()) forwards.push_back(next_boundary(text, forwards.back()));
    EXPECT_EQ(next_boundary(text, text.size()), text.size());
    for (size_t i = forwards.size() - 1; i > 0; --i) EXPECT_EQ(previous_boundary(text, forwards[i]), forwards[i - 1]);
    EXPECT_EQ(previous_boundary(text, 0), 0u);
}

}  // namespace
}  // namespace vesta::app
