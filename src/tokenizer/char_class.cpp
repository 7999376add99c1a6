#include "tokenizer/char_class.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace vesta::tokenizer {
namespace {

CharClass search(uint32_t code_point) {
    const auto* after = std::upper_bound(std::begin(kCharRanges), std::end(kCharRanges), code_point,
                                         [](uint32_t c, const CharRange& r) { return c < r.first; });
    if (after == std::begin(kCharRanges)) return CharClass::other;
    const CharRange& range = *std::prev(after);
    return code_point <= range.last ? range.char_class : CharClass::other;
}

// Latin, Greek, Cyrillic, Hebrew and Arabic (two-byte UTF-8) skip the search.
const std::array<CharClass, 0x800>& low_classes() {
    static const std::array<CharClass, 0x800> table = [] {
        std::array<CharClass, 0x800> t{};
        for (uint32_t c = 0; c < t.size(); ++c) t[c] = search(c);
        return t;
    }();
    return table;
}

}  // namespace

CharClass char_class(uint32_t code_point) {
    return code_point < 0x800 ? low_classes()[code_point] : search(code_point);
}

}  // namespace vesta::tokenizer
