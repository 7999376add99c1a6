// `vesta run` as a user meets it: the built program, its streams and exit codes. Skipped when the program or a model is
// not there (VESTA_PROGRAM is given by CMake).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"

namespace vesta {
namespace {

constexpr const char* kModel = VESTA_SOURCE_DIR "/models/pocket.gguf";

struct Outcome {
    int code = -1;
    std::string out, err;
};

enum class Input { null, closed, text };

std::string fresh_path(const char* name) {
    static int serial = 0;
    return std::string(VESTA_TEST_TMP) + "/run-" + std::to_string(::getpid()) + "-" + std::to_string(serial++) + name;
}

// Runs `vesta run <arguments>` with output in files, so that neither side can block on a pipe.
Outcome vesta_run(std::vector<std::string> arguments, Input input = Input::null, const std::string& text = {}) {
    arguments.insert(arguments.begin(), {VESTA_PROGRAM, "run"});
    const std::string in = fresh_path("in"), out = fresh_path("out"), err = fresh_path("err");
    int fds[2] = {-1, -1};
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
        ::close(STDIN_FILENO);
        if (input == Input::null) ::open("/dev/null", O_RDONLY);
        if (input == Input::text) ::dup2(fds[0], STDIN_FILENO);
        ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDOUT_FILENO);
        ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDERR_FILENO);
        std::vector<char*> argv;
        for (std::string& a : arguments) argv.push_back(a.data());
        argv.push_back(nullptr);
        ::execv(argv[0], argv.data());
        ::_exit(127);
    }
    ::close(fds[0]);
    EXPECT_EQ(::write(fds[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(fds[1]);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    Outcome outcome;
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    outcome.out = read_text_file(out).value();
    outcome.err = read_text_file(err).value();
    ::unlink(out.c_str());
    ::unlink(err.c_str());
    return outcome;
}

class Run : public testing::Test {
 protected:
    void SetUp() override {
        ASSERT_TRUE(file_exists(VESTA_PROGRAM)) << VESTA_PROGRAM << " is not built";
        ::signal(SIGPIPE, SIG_IGN);
        ::unsetenv("VESTA_MODEL");
    }
};

class RunModel : public Run {
 protected:
    void SetUp() override {
        Run::SetUp();
        ASSERT_TRUE(file_exists(kModel)) << kModel << " belongs to the repository";
    }
    // Short and reproducible.
    static std::vector<std::string> greedy(std::vector<std::string> more) {
        std::vector<std::string> a = {"-m", kModel, "--temp", "0", "-n", "8", "--nothink"};
        a.insert(a.end(), more.begin(), more.end());
        return a;
    }
};

void expect_usage(const Outcome& o, const std::string& part) {
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
}

TEST_F(Run, HelpIsOnStdoutAndSucceeds) {
    const Outcome o = vesta_run({"--help"});
    EXPECT_EQ(o.code, 0);
    EXPECT_NE(o.out.find("--prompt-file"), std::string::npos);
}

TEST_F(Run, RefusesCommandLinesThatMakeNoSense) {
    expect_usage(vesta_run({"--no-such-flag"}), "--no-such-flag");
    expect_usage(vesta_run({"-p", "a", "--prompt-file", "b"}), "only one prompt");
    expect_usage(vesta_run({"-p", "a", "--interactive"}), "--interactive");
    expect_usage(vesta_run({"-p", ""}), "the prompt is empty (-p)");
    expect_usage(vesta_run({}), "the prompt is empty (stdin)");
    expect_usage(vesta_run({}, Input::closed), "the prompt is empty (stdin)");
    expect_usage(vesta_run({"-p", "a", "--temp", "-1"}), "temperature is -1, expected 0 (greedy) to 100");
    expect_usage(vesta_run({"-p", "a", "--temp", "hot"}), "--temp");
    expect_usage(vesta_run({"-p", "a", "--top-p", "0"}), "top_p is 0");
    expect_usage(vesta_run({"-p", "a", "--min-p", "nan"}), "min_p is nan");
    expect_usage(vesta_run({"-p", "a", "--logit-bias", "17"}), "expected ID=VALUE");
    expect_usage(vesta_run({"-p", "a", "--logit-bias", "x=1"}), "expected ID=VALUE");
    expect_usage(vesta_run({"-p", "a", "--logit-bias", "17=101"}), "logit_bias of token 17 is 101");
    expect_usage(vesta_run({"-p", "a", "--think", "--nothink"}), "--nothink");
    expect_usage(vesta_run({"-p", "a", "--backend", "cuda"}), "--backend");
    expect_usage(vesta_run({"-p", "a", "--kv", "int4"}), "--kv");
    expect_usage(vesta_run({"-p", "a", "--ctx", "0"}), "--ctx");
    expect_usage(vesta_run({"-p", "a", "--chunk", "0"}), "--chunk");
    expect_usage(vesta_run({"-p", "a", "--stop", ""}), "--stop is empty");
    expect_usage(vesta_run({"--interactive", "--raw"}), "--raw needs a prompt");
    expect_usage(vesta_run({"--interactive", "--dump-tokens"}), "--dump-tokens needs a prompt");
    expect_usage(vesta_run({"--interactive", "--dump-logprobs", "f"}), "--dump-logprobs needs a prompt");
}

TEST_F(Run, NamesAFileThatIsMissingOrNoModel) {
    Outcome o = vesta_run({"-m", "/no/such.gguf", "-p", "a"});
    EXPECT_EQ(o.code, 1);
    EXPECT_NE(o.err.find("/no/such.gguf"), std::string::npos);
    o = vesta_run({"-m", VESTA_PROGRAM, "-p", "a"});
    EXPECT_EQ(o.code, 3) << o.err;
    EXPECT_EQ(o.out, "");
    o = vesta_run({"--prompt-file", "/no/such.txt"});
    EXPECT_EQ(o.code, 1);
    EXPECT_NE(o.err.find("/no/such.txt"), std::string::npos);
}

TEST_F(RunModel, StdoutCarriesTheAnswerAndNothingElse) {
    const Outcome o = vesta_run(greedy({"-p", "Where is Rome?"}));
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_FALSE(o.out.empty());
    EXPECT_EQ(o.out.find("tok/s"), std::string::npos);
    EXPECT_NE(o.err.find("tok/s"), std::string::npos);
    EXPECT_EQ(o.out.find('\x1b'), std::string::npos);
    EXPECT_EQ(o.err.find('\x1b'), std::string::npos);  // no colours off a terminal
    const Outcome quiet = vesta_run(greedy({"-p", "Where is Rome?", "--quiet"}));
    EXPECT_EQ(quiet.out, o.out);
}

// A program that is started by a script may have any kind of stdin; -p must not care.
TEST_F(RunModel, PromptFlagWorksWithAnyStdin) {
    const auto arguments = greedy({"-p", "Where is Rome?", "--no-stats"});
    const Outcome null = vesta_run(arguments, Input::null);
    const Outcome closed = vesta_run(arguments, Input::closed);
    const Outcome pipe = vesta_run(arguments, Input::text, "not the prompt");
    EXPECT_EQ(null.code, 0) << null.err;
    EXPECT_EQ(closed.code, 0) << closed.err;
    EXPECT_EQ(pipe.code, 0) << pipe.err;
    EXPECT_EQ(closed.out, null.out);
    EXPECT_EQ(pipe.out, null.out);
}

TEST_F(RunModel, ThePromptSourcesAgree) {
    const std::string question = "Where is Rome?";
    const Outcome flag = vesta_run(greedy({"-p", question}));
    const Outcome stdin_text = vesta_run(greedy({}), Input::text, question + "\n");
    const std::string path = fresh_path("prompt");
    {
        auto file = AtomicFile::create(path, true);
        ASSERT_TRUE(file.ok() && file.value().write(std::as_bytes(std::span(question))).ok() &&
                    file.value().commit().ok());
    }
    const Outcome file = vesta_run(greedy({"--prompt-file", path}));
    const Outcome dash = vesta_run(greedy({"--prompt-file", "-"}), Input::text, question);
    ::unlink(path.c_str());
    EXPECT_EQ(stdin_text.out, flag.out);
    EXPECT_EQ(file.out, flag.out);
    EXPECT_EQ(dash.out, flag.out);
}

TEST_F(RunModel, OneSeedGivesOneText) {
    const std::vector<std::string> a = {"-m", kModel, "-p", "Tell me a story.", "-n", "24", "--nothink", "--seed", "5"};
    const Outcome one = vesta_run(a), two = vesta_run(a);
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_EQ(one.out, two.out);
    EXPECT_NE(one.err.find("seed 5"), std::string::npos);
}

TEST_F(RunModel, LengthIsSaidOnStderr) {
    const Outcome o = vesta_run({"-m", kModel, "-p", "Tell me a story.", "-n", "3", "--temp", "0", "--nothink"});
    EXPECT_EQ(o.code, 0);
    EXPECT_NE(o.err.find("length: stopped after 3 tokens"), std::string::npos) << o.err;
    const Outcome full = vesta_run({"-m", kModel, "-p", "Tell me a story.", "--ctx", "16", "--temp", "0", "--nothink"});
    EXPECT_EQ(full.code, 0) << full.err;
    EXPECT_NE(full.err.find("context of 16 tokens is full"), std::string::npos) << full.err;
    const Outcome too_long = vesta_run({"-m", kModel, "-p", "Tell me a story.", "--ctx", "4"});
    EXPECT_EQ(too_long.code, 2);
    EXPECT_NE(too_long.err.find("the context holds 4"), std::string::npos) << too_long.err;
}

TEST_F(RunModel, StopsBeforeAStopString) {
    const Outcome all = vesta_run(greedy({"-p", "Where is Rome?"}));
    ASSERT_GT(all.out.size(), 4u);
    const std::string stop = all.out.substr(2, 3);
    const Outcome cut = vesta_run(greedy({"-p", "Where is Rome?", "--stop", stop}));
    EXPECT_EQ(cut.out, all.out.substr(0, all.out.find(stop)));
    EXPECT_NE(cut.err.find("stop_string"), std::string::npos);
}

TEST_F(RunModel, DumpTokensTellsUserTextFromMarkers) {
    const Outcome chat = vesta_run({"-m", kModel, "-p", "<｜User｜>", "--dump-tokens", "--nothink"});
    EXPECT_EQ(chat.code, 0) << chat.err;
    const auto count = [](const std::string& text, std::string_view what) {
        size_t n = 0;
        for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
        return n;
    };
    EXPECT_EQ(count(chat.out, "\"<｜User｜>\""), 1u) << chat.out;  // the renderer's, not the user's
    const Outcome raw = vesta_run({"-m", kModel, "-p", "<｜User｜>x<｜User｜>", "--dump-tokens", "--raw"});
    EXPECT_EQ(count(raw.out, "\"<｜User｜>\""), 2u) << raw.out;
    EXPECT_EQ(count(raw.out, "\n"), 3u);
}

TEST_F(RunModel, DumpLogprobsHoldsTheGreedyPath) {
    const std::string path = fresh_path("logprobs.json");
    const Outcome o = vesta_run(greedy({"-p", "Where is Rome?", "--dump-logprobs", path}));
    ASSERT_EQ(o.code, 0) << o.err;
    const auto json = nlohmann::json::parse(read_text_file(path).value(), nullptr, false);
    ::unlink(path.c_str());
    ASSERT_FALSE(json.is_discarded());
    ASSERT_GT(json["steps"].size(), 0u);
    std::string text;
    auto position = json["prompt_ids"].size();
    for (const auto& step : json["steps"]) {
        EXPECT_EQ(step["top"].size(), 20u);
        EXPECT_EQ(step["top"][0]["id"], step["token"]["id"]);  // temperature 0 takes the first
        EXPECT_EQ(step["top"][0]["logprob"], step["token"]["logprob"]);
        EXPECT_EQ(step["position"], position++);
        double mass = 0, last = 0;
        for (const auto& t : step["top"]) {
            const double p = t["logprob"];
            EXPECT_LE(p, last);
            last = p;
            mass += std::exp(p);
        }
        EXPECT_LE(mass, 1 + 1e-9);
        text += step["token"]["text"].get<std::string>();
    }
    EXPECT_EQ(text.substr(0, o.out.size()), o.out);
}

TEST_F(RunModel, ChatsThroughAPipeWithCommandsSaveAndLoad) {
    const std::string path = fresh_path("chat.json");
    auto arguments = greedy({"--interactive", "--no-history"});
    const Outcome first = vesta_run(
        arguments, Input::text, "Where is Rome?\n/stats\n/bogus\nAnd Paris?\n/save " + path + "\n/quit\nnever read\n");
    EXPECT_EQ(first.code, 0) << first.err;
    EXPECT_NE(first.err.find("there is no command /bogus"), std::string::npos);
    EXPECT_NE(first.err.find("kv cache"), std::string::npos);
    const auto saved = nlohmann::json::parse(read_text_file(path).value(), nullptr, false);
    ASSERT_EQ(saved["messages"].size(), 4u);
    EXPECT_EQ(saved["messages"][0]["content"], "Where is Rome?");
    EXPECT_EQ(saved["messages"][3]["role"], "assistant");

    // The same third question after loading and in the first chat gives the same answer: the history is complete.
    const Outcome loaded = vesta_run(arguments, Input::text, "/load " + path + "\nAnd Berlin?\n");
    const Outcome straight = vesta_run(arguments, Input::text, "Where is Rome?\nAnd Paris?\nAnd Berlin?\n");
    ::unlink(path.c_str());
    EXPECT_EQ(loaded.code, 0) << loaded.err;
    EXPECT_FALSE(loaded.out.empty());
    EXPECT_TRUE(straight.out.ends_with(loaded.out)) << straight.out << "---\n" << loaded.out;
    EXPECT_EQ(first.out, straight.out.substr(0, first.out.size()));
}

// "decode 5 tokens ... prefill 7 of 30 tokens": how many were computed, for every turn.
std::vector<std::pair<int, int>> prefills(const std::string& err) {
    std::vector<std::pair<int, int>> out;
    for (size_t at = err.find("prefill "); at != std::string::npos; at = err.find("prefill ", at + 1)) {
        int computed = 0, all = 0;
        const int n = std::sscanf(err.c_str() + at, "prefill %d of %d tokens", &computed, &all);
        if (n >= 1) out.emplace_back(computed, n == 2 ? all : computed);
    }
    return out;
}

TEST_F(RunModel, SwitchingAndLoadingConversationsPrefillsNothingOfThem) {
    const std::string home = fresh_path("home");
    ::setenv("XDG_DATA_HOME", home.c_str(), 1);
    const auto arguments = greedy({"--interactive", "--no-history", "--nothink"});
    const Outcome one = vesta_run(arguments, Input::text,
                                  "Where is Rome? Tell me all about that city, please.\n/save rome\n/new\n"
                                  "Where is Oslo? Tell me all about that city, please.\n/switch rome\nWhy?\n/list\n"
                                  "/switch unnamed-1\nWhy?\n/save oslo\n/switch nobody\n/save ../evil\n/save rome\n");
    EXPECT_EQ(one.code, 0) << one.err;
    const auto turns = prefills(one.err);
    ASSERT_EQ(turns.size(), 4u) << one.err;
    for (const size_t i : {2u, 3u}) {
        EXPECT_LT(turns[i].first, 12) << "only the new message: " << one.err;
        EXPECT_GT(turns[i].second, 25);
    }
    EXPECT_NE(one.err.find("no conversation is saved as 'nobody'"), std::string::npos) << one.err;
    EXPECT_NE(one.err.find("rome is open; /switch rome"), std::string::npos) << one.err;
    EXPECT_NE(one.err.find("saved"), std::string::npos);

    // Another process goes on where that one was, with nothing computed again, and as if it had never stopped.
    const Outcome two = vesta_run(arguments, Input::text, "/load oslo\nAnd then?\n");
    ASSERT_EQ(prefills(two.err).size(), 1u) << two.err;
    EXPECT_LT(prefills(two.err)[0].first, 12) << two.err;
    const Outcome straight = vesta_run(arguments, Input::text,
                                       "Where is Oslo? Tell me all about that city, please.\nWhy?\nAnd then?\n");
    EXPECT_TRUE(straight.out.ends_with(two.out)) << straight.out << "---\n" << two.out;
    // A state file that is damaged costs time, not the conversation.
    const std::string state = home + "/vesta/conversations/oslo.vkv";
    ASSERT_TRUE(file_exists(state));
    ASSERT_EQ(::truncate(state.c_str(), 5000), 0);
    const Outcome damaged = vesta_run(arguments, Input::text, "/load oslo\nAnd then?\n");
    EXPECT_EQ(damaged.out, two.out) << damaged.err;
    EXPECT_NE(damaged.err.find(state), std::string::npos) << damaged.err;
    EXPECT_GT(prefills(damaged.err).at(0).first, 25);
    std::filesystem::remove_all(home);
    ::unsetenv("XDG_DATA_HOME");
}

// Official rendering drops the reasoning of earlier turns; only what comes after it is computed again.
TEST_F(RunModel, AfterATurnWithThinkingOnlyTheEndIsComputedAgain) {
    const Outcome o = vesta_run(greedy({"--interactive", "--no-history"}), Input::text,
                                "Where is Rome? Tell me all about that city, please, and about its history.\nWhy?\n");
    const auto turns = prefills(o.err);
    ASSERT_EQ(turns.size(), 2u) << o.err;
    EXPECT_LT(turns[1].first + 10, turns[1].second) << o.err;
}

TEST_F(RunModel, AContextThatIsTooSmallIsSaidAndTheChatGoesOn) {
    const Outcome o = vesta_run(greedy({"--interactive", "--no-history", "--ctx", "12"}), Input::text,
                                "A question that is certainly longer than twelve tokens, is it not so?\n/ctx 64\nHi\n");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find("the context holds 12"), std::string::npos) << o.err;
    EXPECT_FALSE(o.out.empty());
}

}  // namespace
}  // namespace vesta
