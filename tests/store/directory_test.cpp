// The folder: who may own it, what a look at it costs, locks, pins, and what becomes of damaged and unfinished files.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "store_helpers.h"

namespace vesta::store {
namespace {

using std::filesystem::perms;

void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
HandMade made(const std::string& text) {
    HandMade h;
    h.tokens = encode(text);
    return h;
}

TEST(Directory, IsMadeForItsOwnerAlone) {
    const TemporaryFolder t;
    ASSERT_FALSE(Directory::open(t / "a/b", false).ok());
    EXPECT_EQ(Directory::open(t / "a/b", false).error().code, Code::not_found);
    const auto d = Directory::open(t / "a/b/", true);
    ASSERT_TRUE(d.ok()) << d.error().message;
    EXPECT_EQ(d.value().path(), t / "a/b");
    EXPECT_EQ(std::filesystem::status(t / "a/b").permissions(), perms::owner_all);
    EXPECT_TRUE(Directory::open(t / "a/b", true).ok());  // and again
}

TEST(Directory, OneThatOthersMayWriteToIsRefusedWithTheCommandThatHelps) {
    const TemporaryFolder t;
    for (const perms p : {perms::group_write, perms::others_write}) {
        std::filesystem::permissions(t.path(), perms::owner_all | p);
        const auto d = Directory::open(t.path(), true);
        ASSERT_FALSE(d.ok());
        EXPECT_EQ(d.error().code, Code::invalid_argument);
        EXPECT_NE(d.error().message.find("chmod 700"), std::string::npos) << d.error().message;
    }
    std::filesystem::permissions(t.path(), perms::owner_all | perms::group_read);
    EXPECT_TRUE(Directory::open(t.path(), true).ok());
    put(t / "file", "x");
    EXPECT_EQ(Directory::open(t / "file", true).error().code, Code::invalid_argument);
    EXPECT_EQ(Directory::open("", true).error().code, Code::invalid_argument);
}

TEST(Directory, OneOfAnotherUserIsRefused) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
    const TemporaryFolder t;
    std::filesystem::create_directory(t / "theirs");
    ASSERT_EQ(::chown((t / "theirs").c_str(), 12345, 12345), 0);
    const auto d = Directory::open(t / "theirs", true);
    ASSERT_FALSE(d.ok());
    EXPECT_NE(d.error().message.find("belongs to user 12345"), std::string::npos) << d.error().message;
}

TEST(Directory, ListsSnapshotsAndSaysWhatIsWrongWithOthers) {
    const TemporaryFolder t;
    write_by_hand(t / "one.kv", made("hello"));
    put(t / "cut.kv", "short");
    put(t / "notes.txt", "not ours");
    put(t / "old.kv.bad", "1234567");
    std::filesystem::create_directory(t / "folder.kv");
    std::filesystem::create_symlink(t / "one.kv", t / "link.kv");
    Directory d = Directory::open(t.path(), false).value();
    ASSERT_TRUE(d.refresh().ok());
    ASSERT_EQ(d.entries().size(), 2u);
    const Entry& one = d.entries().at("one.kv");
    EXPECT_FALSE(one.problem.has_value());
    EXPECT_EQ(one.summary.header.n_token, 1u);
    EXPECT_EQ(one.last_used(), 1000);
    EXPECT_EQ(d.entries().at("cut.kv").problem->code, Code::bad_file);
    ASSERT_EQ(d.bad_files().size(), 1u);
    EXPECT_EQ(d.total_bytes(), std::filesystem::file_size(t / "one.kv") + 5 + 7);
}

TEST(Directory, NoticesWhatChanged) {
    const TemporaryFolder t;
    write_by_hand(t / "a.kv", made("hello"));
    Directory d = Directory::open(t.path(), false).value();
    ASSERT_TRUE(d.refresh().ok());
    const FileId before = d.entries().at("a.kv").id;
    ASSERT_TRUE(snapshot::record_use(t / "a.kv", 5000).ok());
    ASSERT_TRUE(d.refresh().ok());
    EXPECT_EQ(d.entries().at("a.kv").summary.usage.hits, 1u);
    EXPECT_EQ(d.entries().at("a.kv").last_used(), 5000);
    EXPECT_TRUE(d.entries().at("a.kv").id.same_file(before));
    write_by_hand(t / "a.kv", made("hello world"));  // another one under its name
    ASSERT_TRUE(d.refresh().ok());
    EXPECT_EQ(d.entries().at("a.kv").summary.header.n_token, 3u);
    EXPECT_FALSE(d.entries().at("a.kv").id.same_file(before));
    std::filesystem::remove(t / "a.kv");
    ASSERT_TRUE(d.refresh().ok());
    EXPECT_TRUE(d.entries().empty());
}

TEST(Directory, TheLockIsForOneAtATimeAndWaitingEnds) {
    const TemporaryFolder t;
    const Directory d = Directory::open(t.path(), false).value();
    {
        const auto mine = d.lock(0);
        ASSERT_TRUE(mine.ok());
        const auto second = d.lock(20);
        ASSERT_FALSE(second.ok());
        EXPECT_EQ(second.error().code, Code::io);
    }
    EXPECT_TRUE(d.lock(0).ok());
}

TEST(Directory, ADeadProcessHoldsNeitherLockNorPin) {
    const TemporaryFolder t;
    write_by_hand(t / "a.kv", made("hello"));
    const Directory d = Directory::open(t.path(), false).value();
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto lock = d.lock(0);
        const Pin pin = d.pin("a.kv");
        const char ok = lock.ok() && pin.held() ? 'y' : 'n';
        (void)!::write(ready[1], &ok, 1);
        for (;;) ::pause();
    }
    char ok = 0;
    ASSERT_EQ(::read(ready[0], &ok, 1), 1);
    EXPECT_EQ(ok, 'y');
    EXPECT_FALSE(d.lock(0).ok());
    EXPECT_TRUE(d.is_pinned("a.kv"));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(d.lock(1000).ok());
    EXPECT_FALSE(d.is_pinned("a.kv"));
    ::close(ready[0]), ::close(ready[1]);
}

TEST(Directory, PinsCountAndHitsAreRecordedThroughThem) {
    const TemporaryFolder t;
    write_by_hand(t / "a.kv", made("hello"));
    const Directory d = Directory::open(t.path(), false).value();
    EXPECT_FALSE(d.is_pinned("a.kv"));
    Pin first = d.pin("a.kv");
    {
        const Pin second = d.pin("a.kv");
        EXPECT_TRUE(d.is_pinned("a.kv"));
    }
    EXPECT_TRUE(d.is_pinned("a.kv"));
    EXPECT_TRUE(snapshot::record_use(t / "a.kv", 5).ok());
    first.release();
    EXPECT_FALSE(d.is_pinned("a.kv"));
    EXPECT_FALSE(d.pin("gone.kv").held());
}

TEST(Directory, SetAsideKeepsTheLatestFew) {
    const TemporaryFolder t;
    Directory d = Directory::open(t.path(), false).value();
    for (int i = 0; i < 6; ++i) {
        const std::string name = strf("{}.kv", i);
        put(t / name, std::string(static_cast<size_t>(10 + i), 'x'));
        ASSERT_TRUE(d.set_aside(name, *file_id(t / name), 3));
    }
    EXPECT_EQ(t.names(".kv"), std::vector<std::string>{});
    EXPECT_EQ(t.names(".bad"), (std::vector<std::string>{"3.kv.bad", "4.kv.bad", "5.kv.bad"}));
    put(t / "7.kv", "a");
    EXPECT_TRUE(d.set_aside("7.kv", *file_id(t / "7.kv"), 0));  // none are kept
    EXPECT_EQ(t.names("7.kv").size() + t.names("7.kv.bad").size(), 0u);
}

TEST(Directory, OnlyTheFileThatWasMeantIsSetAside) {
    const TemporaryFolder t;
    Directory d = Directory::open(t.path(), false).value();
    put(t / "a.kv", "damaged");
    const FileId id = *file_id(t / "a.kv");
    write_by_hand(t / "a.kv", made("hello"));  // another process wrote it again in the meantime
    EXPECT_FALSE(d.set_aside("a.kv", id, 4));
    EXPECT_EQ(t.names(".kv"), std::vector<std::string>{"a.kv"});
}

TEST(Directory, WhatDeadWritersLeftIsRemoved) {
    const TemporaryFolder t;
    const pid_t dead = ::fork();
    if (dead == 0) ::_exit(0);
    ::waitpid(dead, nullptr, 0);
    const std::string old = strf("x.kv.tmp-{}-0", dead), other = "y.txt.tmp-1-0";
    put(t / old, "half");
    put(t / other, "not ours");
    Directory d = Directory::open(t.path(), false).value();
    EXPECT_EQ(d.remove_temporaries(), 1);
    EXPECT_FALSE(std::filesystem::exists(t / old));
    EXPECT_TRUE(std::filesystem::exists(t / other));
}

}  // namespace
}  // namespace vesta::store
