// tests/convert/quantize_test.cpp compares with the published numbers of Flash; here are the rules one by one.
#include "model/traffic.h"

#include <gtest/gtest.h>

#include <vector>

namespace vesta::model {
namespace {

TEST(Traffic, EachKindOfWeightIsCountedAsItIsRead) {
    const std::vector<WeightSize> weights = {
        {"token_embd.weight", 1000, 100},             // one row: 10
        {"blk.0.ffn_gate_tid2eid.weight", 400, 100},  // one row: 4
        {"blk.0.ffn_up_exps.weight", 800, 5},         // 2 of 8 experts: 200
        {"blk.0.ffn_up_shexp.weight", 70, 7},
        {"blk.0.attn_q_b.weight", 60, 6},
        {"blk.0.indexer.attn_q_b.weight", 3, 1},  // no attention projection
        {"blk.0.attn_norm.weight", 2, 1},
        {"output.weight", 5000, 100},
        {"mtp.0.ffn_up_exps.weight", 900, 5},  // a drafter
    };
    const Traffic t = decode_traffic(weights, 8, 2);
    EXPECT_EQ(t.routed, 200u);
    EXPECT_EQ(t.shared, 70u);
    EXPECT_EQ(t.attention, 60u);
    EXPECT_EQ(t.head, 5000u);
    EXPECT_EQ(t.rest, 10u + 4 + 3 + 2);
    EXPECT_EQ(t.total(), 5349u);
}

TEST(Traffic, ADrafterInTheOtherSpellingIsNotCounted) {
    const std::vector<WeightSize> weights = {{"output.weight", 10, 1},
                                             {"blk.4.ffn_up_shexp.weight", 7, 1},
                                             {"blk.43.ffn_up_shexp.weight", 7, 1},
                                             {"blk.43.nextn.enorm.weight", 3, 1}};
    EXPECT_EQ(nextn_prefix(weights), "blk.43.");
    EXPECT_EQ(decode_traffic(weights, 0, 0).total(), 17u);
}

TEST(Traffic, TiedEmbeddingsAreTheHead) {
    const std::vector<WeightSize> weights = {{"token_embd.weight", 1000, 100}};
    EXPECT_EQ(decode_traffic(weights, 0, 0).head, 1000u);
}

TEST(Traffic, MoreExpertsUsedThanThereAreCountOnce) {
    const std::vector<WeightSize> weights = {{"output.weight", 0, 1}, {"blk.0.ffn_up_exps.weight", 800, 5}};
    EXPECT_EQ(decode_traffic(weights, 8, 99).routed, 800u);
}

}  // namespace
}  // namespace vesta::model
