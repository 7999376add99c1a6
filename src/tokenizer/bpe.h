// Byte pair encoding of one piece: start from its bytes; while some adjacent pair has a merge, apply the one of lowest
// rank, the leftmost on ties. A heap of candidate pairs over a linked list of symbols makes that O(n log n) for any
// piece; rescanning the piece after each merge would be O(n²), minutes for a megabyte of one letter.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace vesta::tokenizer {

// (left id, right id) -> (rank, id of the result). Open addressing, at most half full.
class MergeTable {
 public:
    static constexpr uint32_t kNoRank = 0xFFFFFFFF;
    struct Merge {
        uint32_t rank = kNoRank;
        int32_t result = -1;
    };

    explicit MergeTable(size_t n_merge = 0);  // the most it will hold
    // Returns kNoRank, or the rank of the merge that is already there for this pair (and changes nothing).
    uint32_t insert(int32_t left, int32_t right, Merge merge);
    Merge find(int32_t left, int32_t right) const;  // rank kNoRank when there is none

 private:
    struct Slot {
        int32_t left = -1, right = -1;
        Merge merge;
    };
    size_t probe(int32_t left, int32_t right) const;  // the pair's slot, or the empty one where it would go

    std::vector<Slot> slots_;
    size_t mask_;
};

// Scratch for encoding pieces; reuse it for many.
class Bpe {
 public:
    // byte_ids[b] is the id of the token that is the byte b.
    Bpe(const MergeTable& merges, const std::array<int32_t, 256>& byte_ids) : merges_(merges), byte_ids_(byte_ids) {}

    // Appends the ids of `piece`. Requires: piece.size() < 2^32 - 1.
    void encode(std::string_view piece, std::vector<int32_t>& out);

    // Candidate pairs put on the heap so far: the measure of work. Never more than three per byte.
    uint64_t n_candidate() const { return n_candidate_; }

 private:
    struct Symbol {
        int32_t id;
        uint32_t rank;        // of the merge with the next symbol; kNoRank: none, or this symbol is gone
        uint32_t prev, next;  // kNone at the ends
    };
    static constexpr uint32_t kNone = 0xFFFFFFFF;

    bool rank_pair(uint32_t at);  // sets symbols_[at].rank; true if the pair (at, next) has a merge

    const MergeTable& merges_;
    const std::array<int32_t, 256>& byte_ids_;
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> heap_;  // rank << 32 | position: the least is the lowest rank, then the leftmost
    uint64_t n_candidate_ = 0;
};

}  // namespace vesta::tokenizer
