// Snapshots in memory, several conversations side by side, found by the longest stored beginning of a prompt. A radix
// tree over tokens: each edge carries a run of them, a node ends where a snapshot ends or two conversations part, so a
// lookup looks at every token of the prompt once. Token ids and not bytes, unlike the disk store: what is in memory was
// made by this process, and what was rendered otherwise since then is found there.
//
// Snapshots share their bytes, so one that is evicted while somebody restores it stays whole for him. All functions are
// safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "vesta/engine.h"

namespace vesta::store {

struct PrefixOptions {
    int64_t budget_bytes = int64_t{1} << 30;  // of snapshots, their tokens counted once more for the tree
    // How fast a hit is forgotten. Minutes, not the disk's hours: memory is for the conversations of this moment, and
    // the newest state of one must not be turned away for what was busy an hour ago.
    double half_life_seconds = 600;
    std::function<double()> clock{};  // seconds, never going back; empty: the system's steady clock
};

enum class Inserted {
    stored,
    replaced,  // these tokens were there; the new snapshot takes the place, the hits stay
    no_room,   // it would be the first to be evicted; nothing was changed
};

class PrefixStore {
 public:
    // Keeps its snapshot from being evicted while it (or a copy) lives. May outlive the store.
    class Hit {
     public:
        const Snapshot& snapshot() const;
        int64_t n_token() const { return snapshot().n_token(); }

     private:
        friend class PrefixStore;
        struct Hold;
        explicit Hit(std::shared_ptr<const Hold> hold) : hold_(std::move(hold)) {}
        std::shared_ptr<const Hold> hold_;
    };

    explicit PrefixStore(PrefixOptions options = {});
    ~PrefixStore();
    PrefixStore(const PrefixStore&) = delete;
    PrefixStore& operator=(const PrefixStore&) = delete;

    // The longest stored beginning of the prompt, of more than min_tokens and at most max_tokens tokens; counted as a
    // hit.
    std::optional<Hit> find(std::span<const int32_t> prompt, int64_t max_tokens, int64_t min_tokens = 0);

    // Room is made by removing what is worth least,
    //
    //   value = (1 + hits) · 2^(-age / half-life),     of a snapshot that another stored one continues: hits · 2^(..),
    //
    // the least recently used of equals first. So without hits this is LRU; a conversation's earlier states stay as
    // long as there is room, and then go before anything else, unless other conversations branch off there. Never
    // removed: what is held, and what is worth more than the newcomer; when that is not enough the newcomer is refused.
    // A snapshot of no tokens is refused as well.
    Inserted insert(const Snapshot& snapshot);

    void clear();  // all but what is held
    int64_t used_bytes() const;
    size_t n_snapshot() const;

 private:
    class Tree;
    std::shared_ptr<Tree> tree_;  // shared with hits
};

}  // namespace vesta::store
