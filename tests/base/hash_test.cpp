#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace vesta {
namespace {

uint64_t hash_of(std::string_view bytes) {
    Hash64 h;
    h.add(std::as_bytes(std::span(bytes)));
    return h.digest();
}

// Published value: XXH3_64bits of nothing, seed 0.
TEST(Hash64, IsXxh3) { EXPECT_EQ(hash_of(""), 0x2D06800538D394C2u); }

TEST(Hash64, PiecesDoNotMatter) {
    std::string text(5000, 'x');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i);
    for (const size_t cut : {size_t{0}, size_t{1}, size_t{17}, size_t{256}, size_t{4999}}) {
        Hash64 h;
        h.add(std::as_bytes(std::span(text)).first(cut));
        h.add(std::as_bytes(std::span(text)).subspan(cut));
        EXPECT_EQ(h.digest(), hash_of(text));
    }
}

TEST(Hash64, TextsKeepTheirBorders) {
    std::set<uint64_t> seen;
    for (const auto& [a, b] : {std::pair{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}}) {
        Hash64 h;
        h.add(std::string_view(a));
        h.add(std::string_view(b));
        seen.insert(h.digest());
    }
    EXPECT_EQ(seen.size(), 4u);
}

}  // namespace
}  // namespace vesta
