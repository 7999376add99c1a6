// Limits of memory as files of the system state them, and the calls on pages.
#include "base/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/bandwidth.h"
#include "base/thread_pool.h"

namespace vesta {
namespace {

namespace fs = std::filesystem;

class Root {
 public:
    explicit Root(const std::string& name) : path_(fs::path(VESTA_TEST_TMP) / ("memory_root_" + name)) {
        fs::remove_all(path_);
    }
    ~Root() { fs::remove_all(path_); }
    void put(const std::string& file, const std::string& text) const {
        fs::create_directories((path_ / file).parent_path());
        std::ofstream(path_ / file) << text;
    }
    MemoryLimit limit() const { return memory_limit_at(path_.string()); }

 private:
    fs::path path_;
};

constexpr char kMeminfo[] = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:   12000000 kB\n";

TEST(MemoryLimit, OfTheMachineWithoutGroups) {
    const Root root("plain");
    root.put("proc/meminfo", kMeminfo);
    EXPECT_EQ(root.limit().total_bytes, 16000000 * int64_t{1024});
    EXPECT_EQ(root.limit().available_bytes, 12000000 * int64_t{1024});
    EXPECT_FALSE(root.limit().by_cgroup);
}

TEST(MemoryLimit, IsTheSmallestOfTheGroupsAbove) {
    const Root root("v2");
    root.put("proc/meminfo", kMeminfo);
    root.put("proc/self/cgroup", "0::/outer/inner\n");
    root.put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
    root.put("sys/fs/cgroup/outer/inner/memory.current", "500\n");
    root.put("sys/fs/cgroup/outer/memory.max", "1000000\n");
    root.put("sys/fs/cgroup/outer/memory.current", "900000\n");
    root.put("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 300000\nactive_file 7\n");
    const MemoryLimit m = root.limit();
    EXPECT_TRUE(m.by_cgroup);
    EXPECT_EQ(m.total_bytes, 1000000);
    EXPECT_EQ(m.available_bytes, 400000);
}

TEST(MemoryLimit, OfVersionOneGroupsToo) {
    const Root root("v1");
    root.put("proc/meminfo", kMeminfo);
    root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
    root.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1500000\n");
    EXPECT_EQ(root.limit().available_bytes, 500000);
    root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
    EXPECT_FALSE(root.limit().by_cgroup);
}

TEST(MemoryLimit, UnknownIsZero) {
    EXPECT_EQ(Root("none").limit().available_bytes, 0);
    EXPECT_GT(memory_limit().available_bytes, 0);
}

TEST(Pages, AreReadAndCounted) {
    std::vector<std::byte> bytes(3 << 20, std::byte{1});
    ThreadPool pool(2);
    uint64_t last = 0;
    ASSERT_TRUE(warm_pages(bytes, pool, [&](const Progress& p) {
                    last = p.done;
                    return true;
                }).ok());
    EXPECT_EQ(last, bytes.size());
    EXPECT_EQ(resident_bytes(bytes), static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(warm_pages({}, pool, {}).ok());
    EXPECT_EQ(warm_pages(bytes, pool, [](const Progress&) { return false; }).error().code, Code::cancelled);
    EXPECT_GE(peak_rss_bytes(), current_rss_bytes() / 2);
}

TEST(Bandwidth, IsMeasured) {
    const auto b = measure_read_bandwidth(2, 32 << 20, 3);
    ASSERT_TRUE(b.ok());
    EXPECT_GT(b.value().median, 1e6);
    EXPECT_GE(b.value().best, b.value().median);
}

}  // namespace
}  // namespace vesta
