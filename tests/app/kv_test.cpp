// `vesta kv` as a user or a script sees it: the program is run on folders of files made by hand.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "snapshot/file.h"
#include "support/command.h"

namespace vesta {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using snapshot::Reason;
using test::Output;

class Kv : public ::testing::Test {
 protected:
    Kv() {
        dir = fs::path(VESTA_TEST_TMP) / strf("kv_app_{}", ::getpid());
        fs::remove_all(dir);
        fs::create_directories(dir);
        fs::permissions(dir, fs::perms::owner_all);
    }
    ~Kv() override { fs::remove_all(dir); }

    // `hours`: how long ago it was written.
    void write(const std::string& name, size_t n_token, Reason reason = Reason::cold, int hours = 1,
               const std::string& text = "some text") {
        const std::vector<int32_t> tokens(n_token, 5);
        const std::vector<std::byte> rows(10000, std::byte{1});
        snapshot::View view;
        view.header = {.model = 0xABCDEF0123456789, .reason = reason, .created = std::time(nullptr) - hours * 3600};
        view.tokens = tokens;
        view.layer = {rows};
        view.text = text;
        const Status status = snapshot::write(path(name), view, {});
        ASSERT_TRUE(status.ok()) << status.error().message;
    }
    void damage(const std::string& name) {
        std::fstream f(path(name), std::ios::in | std::ios::out | std::ios::binary);
        f.seekp(static_cast<std::streamoff>(fs::file_size(path(name))) - 100);
        f << "damage";
    }
    std::string path(const std::string& name) const { return (dir / name).string(); }
    Output kv(const std::string& arguments) const {
        return test::shell(strf("'{}' kv {} 2>&1", VESTA_BINARY, arguments));
    }
    json kv_json(const std::string& arguments) const {
        const Output run = test::shell(strf("'{}' kv {} --json", VESTA_BINARY, arguments));
        return json::parse(run.out);
    }
    std::vector<std::string> names() const {
        std::vector<std::string> out;
        for (const auto& e : fs::directory_iterator(dir))
            if (e.path().filename() != ".lock") out.push_back(e.path().filename().string());
        std::sort(out.begin(), out.end());
        return out;
    }
    fs::path dir;
};

TEST_F(Kv, ListsTheLastUsedFirst) {
    write("old.kv", 700, Reason::continued, 30);
    write("new.kv", 900, Reason::manual, 2);
    ASSERT_TRUE(snapshot::record_use(path("old.kv"), std::time(nullptr) - 60).ok());
    std::ofstream(path("cut.kv")) << "short";
    fs::last_write_time(path("cut.kv"), fs::file_time_type::clock::now() - std::chrono::hours(100));
    std::ofstream(path("was.kv.bad")) << "123";
    const json j = kv_json(strf("ls '{}'", dir.string()));
    ASSERT_EQ(j["files"].size(), 3u);
    EXPECT_EQ(j["files"][0]["name"], "old.kv");
    EXPECT_EQ(j["files"][0]["hits"], 1);
    EXPECT_EQ(j["files"][0]["tokens"], 700);
    EXPECT_EQ(j["files"][0]["reason"], "continued");
    EXPECT_EQ(j["files"][0]["model"], "abcdef0123456789");
    EXPECT_EQ(j["files"][1]["name"], "new.kv");
    EXPECT_GT(j["files"][1]["value"], j["files"][0]["value"]);  // somebody asked for it
    EXPECT_EQ(j["files"][2]["name"], "cut.kv");
    EXPECT_TRUE(j["files"][2].contains("problem"));
    EXPECT_EQ(j["bad"][0]["name"], "was.kv.bad");
    EXPECT_EQ(j["total_bytes"], fs::file_size(path("old.kv")) + fs::file_size(path("new.kv")) + 8);
    const Output text = kv(strf("ls '{}'", dir.string()));
    EXPECT_EQ(text.exit, 0);
    EXPECT_NE(text.out.find("2 h ago  abcdef01  new.kv"), std::string::npos) << text.out;
}

TEST_F(Kv, ShowsTheConversationHarmlessToATerminal) {
    std::string text = "\xFF\x01<\xEF\xBD\x9CUser\xEF\xBD\x9C>\xFF\x02Where is \x1b[31mRome?\n";
    for (int i = 0; i < 300; ++i) text += strf("line {}\n", i);
    write("a.kv", 1000, Reason::evict, 5, text);
    const Output brief = kv(strf("show '{}'", path("a.kv")));
    EXPECT_EQ(brief.exit, 0);
    EXPECT_NE(brief.out.find("<｜User｜>Where is \\x1b[31mRome?\nline 0\n"), std::string::npos) << brief.out;
    EXPECT_EQ(brief.out.find("line 150\n"), std::string::npos);
    EXPECT_NE(brief.out.find("line 299\n"), std::string::npos);
    EXPECT_NE(brief.out.find("evict, 5 h ago"), std::string::npos);
    EXPECT_NE(kv(strf("show --full '{}'", path("a.kv"))).out.find("line 150\n"), std::string::npos);
    EXPECT_EQ(kv_json(strf("show '{}'", path("a.kv")))["tokens"], 1000);
}

TEST_F(Kv, VerifyTouchesNothingUnlessItIsAskedTo) {
    write("good.kv", 10);
    write("bad.kv", 10);
    damage("bad.kv");
    const Output sound = kv(strf("verify '{}'", path("good.kv")));
    EXPECT_EQ(sound.exit, 0);
    EXPECT_NE(sound.out.find("1 file, 0 with problems"), std::string::npos) << sound.out;
    const Output found = kv(strf("verify '{}'", dir.string()));
    EXPECT_EQ(found.exit, 3);
    EXPECT_NE(found.out.find("checksum"), std::string::npos) << found.out;
    EXPECT_EQ(names(), (std::vector<std::string>{"bad.kv", "good.kv"}));
    EXPECT_EQ(kv_json(strf("verify '{}' --set-aside", dir.string()))["damaged"], 1);
    EXPECT_EQ(names(), (std::vector<std::string>{"bad.kv.bad", "good.kv"}));
    EXPECT_EQ(kv(strf("verify '{}'", dir.string())).exit, 0);
}

TEST_F(Kv, PrunesByAgeAndToABudgetTheLeastValuableFirst) {
    write("ancient.kv", 5000, Reason::cold, 24 * 40);
    write("asked.kv", 500, Reason::manual, 24 * 20);
    write("small.kv", 100, Reason::cold, 24);
    write("large.kv", 2000, Reason::cold, 24);
    const Output dry = kv(strf("prune '{}' --older-than 30d -n", dir.string()));
    EXPECT_EQ(dry.exit, 0);
    EXPECT_NE(dry.out.find("would remove ancient.kv"), std::string::npos) << dry.out;
    EXPECT_EQ(names().size(), 4u);
    EXPECT_EQ(kv(strf("prune '{}' --older-than 30d", dir.string())).exit, 0);
    EXPECT_EQ(names(), (std::vector<std::string>{"asked.kv", "large.kv", "small.kv"}));
    const uint64_t two = fs::file_size(path("asked.kv")) + fs::file_size(path("large.kv"));
    const json j = kv_json(strf("prune '{}' --budget {}", dir.string(), two));
    EXPECT_EQ(j["left_bytes"], two);
    EXPECT_EQ(names(), (std::vector<std::string>{"asked.kv", "large.kv"}));
    std::ofstream(path("x.kv.bad")) << "123";
    EXPECT_EQ(kv(strf("prune '{}' --bad", dir.string())).exit, 0);
    EXPECT_EQ(names(), (std::vector<std::string>{"asked.kv", "large.kv"}));
    EXPECT_EQ(kv(strf("prune '{}' --budget 0", dir.string())).exit, 0);
    EXPECT_EQ(names(), std::vector<std::string>{});
}

TEST_F(Kv, MistakesHaveTheirExitCodes) {
    EXPECT_EQ(kv("").exit, 2);
    EXPECT_EQ(kv("ls").exit, 2);
    EXPECT_EQ(kv(strf("prune '{}'", dir.string())).exit, 2);
    EXPECT_EQ(kv(strf("prune '{}' --older-than 30", dir.string())).exit, 2);
    EXPECT_EQ(kv(strf("ls '{}'", path("missing"))).exit, 1);
    EXPECT_EQ(kv(strf("show '{}'", path("missing.kv"))).exit, 1);
    write("a.kv", 10);
    damage("a.kv");
    fs::resize_file(path("a.kv"), 5000);
    EXPECT_EQ(kv(strf("show '{}'", path("a.kv"))).exit, 3);
    const Output help = kv("--help");
    EXPECT_EQ(help.exit, 0);
    EXPECT_NE(help.out.find("vesta kv prune"), std::string::npos);
    EXPECT_EQ(kv("prune --help").exit, 0);
    fs::permissions(dir, fs::perms::all);
    const Output open = kv(strf("ls '{}'", dir.string()));
    EXPECT_EQ(open.exit, 2);
    EXPECT_NE(open.out.find("chmod 700"), std::string::npos);
}

}  // namespace
}  // namespace vesta
