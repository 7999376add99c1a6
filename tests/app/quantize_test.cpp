// `vesta quantize` and `vesta splice` as a user or a script sees them, killed ones too.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/result.h"
#include "gguf/file.h"
#include "support/command.h"

namespace vesta {
namespace {

namespace fs = std::filesystem;

using test::Output;

Output run(const std::string& arguments, const char* streams = "2>&1") {
    return test::shell(strf("'{}' {} {}", VESTA_BINARY, arguments, streams));
}

const std::string kTiny = VESTA_TEST_DATA "/tiny-flash";
const std::string kPocket = VESTA_SOURCE_DIR "/models/pocket.gguf";

fs::path fresh_folder(const std::string& name) {
    const fs::path folder = fs::path(VESTA_TEST_TMP) / ("cli_quantize_" + name);
    fs::remove_all(folder);
    fs::create_directories(folder);
    return folder;
}

std::string bytes_of(const fs::path& path) { return read_text_file(path.string()).value(); }

TEST(QuantizeCommand, DryRunJsonHasTheNumbersOfTheFile) {
    const fs::path out = fresh_folder("dry") / "m.gguf";
    const Output dry = run(strf("quantize '{}' '{}' --recipe q4 --dry-run --json", kTiny, out.string()), "2>/dev/null");
    ASSERT_EQ(dry.exit, 0) << dry.out;
    EXPECT_FALSE(fs::exists(out));
    const auto a = nlohmann::json::parse(dry.out);
    const Output real = run(strf("quantize '{}' '{}' --recipe q4 --json", kTiny, out.string()), "2>/dev/null");
    ASSERT_EQ(real.exit, 0) << real.out;
    const auto b = nlohmann::json::parse(real.out);
    EXPECT_EQ(a["file_bytes"], fs::file_size(out));
    for (const char* key : {"file_bytes", "data_bytes", "types", "bits_per_weight", "bytes_per_token", "recipe"})
        EXPECT_EQ(a[key], b[key]) << key;
    EXPECT_EQ(a["tensor_list"].size(), 178u);  // of 210: the drafter goes beside
    EXPECT_TRUE(fs::exists(out.parent_path() / "m.mtp.gguf"));
    EXPECT_EQ(a["written"], false);
    EXPECT_EQ(b["written"], true);
    for (const auto& e : b["errors"]) EXPECT_LT(e["relative"].get<double>(), 0.02) << e.dump();
}

TEST(QuantizeCommand, RecipesAreListedShownAndReadFromFiles) {
    const Output list = run("quantize --list");
    EXPECT_EQ(list.exit, 0);
    for (const auto& entry : fs::directory_iterator(VESTA_SOURCE_DIR "/recipes"))
        EXPECT_NE(list.out.find(bytes_of(entry.path())), std::string::npos) << entry.path();
    const fs::path folder = fresh_folder("recipe");
    EXPECT_EQ(run("quantize --show q2-small").out, bytes_of(VESTA_SOURCE_DIR "/recipes/q2-small.recipe"));
    std::ofstream(folder / "mine") << "# mine\nblk.{0-1}.*_exps.weight = q6_k\n* = exact\n";
    std::ofstream(folder / "bad") << "# bad\nblk.0 = q77\n* = exact\n";
    const Output good = run(strf("quantize '{}' --recipe '{}' --dry-run", kTiny, (folder / "mine").string()));
    EXPECT_EQ(good.exit, 0) << good.out;
    EXPECT_NE(good.out.find("q6_k"), std::string::npos);
    const Output bad = run(strf("quantize '{}' --recipe '{}' --dry-run", kTiny, (folder / "bad").string()));
    EXPECT_EQ(bad.exit, 3);
    EXPECT_NE(bad.out.find("bad:2:"), std::string::npos) << bad.out;
}

TEST(QuantizeCommand, CompareTensorTellsByItsExitCode) {
    const fs::path folder = fresh_folder("compare");
    const std::string a = (folder / "a.gguf").string(), b = (folder / "b.gguf").string();
    ASSERT_EQ(run(strf("quantize '{}' '{}' --recipe q4", kTiny, a)).exit, 0);
    ASSERT_EQ(run(strf("quantize '{}' '{}' --recipe q4 --set 'ffn_(gate|up)_exps=q5_k'", kTiny, b)).exit, 0);
    const char* tensor = "--compare-tensor blk.1.ffn_down_exps.weight";
    const Output same = run(strf("quantize '{}' '{}' --recipe q4 {}", kTiny, a, tensor));
    EXPECT_EQ(same.exit, 0) << same.out;
    EXPECT_NE(same.out.find("every byte equal"), std::string::npos);
    EXPECT_EQ(run(strf("quantize '{}' --recipe q4 {} --with '{}'", kTiny, tensor, b)).exit, 0);
    EXPECT_EQ(
        run(strf("quantize '{}' --recipe q4 --compare-tensor blk.1.ffn_up_exps.weight --with '{}'", kTiny, b)).exit, 2);
}

TEST(QuantizeCommand, MistakesHaveTheirExitCodes) {
    const fs::path folder = fresh_folder("mistakes");
    const std::string out = (folder / "m.gguf").string();
    EXPECT_EQ(run("quantize").exit, 2);
    EXPECT_EQ(run(strf("quantize '{}'", kTiny)).exit, 2);
    EXPECT_EQ(run(strf("quantize '{}' '{}' --recipe q17", kTiny, out)).exit, 2);
    EXPECT_EQ(run(strf("quantize '{}' '{}' --set nonsense", kTiny, out)).exit, 2);
    EXPECT_EQ(run(strf("quantize '{}' '{}' --set 'nothing_like_it=q8_0'", kTiny, out)).exit, 2);
    EXPECT_EQ(run(strf("quantize '{}' '{}' --strict", kTiny, out)).exit, 2);
    EXPECT_EQ(run(strf("quantize /nowhere.gguf '{}'", out)).exit, 1);
    EXPECT_EQ(run(strf("quantize '{}' '{}' --imatrix '{}/config.json'", kTiny, out, kTiny)).exit, 3);
    std::ofstream(folder / "x.gguf") << "GGUF nonsense";
    EXPECT_EQ(run(strf("quantize '{}' '{}'", (folder / "x.gguf").string(), out)).exit, 3);
    EXPECT_EQ(run("quantize --help").exit, 0);
    std::ofstream(out) << "precious";
    const Output kept = run(strf("quantize '{}' '{}' --recipe q8", kTiny, out));
    EXPECT_EQ(kept.exit, 2);
    EXPECT_NE(kept.out.find("--force"), std::string::npos);
    EXPECT_EQ(bytes_of(out), "precious");
}

pid_t start(const std::string& out, const char* recipe) {
    const pid_t child = ::fork();
    if (child == 0) {
        std::freopen("/dev/null", "w", stderr);
        ::execl(VESTA_BINARY, "vesta", "quantize", kPocket.c_str(), out.c_str(), "--recipe", recipe, "--threads", "2",
                nullptr);
        ::_exit(127);
    }
    return child;
}

// Killed 20 times, at random moments of a run that takes a second or more; each start goes on where the last one was.
TEST(QuantizeCommand, KilledAtRandomMomentsItLeavesNoFileThatLoadsAndLaterTheSameBytes) {
    const fs::path folder = fresh_folder("kill");
    const std::string whole = (folder / "whole.gguf").string(), out = (folder / "m.gguf").string();
    const auto began = std::chrono::steady_clock::now();
    ASSERT_EQ(run(strf("quantize '{}' '{}' --recipe q4 --threads 2", kPocket, whole)).exit, 0);
    const double full_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
    const std::string expected = bytes_of(whole), drafter = bytes_of(folder / "whole.mtp.gguf");
    std::mt19937 rng(20);
    // Short enough that most attempts die, long enough to pass through every phase.
    std::uniform_real_distribution<double> delay(0, full_ms / 4);
    int n_killed = 0, n_done = 0;
    for (int i = 0; i < 20; ++i) {
        const pid_t child = start(out, "q4");
        ASSERT_GT(child, 0);
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(delay(rng)));
        ::kill(child, SIGKILL);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        n_killed += WIFSIGNALED(status) ? 1 : 0;
        // Whatever loads is whole: the magic is the last thing written, just before the file gets its name.
        for (const auto& entry : fs::directory_iterator(folder)) {
            if (!gguf::File::open(entry.path().string()).ok()) continue;
            const std::string bytes = bytes_of(entry.path());
            EXPECT_TRUE(bytes == expected || bytes == drafter) << entry.path();
        }
        if (fs::exists(folder / "m.mtp.gguf")) {
            ++n_done;
            fs::remove(out);
            fs::remove(folder / "m.mtp.gguf");
        }
    }
    EXPECT_GE(n_killed, 10);
    RecordProperty("finished_while_being_killed", n_done);
    const Output last = run(strf("quantize '{}' '{}' --recipe q4 --threads 2 --force", kPocket, out));
    ASSERT_EQ(last.exit, 0) << last.out;
    EXPECT_TRUE(bytes_of(out) == expected);
    EXPECT_TRUE(bytes_of(folder / "m.mtp.gguf") == drafter);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 4);  // no .part, no journal
}

TEST(QuantizeCommand, CtrlCKeepsWhatIsDoneAndRestartForgetsIt) {
    const fs::path folder = fresh_folder("interrupt");
    const std::string out = (folder / "m.gguf").string();
    int status = 0;
    for (int delay_ms = 200; delay_ms > 0 && !fs::exists(out + ".part"); delay_ms -= 20) {
        fs::remove(out);
        const pid_t child = start(out, "q2");
        std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
        ::kill(child, SIGINT);
        ASSERT_EQ(::waitpid(child, &status, 0), child);
    }
    ASSERT_TRUE(fs::exists(out + ".part"));
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 130);
    EXPECT_FALSE(gguf::File::open(out + ".part").ok());
    const Output r = run(strf("quantize '{}' '{}' --recipe q8 --restart --json", kTiny, out), "2>/dev/null");
    ASSERT_EQ(r.exit, 0);
    EXPECT_EQ(nlohmann::json::parse(r.out)["resumed_tensors"], 0);
}

TEST(SpliceCommand, WritesWhatItsDryRunSays) {
    const fs::path folder = fresh_folder("splice");
    const std::string a = (folder / "a.gguf").string(), b = (folder / "b.gguf").string(),
                      out = (folder / "c.gguf").string();
    ASSERT_EQ(run(strf("quantize '{}' '{}' --recipe q2", kTiny, a)).exit, 0);
    ASSERT_EQ(run(strf("quantize '{}' '{}' --recipe q4", kTiny, b)).exit, 0);
    const Output dry = run(strf("splice '{}' '{}' --layers 4:5 --dry-run --json", a, b), "2>/dev/null");
    ASSERT_EQ(dry.exit, 0);
    const auto j = nlohmann::json::parse(dry.out);
    EXPECT_EQ(j["from_donor"], 6);
    EXPECT_EQ(run(strf("splice '{}' '{}' --layers 4:5 -o '{}'", a, b, out)).exit, 0);
    EXPECT_EQ(j["file_bytes"], fs::file_size(out));
    EXPECT_EQ(run(strf("splice '{}' '{}' --layers 4:5 -o '{}'", a, b, out)).exit, 2);  // exists
    EXPECT_EQ(run(strf("splice '{}' '{}' --layers 4:99 -o '{}' --force", a, b, out)).exit, 2);
    const Output other = run(strf("splice '{}' '{}' --layers 4:5 -o '{}' --force", a, kPocket, out));
    EXPECT_EQ(other.exit, 2);
    EXPECT_NE(other.out.find("not the same model"), std::string::npos) << other.out;
}

}  // namespace
}  // namespace vesta
