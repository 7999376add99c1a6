// How text occupies a terminal: columns per character, and which characters belong together when a cursor moves.
//
// A cluster here is a simplification of UAX #29: a base character with the marks, joiners and emoji modifiers after it,
// or a pair of regional indicators (a flag). It is what people expect the arrow keys and backspace to treat as one, and
// it needs one table instead of the full property data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace vesta::app {

// 0 (combining), 1 or 2 (East Asian wide, emoji). Control characters count 0; they must not be drawn anyway.
int code_point_width(uint32_t code_point);

struct Cluster {
    size_t length;  // bytes; at least 1
    int width;      // columns: 0..2. Marks without a base get 1, so that they can be seen and deleted
};

// The cluster that begins at text[0]. An invalid byte is a cluster of one byte and one column. Requires: !text.empty().
Cluster first_cluster(std::string_view text);

// Byte position of the cluster boundary before / after `at`, which must itself be a boundary (0 and size() are).
size_t previous_boundary(std::string_view text, size_t at);
size_t next_boundary(std::string_view text, size_t at);

int text_width(std::string_view text);  // sum over the clusters

}  // namespace vesta::app
