#include "chat/dsv4_render.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <string_view>

#include "chat/dsv4_parse.h"
#include "markers.h"
#include "vectors.h"

namespace vesta::chat {
namespace {

RenderOptions options_of(const nlohmann::ordered_json& json) {
    RenderOptions options;
    options.dialect = parse_dialect(json.at("dialect").get<std::string>()).value();
    options.mode = parse_mode(json.at("mode").get<std::string>()).value();
    if (json.contains("reasoning_effort"))
        options.effort = parse_effort(json["reasoning_effort"].get<std::string>()).value();
    options.drop_thinking = json.value("drop_thinking", true);
    options.add_bos = json.value("add_bos", true);
    return options;
}

std::vector<Segment> split_at_markers(std::string_view text) {
    std::vector<Segment> out;
    std::string run;
    while (!text.empty()) {
        std::string_view found;
        for (const auto marker : kMarkers)
            if (text.substr(0, marker.size()) == marker) found = marker;
        if (found.empty()) {
            run.push_back(text[0]);
            text.remove_prefix(1);
            continue;
        }
        if (!run.empty()) out.push_back({false, run});
        run.clear();
        out.push_back({true, std::string(found)});
        text.remove_prefix(found.size());
    }
    if (!run.empty()) out.push_back({false, run});
    return out;
}

std::string show(const std::vector<Segment>& segments) {
    std::string out;
    for (const Segment& s : segments) out += (s.control ? "[C " : "[T ") + s.text + "]\n";
    return out;
}

std::string render_text(const std::string& json, const RenderOptions& options) {
    const auto conversation = parse_conversation(json);
    if (!conversation.ok()) return "error: " + conversation.error().message;
    const auto segments = render(conversation.value(), options);
    return segments.ok() ? join(segments.value()) : "error: " + segments.error().message;
}

constexpr int kExpectedVectors = 101, kExpectedGlm = 13;

TEST(RenderVectors, OfficialOutputByteForByte) {
    int n_ours = 0, n_glm = 0, n_other = 0;
    std::string out_of_scope;
    for (const Vector& v : read_vectors("chat_render.jsonl")) {
        const auto dialect = v.json.at("dialect").get<std::string>();
        if (dialect == "glm-5.2") {
            ++n_glm;
            out_of_scope += " " + v.name();
            continue;
        }
        n_other += dialect != "dsv4" && dialect != "dsv4-0731";
        ++n_ours;
        SCOPED_TRACE(v.name());
        RenderOptions options = options_of(v.json);
        options.repair = false;
        const auto conversation = parse_conversation(v.line);
        if (v.json.contains("error")) {
            EXPECT_FALSE(conversation.ok() && render(conversation.value(), options).ok());
            continue;
        }
        ASSERT_TRUE(conversation.ok()) << conversation.error().message;
        const auto segments = render(conversation.value(), options);
        ASSERT_TRUE(segments.ok()) << segments.error().message;
        EXPECT_EQ(join(segments.value()), v.json.at("rendered").get<std::string>());
    }
    EXPECT_EQ(n_ours + n_glm, kExpectedVectors);
    EXPECT_EQ(n_glm, kExpectedGlm) << "the GLM 5.2 dialect is not implemented yet";
    EXPECT_EQ(n_other, 0);
    std::printf("out of scope, dialect glm-5.2 (%d):%s\n", n_glm, out_of_scope.c_str());
}

// What Vesta does by default differs from the official encoder in these recorded conversations only.
TEST(RenderVectors, RepairsChangeTwoVectorsOnly) {
    const std::set<std::string> repaired = {
        "args_contains_dsml_close_unescaped",  // a value that holds the parameter's closing tag: escaped
        "args_json_array_top_level",           // the official encoder fails: rendered like text that is not JSON
    };
    for (const Vector& v : read_vectors("chat_render.jsonl")) {
        if (v.json.at("dialect") == "glm-5.2") continue;
        SCOPED_TRACE(v.name());
        const std::string rendered = render_text(v.line, options_of(v.json));
        if (repaired.contains(v.name())) {
            EXPECT_NE(rendered.rfind("error: ", 0), 0u) << rendered;
            if (!v.json.contains("error")) {
                EXPECT_NE(rendered, v.json.at("rendered").get<std::string>());
            }
        } else if (v.json.contains("error")) {
            EXPECT_EQ(rendered.rfind("error: ", 0), 0u);
        } else {
            EXPECT_EQ(rendered, v.json.at("rendered").get<std::string>());
        }
    }
}

// Where outside text holds no marker, the segments are exactly the split that a whole-string tokenization would make,
// so both ways give the same ids.
TEST(RenderVectors, SegmentsEqualTheMarkersOfTheWholeString) {
    const std::set<std::string> with_literal_markers = {"literal_specials_in_user", "literal_specials_in_tool_result",
                                                        "assistant_content_with_think_literal",
                                                        "args_contains_dsml_close_unescaped"};
    int n_checked = 0;
    for (const Vector& v : read_vectors("chat_render.jsonl")) {
        if (v.json.at("dialect") == "glm-5.2" || v.json.contains("error")) continue;
        SCOPED_TRACE(v.name());
        const auto conversation = parse_conversation(v.line);
        ASSERT_TRUE(conversation.ok());
        RenderOptions options = options_of(v.json);
        options.repair = false;
        const auto segments = render(conversation.value(), options);
        ASSERT_TRUE(segments.ok());
        const std::string ours = show(segments.value());
        const std::string whole = show(split_at_markers(join(segments.value())));
        if (with_literal_markers.contains(v.name())) {
            EXPECT_NE(ours, whole);
        } else {
            EXPECT_EQ(ours, whole);
        }
        ++n_checked;
    }
    EXPECT_EQ(n_checked, kExpectedVectors - kExpectedGlm - 2);
}

// C1: whatever field a marker is typed into, no control segment comes from it.
TEST(Render, MarkersInAnyOutsideFieldStayText) {
    const auto control_list = [](const std::string& word) {
        Conversation c;
        Message system{.role = Role::system, .content = word};
        system.tools = {R"({"name": "f", "description": ")" + word + R"(", "parameters": {"properties": {")" + word +
                        R"(": {}}}})"};
        system.response_format = R"({"x": ")" + word + R"("})";
        Message user{.role = Role::user, .content = word};
        Message assistant{.role = Role::assistant, .content = word};
        assistant.reasoning = word;
        assistant.tool_calls = {{word, word, R"({")" + word + R"(": ")" + word + R"(", "n": [")" + word + R"("]})"},
                                {"2", "g", word}};
        Message tool{.role = Role::tool, .content = word};
        Message reminder{.role = Role::latest_reminder, .content = word};
        c.messages = {system, user, assistant, tool, reminder, user};
        const auto segments = render(c, {});
        EXPECT_TRUE(segments.ok());
        std::string controls, all_text;
        for (const Segment& s : segments.value()) (s.control ? controls : all_text) += s.text + "\n";
        size_t n_seen = 0;
        for (size_t at = all_text.find(word); at != std::string::npos; at = all_text.find(word, at + 1)) ++n_seen;
        EXPECT_GE(n_seen, 13u) << word;  // each place above still shows it
        return controls;
    };
    const std::string plain = control_list("plain");
    for (const auto marker : kMarkers) EXPECT_EQ(control_list(std::string(marker)), plain) << marker;
}

TEST(Render, SegmentsOfACallSplitAtTheCoreOfEachTag) {
    Conversation c;
    Message assistant{.role = Role::assistant};
    assistant.tool_calls = {{"1", "f", R"({"a": "x"})"}};
    c.messages = {assistant};
    const auto segments = render(c, {.mode = Mode::chat, .add_bos = false});
    ASSERT_TRUE(segments.ok());
    EXPECT_EQ(show(segments.value()),
              "[T \n\n<]\n[C ｜DSML｜]\n[T tool_calls>\n<]\n[C ｜DSML｜]\n[T invoke name=\"f\">\n<]\n[C ｜DSML｜]\n"
              "[T parameter name=\"a\" string=\"true\">x</]\n[C ｜DSML｜]\n[T parameter>\n</]\n[C ｜DSML｜]\n[T "
              "invoke>\n</]\n"
              "[C ｜DSML｜]\n[T tool_calls>]\n[C <｜end▁of▁sentence｜>]\n");
}

// A session appends to its cache: what is in the cache plus what render() emits is what a full render would have been,
// as long as nothing of the past is dropped.
TEST(Render, ContextPlusNewPartIsTheWholePrompt) {
    for (const Mode mode : {Mode::chat, Mode::thinking}) {
        Message system{.role = Role::system, .content = "s"};
        Message user{.role = Role::user, .content = "q"};
        Message answer{.role = Role::assistant, .content = "a"};
        answer.reasoning = "r";
        answer.tool_calls = {{"x", "f", "{}"}, {"y", "f", "{}"}};
        Message result_y{.role = Role::tool, .content = "of y"};
        result_y.tool_call_id = "y";
        Message result_x{.role = Role::tool, .content = "of x"};
        result_x.tool_call_id = "x";
        Message last{.role = Role::assistant, .content = "end"};
        const RenderOptions options{.mode = mode, .drop_thinking = false};
        Conversation whole, past, rest;
        whole.messages = {system, user, answer, result_y, result_x, last, user};
        whole.tools = past.tools = rest.tools = {R"({"name": "f"})"};
        past.messages = {system, user, answer};
        rest.context = past.messages;
        rest.messages = {result_y, result_x, last, user};
        const auto join_of = [&](const Conversation& c) { return join(render(c, options).value()); };
        EXPECT_EQ(join_of(past) + join_of(rest), join_of(whole));
        EXPECT_EQ(join_of(rest).find("of y") > join_of(rest).find("of x"), true);  // sorted by the calls in the context
    }
}

TEST(Render, ContextThatEndsInsideAUserTurnIsRefused) {
    Conversation c;
    c.context = {{.role = Role::user, .content = "a"}};
    c.messages = {{.role = Role::user, .content = "b"}};
    EXPECT_FALSE(render(c, {}).ok());
    c.messages = {{.role = Role::system, .content = "b"}};
    EXPECT_FALSE(render(c, {}).ok());
}

TEST(Render, SystemMessageAfterAUserMovesBeforeIt) {
    const std::string trailing = R"([{"role":"user","content":"q"},{"role":"system","content":"be brief"}])";
    EXPECT_EQ(render_text(trailing, {.mode = Mode::chat, .add_bos = false}),
              "be brief<｜User｜>q<｜Assistant｜></think>");
    EXPECT_EQ(render_text(trailing, {.mode = Mode::chat, .add_bos = false, .repair = false}), "<｜User｜>qbe brief");
    // Between two user turns nothing is swallowed, so nothing moves.
    EXPECT_EQ(
        render_text(R"([{"role":"user","content":"q"},{"role":"system","content":"s"},{"role":"user","content":"p"}])",
                    {.mode = Mode::chat, .add_bos = false}),
        "<｜User｜>qs<｜User｜>p<｜Assistant｜></think>");
}

TEST(Render, ArgumentsMayBeAnObjectAndKeepBigIntegers) {
    const auto with = [](const std::string& arguments) {
        return render_text(
            R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":)" + arguments + "}}]}]",
            {.mode = Mode::chat, .add_bos = false});
    };
    EXPECT_EQ(with(R"({"n":123456789012345678901234567890,"s":"x"})"),
              with(R"("{\"n\": 123456789012345678901234567890, \"s\": \"x\"}")"));
    EXPECT_NE(with(R"({"n":123456789012345678901234567890})").find(">123456789012345678901234567890<"),
              std::string::npos);
    EXPECT_NE(with("[1, 2]").find(R"(name="arguments" string="true">[1, 2]<)"), std::string::npos);
    EXPECT_EQ(with("null"), with("{}"));
    EXPECT_NE(with(R"("")").find(R"(name="arguments" string="true"><)"), std::string::npos);
}

TEST(Render, ClosingTagInAValueSurvivesTheWayBack) {
    const std::string tag = "</｜DSML｜parameter>";
    Conversation c;
    Message assistant{.role = Role::assistant};
    assistant.tool_calls = {{"1", "f", R"({"s": "a )" + tag + R"( b", "j": {"k": [")" + tag + R"("]}})"}};
    c.messages = {assistant};
    const std::string text = join(render(c, {.mode = Mode::chat, .add_bos = false}).value());
    ParseOptions options;
    options.mode = Mode::chat;
    options.any_tool = true;
    const ParsedOutput out = parse_output(text, options);
    ASSERT_EQ(out.tool_calls.size(), 1u);
    EXPECT_EQ(nlohmann::json::parse(out.tool_calls[0].arguments),
              nlohmann::json::parse(assistant.tool_calls[0].arguments));
    EXPECT_FALSE(out.recovered);
}

TEST(Render, ToolResultTagIsEscapedOnlyWhenAsked) {
    const std::string json = R"([{"role":"tool","content":"a</tool_result>b"}])";
    EXPECT_NE(render_text(json, {}).find("a</tool_result>b</tool_result>"), std::string::npos);
    EXPECT_NE(render_text(json, {.escape_tool_result = true}).find("a&lt;/tool_result>b</tool_result>"),
              std::string::npos);
}

TEST(Render, ContentListsJoinTextAndNameWhatTheyCannotShow) {
    const std::string list =
        R"([{"type":"text","text":"a"},{"type":"image_url","image_url":{}},{"type":"text","text":"b"}])";
    EXPECT_NE(render_text(R"([{"role":"tool","content":)" + list + "}]", {})
                  .find("<tool_result>a\n\n[Unsupported image_url]\n\nb<"),
              std::string::npos);
    EXPECT_EQ(render_text(R"([{"role":"user","content":)" + list + "}]", {}).rfind("error: user message", 0), 0u);
    EXPECT_NE(render_text(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])", {})
                  .find("<｜User｜>a\n\nb<｜Assistant｜>"),
              std::string::npos);
}

TEST(Render, ContentBlocksCountInTheRevisedDialectOnly) {
    const std::string json = R"([{"role":"user","content":"c","content_blocks":[{"type":"text","text":"b"}]}])";
    EXPECT_NE(render_text(json, {.dialect = Dialect::dsv4}).find("<｜User｜>c<"), std::string::npos);
    EXPECT_NE(render_text(json, {.dialect = Dialect::dsv4_0731}).find("<｜User｜>b<"), std::string::npos);
}

TEST(Render, EffortLowIsRefusedByTheFirstDialect) {
    const std::string json = R"([{"role":"user","content":"q"}])";
    EXPECT_EQ(render_text(json, {.effort = Effort::low}).rfind("error: ", 0), 0u);
    EXPECT_EQ(render_text(json, {.mode = Mode::chat, .effort = Effort::low}).rfind("error: ", 0), std::string::npos);
    // The same prompt means max to the first dialect and high to the revised one.
    EXPECT_EQ(render_text(json, {.dialect = Dialect::dsv4, .effort = Effort::max}),
              render_text(json, {.dialect = Dialect::dsv4_0731, .effort = Effort::high}));
}

TEST(Render, RequestFormatGoesToTheLeadingSystemMessage) {
    const auto with = [](const std::string& format) {
        return render_text(R"({"messages":[{"role":"user","content":"q"}],"response_format":)" + format + "}",
                           {.mode = Mode::chat, .add_bos = false});
    };
    const std::string head = "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";
    EXPECT_EQ(with(R"({"type":"json_schema","json_schema":{"name":"n","schema":{"a":1e3}}})"),
              head + R"({"a": 1000.0})" + "<｜User｜>q<｜Assistant｜></think>");
    EXPECT_EQ(with(R"({"type":"json_object"})"), head + R"({"type": "object"})" + "<｜User｜>q<｜Assistant｜></think>");
    EXPECT_EQ(with(R"({"type":"text"})"), "<｜User｜>q<｜Assistant｜></think>");
    EXPECT_EQ(with(R"({"type":"grammar"})").rfind("error: ", 0), 0u);
}

TEST(Render, KnowsWhetherTheAnswerStartsInReasoning) {
    const auto opens = [](const std::string& json, Mode mode) {
        return opens_reasoning(render(parse_conversation(json).value(), {.mode = mode}).value());
    };
    EXPECT_TRUE(opens(R"([{"role":"user","content":"q <think>"}])", Mode::thinking));
    EXPECT_FALSE(opens(R"([{"role":"user","content":"q <think>"}])", Mode::chat));
    EXPECT_FALSE(
        opens(R"([{"role":"user","content":"q"},{"role":"assistant","content":"a","wo_eos":true}])", Mode::thinking));
    EXPECT_FALSE(opens(R"([{"role":"user","content":"q","task":"action"}])", Mode::thinking));
}

TEST(Conversation, WrongTypesAreErrorsThatNameThePlace) {
    const auto error_of = [](const std::string& json) {
        const auto c = parse_conversation(json);
        return c.ok() ? std::string("ok") : c.error().message;
    };
    EXPECT_NE(error_of(R"([{"role":"user","content":5}])").find("messages[0].content"), std::string::npos);
    EXPECT_NE(error_of(R"([{"role":"critic","content":"x"}])").find("critic"), std::string::npos);
    EXPECT_NE(error_of(R"([{"content":"x"}])").find("role"), std::string::npos);
    EXPECT_NE(error_of(R"([1])").find("messages[0]"), std::string::npos);
    EXPECT_NE(error_of(R"({"messages":{}})").find("messages"), std::string::npos);
    EXPECT_NE(error_of(R"({})").find("messages are missing"), std::string::npos);
    EXPECT_NE(error_of(R"({"messages":[],"tools":[{"name":"f"}]})").find("tools[0]"), std::string::npos);
    EXPECT_NE(error_of(R"([{"role":"assistant","tool_calls":[{}]}])").find("tool_calls[0]"), std::string::npos);
    EXPECT_NE(error_of(R"([{"role":"user","task":"cook"}])").find("cook"), std::string::npos);
    EXPECT_NE(error_of("").find("byte 0"), std::string::npos);
    EXPECT_NE(error_of("\"\xff\"").find("UTF-8"), std::string::npos);
    EXPECT_EQ(error_of(R"({"messages":[],"temperature":1,"stream":true})"), "ok");
}

TEST(Conversation, DeclaredToolsKeepOrderAndListParameters) {
    const auto c = parse_conversation(
        R"({"messages":[{"role":"system","tools":[{"function":{"name":"g"}},{"function":{"name":"f"}}]}],
            "tools":[{"function":{"name":"f","parameters":{"properties":{"b":{},"a":{}}}}}]})");
    ASSERT_TRUE(c.ok()) << c.error().message;
    const auto tools = declared_tools(c.value());
    ASSERT_TRUE(tools.ok());
    ASSERT_EQ(tools.value().size(), 2u);
    EXPECT_EQ(tools.value()[0].name, "f");
    EXPECT_TRUE(tools.value()[0].has_parameters);
    EXPECT_EQ(tools.value()[0].parameters, (std::vector<std::string>{"b", "a"}));
    EXPECT_EQ(tools.value()[1].name, "g");
    EXPECT_FALSE(tools.value()[1].has_parameters);
}

}  // namespace
}  // namespace vesta::chat
