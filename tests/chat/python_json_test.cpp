#include "chat/python_json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace vesta::chat {
namespace {

std::string printed(const std::string& json) {
    const auto value = scan_json(json);
    return value.ok() ? python_json(value.value()) : "error: " + value.error().message;
}

// The right column was printed by CPython 3.11: json.dumps(json.loads(left), ensure_ascii=False).
TEST(PythonJson, NumbersPrintAsPythonPrintsThem) {
    const std::vector<std::pair<std::string, std::string>> table = {
        {"0", "0"},
        {"-0", "0"},
        {"1", "1"},
        {"-1", "-1"},
        {"12345678901234567890", "12345678901234567890"},
        {"123456789012345678901234567890", "123456789012345678901234567890"},
        {"-9007199254740993", "-9007199254740993"},
        {"0.0", "0.0"},
        {"-0.0", "-0.0"},
        {"1.0", "1.0"},
        {"1e0", "1.0"},
        {"1E0", "1.0"},
        {"1e3", "1000.0"},
        {"1e+3", "1000.0"},
        {"1.5e3", "1500.0"},
        {"100.0", "100.0"},
        {"0.1", "0.1"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"1e-4", "0.0001"},
        {"0.0001", "0.0001"},
        {"0.00012345", "0.00012345"},
        {"1e-5", "1e-05"},
        {"0.00001", "1e-05"},
        {"1e-7", "1e-07"},
        {"1.25e-7", "1.25e-07"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"1e17", "1e+17"},
        {"123456789012345.6", "123456789012345.6"},
        {"1234567890123456.7", "1234567890123456.8"},
        {"12345678901234567.8", "1.2345678901234568e+16"},
        {"9999999999999998.0", "9999999999999998.0"},
        {"1e22", "1e+22"},
        {"1e23", "1e+23"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"5e-324", "5e-324"},
        {"2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"1e400", "Infinity"},
        {"-1e400", "-Infinity"},
        {"1e-400", "0.0"},
        {"-1e-400", "-0.0"},
        {"0e999", "0.0"},
        {"0.000e-999", "0.0"},
        {"3.141592653589793238462643", "3.141592653589793"},
        {"1e21", "1e+21"},
        {"100000000000000000000.0", "1e+20"},
        {"4.35", "4.35"},
        {"2.5e-10", "2.5e-10"},
        {"1.0e100", "1e+100"},
        {"123e-20", "1.23e-18"},
        {"0.1e1", "1.0"},
        {"6.02214076e23", "6.02214076e+23"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"1e308", "1e+308"},
        {"1e309", "Infinity"},
        {"0.00000000000000000000000000000000000000001e400", "Infinity"},
        {"1000000000000000000000000000000000000000000e-400", "0.0"},
    };
    for (const auto& [json, python] : table) EXPECT_EQ(printed(json), python) << json;
}

TEST(PythonJson, StringsEscapeOnlyWhatPythonEscapes) {
    EXPECT_EQ(printed(R"("\"\\\/\b\f\n\r\t")"), R"("\"\\/\b\f\n\r\t")");
    EXPECT_EQ(printed(R"("\u0000\u001F\u007f\u00e9\u4e2d\ud83d\ude00")"),
              "\"\\u0000\\u001f\x7f\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\"");
    EXPECT_EQ(printed("\"\xE2\x80\xA8\""), "\"\xE2\x80\xA8\"");  // U+2028 stays raw
}

TEST(PythonJson, StructureKeepsOrderAndTheLastOfRepeatedKeys) {
    EXPECT_EQ(printed(" { \"b\" :[ 1,2 ,{} , [ ] ],\n\"a\":null , \"b\":true}\t"), R"({"b": true, "a": null})");
    EXPECT_EQ(printed(R"({"a":1,"\u0061":2})"), R"({"a": 2})");
    EXPECT_EQ(printed(R"([[],{},"",false])"), R"([[], {}, "", false])");
}

TEST(PythonJson, RawTextOfMembersIsKept) {
    const std::string json = R"({"schema" : { "x":1e3 }, "n": 123456789012345678901234567890})";
    const auto value = scan_json(json);
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(value.value().find("schema")->raw, R"({ "x":1e3 })");
    EXPECT_EQ(value.value().find("n")->raw, "123456789012345678901234567890");
    EXPECT_EQ(value.value().find("absent"), nullptr);
}

TEST(PythonJson, RefusesWhatIsNotStrictJson) {
    for (const std::string bad : {"",
                                  " ",
                                  "{",
                                  "[",
                                  "[1,]",
                                  "{\"a\":1,}",
                                  "{a:1}",
                                  "{'a':1}",
                                  "01",
                                  "-",
                                  "1.",
                                  ".5",
                                  "1e",
                                  "+1",
                                  "0x1",
                                  "NaN",
                                  "Infinity",
                                  "-Infinity",
                                  "tru",
                                  "truex",
                                  "nul",
                                  "\"",
                                  "\"\\x\"",
                                  "\"\\u12\"",
                                  "\"\n\"",
                                  "1 2",
                                  "[1 2]",
                                  "{\"a\" 1}",
                                  "{\"a\":}",
                                  "\xEF\xBB\xBF{}",
                                  "\"\\ud800\"",
                                  "\"\\ud800x\"",
                                  "\"\\ud800\\u0041\"",
                                  "\"\\udc00\"",
                                  "\"\xFF\"",
                                  "\"\xC0\x80\"",
                                  "\"\xED\xA0\x80\"",
                                  "\"\xE4\xB8\"",
                                  "]",
                                  "//"})
        EXPECT_FALSE(scan_json(bad).ok()) << bad;
}

TEST(PythonJson, ErrorsNameThePlace) {
    EXPECT_EQ(scan_json("{\"a\": x}").error().message, "JSON: expected a value at byte 6, found byte 0x78");
    EXPECT_EQ(scan_json("[1").error().message, "JSON: expected ',' or ']' at byte 2, found the end of the text");
}

TEST(PythonJson, DepthIsLimited) {
    const auto nested = [](int n) {
        return std::string(static_cast<size_t>(n), '[') + std::string(static_cast<size_t>(n), ']');
    };
    EXPECT_TRUE(scan_json(nested(kMaxJsonDepth)).ok());
    EXPECT_TRUE(
        scan_json(nested(kMaxJsonDepth + 1)).ok());  // the innermost is empty: nothing lies deeper than the limit
    EXPECT_FALSE(scan_json(nested(kMaxJsonDepth + 2)).ok());
    EXPECT_FALSE(scan_json(std::string(10'000'000, '[')).ok());
    std::string objects;
    for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
    EXPECT_FALSE(scan_json(objects).ok());
}

TEST(PythonJson, WideInputIsLinear) {
    std::string wide = "{";
    for (int i = 0; i < 200000; ++i) wide += "\"k" + std::to_string(i) + "\":1e400,";
    wide.back() = '}';
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(printed(wide).substr(0, 16), "{\"k0\": Infinity,");
    const std::string zeros = "1e-" + std::string(1'000'000, '9');
    EXPECT_EQ(printed(zeros), "0.0");
    EXPECT_EQ(printed("0." + std::string(1'000'000, '0') + "1e1000002").substr(0, 3), "10.");
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 20.0);
}

}  // namespace
}  // namespace vesta::chat
