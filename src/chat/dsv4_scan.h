// The two small scanners that parsing model text rests on. Both take pieces of any size and give the same answer for
// any cut; neither looks at a byte twice.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace vesta::chat::dsv4 {

inline bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Finds markers in a byte stream, withholding what may still become one.
//
// Requires of the markers: none is a prefix of another, and the first byte of any marker occurs in no marker at a later
// place. Then a failed match can simply be handed on as text: no other match can have started inside it.
class MarkerFinder {
 public:
    static constexpr size_t kNone = static_cast<size_t>(-1);

    explicit MarkerFinder(std::vector<std::string> markers) : markers_(std::move(markers)) {
        for (const std::string& marker : markers_)
            if (starts_.find(marker[0]) == std::string::npos) starts_.push_back(marker[0]);
    }

    // Consumes bytes up to the end of the first marker, or all. Calls text(string_view) for everything before it that
    // is certainly not part of a marker. Returns the number of bytes consumed; `found` is the marker's index or kNone.
    template <class Text>
    size_t run(std::string_view bytes, size_t& found, Text&& text) {
        found = kNone;
        size_t at = 0;
        while (at < bytes.size()) {
            if (tail_.empty()) {
                const size_t start =
                    starts_.empty() ? bytes.size() : std::min(bytes.find_first_of(starts_, at), bytes.size());
                if (start > at) text(bytes.substr(at, start - at));
                at = start;
                if (at < bytes.size()) tail_.push_back(bytes[at++]);
                continue;
            }
            tail_.push_back(bytes[at]);
            const size_t match = viable();
            if (match == kNone) {
                tail_.pop_back();
                const std::string rejected = std::exchange(tail_, {});
                text(std::string_view(rejected));
                continue;  // the byte may start another marker
            }
            ++at;
            if (markers_[match].size() == tail_.size()) {
                tail_.clear();
                found = match;
                return at;
            }
        }
        return at;
    }

    const std::string& marker(size_t index) const { return markers_[index]; }
    // What is withheld; the caller takes it as text when nothing more will come.
    std::string take_tail() { return std::exchange(tail_, {}); }

 private:
    // A marker that tail_ is a prefix of.
    size_t viable() const {
        for (size_t i = 0; i < markers_.size(); ++i)
            if (markers_[i].compare(0, tail_.size(), tail_) == 0) return i;
        return kNone;
    }

    std::vector<std::string> markers_;
    std::string starts_;
    std::string tail_;
};

// Passes on complete characters only; bytes that are not UTF-8 become U+FFFD.
class CharacterGate {
 public:
    std::string pass(std::string_view bytes) {
        std::string joined;
        if (!held_.empty()) {
            joined = std::exchange(held_, {}).append(bytes);
            bytes = joined;
        }
        const size_t complete = complete_utf8_prefix(bytes);
        held_ = bytes.substr(complete);
        return replace_invalid_utf8(bytes.substr(0, complete));
    }
    std::string flush() { return replace_invalid_utf8(std::exchange(held_, {})); }

 private:
    std::string held_;  // at most 3 bytes
};

}  // namespace vesta::chat::dsv4
