// `vesta score` as a user or a script meets it, with models/pocket.gguf. Texts are short: a run takes about a second.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "support/command.h"

namespace vesta {
namespace {

constexpr const char* kModel = VESTA_SOURCE_DIR "/models/pocket.gguf";

using test::Output;

Output score(const std::string& arguments, bool with_stderr = false) {
    return test::shell(strf("'{}' score {} {}", VESTA_BINARY, arguments, with_stderr ? "2>&1" : "2>/dev/null"));
}

nlohmann::json score_json(const std::string& arguments) {
    const Output run = score(arguments + " --json");
    EXPECT_EQ(run.exit, 0) << run.out;
    return nlohmann::json::parse(run.out, nullptr, false);
}

class ScoreApp : public testing::Test {
 protected:
    void SetUp() override {
        ASSERT_TRUE(file_exists(kModel)) << kModel << " belongs to the repository";
        folder_ = strf("{}/score-app-{}", VESTA_TEST_TMP, ::getpid());
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    std::string path(const std::string& name) const { return folder_ + "/" + name; }
    std::string save(const std::string& name, const std::string& text) const {
        std::ofstream(path(name), std::ios::binary) << text;
        return path(name);
    }
    std::string text() const {
        return save("text.txt",
                    "The capital of Malawi is Lilongwe. The currency of Lesotho is the loti (LSL).\n"
                    "In the beginning God created the heaven and the earth.\n");
    }
    // The first cases of three kinds.
    std::string manifest() const {
        return save(
            "cases.jsonl",
            R"({"id": "a", "kind": "facts", "prompt": "<｜begin▁of▁sentence｜><｜User｜>What is the capital of Malawi?<｜Assistant｜></think>", "answer": "The capital of Malawi is Lilongwe.", "match": "exact", "max_tokens": 24})"
            "\n"
            R"({"id": "b", "kind": "plain", "prompt": "In the beginning God created", "continuation": " the heaven"})"
            "\n"
            R"({"id": "c", "kind": "facts", "prompt": "<｜User｜>Hi<｜Assistant｜><think>", "answer": "(?s)(?=.*zzz).{5,}", "match": "regex", "max_tokens": 6})"
            "\n");
    }

    std::string folder_;
};

TEST_F(ScoreApp, ATextHasItsPerplexityAndItsBaseIsExactlyMatched) {
    const std::string model = strf("-m '{}' ", kModel),
                      common = model + strf("--text '{}' --ctx 32 --stride 16 ", text());
    const nlohmann::json j = score_json(common + strf("--save-base '{}'", path("x.base")));
    ASSERT_TRUE(j.is_object());
    EXPECT_EQ(j["partial"], false);
    EXPECT_EQ(j["n_scored"].get<int64_t>() + 1, j["text"]["tokens"].get<int64_t>());
    EXPECT_EQ(j["text"]["bos"], true);
    EXPECT_NEAR(j["ppl"]["value"].get<double>(), std::exp(j["nll"]["mean"].get<double>()), 1e-9);
    EXPECT_LT(j["ppl"]["low"].get<double>(), j["ppl"]["value"].get<double>());
    EXPECT_NEAR(
        j["bits_per_byte"].get<double>(),
        j["nll"]["mean"].get<double>() * j["n_scored"].get<double>() / std::log(2.0) / j["text"]["bytes"].get<double>(),
        1e-9);
    EXPECT_FALSE(j.contains("divergence"));

    const nlohmann::json same = score_json(common + strf("--threads 1 --base '{}'", path("x.base")));
    EXPECT_EQ(same["nll"], j["nll"]);
    EXPECT_EQ(same["divergence"]["kl"]["mean"], 0.0);
    EXPECT_EQ(same["divergence"]["same_top1"]["mean"], 1.0);
    EXPECT_EQ(same["divergence"]["delta_nll"]["mean"], 0.0);
    const nlohmann::json rounded = score_json(common + strf("--kv f32 --base '{}'", path("x.base")));
    EXPECT_GT(rounded["divergence"]["kl"]["mean"].get<double>(), 0.0);

    Output run = score(common + strf("--base '{}' --no-bos", path("x.base")), true);
    EXPECT_EQ(run.exit, 2);
    EXPECT_NE(run.out.find("a comparison needs the same text"), std::string::npos) << run.out;
    run = score(common + strf("--save-base '{}'", path("x.base")), true);
    EXPECT_EQ(run.exit, 2);
    EXPECT_NE(run.out.find("exists already"), std::string::npos) << run.out;
    run = score(model + strf("--text '{0}' --base '{0}'", text()), true);
    EXPECT_EQ(run.exit, 3);
    EXPECT_NE(run.out.find("not a base file"), std::string::npos) << run.out;
    EXPECT_NE(score(common).out.find("perplexity"), std::string::npos);
}

TEST_F(ScoreApp, IdsAreScoredAsTheyAre) {
    const std::string ids = save("ids.txt", "[0, 4083, 2059, 454]\n812 264");
    const nlohmann::json j = score_json(strf("-m '{}' --ids '{}' --ctx 16", kModel, ids));
    EXPECT_EQ(j["n_scored"], 5);
    const Output run = score(strf("-m '{}' --ids '{}'", kModel, save("bad.txt", "1 2 4096")), true);
    EXPECT_EQ(run.exit, 3);
    EXPECT_NE(run.out.find("'4096' at number 3"), std::string::npos) << run.out;
}

TEST_F(ScoreApp, AManifestIsScoredJudgedAndComparedWithItself) {
    const std::string common = strf("-m '{}' --manifest '{}' ", kModel, manifest());
    const nlohmann::json j = score_json(common + strf("--greedy --out '{}'", path("a.jsonl")));
    ASSERT_TRUE(j.is_object());
    EXPECT_EQ(j["n_case"], 3);
    ASSERT_EQ(j["kinds"].size(), 3u);
    EXPECT_EQ(j["kinds"][0]["kind"], "all");
    EXPECT_EQ(j["kinds"][0]["judged"], 3);
    EXPECT_EQ(j["kinds"][1]["kind"], "facts");
    std::ifstream in(path("a.jsonl"));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0]["id"], "a");
    EXPECT_GE(lines[0]["first_rank"].get<int>(), 1);
    EXPECT_TRUE(lines[0]["correct"].is_boolean());
    EXPECT_FALSE(lines[2].contains("nll"));
    EXPECT_EQ(lines[2]["correct"], false);

    const nlohmann::json c = score_json(strf("--compare '{0}' '{0}'", path("a.jsonl")));
    EXPECT_EQ(c["n_common"], 3);
    EXPECT_EQ(c["groups"][0]["nll"]["ties"], 2);
    EXPECT_EQ(c["groups"][0]["nll"]["t_p"], 1.0);
    EXPECT_EQ(c["groups"][0]["answers"]["only_a"], 0);
    const nlohmann::json two = score_json(common + strf("--limit 1 --compare-model '{}'", kModel));
    EXPECT_EQ(two["comparison"]["n_common"], 2);
    EXPECT_EQ(two["comparison"]["groups"][0]["nll"]["ties"], 2);
    EXPECT_NE(score(strf("--compare '{0}' '{0}'", path("a.jsonl"))).out.find("Wilcoxon"), std::string::npos);
}

TEST_F(ScoreApp, CommandLinesThatMakeNoSenseAreUsageErrors) {
    for (const char* arguments :
         {"", "--text a --manifest b", "--compare one", "--greedy --text a", "--text a --ctx 0"})
        EXPECT_EQ(score(arguments).exit, 2) << arguments;
    EXPECT_EQ(score(strf("-m '{}' --text '{}' --ctx 8 --stride 9", kModel, text())).exit, 2);
    EXPECT_EQ(score(strf("-m '{}' --text '{}'", kModel, save("short.txt", ""))).exit, 2);
    EXPECT_EQ(score("--help").exit, 0);
}

}  // namespace
}  // namespace vesta
