// A process that dies while it writes, a disk that is full: the real name always has a whole file, old or new, or none
// if there was none; what else is left can be recognised and removed.
//
// Killing a process does not lose what the system has in its cache, as power loss does. What that needs is an order of
// calls, and WritesAreFlushedBeforeTheRename checks the order.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <random>

#include "base/file.h"
#include "faults.h"
#include "sample.h"

namespace vesta::snapshot {
namespace {

// Generation g of one file: everything in it follows from g, also its size.
Sample generation(uint32_t g) {
    Sample s = Sample::make(100 + g % 7, 4, 50'000 + g % 5 * 1000);
    s.header.created = g;
    s.tool_calls = "generation " + std::to_string(g);
    return s;
}

testing::AssertionResult is_generation(const std::string& path, uint32_t first, uint32_t last, uint32_t* found) {
    const auto summary = read_summary(path);
    if (!summary.ok()) return testing::AssertionFailure() << summary.error().message;
    const auto g = static_cast<uint32_t>(summary.value().header.created);
    if (g < first || g > last) return testing::AssertionFailure() << "generation " << g;
    const Sample expected = generation(g);
    const auto contents = read(path, expected.expected());
    if (!contents.ok()) return testing::AssertionFailure() << contents.error().message;
    const Contents& c = contents.value();
    if (c.tokens != expected.tokens || !std::ranges::equal(c.rows, expected.rows()) ||
        c.tool_calls != expected.tool_calls || c.logits != expected.logits || c.text != expected.text)
        return testing::AssertionFailure() << "not the contents of generation " << g;
    *found = g;
    return testing::AssertionSuccess();
}

int wait_for(pid_t child) {
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

TEST(SnapshotPowerLoss, AProcessKilled200TimesWhileItWritesNeverLeavesATornFile) {
    const Folder folder;
    const std::string path = folder.file("a.kv");
    std::mt19937 rng(7);
    uint32_t last = 0;  // the newest generation seen
    int n_left_over = 0, n_in_turn = 0;
    for (int round = 0; round < 200; ++round) {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            for (uint32_t g = last + 1;; ++g)
                if (!write(path, generation(g).view(), {.compress = g % 2 == 0}).ok()) ::_exit(1);
        }
        ::usleep(static_cast<useconds_t>(rng() % 25'000));
        ::kill(child, SIGKILL);
        const int status = wait_for(child);
        ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself: " << status;
        const bool left_over = folder.names().size() > (file_exists(path) ? 1u : 0u);
        n_left_over += left_over ? 1 : 0;
        if (!file_exists(path)) {
            EXPECT_EQ(last, 0u) << "the file is gone";
        } else {
            uint32_t now = 0;
            ASSERT_TRUE(is_generation(path, std::max(last, 1u), last + 1000, &now));
            n_in_turn += now > last ? 1 : 0;
            last = now;
        }
        EXPECT_EQ(remove_stale_temporaries(path), left_over ? 1 : 0);
        EXPECT_LE(folder.names().size(), 1u);
    }
    RecordProperty("left_over", n_left_over);
    RecordProperty("in_turn", n_in_turn);
    // The kills came at the moments that matter, and writing went on between them.
    EXPECT_GT(n_left_over, 20);
    EXPECT_GT(n_in_turn, 20);
}

// Every system call of a write, and every way to die around it.
TEST(SnapshotPowerLoss, DyingAtAnySystemCallLeavesTheOldFileOrTheNewOne) {
    for (const bool overwrite : {true, false}) {
        int n_old = 0, n_new = 0;
        for (const Fault fault : {Fault::die_before, Fault::die_within, Fault::die_after})
            for (int at = 0;; ++at) {
                SCOPED_TRACE(testing::Message() << "call " << at << ", fault " << static_cast<int>(fault));
                const Folder folder;
                const std::string path = folder.file("a.kv");
                ASSERT_TRUE(!overwrite || write(path, generation(1).view(), {}).ok());
                const pid_t child = ::fork();
                ASSERT_GE(child, 0);
                if (child == 0) {
                    Faults::arm(fault, at);
                    ::_exit(write(path, generation(2).view(), {.overwrite = overwrite}).ok() ? 0 : 1);
                }
                const int status = wait_for(child);
                if (WIFEXITED(status)) {  // fewer calls than that
                    EXPECT_EQ(WEXITSTATUS(status), 0);
                    EXPECT_GT(at, 5);
                    break;
                }
                uint32_t found = 0;
                if (!overwrite && !file_exists(path)) {
                    ++n_old;
                } else {
                    ASSERT_TRUE(is_generation(path, overwrite ? 1 : 2, 2, &found));
                    ++(found == 1 ? n_old : n_new);
                }
                remove_stale_temporaries(path);
                EXPECT_LE(folder.names().size(), 1u);
            }
        EXPECT_GT(n_old, 10);
        EXPECT_GT(n_new, 1);
    }
}

TEST(SnapshotPowerLoss, WritesAreFlushedBeforeTheRenameAndTheFolderAfterIt) {
    const Folder folder;
    ASSERT_TRUE(write(folder.file("a.kv"), generation(1).view(), {}).ok());
    Faults::arm(Fault::none, -1);
    ASSERT_TRUE(write(folder.file("a.kv"), generation(2).view(), {}).ok());
    const std::vector<std::string> calls = Faults::now().calls;
    Faults::now().reset();
    ASSERT_GT(calls.size(), 5u);
    const std::string folder_name = folder.path().substr(folder.path().rfind('/') + 1);
    EXPECT_EQ(calls.back(), "fsync " + folder_name);
    EXPECT_EQ(calls[calls.size() - 2], "rename a.kv");
    EXPECT_EQ(calls[calls.size() - 3].rfind("fsync a.kv.tmp-", 0), 0u) << calls[calls.size() - 3];
    for (size_t i = 0; i + 3 < calls.size(); ++i) EXPECT_EQ(calls[i].rfind("pwrite a.kv.tmp-", 0), 0u) << calls[i];
}

TEST(SnapshotPowerLoss, ACallThatFailsLeavesTheOldFileAndNothingElse) {
    const Folder folder;
    const std::string path = folder.file("a.kv");
    ASSERT_TRUE(write(path, generation(1).view(), {}).ok());
    int at = 0;
    for (bool failed = true; failed; ++at) {
        SCOPED_TRACE(at);
        Faults::arm(Fault::fail, at, ENOSPC);
        const Status status = write(path, generation(2).view(), {});
        const Faults faults = Faults::now();
        Faults::now().reset();
        failed = faults.n_call > at;
        uint32_t found = 0;
        EXPECT_EQ(folder.names(), std::vector<std::string>{"a.kv"});
        ASSERT_TRUE(is_generation(path, 1, 2, &found));
        if (!failed) {
            EXPECT_TRUE(status.ok()) << status.error().message;
            continue;
        }
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, Code::io);
        EXPECT_NE(status.error().message.find("No space left"), std::string::npos) << status.error().message;
        // Only the flush of the folder comes after the new file has its name.
        EXPECT_EQ(found, faults.calls.at(static_cast<size_t>(at)).starts_with("fsync snapshot-") ? 2u : 1u);
    }
    EXPECT_GT(at, 6);
}

TEST(SnapshotPowerLoss, AWriteThatIsCutShortIsContinued) {
    const Folder folder;
    const std::string path = folder.file("a.kv");
    for (int at = 0; at < 6; ++at) {
        Faults::arm(Fault::half, at);
        const Status status = write(path, generation(3).view(), {});
        Faults::now().reset();
        ASSERT_TRUE(status.ok()) << status.error().message;
        uint32_t found = 0;
        EXPECT_TRUE(is_generation(path, 3, 3, &found));
    }
}

// The system's own limit, in a process of its own: the limit and the ignored signal end with it.
TEST(SnapshotPowerLoss, AFileOverTheSizeLimitIsRefusedWithTheReason) {
    const Folder folder;
    const std::string path = folder.file("a.kv");
    ASSERT_TRUE(write(path, generation(1).view(), {}).ok());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const rlimit limit{500'000, 500'000};
        ::signal(SIGXFSZ, SIG_IGN);
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(3);
        const Status status = write(path, generation(2).view(), {});
        if (status.ok()) ::_exit(4);
        ::_exit(status.error().code == Code::io && status.error().message.find("too large") != std::string::npos ? 0
                                                                                                                 : 5);
    }
    const int status = wait_for(child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    uint32_t found = 0;
    EXPECT_TRUE(is_generation(path, 1, 1, &found));
    EXPECT_EQ(folder.names(), std::vector<std::string>{"a.kv"});
}

TEST(SnapshotPowerLoss, AnExistingFileIsKeptUnlessOverwritingIsAllowed) {
    const Folder folder;
    const std::string path = folder.file("a.kv");
    ASSERT_TRUE(write(path, generation(1).view(), {}).ok());
    const Status refused = write(path, generation(2).view(), {.overwrite = false});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::already_exists);
    uint32_t found = 0;
    EXPECT_TRUE(is_generation(path, 1, 1, &found));
    EXPECT_FALSE(write(folder.file("no/such/folder.kv"), generation(1).view(), {}).ok());
}

}  // namespace
}  // namespace vesta::snapshot
