#include "line_history.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"

namespace vesta::app {
namespace {

std::string fresh_folder(const char* name) {
    std::string pattern = std::string(VESTA_TEST_TMP) + "/" + name + "-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    return pattern;
}

mode_t mode_of(const std::string& path) {
    struct stat st {};
    EXPECT_EQ(::stat(path.c_str(), &st), 0) << path;
    return st.st_mode & 0777;
}

TEST(History, SkipsEmptyRepeatedAndHugeEntries) {
    History h;
    EXPECT_TRUE(h.add("a"));
    EXPECT_FALSE(h.add("a"));
    EXPECT_FALSE(h.add(""));
    EXPECT_FALSE(h.add(std::string(History::kMaxEntryBytes + 1, 'x')));
    EXPECT_TRUE(h.add("b"));
    EXPECT_TRUE(h.add("a"));
    EXPECT_EQ(h.size(), 3u);
}

TEST(History, KeepsTheNewestWhenFull) {
    History h;
    for (size_t i = 0; i < History::kMaxEntries + 5; ++i) h.add(std::to_string(i));
    EXPECT_EQ(h.size(), History::kMaxEntries);
    EXPECT_EQ(h[0], "5");
}

TEST(History, TextFormRoundTrips) {
    History h;
    for (const char* e : {"plain", "two\nlines", "back\\slash \\n not a feed", "\\", "ends with \\\n", "中"}) h.add(e);
    const History back = History::from_text(h.to_text());
    ASSERT_EQ(back.size(), h.size());
    for (size_t i = 0; i < h.size(); ++i) EXPECT_EQ(back[i], h[i]);
}

TEST(History, AnyBytesLoad) {
    const History h = History::from_text("ok\n\n\x1b[31mred\n\xFF\nno end\\");
    ASSERT_EQ(h.size(), 4u);
    EXPECT_EQ(h[1], "[31mred");
    EXPECT_EQ(h[2], "\uFFFD");
    EXPECT_EQ(h[3], "no end\\");
}

TEST(HistoryFile, IsMadePrivateWithItsFolders) {
    const std::string folder = fresh_folder("history");
    const std::string path = folder + "/state/vesta/history";
    ASSERT_TRUE(load_history(path).ok());  // missing is empty
    ASSERT_TRUE(append_history(path, "one\ntwo").ok());
    ASSERT_TRUE(append_history(path, "three").ok());
    EXPECT_EQ(mode_of(path), 0600u);
    EXPECT_EQ(mode_of(folder + "/state/vesta"), 0700u);
    const History h = load_history(path).value();
    ASSERT_EQ(h.size(), 2u);
    EXPECT_EQ(h[0], "one\ntwo");
}

TEST(HistoryFile, IsTrimmedWhenItHasGrownToTwiceTheBound) {
    const std::string path = fresh_folder("trim") + "/history";
    {
        std::ofstream out(path);
        for (size_t i = 0; i < 2 * History::kMaxEntries; ++i) out << "entry " << i << "\n";
    }
    ASSERT_TRUE(trim_history(path).ok());
    EXPECT_EQ(mode_of(path), 0600u);
    const History h = load_history(path).value();
    EXPECT_EQ(h.size(), History::kMaxEntries);
    EXPECT_EQ(h[0], "entry 1000");
    EXPECT_EQ(h.to_text(), read_text_file(path).value());
}

TEST(HistoryFile, AnUnwritablePlaceIsAnError) {
    const Status s = append_history("/proc/nowhere/history", "x");
    ASSERT_FALSE(s.ok());
    EXPECT_NE(s.error().message.find("/proc/nowhere"), std::string::npos);
}

TEST(HistoryFile, FollowsTheXdgRules) {
    ::setenv("XDG_STATE_HOME", "/state", 1);
    EXPECT_EQ(default_history_path(), "/state/vesta/history");
    ::setenv("XDG_STATE_HOME", "relative", 1);
    ::setenv("HOME", "/home/me", 1);
    EXPECT_EQ(default_history_path(), "/home/me/.local/state/vesta/history");
    ::unsetenv("XDG_STATE_HOME");
    ::unsetenv("HOME");
    EXPECT_EQ(default_history_path(), "");
}

}  // namespace
}  // namespace vesta::app
