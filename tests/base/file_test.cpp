#include "base/file.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>

namespace vesta {
namespace {

class Folder {
 public:
    Folder() {
        path_ = std::string(VESTA_TEST_TMP) + "/file-XXXXXX";
        EXPECT_NE(::mkdtemp(path_.data()), nullptr);
    }
    std::string operator/(const char* name) const { return path_ + "/" + name; }
    std::set<std::string> names() const {
        std::set<std::string> out;
        DIR* dir = ::opendir(path_.c_str());
        EXPECT_NE(dir, nullptr);
        while (const dirent* e = ::readdir(dir))
            if (e->d_name[0] != '.') out.insert(e->d_name);
        ::closedir(dir);
        return out;
    }

 private:
    std::string path_;
};

using Names = std::set<std::string>;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

AtomicFile create(const std::string& path, bool overwrite = false) {
    auto file = AtomicFile::create(path, overwrite);
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
    return std::move(file).value();
}

void put(const std::string& path, std::string_view text) {
    AtomicFile file = create(path, true);
    ASSERT_TRUE(file.write(bytes(text)).ok());
    ASSERT_TRUE(file.commit().ok());
}

TEST(AtomicFile, AppearsOnlyWithCommit) {
    const Folder folder;
    {
        AtomicFile file = create(folder / "a");
        ASSERT_TRUE(file.write(bytes("hello ")).ok());
        ASSERT_TRUE(file.write(bytes("world")).ok());
        EXPECT_EQ(file.offset(), 11u);
        EXPECT_FALSE(file_exists(folder / "a"));
        EXPECT_EQ(folder.names().size(), 1u);  // the temporary file, beside its goal
        ASSERT_TRUE(file.commit().ok());
    }
    EXPECT_EQ(folder.names(), Names{"a"});
    EXPECT_EQ(read_text_file(folder / "a").value(), "hello world");
}

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
    const Folder folder;
    put(folder / "kept", "old");
    {
        AtomicFile fresh = create(folder / "fresh");
        AtomicFile over = create(folder / "kept", true);
        ASSERT_TRUE(fresh.write(bytes("x")).ok());
        ASSERT_TRUE(over.write(bytes("new")).ok());
    }
    EXPECT_EQ(folder.names(), Names{"kept"});
    EXPECT_EQ(read_text_file(folder / "kept").value(), "old");
}

TEST(AtomicFile, RefusesToOverwriteAtCreateAndAtCommit) {
    const Folder folder;
    put(folder / "a", "mine");
    const auto refused = AtomicFile::create(folder / "a", false);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::already_exists);
    EXPECT_NE(refused.error().message.find(folder / "a"), std::string::npos);
    {
        AtomicFile late = create(folder / "b");
        ASSERT_TRUE(late.write(bytes("late")).ok());
        put(folder / "b", "early");  // someone else was faster
        const Status s = late.commit();
        ASSERT_FALSE(s.ok());
        EXPECT_EQ(s.error().code, Code::already_exists);
    }
    EXPECT_EQ(read_text_file(folder / "b").value(), "early");
    EXPECT_EQ(folder.names(), (Names{"a", "b"}));
}

TEST(AtomicFile, OverwritesWhenAllowed) {
    const Folder folder;
    put(folder / "a", "a long first version");
    put(folder / "a", "second");
    EXPECT_EQ(read_text_file(folder / "a").value(), "second");
    EXPECT_EQ(folder.names(), Names{"a"});
}

TEST(AtomicFile, WritesAnywhereWithoutMovingTheAppendPosition) {
    const Folder folder;
    AtomicFile file = create(folder / "a");
    ASSERT_TRUE(file.write(bytes("....tail")).ok());
    ASSERT_TRUE(file.write_at(0, bytes("head")).ok());
    ASSERT_TRUE(file.write(bytes("!")).ok());
    ASSERT_TRUE(file.write_at(12, bytes("far")).ok());  // a hole of zeros before it
    EXPECT_EQ(file.offset(), 9u);
    ASSERT_TRUE(file.commit().ok());
    EXPECT_EQ(read_text_file(folder / "a").value(), std::string("headtail!\0\0\0far", 15));
}

TEST(AtomicFile, AMovedFromFileIsHarmlessAndRefusesToWrite) {
    const Folder folder;
    AtomicFile a = create(folder / "a");
    ASSERT_TRUE(a.write(bytes("one")).ok());
    {
        AtomicFile b = std::move(a);
        EXPECT_FALSE(a.write(bytes("lost")).ok());  // NOLINT: the point of the test
        EXPECT_FALSE(a.commit().ok());
        ASSERT_TRUE(b.write(bytes(" two")).ok());
        ASSERT_TRUE(b.commit().ok());
        EXPECT_FALSE(b.commit().ok());  // only once
    }
    EXPECT_EQ(read_text_file(folder / "a").value(), "one two");
    EXPECT_EQ(folder.names(), Names{"a"});
}

TEST(AtomicFile, MoveAssignmentRemovesTheFileThatWasThere) {
    const Folder folder;
    {
        AtomicFile a = create(folder / "a");
        {
            AtomicFile b = create(folder / "b");
            ASSERT_TRUE(a.write(bytes("a")).ok());
            ASSERT_TRUE(b.write(bytes("b")).ok());
            a = std::move(b);
        }
        EXPECT_EQ(a.path(), folder / "b");
        EXPECT_EQ(folder.names().size(), 1u);  // b's temporary file only
        ASSERT_TRUE(a.commit().ok());
    }
    EXPECT_EQ(folder.names(), Names{"b"});
}

TEST(AtomicFile, HasTheModeItWasGiven) {
    const Folder folder;
    auto file = AtomicFile::create(folder / "secret", false, 0600);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file.value().commit().ok());
    struct stat st {};
    ASSERT_EQ(::stat((folder / "secret").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0600u);
}

TEST(AtomicFile, NamesAFolderThatIsMissing) {
    const Folder folder;
    const auto r = AtomicFile::create(folder / "no/such", false);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, Code::not_found);
}

AtomicFile resume(const std::string& path, bool overwrite = false) {
    auto file = AtomicFile::resume(path, overwrite);
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
    return std::move(file).value();
}

TEST(AtomicFile, AKeptUnfinishedFileIsOpenedAgainAsItWas) {
    const Folder folder;
    {
        AtomicFile file = resume(folder / "a");
        ASSERT_TRUE(file.write(bytes("hello")).ok());
        file.keep(true);
    }
    EXPECT_EQ(folder.names(), Names{"a.part"});
    {
        AtomicFile file = resume(folder / "a");
        std::byte buffer[10];
        EXPECT_EQ(file.read_at(1, buffer).value(), 4u);
        EXPECT_EQ(std::memcmp(buffer, "ello", 4), 0);
        ASSERT_TRUE(file.truncate(4).ok());
        ASSERT_TRUE(file.commit().ok());
    }
    EXPECT_EQ(folder.names(), Names{"a"});
    EXPECT_EQ(read_text_file(folder / "a").value(), "hell");
    { AtomicFile file = resume(folder / "a", true); }
    EXPECT_EQ(folder.names(), Names{"a"});  // not kept: gone
}

TEST(AtomicFile, OnlyOneAtATimeMayResume) {
    const Folder folder;
    AtomicFile first = resume(folder / "a");
    const auto second = AtomicFile::resume(folder / "a", false);
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.error().message.find("another process"), std::string::npos);
}

// commit() without overwriting links the new name before it removes the old one; dying in between leaves both names on
// one file, and the finished one must not be written through the other.
TEST(AtomicFile, AFinishedFileIsNotReopenedThroughItsOldName) {
    const Folder folder;
    put(folder / "a", "whole");
    ASSERT_EQ(::link((folder / "a").c_str(), (folder / "a.part").c_str()), 0);
    {
        AtomicFile file = resume(folder / "a", true);
        ASSERT_TRUE(file.write_at(0, bytes("broken")).ok());
    }
    EXPECT_EQ(read_text_file(folder / "a").value(), "whole");
    EXPECT_EQ(folder.names(), Names{"a"});
}

TEST(AtomicFile, ResumeRefusesLinksAndFolders) {
    const Folder folder;
    put(folder / "x", "x");
    ASSERT_EQ(::symlink((folder / "x").c_str(), (folder / "a.part").c_str()), 0);
    EXPECT_FALSE(AtomicFile::resume(folder / "a", false).ok());
    ASSERT_EQ(::mkdir((folder / "b.part").c_str(), 0755), 0);
    EXPECT_FALSE(AtomicFile::resume(folder / "b", false).ok());
    EXPECT_EQ(read_text_file(folder / "x").value(), "x");
}

TEST(ReleasePages, TheBytesAreStillThere) {
    const Folder folder;
    const std::string text(100'000, 'q');
    put(folder / "a", text);
    const MappedFile file = MappedFile::open(folder / "a").value();
    for (const size_t from : {size_t{0}, size_t{5}, size_t{4096}, size_t{99'999}}) {
        release_pages(file.bytes().subspan(from));
        EXPECT_EQ(std::memcmp(file.bytes().data(), text.data(), text.size()), 0);
    }
    release_pages({});
}

TEST(MappedFile, ShowsTheBytesAndSurvivesMoves) {
    const Folder folder;
    put(folder / "a", "content");
    auto opened = MappedFile::open(folder / "a");
    ASSERT_TRUE(opened.ok());
    MappedFile a = std::move(opened).value();
    const std::byte* where = a.bytes().data();
    MappedFile b = std::move(a);
    EXPECT_EQ(b.bytes().data(), where);  // views stay valid
    EXPECT_TRUE(a.bytes().empty());      // NOLINT
    MappedFile c;
    c = std::move(b);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(c.bytes().data()), c.bytes().size()), "content");
    EXPECT_EQ(c.path(), folder / "a");
}

TEST(MappedFile, AnEmptyFileIsAnEmptySpan) {
    const Folder folder;
    put(folder / "empty", "");
    const auto r = MappedFile::open(folder / "empty");
    ASSERT_TRUE(r.ok());
    EXPECT_TRUE(r.value().bytes().empty());
}

TEST(MappedFile, RefusesWhatIsNoFile) {
    const Folder folder;
    EXPECT_EQ(MappedFile::open(folder / "missing").error().code, Code::not_found);
    EXPECT_EQ(MappedFile::open(VESTA_TEST_TMP).error().code, Code::invalid_argument);
    EXPECT_EQ(MappedFile::open("/dev/null").error().code, Code::invalid_argument);
}

TEST(ReadTextFile, KeepsTheLimit) {
    const Folder folder;
    put(folder / "a", "12345678");
    EXPECT_EQ(read_text_file(folder / "a", 8).value(), "12345678");
    const auto r = read_text_file(folder / "a", 7);
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.error().message.find("7 bytes"), std::string::npos);
    EXPECT_EQ(read_text_file(folder / "none").error().code, Code::not_found);
}

}  // namespace
}  // namespace vesta
