#include "text_width.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace vesta::app {
namespace {

struct Range {
    uint32_t first, last;
};

#include "text_width_table.inc"

template <size_t N>
bool contains(const Range (&table)[N], uint32_t c) {
    const Range* r = std::lower_bound(std::begin(table), std::end(table), c,
                                      [](const Range& range, uint32_t value) { return range.last < value; });
    return r != std::end(table) && r->first <= c;
}

constexpr uint32_t kZeroWidthJoiner = 0x200D, kEmojiSelector = 0xFE0F;
bool is_regional_indicator(uint32_t c) { return c >= 0x1F1E6 && c <= 0x1F1FF; }
bool is_skin_tone(uint32_t c) { return c >= 0x1F3FB && c <= 0x1F3FF; }
bool is_control(uint32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0); }

}  // namespace

int code_point_width(uint32_t c) {
    if (is_control(c)) return 0;
    if (c < 0x300) return 1;  // nearly all text of Latin scripts
    if (contains(kZero, c)) return 0;
    return contains(kWide, c) ? 2 : 1;
}

Cluster first_cluster(std::string_view text) {
    const Utf8Char base = decode_utf8(text);
    Cluster cluster{static_cast<size_t>(base.length), std::max(1, code_point_width(base.code_point))};
    if (!base.valid || is_control(base.code_point)) return cluster;
    uint32_t last = base.code_point;
    bool pair_open = is_regional_indicator(base.code_point);
    while (cluster.length < text.size()) {
        const Utf8Char next = decode_utf8(text.substr(cluster.length));
        const uint32_t c = next.code_point;
        if (!next.valid || is_control(c)) break;
        const bool flag = pair_open && is_regional_indicator(c);
        if (!flag && last != kZeroWidthJoiner && !is_skin_tone(c) && code_point_width(c) != 0) break;
        if (flag || c == kEmojiSelector) cluster.width = 2;
        pair_open = false;
        cluster.length += static_cast<size_t>(next.length);
        last = c;
    }
    return cluster;
}

size_t next_boundary(std::string_view text, size_t at) {
    return at >= text.size() ? text.size() : at + first_cluster(text.substr(at)).length;
}

size_t previous_boundary(std::string_view text, size_t at) {
    // Clusters can only be found from the left. A line feed is always a boundary, so begin at the last one before `at`;
    // lines are short, and this runs once per key.
    if (at == 0) return 0;
    if (text[at - 1] == '\n') return at - 1;
    const size_t feed = text.rfind('\n', at - 1);
    size_t boundary = feed == std::string_view::npos ? 0 : feed + 1;
    for (size_t next; (next = next_boundary(text, boundary)) < at;) boundary = next;
    return boundary;
}

int text_width(std::string_view text) {
    int width = 0;
    while (!text.empty()) {
        const Cluster c = first_cluster(text);
        width += c.width;
        text.remove_prefix(c.length);
    }
    return width;
}

}  // namespace vesta::app
