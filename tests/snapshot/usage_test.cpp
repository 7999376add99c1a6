// Counting hits: the numbers go up, the file stays what it was, and a slot that is torn costs one hit at most.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>
#include <random>

#include "base/file.h"
#include "faults.h"
#include "sample.h"
#include "support/snapshot_mutator.h"

namespace vesta::snapshot {
namespace {

namespace kv = test::kv;

struct UsageFile {
    Folder folder;
    std::string path = folder.file("a.kv");
    UsageFile() { EXPECT_TRUE(write(path, Sample::make(3).view(), {}).ok()); }
    Usage usage() const {
        const auto summary = read_summary(path);
        EXPECT_TRUE(summary.ok()) << summary.error().message;
        return summary.ok() ? summary.value().usage : Usage{};
    }
    void use(int64_t now) const {
        const Status status = record_use(path, now);
        EXPECT_TRUE(status.ok()) << status.error().message;
    }
};

bool operator==(const Usage& a, const Usage& b) { return a.hits == b.hits && a.last_used == b.last_used; }

TEST(SnapshotUsage, HitsAreCountedInTurnsAndNothingElseChanges) {
    const UsageFile f;
    const auto before = file_bytes(f.path);
    EXPECT_EQ(f.usage().hits, 0u);
    for (uint64_t i = 1; i <= 5; ++i) {
        f.use(1'800'000'000 + static_cast<int64_t>(i));
        EXPECT_EQ(f.usage().hits, i);
        EXPECT_EQ(f.usage().last_used, 1'800'000'000 + static_cast<int64_t>(i));
        // Sequence 1 was in slot 0; n is in the slot of its parity.
        const auto bytes = file_bytes(f.path);
        EXPECT_EQ(test::get_number(bytes, kv::kPage * (1 + i % 2), 8), i + 1);
    }
    const auto after = file_bytes(f.path);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + kv::kPage, after.begin()));
    EXPECT_TRUE(std::equal(before.begin() + kv::kDirectory, before.end(), after.begin() + kv::kDirectory, after.end()));
    EXPECT_EQ(read(f.path, Sample::make(3).expected()).value().usage.hits, 5u);
}

TEST(SnapshotUsage, ATornSlotFallsBackToTheOtherOne) {
    const UsageFile f;
    f.use(100), f.use(200);  // sequence 2 in slot 1, 3 in slot 0
    const auto whole = file_bytes(f.path);
    for (const size_t at : {size_t{0}, size_t{9}, size_t{17}, size_t{1000}, kv::kPage - 1}) {
        auto torn = whole;
        torn[kv::kPage + at] ^= std::byte{4};
        put_file(f.path, torn);
        EXPECT_TRUE(f.usage() == (Usage{1, 100})) << at;
        f.use(300);
        EXPECT_TRUE(f.usage() == (Usage{2, 300})) << at;
        EXPECT_TRUE(verify(f.path).ok());

        torn = whole;
        torn[2 * kv::kPage + at] ^= std::byte{4};
        put_file(f.path, torn);
        EXPECT_TRUE(f.usage() == (Usage{2, 200})) << at;
        f.use(300);
        EXPECT_TRUE(f.usage() == (Usage{3, 300})) << at;

        torn[kv::kPage + at] ^= std::byte{4};
        put_file(f.path, torn);
        EXPECT_TRUE(f.usage() == Usage{}) << at;
        f.use(300);
        EXPECT_TRUE(f.usage() == (Usage{1, 300})) << at;
    }
}

TEST(SnapshotUsage, DyingInTheMiddleOfACountLosesThatCountOnly) {
    const UsageFile f;
    uint64_t hits = 0;
    for (int i = 0; i < 6; ++i)
        for (const Fault fault : {Fault::die_before, Fault::die_within, Fault::die_after}) {
            const pid_t child = ::fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                Faults::arm(fault, 0);
                ::_exit(record_use(f.path, 9).ok() ? 0 : 1);
            }
            int status = 0;
            ASSERT_EQ(::waitpid(child, &status, 0), child);
            ASSERT_TRUE(WIFSIGNALED(status));
            // Half a slot is its numbers, then the zeros that were there before: only its checksum is still the old
            // one.
            hits += fault == Fault::die_after ? 1 : 0;
            EXPECT_EQ(f.usage().hits, hits);
            EXPECT_TRUE(verify(f.path).ok());
        }
    EXPECT_EQ(hits, 6u);
}

TEST(SnapshotUsage, ProcessesThatCountAtOnceLoseNothingAndReadersNeverSeeABadFile) {
    const UsageFile f;
    constexpr int kProcesses = 4, kHits = 40;
    std::vector<pid_t> children;
    for (int p = 0; p < kProcesses; ++p) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            int counted = 0;
            for (int i = 0; i < kHits; ++i) counted += record_use(f.path, 1000 + i).ok() ? 1 : 0;
            ::_exit(counted);
        }
        children.push_back(child);
    }
    for (int i = 0; i < 50; ++i) {
        const Status status = verify(f.path);
        EXPECT_TRUE(status.ok()) << status.error().message;
        EXPECT_LE(f.usage().hits, static_cast<uint64_t>(kProcesses * kHits));
    }
    uint64_t counted = 0;
    for (const pid_t child : children) {
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        counted += static_cast<uint64_t>(WEXITSTATUS(status));
    }
    EXPECT_GT(counted, 0u);
    EXPECT_EQ(f.usage().hits, counted);
}

TEST(SnapshotUsage, WhoCannotHaveTheLockGivesUpInsteadOfWaiting) {
    const UsageFile f;
    const UniqueFd holder(::open(f.path.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(::flock(holder.get(), LOCK_EX), 0);
    const Status status = record_use(f.path, 5);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::io);
    EXPECT_NE(status.error().message.find("locked"), std::string::npos) << status.error().message;
    EXPECT_EQ(f.usage().hits, 0u);  // and reading needs no lock
}

TEST(SnapshotUsage, NumbersAtTheirEndStayThere) {
    const UsageFile f;
    auto bytes = file_bytes(f.path);
    const uint64_t most = std::numeric_limits<uint64_t>::max();
    test::put_number(bytes, kv::kPage + 8, 8, most);
    test::SnapshotBytes::seal_slot(bytes, 0);
    put_file(f.path, bytes);
    f.use(7);
    EXPECT_TRUE(f.usage() == (Usage{most, 7}));

    test::put_number(bytes, kv::kPage, 8, most);
    test::SnapshotBytes::seal_slot(bytes, 0);
    put_file(f.path, bytes);
    EXPECT_FALSE(record_use(f.path, 8).ok());
    EXPECT_EQ(f.usage().hits, most);
}

TEST(SnapshotUsage, NothingIsWrittenIntoAFileThatIsNoSnapshot) {
    const UsageFile f;
    auto bytes = file_bytes(f.path);
    for (const size_t at : {size_t{0}, size_t{60}, kv::kDirectory + 3}) {
        auto damaged = bytes;
        damaged[at] ^= std::byte{1};
        put_file(f.path, damaged);
        EXPECT_FALSE(record_use(f.path, 8).ok());
        EXPECT_TRUE(file_bytes(f.path) == damaged);
    }
    EXPECT_FALSE(record_use(f.folder.path(), 8).ok());
    EXPECT_FALSE(record_use(f.folder.file("none"), 8).ok());
}

}  // namespace
}  // namespace vesta::snapshot
