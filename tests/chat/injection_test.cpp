// The promise that matters, end to end (known failure C1): conversation -> segments -> token ids, with a vocabulary of
// single bytes and all markers.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "chat/dsv4_render.h"
#include "tokenizer/tokenizer.h"
#include "markers.h"
#include "vectors.h"

namespace vesta::chat {
namespace {

using tokenizer::SpecialMode;
using tokenizer::Tokenizer;

// One token per byte in the mapped spelling of byte-level BPE (printable Latin-1 as itself, the rest from U+0100 on).
Tokenizer byte_tokenizer() {
    tokenizer::Vocab vocab;
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
        const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        std::string spelling;
        append_utf8(spelling, printable ? b : next++);
        vocab.tokens.push_back(spelling);
        vocab.token_types.push_back(1);
    }
    for (const std::string& marker : std::vector<std::string>(kMarkers.begin(), kMarkers.end())) {
        vocab.tokens.push_back(marker);
        vocab.token_types.push_back(4);
    }
    auto made = Tokenizer::from_vocab(std::move(vocab));
    VESTA_CHECK(made.ok());
    return std::move(made).value();
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, const std::vector<Segment>& segments) {
    std::vector<int32_t> ids;
    const Status status = tokenizer.encode_segments(segments, ids);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return ids;
}

TEST(Injection, NoTextMakesASpecialTokenWhateverItSpells) {
    const Tokenizer tokenizer = byte_tokenizer();
    const auto specials_with = [&](const std::string& word) {
        Message system{.role = Role::system, .content = word};
        system.tools = {R"({"name": "f", "description": ")" + word + R"("})"};
        system.response_format = R"({"x": ")" + word + R"("})";
        Message assistant{.role = Role::assistant, .content = word, .reasoning = word};
        assistant.tool_calls = {{"1", word, R"({")" + word + R"(": ")" + word + R"(", "n": [")" + word + R"("]})"}};
        Conversation c;
        c.messages = {system,
                      {.role = Role::user, .content = word},
                      assistant,
                      {.role = Role::tool, .content = word, .tool_call_id = "1"},
                      {.role = Role::latest_reminder, .content = word},
                      {.role = Role::developer, .content = word}};
        const auto segments = render(c, {.repair = false});
        EXPECT_TRUE(segments.ok());
        const std::vector<int32_t> ids = encode(tokenizer, segments.value());
        EXPECT_EQ(tokenizer.decode(ids).value(), join(segments.value()));
        std::vector<int32_t> specials;
        for (const int32_t id : ids)
            if (tokenizer.is_special(id)) specials.push_back(id);
        return specials;
    };
    const std::vector<int32_t> plain = specials_with("word");
    EXPECT_GT(plain.size(), 20u);
    for (const std::string& marker : std::vector<std::string>(kMarkers.begin(), kMarkers.end())) {
        EXPECT_EQ(specials_with(marker), plain) << marker;
        EXPECT_EQ(specials_with("a" + marker + marker + "b"), plain) << marker;
    }
}

// Pieces of a marker that meet at the edge of two fields or of a template do not become one either.
TEST(Injection, HalvesOfAMarkerDoNotJoin) {
    const Tokenizer tokenizer = byte_tokenizer();
    Conversation c;
    c.messages = {{.role = Role::system, .content = "</thi"}, {.role = Role::system, .content = "nk>"}};
    for (const int32_t id : encode(tokenizer, render(c, {.add_bos = false}).value()))
        EXPECT_FALSE(tokenizer.is_special(id));
}

TEST(Injection, RecordedPromptsGiveTheIdsOfTheWholeString) {
    const Tokenizer tokenizer = byte_tokenizer();
    const std::set<std::string> with_literal_markers = {"literal_specials_in_user", "literal_specials_in_tool_result",
                                                        "assistant_content_with_think_literal",
                                                        "args_contains_dsml_close_unescaped"};
    for (const Vector& v : read_vectors("chat_render.jsonl")) {
        if (v.json.at("dialect") != "dsv4" || v.json.contains("error") || with_literal_markers.contains(v.name()))
            continue;
        SCOPED_TRACE(v.name());
        RenderOptions options{.mode = parse_mode(v.json.at("mode").get<std::string>()).value(), .repair = false};
        if (v.json.contains("reasoning_effort"))
            options.effort = parse_effort(v.json["reasoning_effort"].get<std::string>()).value();
        options.drop_thinking = v.json.value("drop_thinking", true);
        const auto conversation = parse_conversation(v.line);
        ASSERT_TRUE(conversation.ok());
        std::vector<int32_t> whole;
        tokenizer.encode(v.json.at("rendered").get<std::string>(), SpecialMode::recognise, whole);
        EXPECT_EQ(encode(tokenizer, render(conversation.value(), options).value()), whole);
    }
}

}  // namespace
}  // namespace vesta::chat
