#include "convert/recipe.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>

#include "base/file.h"

namespace vesta::convert {
namespace {

using quant::Type;

TEST(Recipe, PatternsMatchAnyRunOfCharacters) {
    for (const auto& [pattern, text] :
         std::vector<std::pair<const char*, const char*>>{{"*", ""},
                                                          {"*", "x"},
                                                          {"a*c", "abc"},
                                                          {"a*c", "ac"},
                                                          {"*_exps.weight", "blk.0.ffn_up_exps.weight"},
                                                          {"*a*b*", "xxaxxbxx"},
                                                          {"a**b", "ab"},
                                                          {"*ab", "aab"},
                                                          {"blk.*.x", "blk.17.x"},
                                                          {"", ""}})
        EXPECT_TRUE(matches(pattern, text)) << pattern << " " << text;
    for (const auto& [pattern, text] : std::vector<std::pair<const char*, const char*>>{
             {"", "a"}, {"a", ""}, {"a*c", "abd"}, {"*ab", "aba"}, {"a", "aa"}, {"a?c", "abc"}, {"*a*b*", "ba"}})
        EXPECT_FALSE(matches(pattern, text)) << pattern << " " << text;
}

TEST(Recipe, Q8GivesTheFormatsOfThePublishedFiles) {
    const Recipe r = find_recipe("q8").value();
    const std::pair<const char*, Type> expected[] = {
        {"token_embd.weight", Type::f16},
        {"output.weight", Type::q8_0},
        {"output_hc_fn.weight", Type::f16},
        {"blk.3.hc_attn_fn.weight", Type::f16},
        {"blk.3.hc_ffn_fn.weight", Type::f16},
        {"mtp.0.hc_head_fn.weight", Type::f16},
        {"blk.3.attn_q_a.weight", Type::q8_0},
        {"blk.3.attn_q_b.weight", Type::q8_0},
        {"blk.3.attn_kv.weight", Type::q8_0},
        {"blk.3.attn_output_a.weight", Type::q8_0},
        {"blk.3.attn_compressor_kv.weight", Type::f16},
        {"blk.3.attn_compressor_ape.weight", Type::f16},
        {"blk.2.indexer.attn_q_b.weight", Type::f16},
        {"blk.2.indexer.proj.weight", Type::f16},
        {"blk.2.indexer_compressor_gate.weight", Type::f16},
        {"blk.3.ffn_gate_inp.weight", Type::f16},
        {"blk.3.ffn_gate_exps.weight", Type::q8_0},
        {"blk.3.ffn_down_exps.weight", Type::q8_0},
        {"blk.3.ffn_down_shexp.weight", Type::q8_0},
        {"mtp.0.e_proj.weight", Type::q8_0},
    };
    for (const auto& [name, type] : expected) EXPECT_EQ(r.type_for(name), type) << name;
}

TEST(Recipe, PocketKeepsTheExpertsAndNativeKeepsEverything) {
    EXPECT_EQ(find_recipe("pocket").value().type_for("blk.3.ffn_up_exps.weight"), std::nullopt);
    EXPECT_EQ(find_recipe("pocket").value().type_for("output.weight"), Type::q8_0);
    for (const char* name : {"blk.3.ffn_up_exps.weight", "output.weight", "anything"})
        EXPECT_EQ(find_recipe("native").value().type_for(name), std::nullopt);
}

TEST(Recipe, BracesAreAlternativesAndRangesOfWholeNumbers) {
    for (const auto& [pattern, text] :
         std::vector<std::pair<const char*, const char*>>{{"blk.{0-2,40-42}.x", "blk.0.x"},
                                                          {"blk.{0-2,40-42}.x", "blk.2.x"},
                                                          {"blk.{0-2,40-42}.x", "blk.41.x"},
                                                          {"blk.{7}.x", "blk.7.x"},
                                                          {"*.ffn_{gate,up}_exps.weight", "blk.3.ffn_up_exps.weight"},
                                                          {"{a,ab}{c,bc}", "abc"},
                                                          {"{a,ab}{c,bc}", "abbc"},
                                                          {"*{x,y}*", "..y.."}})
        EXPECT_TRUE(matches(pattern, text)) << pattern << " " << text;
    for (const auto& [pattern, text] :
         std::vector<std::pair<const char*, const char*>>{{"blk.{0-2,40-42}.x", "blk.3.x"},
                                                          {"blk.{0-2,40-42}.x", "blk.39.x"},
                                                          {"blk.{0-2}.x", "blk.12.x"},
                                                          {"blk.{1-2}7.x", "blk.17.x"},
                                                          {"blk.{0-2}.x", "blk..x"},
                                                          {"{gate,up}", "down"}})
        EXPECT_FALSE(matches(pattern, text)) << pattern << " " << text;
}

// A backtracking matcher would need 2^60 steps here.
TEST(Recipe, NoPatternIsSlow) {
    std::string pattern, text(120, 'a');
    for (int i = 0; i < 60; ++i) pattern += "*{a,aa}";
    EXPECT_FALSE(matches(pattern + "b", text));
    EXPECT_TRUE(matches(pattern, text));
}

TEST(Recipe, FilesAreParsed) {
    const auto r = parse_recipe(
        "# Two words\r\n#more\n\n blk.{0-1}.*_exps.weight =\tq4_k # early layers\n*_exps.weight=q2_k\n"
        "output.weight = native\n* = exact",
        "mine");
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_EQ(r.value().name, "mine");
    EXPECT_EQ(r.value().summary, "Two words");
    ASSERT_EQ(r.value().rules.size(), 4u);
    EXPECT_EQ(r.value().type_for("blk.1.ffn_up_exps.weight"), Type::q4_k);
    EXPECT_EQ(r.value().type_for("blk.2.ffn_up_exps.weight"), Type::q2_k);
    EXPECT_EQ(r.value().type_for("output.weight"), std::nullopt);
    EXPECT_EQ(r.value().type_for("anything"), std::nullopt);
}

// Every refusal says where.
TEST(Recipe, WhatIsWrongIsSaidWithItsLine) {
    const std::string long_line(600, 'a'), tail = "\n* = q8_0\n";
    const std::tuple<std::string, const char*, const char*> cases[] = {
        {"", ":1:", "* = type"},
        {"# nothing\n", ":1:", "* = type"},
        {"a = q8_0\n", ":1:", "* = type"},
        {"a\n* = q8_0", ":1:", "pattern = type"},
        {"# x\na = q9_9" + tail, ":2:", "q9_9"},
        {"a = i32" + tail, ":1:", "i32"},
        {"a = q4_0" + tail, ":1:", "q4_0"},
        {"a =" + tail, ":1:", "''"},
        {"= q8_0" + tail, ":1:", "empty"},
        {"a?b = q8_0" + tail, ":1:", "'?'"},
        {"a{b = q8_0" + tail, ":1:", "without '}'"},
        {"a}b = q8_0" + tail, ":1:", "without '{'"},
        {"a{} = q8_0" + tail, ":1:", "empty alternative"},
        {"a{b,} = q8_0" + tail, ":1:", "empty alternative"},
        {"a{b{c}} = q8_0" + tail, ":1:", "'{'"},
        {"a{*} = q8_0" + tail, ":1:", "'*'"},
        {"a{5-3} = q8_0" + tail, ":1:", "5-3"},
        {"a{1-} = q8_0" + tail, ":1:", "1-"},
        {"a{01} = q8_0" + tail, ":1:", "01"},
        {"a{12345678901} = q8_0" + tail, ":1:", "12345678901"},
        {"a = q8_0\na = f16" + tail, ":2:", "line 1"},
        {"* = q8_0\na = f16\n", ":2:", "line 1"},
        {"** = q8_0\n* = f16\n", ":2:", "line 1"},
        {long_line + " = q8_0" + tail, ":1:", "bytes"},
        {"a\x01 = q8_0" + tail, ":1:", "control"},
        {std::string("a\0b = q8_0", 10) + tail, ":1:", "control"},
        {"# \xff" + tail, ":1:", "UTF-8"},
        {std::string(70000, '\n'), "mine: 70000", "at most"},
    };
    for (const auto& [text, where, what] : cases) {
        const auto r = parse_recipe(text, "mine");
        ASSERT_FALSE(r.ok()) << text;
        EXPECT_EQ(r.error().code, Code::bad_file);
        EXPECT_NE(r.error().message.find(where), std::string::npos) << r.error().message;
        EXPECT_NE(r.error().message.find(what), std::string::npos) << r.error().message;
    }
    std::string many;
    for (int i = 0; i < 1001; ++i) many += strf("a{} = f16\n", i);
    EXPECT_FALSE(parse_recipe(many + "* = f16", "mine").ok());
}

TEST(Recipe, TwoBitsGoToTheExpertsOfTheMainLayersOnly) {
    for (const char* name : {"q2", "q2-small"}) {
        const Recipe r = find_recipe(name).value();
        EXPECT_EQ(r.type_for("blk.3.ffn_gate_exps.weight"), Type::iq2_xxs);
        EXPECT_EQ(r.type_for("blk.3.ffn_up_exps.weight"), Type::iq2_xxs);
        EXPECT_EQ(r.type_for("blk.3.ffn_down_exps.weight"), Type::q2_k);
        EXPECT_EQ(r.type_for("mtp.0.ffn_down_exps.weight"), Type::q4_k);
    }
    for (const char* name : {"q4", "q4-small"})
        EXPECT_EQ(find_recipe(name).value().type_for("blk.3.ffn_down_exps.weight"), Type::q4_k);
    for (const char* name : {"q2", "q4"}) {
        const Recipe r = find_recipe(name).value(), q8 = find_recipe("q8").value();
        for (const char* tensor :
             {"token_embd.weight", "output.weight", "blk.2.attn_q_b.weight", "blk.2.ffn_up_shexp.weight",
              "blk.2.indexer.attn_q_b.weight", "blk.2.ffn_gate_inp.weight", "blk.2.hc_ffn_fn.weight",
              "blk.2.attn_compressor_kv.weight", "blk.2.indexer_compressor_ape.weight"})
            EXPECT_EQ(r.type_for(tensor), q8.type_for(tensor)) << tensor;
    }
    const Recipe small = find_recipe("q2-small").value();
    EXPECT_EQ(small.type_for("blk.2.attn_q_b.weight"), Type::q4_k);
    EXPECT_EQ(small.type_for("blk.2.indexer.attn_q_b.weight"), Type::f16);
    EXPECT_EQ(small.type_for("blk.2.attn_kv.weight"), Type::q8_0);
    EXPECT_EQ(small.type_for("blk.2.ffn_up_shexp.weight"), Type::q6_k);
}

TEST(Recipe, BuiltInRecipesAreTheFilesOfTheSourceTree) {
    size_t n_file = 0;
    for (const auto& entry : std::filesystem::directory_iterator(VESTA_SOURCE_DIR "/recipes")) {
        ++n_file;
        const auto recipe = find_recipe(entry.path().stem().string());
        ASSERT_TRUE(recipe.ok()) << entry.path();
        EXPECT_EQ(recipe.value().text, read_text_file(entry.path().string()).value());
        EXPECT_FALSE(recipe.value().summary.empty());
        const auto loaded = load_recipe(entry.path().string());
        ASSERT_TRUE(loaded.ok());
        EXPECT_EQ(loaded.value().rules.size(), recipe.value().rules.size());
    }
    EXPECT_EQ(n_file, recipes().size());
}

TEST(Override, ExpressionsAreSearchedForInTheName) {
    const Override o = Override::parse("blk\\.[0-2]\\..*_exps=q4_k").value();
    EXPECT_EQ(o.type(), Type::q4_k);
    EXPECT_TRUE(o.applies_to("blk.1.ffn_up_exps.weight"));
    EXPECT_FALSE(o.applies_to("blk.11.ffn_up_exps.weight"));
    EXPECT_EQ(Override::parse("^output\\.weight$ = exact").value().type(), std::nullopt);
}

TEST(Override, BrokenOrCostlyExpressionsAreRefused) {
    for (const std::string& text :
         {std::string("no type"), std::string("=q8_0"), std::string("a=q99"), std::string("a="), std::string("(=q8_0"),
          std::string("[=q8_0"), std::string("*=q8_0"), std::string("(a)\\1=q8_0"),
          std::string("((a{1000}){1000}){1000}=q8_0"), std::string(201, 'a') + "=q8_0"}) {
        const auto o = Override::parse(text);
        ASSERT_FALSE(o.ok()) << text;
        EXPECT_EQ(o.error().code, Code::invalid_argument);
        EXPECT_NE(o.error().message.find("--set"), std::string::npos);
    }
    // Exponential for a backtracking engine.
    EXPECT_FALSE(Override::parse("(a*)*(a*)*(a|aa)*b$=q8_0").value().applies_to(std::string(128, 'a')));
}

TEST(Recipe, UnknownNameListsTheKnownOnes) {
    const auto r = find_recipe("q3");
    ASSERT_FALSE(r.ok());
    for (const Recipe& known : recipes()) EXPECT_NE(r.error().message.find(known.name), std::string::npos);
}

TEST(Recipe, EveryRecipeDecidesEveryName) {
    for (const Recipe& r : recipes()) {
        ASSERT_FALSE(r.rules.empty());
        EXPECT_EQ(r.rules.back().pattern, "*") << r.name;
    }
}

}  // namespace
}  // namespace vesta::convert
