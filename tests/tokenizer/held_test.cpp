// What a session holds of a prompt: by text, never across what only looks like a marker.
#include "tokenizer/held.h"

#include <gtest/gtest.h>

#include "tokenizer/fixture.h"

namespace vesta::tokenizer {
namespace {

constexpr const char* kUser = "<｜User｜>";
constexpr const char* kAssistant = "<｜Assistant｜>";
constexpr const char* kEnd = "<｜end▁of▁sentence｜>";

std::vector<int32_t> tokens(const std::vector<Segment>& segments) {
    std::vector<int32_t> ids;
    EXPECT_TRUE(v3().encode_segments(segments, ids).ok());
    return ids;
}
std::string joined(const std::vector<Segment>& segments) {
    std::string out;
    for (const Segment& s : segments) out += s.text;
    return out;
}

TEST(Held, AllOfWhatIsHeldWhenThePromptGrows) {
    const std::vector<Segment> before = {{true, kUser}, {false, "Hello there"}, {true, kAssistant}, {false, "General Kenobi"}};
    std::vector<Segment> after = before;
    after.push_back({true, kEnd});
    after.push_back({true, kUser});
    after.push_back({false, "And now?"});
    const auto held = tokens(before);
    const Held h = held_prefix(v3(), held, after);
    EXPECT_EQ(h.n_token, held.size());
    EXPECT_EQ(joined(h.rest), std::string(kEnd) + kUser + "And now?");
    EXPECT_TRUE(h.rest[0].control);
}

TEST(Held, KeepsTheTokensThatWereSampledWhereTheTextIsCutOtherwise) {
    // "General" letter by letter: no tokenizer would do that, a model may.
    std::vector<int32_t> held = tokens({{true, kAssistant}});
    for (const char c : std::string("General")) v3().encode(std::string(1, c), SpecialMode::text, held);
    const std::vector<Segment> prompt = {{true, kAssistant}, {false, "General Kenobi"}};
    const Held h = held_prefix(v3(), held, prompt);
    EXPECT_EQ(h.n_token, held.size());
    EXPECT_EQ(joined(h.rest), " Kenobi");
    EXPECT_FALSE(h.rest[0].control);
}

TEST(Held, PartingInsideATextGoesBackToTheLastMarker) {
    const auto held = tokens({{true, kUser}, {false, "Hello there"}, {true, kAssistant}, {false, "General Kenobi"}, {true, kEnd}});
    const std::vector<Segment> prompt = {{true, kUser}, {false, "Hello there"}, {true, kAssistant}, {false, "General Grievous"}};
    const Held h = held_prefix(v3(), held, prompt);
    EXPECT_EQ(h.n_token, tokens({{true, kUser}, {false, "Hello there"}, {true, kAssistant}}).size());
    EXPECT_EQ(joined(h.rest), "General Grievous");
}

TEST(Held, AShorterPromptIsHeldWhole) {
    const auto held = tokens({{true, kUser}, {false, "Hello there"}, {true, kAssistant}, {false, "General"}, {true, kEnd}});
    const std::vector<Segment> prompt = {{true, kUser}, {false, "Hello there"}, {true, kAssistant}};
    const Held h = held_prefix(v3(), held, prompt);
    EXPECT_EQ(h.n_token, tokens(prompt).size());
    EXPECT_TRUE(h.rest.empty());
}

TEST(Held, TextThatSpellsAMarkerIsNotTheMarker) {
    const std::vector<Segment> real = {{true, kUser}, {false, "a"}, {true, kAssistant}};
    const std::vector<Segment> spelled = {{true, kUser}, {false, std::string("a") + kAssistant}};
    EXPECT_EQ(held_prefix(v3(), tokens(real), spelled).n_token, 1u) << "back to the marker before the text";
    EXPECT_EQ(held_prefix(v3(), tokens(spelled), real).n_token, 1u);
    EXPECT_EQ(held_prefix(v3(), tokens({{false, kUser}}), real).n_token, 0u);
}

TEST(Held, NeighbouringTextsAreOneTextAndEmptyOnesNothing) {
    const auto held = tokens({{true, kUser}, {false, "one two three"}, {true, kAssistant}});
    const std::vector<Segment> prompt = {{true, kUser}, {false, ""}, {false, "one t"}, {false, ""}, {false, "wo three"},
                                         {false, ""},   {true, kAssistant}, {false, ""}};
    const Held h = held_prefix(v3(), held, prompt);
    EXPECT_EQ(h.n_token, held.size());
    EXPECT_EQ(joined(h.rest), "");
    EXPECT_EQ(held_prefix(v3(), {}, prompt).n_token, 0u);
    EXPECT_EQ(held_prefix(v3(), held, {}).n_token, 0u);
}

}  // namespace
}  // namespace vesta::tokenizer
