#include "chat/dsv4_parse.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "base/utf8.h"
#include "parse_helpers.h"
#include "vectors.h"

namespace vesta::chat {
namespace {

using Json = nlohmann::ordered_json;

const std::string kWrap = "<｜DSML｜tool_calls>\n", kEndWrap = "</｜DSML｜tool_calls>";
std::string parameter(const std::string& key, const std::string& value, const std::string& is_string = "true") {
    return "<｜DSML｜parameter name=\"" + key + "\" string=\"" + is_string + "\">" + value + "</｜DSML｜parameter>\n";
}
std::string invoke(const std::string& name, const std::string& parameters) {
    return "<｜DSML｜invoke name=\"" + name + "\">\n" + parameters + "</｜DSML｜invoke>\n";
}
std::string block(const std::string& invokes) { return kWrap + invokes + kEndWrap; }
const std::string kCall = block(invoke("f", parameter("a", "1")));

std::string strip_front(std::string s, const char* of) {
    return s.erase(0, std::min(s.find_first_not_of(of), s.size()));
}
std::string strip_back(std::string s, const char* of) {
    const size_t last = s.find_last_not_of(of);
    return s.substr(0, last == std::string::npos ? 0 : last + 1);
}

Mode mode_of(const Vector& v) { return v.json.at("mode") == "thinking" ? Mode::thinking : Mode::chat; }
std::string text_of(const Vector& v) { return v.json.at("text").get<std::string>(); }

// Where the strict official parser accepts the text, we say the same, except for the newlines that belong to the markup
// rather than to the text (docs/chat.md, "Newlines").
TEST(ParseVectors, EqualTheOfficialParserWhereItAccepts) {
    int n_accepted = 0, n_all = 0;
    for (const Vector& v : read_vectors("chat_parse.jsonl")) {
        ++n_all;
        const Json& official = v.json.at("official");
        if (official.contains("error")) continue;
        ++n_accepted;
        SCOPED_TRACE(v.name());
        const ParsedOutput out = parse_output(text_of(v), any_tool(mode_of(v)));
        const bool thinking = mode_of(v) == Mode::thinking, has_calls = !official.at("tool_calls").empty();
        std::string content = official.at("content").get<std::string>();
        if (thinking) content = strip_front(content, "\n");
        if (has_calls) content = strip_back(content, " \t\r\n");
        EXPECT_EQ(out.content, content);
        EXPECT_EQ(out.reasoning,
                  strip_front(strip_back(official.at("reasoning_content").get<std::string>(), "\n"), "\n"));
        ASSERT_EQ(out.tool_calls.size(), official.at("tool_calls").size());
        for (size_t i = 0; i < out.tool_calls.size(); ++i) {
            EXPECT_EQ(out.tool_calls[i].name, official["tool_calls"][i].at("name").get<std::string>());
            std::string arguments = official["tool_calls"][i].at("arguments").get<std::string>();
            // The one exception: the official parser copies a value that claims to be JSON and is not, which makes
            // arguments that no client can read. We send it as a string.
            if (v.name() == "json_value_invalid_passthrough") {
                EXPECT_EQ(arguments, R"({"a": not json, "b": })");
                arguments = R"({"a": "not json", "b": ""})";
                EXPECT_TRUE(out.recovered);
            }
            EXPECT_EQ(out.tool_calls[i].arguments, arguments);
        }
    }
    EXPECT_EQ(n_all, 61);
    EXPECT_EQ(n_accepted, 32);
}

// Where it refuses, our rules decide. Every refused vector is listed.
TEST(ParseVectors, FollowOurRulesWhereTheOfficialParserRefuses) {
    struct Expected {
        std::string reasoning, content;
        std::string calls;  // "name(arguments)" each
        bool recovered = false;
    };
    const std::string f1 = R"(f({"a": "1"}))";
    const std::string kRaw = "(the text as it is, without the EOS)";
    const std::map<std::string, Expected> expected = {
        {"missing_eos_chat", {"", "Hello", ""}},
        {"double_think_close", {"r1", "content  more", ""}},
        {"think_open_repeated", {"r1", "content", ""}},
        {"think_in_chat_mode", {"", "rcontent", ""}},
        // A section that more reasoning follows was only talked about.
        {"dsml_call_inside_reasoning_then_answer", {"I could write\n\n" + kCall + " but no.", "Answer.", ""}},
        {"single_newline_before_block", {"", "Text", f1}},
        {"no_newline_after_open", {"", "", f1}},
        {"extra_blank_lines_between", {"", "", f1}},
        {"indented_tags", {"", "", f1}},
        {"open_tag_only", {"", kRaw, "", true}},
        {"empty_block_tight", {"", "", ""}},
        {"newline_after_block", {"", "", f1}},
        {"two_blocks", {"", "", f1}},  // decoding stops at the first end
        {"attrs_swapped", {"", "", R"(f({"a": "v"}))"}},
        {"missing_invoke_name", {"", kRaw, "", true}},
        {"bare_invoke_without_wrapper", {"", "", f1, true}},
        {"invoke_without_start_but_end", {"", "", f1, true}},
        {"stray_closers_in_content", {"", "ok", ""}},
        // Not our wrapper, so the calls inside are bare ones.
        {"v32_function_calls_block", {"", "\n\n<｜DSML｜function_calls>", f1, true}},
        {"wrapper_with_extra_text_in_tag", {"", "\n\n<｜DSML｜tool_calls id=\"1\">", f1, true}},
        {"v41_spaced_tags", {"", kRaw, ""}},  // another dialect
        {"nested_params_untyped", {"", kRaw, "", true}},
        {"value_contains_full_close_tag", {"", kRaw, "", true}},
        {"dsml_token_in_content", {"", kRaw, ""}},
        {"bos_in_content", {"", kRaw, ""}},
        {"content_open_marker_quoted_in_prose", {"", kRaw, "", true}},
        {"lone_param_marker_in_content", {"", kRaw, ""}},
        {"json_args_style_call", {"", kRaw, "", true}},
        {"crlf_line_endings", {"", "", f1}},
    };
    size_t n_refused = 0;
    for (const Vector& v : read_vectors("chat_parse.jsonl")) {
        if (!v.json.at("official").contains("error")) continue;
        ++n_refused;
        SCOPED_TRACE(v.name());
        ASSERT_TRUE(expected.contains(v.name()));
        Expected e = expected.at(v.name());
        const std::string eos = "<｜end▁of▁sentence｜>";
        std::string raw = text_of(v);
        if (raw.ends_with(eos)) raw.resize(raw.size() - eos.size());
        if (e.content == kRaw) e.content = raw;
        const ParsedOutput out = parse_output(text_of(v), any_tool(mode_of(v)));
        EXPECT_EQ(out.reasoning, e.reasoning);
        EXPECT_EQ(out.content, e.content);
        std::string calls;
        for (const ParsedCall& call : out.tool_calls) calls += call.name + "(" + call.arguments + ")";
        EXPECT_EQ(calls, e.calls);
        EXPECT_EQ(out.recovered, e.recovered) << show(out);
    }
    EXPECT_EQ(n_refused, expected.size());
}

void expect_pieces_do_not_matter(const std::string& text, const ParseOptions& options, Ending ending) {
    const PiecewiseRun whole = parse_pieces(text, std::max<size_t>(text.size(), 1), options, ending);
    const Streamed streamed = stream(whole.events);
    EXPECT_TRUE(streamed.well_formed);
    EXPECT_EQ(show(whole.output), show(parse_output(text, options, ending)));
    for (const size_t piece : {1, 2, 3, 7, 64}) {
        const PiecewiseRun run = parse_pieces(text, piece, options, ending);
        EXPECT_EQ(show(run.output), show(whole.output)) << "pieces of " << piece;
        EXPECT_EQ(show(stream(run.events)), show(streamed)) << "pieces of " << piece;
        EXPECT_TRUE(stream(run.events).well_formed) << "pieces of " << piece;
        for (const OutputEvent& event : run.events) EXPECT_TRUE(is_valid_utf8(event.text));
    }
    EXPECT_EQ(streamed.reasoning, whole.output.reasoning);
    EXPECT_EQ(streamed.content, whole.output.content);
    ASSERT_EQ(streamed.calls.size(), whole.output.tool_calls.size());
    size_t i = 0;
    for (const auto& [index, call] : streamed.calls) {
        EXPECT_EQ(call.name, whole.output.tool_calls[i].name);
        EXPECT_EQ(Json::parse(call.arguments), Json::parse(whole.output.tool_calls[i].arguments));
        ++i;
    }
}

TEST(ParseVectors, PiecesDoNotMatter) {
    for (const Vector& v : read_vectors("chat_parse.jsonl"))
        for (const Mode mode : {Mode::chat, Mode::thinking})
            for (const Ending ending : {Ending::stopped, Ending::cut}) {
                SCOPED_TRACE(v.name());
                ParseOptions options = any_tool(mode);
                expect_pieces_do_not_matter(text_of(v), options, ending);
                options.accept_ascii_bar = options.accept_plain_xml = true;
                expect_pieces_do_not_matter(text_of(v), options, ending);
                options = {};
                options.mode = mode;
                expect_pieces_do_not_matter(text_of(v), options, ending);
            }
}

// Every prefix of every vector is an output cut by the token limit: whatever is shown must be complete and readable.
TEST(ParseVectors, AnyPrefixGivesReadableCalls) {
    for (const Vector& v : read_vectors("chat_parse.jsonl")) {
        const std::string text = text_of(v);
        if (text.size() > 1000) continue;
        for (size_t n = 0; n <= text.size(); ++n) {
            const ParsedOutput out = parse_output(text.substr(0, n), any_tool(mode_of(v)), Ending::cut);
            for (const ParsedCall& call : out.tool_calls) EXPECT_TRUE(Json::parse(call.arguments).is_object());
            EXPECT_TRUE(is_valid_utf8(out.content));
        }
    }
}

TEST(Parse, OtherSpellingsOnlyByFlag) {
    for (const Vector& v : read_vectors("chat_parse.jsonl")) {
        if (v.name() != "plain_xml_variant" && v.name() != "ascii_bar_variant") continue;
        ParseOptions options = any_tool(Mode::chat);
        EXPECT_TRUE(parse_output(text_of(v), options).tool_calls.empty());
        (v.name() == "plain_xml_variant" ? options.accept_plain_xml : options.accept_ascii_bar) = true;
        const ParsedOutput out = parse_output(text_of(v), options);
        ASSERT_EQ(out.tool_calls.size(), 1u) << v.name();
        EXPECT_EQ(out.tool_calls[0].arguments, R"({"a": "1"})");
        EXPECT_EQ(out.content, "");
    }
}

TEST(Parse, MissingFirstBarIsAccepted) {
    std::string text = "x\n\n" + kCall;
    for (size_t at; (at = text.find("<｜DSML")) != std::string::npos;) text.replace(at, 8, "<DSML");
    for (size_t at; (at = text.find("</｜DSML")) != std::string::npos;) text.replace(at, 9, "</DSML");
    const ParsedOutput out = parse_output(text, any_tool(Mode::chat));
    ASSERT_EQ(out.tool_calls.size(), 1u);
    EXPECT_EQ(out.tool_calls[0].arguments, R"({"a": "1"})");
    EXPECT_EQ(out.content, "x");
}

TEST(Parse, WithoutToolsMarkupIsText) {
    ParseOptions options;
    options.mode = Mode::chat;
    EXPECT_EQ(parse_output("x\n\n" + kCall + "</｜DSML｜invoke>", options).content,
              "x\n\n" + kCall + "</｜DSML｜invoke>");
    options.mode = Mode::thinking;
    const ParsedOutput out = parse_output("r\n\n" + kCall, options);
    EXPECT_EQ(out.reasoning, "r\n\n" + kCall);
    EXPECT_TRUE(out.reasoning_open);
}

TEST(Parse, NamesAreValidated) {
    const auto parse = [](const std::string& name, std::vector<DeclaredTool> tools) {
        ParseOptions options;
        options.mode = Mode::chat;
        options.tools = std::move(tools);
        return parse_output(block(invoke(name, "")), options);
    };
    const DeclaredTool f{"f", false, {}}, odd{"odd name!", false, {}};
    EXPECT_EQ(parse("f", {f}).tool_calls.size(), 1u);
    EXPECT_EQ(parse("odd name!", {f, odd}).tool_calls.size(), 1u);  // declared so
    EXPECT_TRUE(parse("odd name!", {f}).tool_calls.empty());
    EXPECT_TRUE(parse("f</｜DSML｜x", {f}).tool_calls.empty());
    EXPECT_TRUE(parse("", {f}).tool_calls.empty());
    EXPECT_TRUE(parse(std::string(200, 'x'), {f}).tool_calls.empty());
    const ParsedOutput hallucinated = parse("g", {f});  // the client's answer tells the model
    ASSERT_EQ(hallucinated.tool_calls.size(), 1u);
    EXPECT_FALSE(hallucinated.tool_calls[0].declared);
}

TEST(Parse, BareInvokeNeedsADeclaredNameAndItsEndTag) {
    ParseOptions options;
    options.mode = Mode::chat;
    options.tools = {{"f", false, {}}};
    const std::string call = invoke("f", parameter("a", "1"));
    EXPECT_EQ(parse_output("t\n" + call, options).tool_calls.size(), 1u);
    EXPECT_EQ(parse_output("t\n" + call + invoke("f", ""), options).tool_calls.size(), 2u);
    EXPECT_EQ(parse_output("t\n" + invoke("g", ""), options).content, "t\n<｜DSML｜invoke name=\"g\">\n\n");
    const std::string half = "t\n" + call.substr(0, call.size() - 4);
    EXPECT_EQ(parse_output(half, options).content, half);
    EXPECT_TRUE(parse_output(half, options).tool_calls.empty());
    options.accept_bare_invoke = false;
    EXPECT_TRUE(parse_output("t\n" + call, options).tool_calls.empty());
}

TEST(Parse, CallsBeforeAnErrorAreKeptAndTheRestIsDropped) {
    const ParsedOutput out = parse_output(
        "c\n\n" + kWrap + invoke("f", parameter("a", "1")) + "<｜DSML｜invoke>oops" + kEndWrap, any_tool(Mode::chat));
    ASSERT_EQ(out.tool_calls.size(), 1u);
    EXPECT_EQ(out.content, "c");
    EXPECT_TRUE(out.recovered);
    EXPECT_FALSE(out.notes.empty());
}

TEST(Parse, CutInsideACallReportsTheCompleteOnesOnly) {
    const std::string first = invoke("f", parameter("a", "1"));
    const std::string text = kWrap + first + "<｜DSML｜invoke name=\"g\">\n" + parameter("b", "2");
    const ParsedOutput cut = parse_output(text, any_tool(Mode::chat), Ending::cut);
    ASSERT_EQ(cut.tool_calls.size(), 1u);
    EXPECT_EQ(cut.tool_calls[0].name, "f");
    EXPECT_TRUE(cut.unterminated);
    // The model stopped by itself after a complete parameter: the official parser takes the call, and so do we.
    EXPECT_EQ(parse_output(text, any_tool(Mode::chat), Ending::stopped).tool_calls.size(), 2u);
    EXPECT_EQ(parse_output(text.substr(0, text.size() - 5), any_tool(Mode::chat), Ending::stopped).tool_calls.size(),
              1u);
}

TEST(Parse, ARealBlockAfterAQuotedMarkerIsExecuted) {
    const std::string prose = "Write <｜DSML｜tool_calls> to call. Now:";
    const ParsedOutput out = parse_output(prose + "\n\n" + kCall, any_tool(Mode::chat));
    EXPECT_EQ(out.content, prose);
    ASSERT_EQ(out.tool_calls.size(), 1u);
    EXPECT_TRUE(out.recovered);
}

TEST(Parse, EmptyBlockLeavesTheTextAroundIt) {
    EXPECT_EQ(parse_output("a\n\n" + block("") + "b", any_tool(Mode::chat)).content, "ab");
}

TEST(Parse, RepeatedKeyKeepsTheLastValue) {
    const ParsedOutput out = parse_output(
        block(invoke("f", parameter("a", "1") + parameter("b", "2") + parameter("a", "3"))), any_tool(Mode::chat));
    ASSERT_EQ(out.tool_calls.size(), 1u);
    EXPECT_EQ(out.tool_calls[0].arguments, R"({"a": "3", "b": "2"})");
}

TEST(Parse, AttributesInAnyOrderWithQuotesInAName) {
    const auto arguments = [](const std::string& tag) {
        const ParsedOutput out = parse_output(block(invoke("f", "<｜DSML｜parameter" + tag + ">7</｜DSML｜parameter>")),
                                              any_tool(Mode::chat));
        return out.tool_calls.size() == 1 ? out.tool_calls[0].arguments : "none";
    };
    EXPECT_EQ(arguments(R"( name="a" string="false")"), R"({"a": 7})");
    EXPECT_EQ(arguments(R"(  string="false"   name="a" )"), R"({"a": 7})");
    EXPECT_EQ(arguments(R"( name="a")"), R"({"a": "7"})");
    EXPECT_EQ(arguments(R"( name="we"ird & <k>" string="true")"), R"({"we\"ird & <k>": "7"})");
    EXPECT_EQ(arguments(R"( string="true")"), "none");
}

TEST(Parse, OnlyTheEscapedClosingTagIsUnescaped) {
    const ParsedOutput out =
        parse_output(block(invoke("f", parameter("a", "&lt;b> &amp; &lt;/｜DSML｜parameter> &lt;/｜DSML｜invoke>"))),
                     any_tool(Mode::chat));
    ASSERT_EQ(out.tool_calls.size(), 1u);
    EXPECT_EQ(Json::parse(out.tool_calls[0].arguments)["a"], "&lt;b> &amp; </｜DSML｜parameter> &lt;/｜DSML｜invoke>");
}

TEST(Parse, BigIntegersPassUnchanged) {
    const std::string n = "123456789012345678901234567890";
    EXPECT_EQ(
        parse_output(block(invoke("f", parameter("n", n, "false"))), any_tool(Mode::chat)).tool_calls.at(0).arguments,
        "{\"n\": " + n + "}");
}

TEST(Parse, EosIsStrippedOnlyAtTheVeryEnd) {
    const std::string eos = "<｜end▁of▁sentence｜>";
    EXPECT_EQ(parse_output("a " + eos + " b" + eos, any_tool(Mode::chat)).content, "a " + eos + " b");
    EXPECT_EQ(parse_output(eos + eos, any_tool(Mode::chat)).content, eos);
    ParseOptions options = any_tool(Mode::chat);
    options.strip_eos = false;
    EXPECT_EQ(parse_output("a" + eos, options).content, "a" + eos);
    // In a value it is a value.
    EXPECT_EQ(Json::parse(parse_output(block(invoke("f", parameter("a", eos))), any_tool(Mode::chat))
                              .tool_calls.at(0)
                              .arguments)["a"],
              eos);
}

TEST(Parse, DecodingCanStopAtTheEndOfTheSection) {
    EXPECT_TRUE(parse_pieces("x" + kCall, 5, any_tool(Mode::chat)).done);
    EXPECT_FALSE(parse_pieces("x" + kCall.substr(0, kCall.size() - 1), 5, any_tool(Mode::chat)).done);
    EXPECT_FALSE(parse_pieces("x" + block(""), 5, any_tool(Mode::chat)).done);
}

// ---- known failures of other servers, rows B and C ----

TEST(KnownFailures, B1BlockAtTheEndOfOpenReasoningIsRecoveredOnce) {
    const ParseOptions options = any_tool(Mode::thinking);
    const ParsedOutput real = parse_output("I need it.\n\n" + kCall + "<｜end▁of▁sentence｜>", options);
    ASSERT_EQ(real.tool_calls.size(), 1u);
    EXPECT_EQ(real.reasoning, "I need it.");
    EXPECT_EQ(real.content, "");
    EXPECT_FALSE(real.reasoning_open);
    EXPECT_TRUE(real.recovered);

    for (const std::string& quoted :
         std::vector<std::string>{"Like\n\n" + kCall + "\n\nbut later.", "Half " + kCall.substr(0, kCall.size() - 3),
                                  "Half " + kWrap, "Broken " + kWrap + "x" + kEndWrap, "Empty " + block("")}) {
        const ParsedOutput out = parse_output(quoted, options);
        EXPECT_TRUE(out.tool_calls.empty()) << quoted;
        EXPECT_EQ(out.reasoning, quoted);
        EXPECT_TRUE(out.reasoning_open);
    }
    // Reasoning that closes inside what looked like a section is over, even inside a value.
    const ParsedOutput closed =
        parse_output("r " + kWrap + "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\">x</think>A", options);
    EXPECT_EQ(closed.content, "A");
    EXPECT_TRUE(closed.tool_calls.empty());

    const ParsedOutput second = parse_output(kCall + " no, better:\n" + block(invoke("g", "")), options);
    ASSERT_EQ(second.tool_calls.size(), 1u);
    EXPECT_EQ(second.tool_calls[0].name, "g");
    EXPECT_EQ(second.reasoning, kCall + " no, better:");

    EXPECT_TRUE(parse_output("r\n\n" + kCall, options, Ending::cut).tool_calls.empty());
    ParseOptions off = options;
    off.recover_call_in_reasoning = false;
    EXPECT_TRUE(parse_output("r\n\n" + kCall, off).tool_calls.empty());
}

TEST(KnownFailures, B5ArgumentTextFlowsAsItIsDecoded) {
    OutputParser parser(any_tool(Mode::chat));
    std::vector<OutputEvent> events;
    parser.feed(kWrap + "<｜DSML｜invoke name=\"write\">\n<｜DSML｜parameter name=\"text\" string=\"true\">", &events);
    events.clear();
    for (int i = 0; i < 100; ++i) {
        parser.feed("0123456789", &events);
        ASSERT_EQ(events.back().kind, OutputEvent::Kind::call_arguments);
        ASSERT_EQ(events.back().text.size(), 10u * static_cast<size_t>(i + 1));
    }
}

TEST(KnownFailures, B7NoPieceOfAMarkerIsEverShown) {
    const std::string text = "Sure, 1 < 2.\n\n" + kCall;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
        OutputParser parser(any_tool(Mode::chat));
        std::vector<OutputEvent> events;
        parser.feed(std::string_view(text).substr(0, cut), &events);
        const std::string shown = stream(events).content;
        EXPECT_EQ(std::string("Sure, 1 < 2.").substr(0, shown.size()), shown) << cut;
        parser.feed(std::string_view(text).substr(cut), &events);
        const ParsedOutput out = parser.finish(Ending::stopped, &events);
        EXPECT_EQ(stream(events).content, "Sure, 1 < 2.");
        EXPECT_EQ(out.tool_calls.size(), 1u);
    }
}

TEST(KnownFailures, B8WrapperParameterIsTakenOffOnlyWhenItCannotBeReal) {
    ParseOptions options;
    options.mode = Mode::chat;
    options.tools = {{"read", true, {"path", "range"}}, {"eval", true, {"input"}}, {"loose", false, {}}};
    const auto arguments = [&](const std::string& tool, const std::string& parameters) {
        const std::string text = block(invoke(tool, parameters));
        expect_pieces_do_not_matter(text, options, Ending::stopped);
        return parse_output(text, options).tool_calls.at(0).arguments;
    };
    const std::string inner = R"({"path": "/x", "range": [1, 2]})";
    EXPECT_EQ(arguments("read", parameter("arguments", inner, "false")), inner);
    EXPECT_EQ(arguments("read", parameter("input", inner, "true")), inner);
    EXPECT_EQ(Json::parse(arguments("read", parameter("input", R"({"other": 1})", "false"))),
              Json::parse(R"({"input": {"other": 1}})"));
    EXPECT_EQ(arguments("read", parameter("input", "/x")), R"({"input": "/x"})");  // a bare scalar
    EXPECT_EQ(arguments("eval", parameter("input", R"({"input": 1})", "false")), R"({"input": {"input": 1}})");
    EXPECT_EQ(arguments("loose", parameter("arguments", inner, "false")), "{\"arguments\": " + inner + "}");
    EXPECT_EQ(Json::parse(arguments("read", parameter("arguments", inner, "false") + parameter("path", "p"))),
              Json::parse("{\"arguments\": " + inner + ", \"path\": \"p\"}"));
    EXPECT_EQ(parse_output("1 + 1 = 2 <", options).content, "1 + 1 = 2 <");
}

TEST(KnownFailures, C2InvalidUtf8BecomesReplacementCharacters) {
    const std::string replacement = "\xEF\xBF\xBD";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"a\x80z", "a" + replacement + "z"},                                      // lone continuation
        {"a\xC0\xAFz", "a" + replacement + replacement + "z"},                    // overlong
        {"a\xED\xA0\x80z", "a" + replacement + replacement + replacement + "z"},  // surrogate
        {"a\xF0\x9F\x98", "a" + replacement + replacement + replacement},         // cut at the end
    };
    for (const auto& [bytes, shown] : cases) {
        for (const size_t piece : {1, 2, 64}) {
            EXPECT_EQ(parse_pieces(bytes, piece, any_tool(Mode::chat)).output.content, shown);
            EXPECT_EQ(parse_pieces(bytes, piece, any_tool(Mode::thinking)).output.reasoning, shown);
            for (const char* type : {"true", "false"}) {
                const PiecewiseRun run =
                    parse_pieces(block(invoke("f", parameter("a", bytes, type))), piece, any_tool(Mode::chat));
                ASSERT_EQ(run.output.tool_calls.size(), 1u);
                EXPECT_EQ(Json::parse(run.output.tool_calls[0].arguments)["a"], shown);
            }
        }
    }
}

// ---- hostile input ----

std::string repeat(std::string text, const std::string& unit, size_t bytes) {
    while (text.size() < bytes) text += unit;
    return text;
}

TEST(Hostile, AMegabyteOfAnyMarkerIsLinear) {
    constexpr size_t kMegabyte = size_t{1} << 20;
    const std::string value = kWrap + "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"";
    const std::vector<std::string> units = {
        "<",
        "</",
        "</th",
        "</think>",
        "<think>",
        "<｜DSML｜",
        "<｜DSML｜tool_calls>",
        "<｜DSML｜tool_calls>x",
        kEndWrap,
        " ",
        "\n",
        "<｜end▁of▁sentence｜>",
        "<｜end▁of▁sentence",
        "<｜DSML｜invoke name=\"f\">",
        "<｜DSML｜invoke ",
        "\xE4",
        "&lt;/｜DSML｜param",
        kCall,
        kWrap + invoke("f", ""),
        invoke("f", parameter("a", "1")),
        block(""),
        "a ",
        "\"",
        "=\"",
    };
    const std::vector<std::string> heads = {
        "", kWrap, value + "true\">", value + "false\">", "<｜DSML｜invoke ", kWrap + "<｜DSML｜invoke name=\""};
    const auto start = std::chrono::steady_clock::now();
    for (const std::string& unit : units)
        for (const Mode mode : {Mode::chat, Mode::thinking})
            EXPECT_LE(parse_output(repeat("", unit, kMegabyte), any_tool(mode)).notes.size(), 16u);
    for (const std::string& head : heads)
        for (const std::string& unit : units)
            EXPECT_LE(parse_output(repeat(head, unit, kMegabyte / 16), any_tool(Mode::thinking)).notes.size(), 16u);
    // 60 MB; one step that is quadratic in a megabyte would be 10^12 byte operations.
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 60.0);
}

// Where text is held back, fed byte by byte: looking at (or copying) all of it again for each byte would be 10^11 byte
// operations, half a minute or more.
TEST(Hostile, HoldingBackIsLinear) {
    constexpr size_t kHalf = size_t{1} << 19;
    const std::string parameter_start = "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"";
    const std::vector<std::tuple<Mode, std::string, std::string>> held = {
        {Mode::chat, "", " "},                                       // white space that a section may swallow
        {Mode::thinking, "r", "\n"},                                 // newlines before </think>
        {Mode::chat, "", kWrap},                                     // a section without calls
        {Mode::chat, kWrap + parameter_start + "false\">", "1"},     // a JSON value
        {Mode::chat, parameter_start + "true\">", "x"},              // a bare invoke
        {Mode::thinking, kWrap + parameter_start + "true\">", "x"},  // a section inside reasoning
    };
    for (const auto& [mode, head, unit] : held) {
        const std::string text = repeat(head, unit, kHalf);
        const auto start = std::chrono::steady_clock::now();
        const ParsedOutput out = parse_pieces(text, 1, any_tool(mode)).output;
        EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 10.0)
            << head << unit;
        EXPECT_TRUE(out.tool_calls.empty());
        EXPECT_GE(out.reasoning.size() + out.content.size(), text.size() - 1);  // all of it comes out as text
    }
}

TEST(Hostile, ManyParametersAndCallsAreLinear) {
    std::string parameters, calls;
    for (int i = 0; i < 20000; ++i) parameters += parameter(std::string("k").append(std::to_string(i % 5000)), "v");
    for (int i = 0; i < 5000; ++i) calls += invoke("f", parameter("a", "1"));
    const ParsedOutput wide = parse_output(block(invoke("f", parameters)), any_tool(Mode::chat));
    ASSERT_EQ(wide.tool_calls.size(), 1u);
    EXPECT_EQ(Json::parse(wide.tool_calls[0].arguments).size(), 5000u);
    EXPECT_EQ(parse_output(block(calls), any_tool(Mode::chat)).tool_calls.size(), 5000u);
}

TEST(Hostile, DepthBombInAValueIsSentAsAString) {
    const std::string bomb(100000, '[');
    const ParsedOutput out = parse_output(block(invoke("f", parameter("a", bomb, "false"))), any_tool(Mode::chat));
    ASSERT_EQ(out.tool_calls.size(), 1u);
    EXPECT_EQ(Json::parse(out.tool_calls[0].arguments)["a"], bomb);
}

TEST(Hostile, PiecesOfMarkersInRandomOrderNeverMatterToTheResult) {
    const std::vector<std::string> pieces = {"<",
                                             ">",
                                             "｜",
                                             "DSML",
                                             "<｜DSML｜",
                                             "</｜DSML｜",
                                             "<DSML｜",
                                             "tool_calls>",
                                             "invoke",
                                             " name=\"f\"",
                                             "parameter",
                                             " string=\"true\"",
                                             " string=\"false\"",
                                             "\n",
                                             " ",
                                             "</think>",
                                             "<think>",
                                             "<｜end▁of▁sentence｜>",
                                             "text",
                                             "1",
                                             "\xE4\xB8",
                                             "\x80",
                                             "&lt;/｜DSML｜parameter>",
                                             kWrap,
                                             kEndWrap,
                                             "<｜DSML｜invoke name=\"f\">\n",
                                             "</｜DSML｜invoke>\n",
                                             parameter("a", "1"),
                                             parameter("b", "[1", "false"),
                                             kCall,
                                             "\"",
                                             "="};
    uint64_t state = 12345;
    const auto next = [&](size_t n) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<size_t>(state >> 33) % n;
    };
    for (int round = 0; round < 1500; ++round) {
        std::string text;
        for (size_t i = 0, n = 1 + next(14); i < n; ++i) text += pieces[next(pieces.size())];
        ParseOptions options = any_tool(next(2) == 0 ? Mode::chat : Mode::thinking);
        if (next(4) == 0) options.accept_plain_xml = true;
        SCOPED_TRACE(text);
        expect_pieces_do_not_matter(text, options, next(2) == 0 ? Ending::stopped : Ending::cut);
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace vesta::chat
