// `vesta imatrix` as a user or a script sees it: the program is run on a toy model, stopped in the middle, continued.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/command.h"
#include "support/toy_model.h"

namespace vesta {
namespace {

namespace fs = std::filesystem;

using test::Output;

Output shell(const std::string& command) { return test::shell("{ " + command + "; } 2>&1"); }

Output imatrix(const std::string& arguments, const std::string& before = "") {
    return shell(strf("{} '{}' imatrix {}", before, VESTA_BINARY, arguments));
}

std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
}

class Imatrix : public ::testing::Test {
 protected:
    Imatrix() {
        dir = fs::path(VESTA_TEST_TMP) / strf("imatrix_app_{}", ::getpid());
        fs::create_directories(dir);
        model = test::ToyModel{}.write();
        std::ofstream text(dir / "text.txt");
        for (int i = 0; i < 120; ++i)
            text << "===== VESTA_PROMPT " << i << "\n<｜begin▁of▁sentence｜>Sample " << i * 7919
                 << " of many, all different.\n\n";
    }
    ~Imatrix() override { fs::remove_all(dir); }
    std::string path(const std::string& name) const { return (dir / name).string(); }
    std::string collect(const std::string& out, const std::string& more = "") const {
        return strf("-m '{}' --data '{}' --out '{}' --ctx 32 --threads 1 {}", model, path("text.txt"), path(out), more);
    }
    fs::path dir;
    std::string model;
};

TEST_F(Imatrix, CollectsAndShows) {
    const Output made = imatrix(collect("a.dat", "--chunks 10"));
    ASSERT_EQ(made.exit, 0) << made.out;
    EXPECT_NE(made.out.find("10 sequences"), std::string::npos) << made.out;
    EXPECT_NE(made.out.find("without data: token_embd.weight mtp.0.hc_head_fn.weight"), std::string::npos) << made.out;

    const Output table = imatrix(strf("--show '{}'", path("a.dat")));
    EXPECT_EQ(table.exit, 0);
    EXPECT_NE(table.out.find("data: text.txt"), std::string::npos) << table.out;
    EXPECT_NE(table.out.find("finished run over"), std::string::npos) << table.out;

    const Output shown = imatrix(strf("--show '{}' --json", path("a.dat")));
    ASSERT_EQ(shown.exit, 0) << shown.out;
    const auto json = nlohmann::json::parse(shown.out);
    EXPECT_EQ(json["run"]["n_sequence"], 10);
    EXPECT_TRUE(json["run"]["finished"]);
    bool seen = false;
    for (const auto& t : json["tensors"]) {
        EXPECT_EQ(t["n_bad"], 0);
        EXPECT_LE(t["min"], t["mean"]);
        EXPECT_LE(t["mean"], t["max"]);
        if (t["name"] != "blk.1.ffn_down_exps.weight") continue;
        seen = true;
        EXPECT_EQ(t["n_vector"], 4);
        EXPECT_EQ(t["n_col"], 32);
        EXPECT_EQ(t["n_call"], 10);
        EXPECT_EQ(t["n_row"], 2 * json["run"]["n_token"].get<int64_t>());
    }
    EXPECT_TRUE(seen);
}

TEST_F(Imatrix, KilledAtAnyMomentItLeavesNoFileOrOneToContinueFrom) {
    ASSERT_EQ(imatrix(collect("whole.dat", "-q")).exit, 0);
    const std::string whole = read(path("whole.dat"));
    int n_continued = 0;
    for (const char* delay : {"0.03", "0.06", "0.1", "0.15", "0.2"}) {
        const std::string out = strf("killed{}.dat", delay);
        imatrix(collect(out, "-q --save-every 0 --resume"), strf("timeout -s KILL {}", delay));
        if (fs::exists(path(out))) {
            ++n_continued;
            EXPECT_EQ(imatrix(strf("--show '{}'", path(out))).exit, 0) << delay;
        }
        const Output rest = imatrix(collect(out, "--resume"));
        ASSERT_EQ(rest.exit, 0) << rest.out;
        EXPECT_TRUE(read(path(out)) == whole) << delay;
    }
    std::printf("%d of 5 runs were continued from a file\n", n_continued);
}

TEST_F(Imatrix, AnInterruptSavesWhatIsThere) {
    ASSERT_EQ(imatrix(collect("whole.dat", "-q")).exit, 0);
    // Interrupted as soon as the first save is seen, so that something is done and something is left.
    const Output stopped = shell(
        strf("'{}' imatrix {} & p=$!; while [ ! -e '{}' ]; do sleep 0.01; done; kill -INT $p; wait $p; echo exit $?",
             VESTA_BINARY, collect("stopped.dat", "--save-every 0"), path("stopped.dat")));
    const bool was_stopped = stopped.out.find("--resume continues") != std::string::npos;
    EXPECT_NE(stopped.out.find(was_stopped ? "exit 130" : "exit 0"), std::string::npos) << stopped.out;
    const Output rest = imatrix(collect("stopped.dat", "--resume"));
    ASSERT_EQ(rest.exit, 0) << rest.out;
    EXPECT_TRUE(read(path("stopped.dat")) == read(path("whole.dat")));
}

TEST_F(Imatrix, MergesAndRefusesToOverwrite) {
    ASSERT_EQ(imatrix(collect("a.dat", "-q --chunks 5")).exit, 0);
    ASSERT_EQ(imatrix(collect("b.dat", "-q --chunks 7")).exit, 0);
    const std::string merge = strf("--merge '{}' '{}' --out '{}'", path("a.dat"), path("b.dat"), path("c.dat"));
    const Output merged = imatrix(merge);
    ASSERT_EQ(merged.exit, 0) << merged.out;
    EXPECT_NE(merged.out.find("12 sequences of 2 files"), std::string::npos) << merged.out;
    EXPECT_EQ(imatrix(merge).exit, 2);
    EXPECT_EQ(imatrix(merge + " --force").exit, 0);
    const Output again = imatrix(collect("a.dat", "--chunks 5"));
    EXPECT_EQ(again.exit, 2);
    EXPECT_NE(again.out.find("--resume continues it, --force replaces it"), std::string::npos) << again.out;
    EXPECT_NE(imatrix(collect("c.dat", "--resume")).out.find("merged"), std::string::npos);
}

TEST_F(Imatrix, WrongUseAndWrongFilesHaveTheirExitCodes) {
    EXPECT_EQ(imatrix("").exit, 2);
    EXPECT_EQ(imatrix(strf("-m '{}' --out '{}'", model, path("x.dat"))).exit, 2);
    EXPECT_EQ(imatrix(strf("--show '{}' --merge a", path("x.dat"))).exit, 2);
    EXPECT_EQ(imatrix(strf("--show '{}'", path("text.txt"))).exit, 3);
    EXPECT_EQ(imatrix(strf("--show '{}'", path("missing.dat"))).exit, 1);
    EXPECT_EQ(imatrix(strf("--show '{}'", model)).exit, 4);  // GGUF
    std::ofstream(dir / "blank.txt") << "\n \n";
    const Output blank = imatrix(strf("-m '{}' --data '{}' --out '{}'", model, path("blank.txt"), path("x.dat")));
    EXPECT_EQ(blank.exit, 3);
    EXPECT_NE(blank.out.find("no text in it"), std::string::npos) << blank.out;
    EXPECT_FALSE(fs::exists(path("x.dat")));
}

}  // namespace
}  // namespace vesta
