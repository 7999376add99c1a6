#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace vesta::tokenizer {

MergeTable::MergeTable(size_t n_merge)
    : slots_(std::bit_ceil(std::max<size_t>(n_merge * 2, 2))), mask_(slots_.size() - 1) {}

size_t MergeTable::probe(int32_t left, int32_t right) const {
    // Multiplication by an odd constant close to 2^64 / golden ratio; the high half has seen every bit of the pair.
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    const uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15;
    size_t at = static_cast<size_t>(mixed >> 32) & mask_;
    while (slots_[at].left != -1 && (slots_[at].left != left || slots_[at].right != right)) at = (at + 1) & mask_;
    return at;
}

uint32_t MergeTable::insert(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[probe(left, right)];
    if (slot.left != -1) return slot.merge.rank;
    slot = {left, right, merge};
    return kNoRank;
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const { return slots_[probe(left, right)].merge; }

bool Bpe::rank_pair(uint32_t at) {
    Symbol& s = symbols_[at];
    s.rank = s.next == kNone ? MergeTable::kNoRank : merges_.find(s.id, symbols_[s.next].id).rank;
    return s.rank != MergeTable::kNoRank;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out) {
    if (piece.empty()) return;
    const auto n = static_cast<uint32_t>(piece.size());
    symbols_.clear();
    heap_.clear();
    for (uint32_t i = 0; i < n; ++i)
        symbols_.push_back({byte_ids_[static_cast<unsigned char>(piece[i])], MergeTable::kNoRank,
                            i == 0 ? kNone : i - 1, i + 1 == n ? kNone : i + 1});
    const auto candidate = [](uint32_t rank, uint32_t at) { return uint64_t{rank} << 32 | at; };
    for (uint32_t i = 0; i < n; ++i)
        if (rank_pair(i)) heap_.push_back(candidate(symbols_[i].rank, i));
    n_candidate_ += heap_.size();
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());

    const auto push = [&](uint32_t at) {
        if (!rank_pair(at)) return;
        ++n_candidate_;
        heap_.push_back(candidate(symbols_[at].rank, at));
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    };
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        const auto rank = static_cast<uint32_t>(heap_.back() >> 32), at = static_cast<uint32_t>(heap_.back());
        heap_.pop_back();
        Symbol& left = symbols_[at];
        // A candidate is stale when a neighbour was merged since. Ranks are unique to a pair, so an equal rank is the
        // same pair still standing there.
        if (left.rank != rank) continue;
        Symbol& right = symbols_[left.next];
        left.id = merges_.find(left.id, right.id).result;
        right.rank = MergeTable::kNoRank;
        left.next = right.next;
        if (left.next != kNone) symbols_[left.next].prev = at;
        push(at);
        if (left.prev != kNone) push(left.prev);
    }
    for (uint32_t i = 0; i != kNone; i = symbols_[i].next) out.push_back(symbols_[i].id);
}

}  // namespace vesta::tokenizer
