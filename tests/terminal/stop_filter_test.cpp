#include "stop_filter.h"

#include <gtest/gtest.h>

#include <random>

namespace vesta::app {
namespace {

struct Outcome {
    std::string text;
    bool stopped;
    bool operator==(const Outcome&) const = default;
};

Outcome filter(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
    StopFilter f(stops);
    std::string out;
    for (const std::string& p : pieces)
        if (f.feed(p, out)) break;
    f.flush(out);
    return {out, f.stopped()};
}

TEST(StopFilter, PassesEverythingWithoutStops) {
    EXPECT_EQ(filter({}, {"a", "b"}), (Outcome{"ab", false}));
    EXPECT_EQ(filter({""}, {"a", "b"}), (Outcome{"ab", false}));
}

TEST(StopFilter, EndsBeforeTheStop) {
    EXPECT_EQ(filter({"END"}, {"one END two"}), (Outcome{"one ", true}));
    EXPECT_EQ(filter({"END"}, {"one E", "N", "D two"}), (Outcome{"one ", true}));
    EXPECT_EQ(filter({"END"}, {"one E", "N", "d"}), (Outcome{"one ENd", false}));
    EXPECT_EQ(filter({"END"}, {"one EN"}), (Outcome{"one EN", false}));
}

TEST(StopFilter, NeverShowsTheBeginningOfAStop) {
    StopFilter f({"\n\nUser:"});
    std::string out;
    f.feed("answer\n", out);
    EXPECT_EQ(out, "answer");
    f.feed("more", out);
    EXPECT_EQ(out, "answer\nmore");
}

TEST(StopFilter, TheEarliestOfSeveralCounts) {
    EXPECT_EQ(filter({"bc", "abcd"}, {"xabc", "d"}), (Outcome{"x", true}));   // abcd begins first
    EXPECT_EQ(filter({"bc", "abcd"}, {"xabc", "e"}), (Outcome{"xa", true}));  // abcd did not come
    EXPECT_EQ(filter({"bc", "abcd"}, {"xabc"}), (Outcome{"xa", true}));       // the text ended
}

TEST(StopFilter, TheResultDoesNotDependOnTheCut) {
    std::mt19937 random(2);
    for (int round = 0; round < 20000; ++round) {
        const auto word = [&](size_t longest) {
            std::string s;
            for (size_t n = 1 + random() % longest; n > 0; --n) s.push_back(static_cast<char>('a' + random() % 2));
            return s;
        };
        std::vector<std::string> stops;
        for (size_t n = 1 + random() % 3; n > 0; --n) stops.push_back(word(5));
        const std::string text = word(12);
        std::vector<std::string> pieces;
        for (size_t at = 0; at < text.size();) {
            const size_t n = 1 + random() % 3;
            pieces.push_back(text.substr(at, n));
            at += n;
        }
        size_t first = std::string::npos;
        for (const std::string& s : stops) first = std::min(first, text.find(s));
        const bool found = first != std::string::npos;
        ASSERT_EQ(filter(stops, pieces), (Outcome{text.substr(0, first), found})) << text;
    }
}

}  // namespace
}  // namespace vesta::app
