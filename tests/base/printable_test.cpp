#include <gtest/gtest.h>

#include "base/utf8.h"

namespace vesta {
namespace {

TEST(Printable, TextPassesAndControlsOrInvalidBytesAreEscaped) {
    EXPECT_EQ(printable("blk.0.weight — ａ"), "blk.0.weight — ａ");
    EXPECT_EQ(printable("a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
    EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");             // C1: the one-character form of ESC [
    EXPECT_EQ(printable("\xff\xc3(\x7f"), "\\xff\\xc3(\\x7f");  // two stray bytes around valid text
    EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
}

}  // namespace
}  // namespace vesta
