#include "convert/recipe.h"

#include <gtest/gtest.h>

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
