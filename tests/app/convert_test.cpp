// `vesta convert` as a user or a script sees it: output, exit codes, and what is left on disk.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/result.h"
#include "gguf/file.h"
#include "support/command.h"

namespace vesta {
namespace {

namespace fs = std::filesystem;

using test::Output;

Output run(const std::string& arguments, const char* streams = "2>&1") {
    return test::shell(strf("'{}' convert {} {}", VESTA_BINARY, arguments, streams));
}

std::string tiny() { return strf("--from '{}/tiny-flash'", VESTA_TEST_DATA); }

fs::path fresh_folder(const std::string& name) {
    const fs::path folder = fs::path(VESTA_TEST_TMP) / ("cli_convert_" + name);
    fs::remove_all(folder);
    fs::create_directories(folder);
    return folder;
}

TEST(ConvertCommand, WritesAModelFileAndSaysWhatIsInIt) {
    const fs::path out = fresh_folder("plain") / "m.gguf";
    const Output r = run(strf("{} --out '{}'", tiny(), out.string()));
    EXPECT_EQ(r.exit, 0) << r.out;
    for (const char* word : {"mxfp4", "bf16", "210 tensors", "recipe native", "no tokenizer.json"})
        EXPECT_NE(r.out.find(word), std::string::npos) << word << " in: " << r.out;
    EXPECT_TRUE(gguf::File::open(out).ok());
}

TEST(ConvertCommand, JsonSummaryIsAloneOnStdoutAndAddsUp) {
    const fs::path out = fresh_folder("json") / "m.gguf";
    const Output r = run(strf("{} --out '{}' --recipe q8 --json", tiny(), out.string()), "2>/dev/null");
    ASSERT_EQ(r.exit, 0) << r.out;
    const auto j = nlohmann::json::parse(r.out);
    EXPECT_EQ(j["written"], true);
    EXPECT_EQ(j["recipe"], "q8");
    EXPECT_EQ(j["tensors"], 210);
    EXPECT_EQ(j["file_bytes"], fs::file_size(out));
    uint64_t bytes = 0, tensors = 0;
    for (const auto& [type, total] : j["types"].items())
        bytes += total["bytes"].get<uint64_t>(), tensors += total["tensors"].get<uint64_t>();
    EXPECT_EQ(bytes, j["data_bytes"]);
    EXPECT_EQ(tensors, 210u);
}

TEST(ConvertCommand, DryRunListsAndWritesNothing) {
    const fs::path folder = fresh_folder("dry");
    const Output r = run(strf("{} --out '{}' --dry-run --list", tiny(), (folder / "m.gguf").string()), "2>/dev/null");
    EXPECT_EQ(r.exit, 0);
    EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 210);
    EXPECT_NE(r.out.find("blk.2.indexer.attn_q_b.weight"), std::string::npos);
    EXPECT_TRUE(fs::is_empty(folder));
}

TEST(ConvertCommand, ExistingFileIsKeptWithoutForce) {
    const fs::path out = fresh_folder("force") / "m.gguf";
    std::ofstream(out) << "precious";
    const Output refused = run(strf("{} --out '{}'", tiny(), out.string()));
    EXPECT_EQ(refused.exit, 2);
    EXPECT_NE(refused.out.find("--force"), std::string::npos);
    EXPECT_EQ(fs::file_size(out), 8u);
    EXPECT_EQ(run(strf("{} --out '{}' --force", tiny(), out.string())).exit, 0);
    EXPECT_TRUE(gguf::File::open(out).ok());
}

TEST(ConvertCommand, MistakesHaveTheirExitCodes) {
    EXPECT_EQ(run("").exit, 2);
    EXPECT_EQ(run(tiny()).exit, 2);  // no --out
    EXPECT_EQ(run(tiny() + " --out x.gguf --recipe q17").exit, 2);
    EXPECT_EQ(run(tiny() + " --out x.gguf --no-such-flag").exit, 2);
    EXPECT_EQ(run("--from /nowhere/at/all --out x.gguf").exit, 1);
    EXPECT_EQ(run("--help").exit, 0);
    EXPECT_NE(run("--help").out.find("examples:"), std::string::npos);
    EXPECT_EQ(run(strf("{} --out '{}/no/such/folder/x.gguf'", tiny(), VESTA_TEST_TMP)).exit, 1);
}

TEST(ConvertCommand, DamagedCheckpointIsExitThreeAndLeavesNothing) {
    const fs::path folder = fresh_folder("damaged");
    const std::string from = strf("{}/tiny-flash", VESTA_TEST_DATA);
    fs::copy_file(from + "/config.json", folder / "config.json");
    fs::copy_file(from + "/model.safetensors", folder / "model.safetensors");
    fs::permissions(folder / "model.safetensors", fs::perms::owner_write, fs::perm_options::add);
    fs::resize_file(folder / "model.safetensors", fs::file_size(folder / "model.safetensors") / 2);
    const Output r = run(strf("--from '{}' --out '{}'", folder.string(), (folder / "m.gguf").string()));
    EXPECT_EQ(r.exit, 3) << r.out;
    EXPECT_NE(r.out.find("tensor "), std::string::npos);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
}

// The signal may come before, during or after the work; in each case the folder holds a whole file or nothing.
TEST(ConvertCommand, InterruptLeavesAWholeFileOrNothing) {
    for (const int delay_ms : {0, 5, 10, 15, 20, 30, 40, 60}) {
        const fs::path folder = fresh_folder(strf("signal_{}", delay_ms));
        const std::string out = (folder / "m.gguf").string(), from = strf("{}/tiny-flash", VESTA_TEST_DATA);
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            std::freopen("/dev/null", "w", stderr);
            ::execl(VESTA_BINARY, "vesta", "convert", "--from", from.c_str(), "--out", out.c_str(), "--recipe", "f32",
                    "--threads", "1", nullptr);
            ::_exit(127);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
        ::kill(child, SIGINT);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            EXPECT_TRUE(gguf::File::open(out).ok());
        } else {
            // Killed before the handler was set, or stopped by it.
            EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 130) << status;
            EXPECT_TRUE(fs::is_empty(folder));
        }
    }
}

}  // namespace
}  // namespace vesta
