#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "checker.h"

namespace vesta::layering {
namespace {

std::string joined(const std::vector<std::string>& lines) {
    std::string out;
    for (const std::string& line : lines) out += "  " + line + "\n";
    return out;
}

bool mentions(const std::vector<std::string>& lines, const std::string& part) {
    return std::any_of(lines.begin(), lines.end(), [&](const auto& l) { return l.find(part) != std::string::npos; });
}

// ---- the project itself ----

std::vector<Room> project_rooms() {
    const Tree cmake = read_tree(VESTA_SOURCE_DIR, {"cmake"});
    return parse_rooms(cmake.at("cmake/rooms.cmake"));
}

TEST(Layering, TheListOfRoomsDescends) {
    const std::vector<Room> rooms = project_rooms();
    ASSERT_GE(rooms.size(), 10U);
    const auto bad = check_rooms(rooms);
    EXPECT_TRUE(bad.empty()) << joined(bad);
}

TEST(Layering, EverySourceKeepsToItsRoom) {
    const Tree tree = read_tree(VESTA_SOURCE_DIR, {"src", "include", "apps"});
    ASSERT_EQ(tree.count("src/base/result.h"), 1U);
    const auto bad = check_sources(project_rooms(), tree);
    EXPECT_TRUE(bad.empty()) << joined(bad);
}

TEST(Layering, NoTextFileNamesOneMachineOrIsUnfinished) {
    const Tree tree = read_tree(VESTA_SOURCE_DIR,
                                {"", "src", "include", "apps", "cmake", "tools", "docs", "bench", "tests", "models"});
    ASSERT_EQ(tree.count("CMakeLists.txt"), 1U);
    const auto bad = check_text(tree);
    EXPECT_TRUE(bad.empty()) << joined(bad);
}

TEST(Layering, DocumentsLinkToFilesThatExist) {
    const Tree tree = read_tree(VESTA_SOURCE_DIR, {"", "docs", "bench", "models"});
    ASSERT_EQ(tree.count("README.md"), 1U);
    const auto bad = check_links(VESTA_SOURCE_DIR, tree);
    EXPECT_TRUE(bad.empty()) << joined(bad);
}

// ---- the checker, with planted violations ----

const std::vector<Room> kRooms = {
    {"base", 0, {}},
    {"quant", 1, {"base"}},
    {"gguf", 1, {"base"}},
    {"ops", 2, {"base"}},
    {"backend", 4, {"base", "ops", "backend/cpu"}},
    {"backend/cpu", 3, {"base", "ops"}},
    {"engine", 6, {"gguf", "ops"}},
};

// One planted file beside headers that exist.
std::vector<std::string> check_with(const std::string& path, const std::string& text) {
    Tree tree = {{"src/base/result.h", "// r\n"},      {"src/gguf/file.h", "// f\n"},
                 {"src/ops/ops.h", "// o\n"},          {"src/backend/cpu/kernels.h", "// k\n"},
                 {"include/vesta/engine.h", "// e\n"}, {"apps/vesta/commands.h", "// c\n"}};
    tree[path] = text;
    return check_sources(kRooms, tree);
}

TEST(Checker, ParsesRoomsAndSkipsComments) {
    const auto rooms = parse_rooms(
        "# vesta_room(ghost LEVEL 9 USES)\n"
        "vesta_room(base LEVEL 0 USES)\n"
        "vesta_room(backend/cpu   LEVEL 3 # why\n   USES base ops)\n");
    ASSERT_EQ(rooms.size(), 2U);
    EXPECT_EQ(rooms[0].name, "base");
    EXPECT_TRUE(rooms[0].uses.empty());
    EXPECT_EQ(rooms[1].name, "backend/cpu");
    EXPECT_EQ(rooms[1].level, 3);
    EXPECT_EQ(rooms[1].uses, (std::set<std::string>{"base", "ops"}));
}

TEST(Checker, RoomListRefusesRisingLevelsUnknownRoomsAndRepeats) {
    EXPECT_TRUE(check_rooms({{"base", 0, {}}, {"gguf", 1, {"base"}}}).empty());
    EXPECT_TRUE(mentions(check_rooms({{"a", 2, {}}, {"b", 1, {"a"}}}), "levels must descend"));
    EXPECT_TRUE(mentions(check_rooms({{"a", 2, {}}, {"b", 2, {"a"}}}), "levels must descend"));
    EXPECT_TRUE(mentions(check_rooms({{"b", 2, {"a"}}}), "not listed above"));
    EXPECT_TRUE(mentions(check_rooms({{"b", 2, {}}, {"b", 2, {}}}), "listed twice"));
    EXPECT_TRUE(check_rooms({{"backend/reference", 3, {}}, {"backend/cpu", 3, {"backend/reference"}}}).empty());
    EXPECT_FALSE(check_rooms({{"backend/cpu", 3, {}}, {"backend/reference", 3, {"backend/cpu"}}}).empty());
}

TEST(Checker, AllowsWhatTheRoomsLineNames) {
    const auto bad = check_with("src/engine/engine.cpp",
                                "#include \"vesta/engine.h\"\n#include \"gguf/file.h\"\n#include <vector>\n"
                                "#include <fmt/format.h>\n");
    EXPECT_TRUE(bad.empty()) << joined(bad);
}

TEST(Checker, RefusesARoomThatTheLineDoesNotNameEvenIfReachable) {
    // engine uses gguf, gguf uses base; engine's own line does not name base.
    const auto bad = check_with("src/engine/engine.cpp", "#include \"base/result.h\"\n");
    ASSERT_EQ(bad.size(), 1U) << joined(bad);
    EXPECT_EQ(bad[0], "src/engine/engine.cpp:1: includes src/base/result.h: rooms.cmake does not let engine use base");
}

TEST(Checker, RefusesAnIncludeUpwardInAnyDress) {
    EXPECT_TRUE(mentions(check_with("src/gguf/a.cpp", "\n  #  include \"ops/ops.h\"\n"), "src/gguf/a.cpp:2:"));
    EXPECT_EQ(check_with("src/gguf/a.cpp", "#include <ops/ops.h>\n").size(), 1U);
    EXPECT_EQ(check_with("src/gguf/a.cpp", "#include \"../ops/ops.h\"\n").size(), 1U);
    EXPECT_EQ(check_with("src/gguf/a.cpp", "#include \"vesta/engine.h\"\n").size(), 1U);
    EXPECT_EQ(check_with("src/gguf/a.cpp", "#include \"../../apps/vesta/commands.h\"\n").size(), 1U);
    EXPECT_EQ(check_with("src/gguf/a.cpp", "#include \"no/such.h\"\n").size(), 1U);
    EXPECT_TRUE(check_with("src/gguf/a.cpp", "// #include \"ops/ops.h\"\n/*\n#include \"ops/ops.h\"\n*/\n").empty());
}

TEST(Checker, ANestedRoomIsNotItsParent) {
    EXPECT_TRUE(check_with("src/backend/registry.cpp", "#include \"backend/cpu/kernels.h\"\n").empty());
    EXPECT_EQ(check_with("src/engine/a.cpp", "#include \"backend/cpu/kernels.h\"\n").size(), 1U);
    EXPECT_TRUE(check_with("src/backend/cpu/a.cpp", "#include \"kernels.h\"\n").empty());
}

TEST(Checker, PublicHeadersSeeOnlyBase) {
    EXPECT_TRUE(
        check_with("include/vesta/x.h", "// x\n#include \"base/result.h\"\n#include \"vesta/engine.h\"\n").empty());
    EXPECT_EQ(check_with("include/vesta/x.h", "// x\n#include \"ops/ops.h\"\n").size(), 1U);
}

TEST(Checker, OnlyBackendsKnowTheHardware) {
    EXPECT_EQ(check_with("src/gguf/a.cpp", "#include <immintrin.h>\n").size(), 1U);
    EXPECT_EQ(check_with("src/gguf/a.cpp", "#include <cuda_runtime.h>\n").size(), 1U);
    EXPECT_EQ(check_with("src/gguf/a.cpp", "void f() { asm volatile(\"\"); }\n").size(), 1U);
    EXPECT_TRUE(check_with("src/backend/cpu/a.cpp", "#include <immintrin.h>\n").empty());
    EXPECT_TRUE(check_with("src/base/thread_pool.cpp", "#include <immintrin.h>\n").empty());
    EXPECT_TRUE(check_with("src/quant/quantize_x_avx2.cpp", "#include <immintrin.h>\n").empty());
    EXPECT_EQ(check_with("src/quant/quantize_x.cpp", "#include <immintrin.h>\n").size(), 1U);
}

TEST(Checker, OnlyAppsTalkToTheProcess) {
    for (const char* line :
         {"auto* e = std::getenv(\"X\");", "std::exit(1);", "exit (1);", "::abort();", "printf(\"x\");",
          "std::fprintf(stderr, \"x\");", "fmt::print(\"x\");", "std::cerr << 1;", "::write(STDOUT_FILENO, p, n);"})
        EXPECT_EQ(check_with("src/gguf/a.cpp", std::string("void f() {\n") + line + "\n}\n").size(), 1U) << line;
    for (const char* line :
         {"pool.exit();", "pool->exit();", "int exit_code = 0;", "// printf(1)", "auto s = \"stderr exit(1)\";",
          "std::fprintf(file, \"x\");", "auto r = R\"(printf(\"x\"); \" )\";", "int n = 1'000; f(n, 'x', '\"');"})
        EXPECT_TRUE(check_with("src/gguf/a.cpp", line).empty()) << line;
    EXPECT_TRUE(check_with("src/base/result.cpp", "void f() { std::fprintf(stderr, \"x\"); std::abort(); }\n").empty());
}

TEST(Checker, HeadersOpenWithACommentAndFilesHaveARoom) {
    EXPECT_EQ(check_with("src/gguf/x.h", "#pragma once\n// too late\n").size(), 1U);
    EXPECT_EQ(check_with("src/cellar/x.cpp", "int x;\n").size(), 1U);
}

TEST(Checker, StrippingKeepsCodeAndLineNumbers) {
    EXPECT_EQ(strip("a // b\nc"), "a     \nc");
    EXPECT_EQ(strip("a /* b\n */ c"), "a     \n    c");
    EXPECT_EQ(strip("f(\"\\\"x\", 'y') + 1'000"), "f(     ,    ) + 1'000");
    EXPECT_EQ(strip("R\"--(a)\" b)--\" c"), "R" + std::string(13, ' ') + " c");
}

TEST(Checker, FindsMachinePathsAndUnfinishedWork) {
    const std::string home = std::string("/ro") + "ot/", mark = std::string("TO") + "DO";
    EXPECT_EQ(check_text({{"a.md", "see " + home + "x"}}).size(), 1U);
    EXPECT_TRUE(check_text({{"a.md", "see tree" + home + "x"}}).empty());
    EXPECT_EQ(check_text({{"a.cpp", "// " + mark + ": later"}}).size(), 1U);
    EXPECT_TRUE(check_text({{"a.cpp", mark + "S_ARE_FINE"}}).empty());
}

TEST(Checker, FollowsLinksFromTheDocumentsOwnFolder) {
    const auto links = [](const std::string& text) {
        return check_links(VESTA_SOURCE_DIR, {{"docs/a.md", text}}).size();
    };
    EXPECT_EQ(links("see [x](../CMakeLists.txt) and [y](https://example.org/z) and [z](#part)"), 0U);
    EXPECT_EQ(links("see [x](CMakeLists.txt)"), 1U);
    EXPECT_EQ(links("[a](../src) [b](../no_such_file.md#part)"), 1U);
}

}  // namespace
}  // namespace vesta::layering
