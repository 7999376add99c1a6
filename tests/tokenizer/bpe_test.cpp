// Merging, against the definition executed literally.
#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tokenizer/fixture.h"

namespace vesta::tokenizer {
namespace {

std::array<int32_t, 256> identity_bytes() {
    std::array<int32_t, 256> ids{};
    for (int b = 0; b < 256; ++b) ids[static_cast<size_t>(b)] = b;
    return ids;
}
const std::array<int32_t, 256> kBytes = identity_bytes();

using Rules = std::map<std::pair<int32_t, int32_t>, MergeTable::Merge>;

// The definition: look at all adjacent pairs, merge the one of lowest rank (the first of them), start again.
std::vector<int32_t> merge_by_definition(const Rules& rules, std::string_view piece) {
    std::vector<int32_t> ids;
    for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
    for (;;) {
        size_t best = 0;
        MergeTable::Merge merge;
        for (size_t i = 0; i + 1 < ids.size(); ++i) {
            const auto rule = rules.find({ids[i], ids[i + 1]});
            if (rule != rules.end() && rule->second.rank < merge.rank) best = i, merge = rule->second;
        }
        if (merge.rank == MergeTable::kNoRank) return ids;
        ids[best] = merge.result;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
}

MergeTable table_of(const Rules& rules) {
    MergeTable table(rules.size());
    for (const auto& [pair, merge] : rules) table.insert(pair.first, pair.second, merge);
    return table;
}

TEST(Bpe, EqualsTheDefinitionOnRandomRulesAndPieces) {
    Random random(20260211);
    for (int round = 0; round < 300; ++round) {
        const uint32_t n_letter = 1 + random.below(4);
        std::vector<std::string> strings;
        for (uint32_t i = 0; i < n_letter; ++i) strings.emplace_back(1, static_cast<char>('a' + i));
        std::map<std::string, int32_t> id_of;
        for (const std::string& s : strings) id_of[s] = s[0];
        // Ranks are handed out at random, not in order of making: a long token may merge before its parts can.
        Rules rules;
        std::vector<uint32_t> ranks(40);
        for (uint32_t i = 0; i < 40; ++i) ranks[i] = i;
        std::shuffle(ranks.begin(), ranks.end(), std::mt19937(static_cast<uint32_t>(round)));
        for (const uint32_t rank : ranks) {
            const std::string a = strings[random.below(strings.size())], b = strings[random.below(strings.size())];
            if (rules.count({id_of[a], id_of[b]}) != 0) continue;
            const auto [at, is_new] = id_of.try_emplace(a + b, static_cast<int32_t>(1000 + id_of.size()));
            if (is_new) strings.push_back(a + b);
            rules[{id_of[a], id_of[b]}] = {rank, at->second};
        }
        const MergeTable table = table_of(rules);
        Bpe bpe(table, kBytes);
        for (int i = 0; i < 40; ++i) {
            std::string piece;
            for (uint32_t n = 1 + random.below(60); n != 0; --n)
                piece.push_back(static_cast<char>('a' + random.below(n_letter)));
            std::vector<int32_t> ids;
            bpe.encode(piece, ids);
            ASSERT_EQ(ids, merge_by_definition(rules, piece)) << piece;
        }
    }
}

TEST(Bpe, TiesGoToTheLeft) {
    const MergeTable table = table_of({{{'a', 'a'}, {0, 300}}});
    Bpe bpe(table, kBytes);
    std::vector<int32_t> ids;
    bpe.encode("aaa", ids);
    EXPECT_EQ(ids, (std::vector<int32_t>{300, 'a'}));
}

TEST(Bpe, OneMegabyteOfOneLetterTakesLinearlyManySteps) {
    // a + a -> 300, 300 + 300 -> 301, ...: twenty doublings, the longest chain of merges a piece can go through.
    Rules rules;
    rules[{'a', 'a'}] = {0, 300};
    for (int32_t i = 0; i < 20; ++i) rules[{300 + i, 300 + i}] = {static_cast<uint32_t>(1 + i), 301 + i};
    const MergeTable table = table_of(rules);
    Bpe bpe(table, kBytes);
    std::vector<int32_t> ids;
    bpe.encode(std::string(1 << 20, 'a'), ids);
    EXPECT_EQ(ids, (std::vector<int32_t>{319}));  // 2^20 letters = 20 doublings
    EXPECT_LE(bpe.n_candidate(), uint64_t{3} << 20);
}

TEST(MergeTable, RefusesASecondRuleForAPairAndKeepsTheFirst) {
    MergeTable table(2);
    EXPECT_EQ(table.insert(1, 2, {7, 10}), MergeTable::kNoRank);
    EXPECT_EQ(table.insert(1, 2, {8, 11}), 7u);
    EXPECT_EQ(table.find(1, 2).result, 10);
    EXPECT_EQ(table.find(2, 1).rank, MergeTable::kNoRank);
}

}  // namespace
}  // namespace vesta::tokenizer
