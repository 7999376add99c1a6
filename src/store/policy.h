// When a snapshot is worth a file, and which files go when there is no room. Pure functions: they know token counts,
// bytes and times, and neither files nor a clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "snapshot/file.h"

namespace vesta::store {

// ---- when to save ---------------------------------------------------------------------------------------------------

struct SavePolicy {
    int64_t min_tokens = 512;            // shorter ones are computed again sooner than they are looked up
    int64_t cold_max_tokens = 30000;     // longest prompt saved after a first prefill; 0: no cold saves
    int64_t continued_interval = 10000;  // a long session is saved about every so many tokens; 0: never
    int64_t boundary_trim = 32;          // tokens at the end of a prompt a client may render differently next time
    int64_t boundary_align = 2048;  // saves of prompts with one beginning fall on the same position; 0: no aligning
};

// invalid_argument for what makes no sense: a negative number, cold_max_tokens between 1 and min_tokens - 1.
Status check(const SavePolicy& policy);

// A state can only be saved when the session passes it: prefill up to `position`, save, go on.
struct Stop {
    int64_t position;
    snapshot::Reason reason;
    bool operator==(const Stop&) const = default;
};

// Where to stop while prefilling a prompt of n_prompt tokens of which the first n_reused need no computing. Ascending,
// each in (n_reused, n_prompt].
//   Nothing reused and n_prompt within [min_tokens, cold_max_tokens]: the cold position, if there is one, and nothing
//   else: what a continued save on the way would hold is in the cold one.
//   Otherwise every continued position passed.
std::vector<Stop> prefill_stops(const SavePolicy& policy, int64_t n_reused, int64_t n_prompt);

// n_prompt - boundary_trim, aligned down where that leaves min_tokens. 0: no cold save for such a prompt.
int64_t cold_position(const SavePolicy& policy, int64_t n_prompt);

// The first continued position after n_token: the multiples of continued_interval rounded up to boundary_align, counted
// from the beginning, so that equal texts meet at equal positions whoever computed them. For decoding: stop when
// n_token gets there. 0: there is none.
int64_t next_continued(const SavePolicy& policy, int64_t n_token);

// Before a session of n_token tokens is replaced, and at shutdown: is there anything the longest stored prefix of it
// (n_stored tokens; 0: none) does not have?
bool save_at_end(const SavePolicy& policy, int64_t n_token, int64_t n_stored);

// ---- what it is worth -----------------------------------------------------------------------------------------------

struct Worth {
    uint64_t tokens = 0, bytes = 0, hits = 0;
    int64_t last_used = 0;    // seconds; the later of creation and last hit
    bool manual = false;      // somebody asked for this file
    bool superseded = false;  // automatic, and a longer file begins with it
};

constexpr double kHalfLifeSeconds = 6 * 3600;

// Tokens of prefill that a byte is expected to save:
//
//   value = w · tokens · (base + (1 + hits) · 2^(-age / 6 h)) / bytes         superseded: w · tokens · hits · 2^(..) /
//   bytes
//
// A file just written counts as used once: without that, a folder full of longer files (tokens per byte grow with
// length, as the windows cost the same for all) would never take in a shorter one, however long the others lay unused.
// `base` keeps an order among those that are old. What a superseded file is for, its successor does better; only use by
// others, branches of the conversation, speaks for it. w is 32 for manual saves: one that nobody touched for weeks
// (base = 1/8) is still worth as much as four fresh automatic ones of its size.
double value(const Worth& worth, int64_t now);

struct Candidate {
    Worth worth;
    bool pinned = false;
};

// Which candidates to remove so that `need` bytes come free for a newcomer worth `newcomer_value`: the least valuable
// first, the least recently used of equals; none that is pinned or worth more than the newcomer; none that is not
// needed in the end. nullopt: not possible, the newcomer would be the first to go.
std::optional<std::vector<size_t>> make_room(std::span<const Candidate> candidates, uint64_t need,
                                             double newcomer_value, int64_t now);

}  // namespace vesta::store
