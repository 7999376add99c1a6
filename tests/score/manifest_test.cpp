// Manifests, verdicts on greedy answers, and the comparison of two results: small cases with known outcomes.
#include "score/manifest.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "score/cases.h"
#include "score/compare.h"

namespace vesta::score {
namespace {

TEST(Manifest, ThePocketsEvaluationSetIsRead) {
    const std::string text = read_text_file(std::string(VESTA_TEST_DATA) + "/pocket_eval.jsonl").value();
    const auto cases = parse_manifest(text, "pocket_eval.jsonl");
    ASSERT_TRUE(cases.ok()) << cases.error().message;
    ASSERT_EQ(cases.value().size(), 400u);
    int n_pattern = 0, n_final = 0;
    for (const Case& c : cases.value()) {
        n_pattern += c.pattern.has_value();
        n_final += !c.final_answer.empty();
        EXPECT_EQ(c.end, true);
        EXPECT_GT(c.max_tokens, 0);
    }
    EXPECT_EQ(n_pattern, 14);
    EXPECT_EQ(n_final, 80);
}

TEST(Manifest, BadLinesAreNamed) {
    for (const auto& [text, part] :
         {std::pair<const char*, const char*>{"", "no cases"},
          {"\n\n", "no cases"},
          {"{}", "line 1"},
          {"[1]", "line 1: not a JSON object"},
          {"{\"prompt\": \"a\", \"continuation\": \"b\"}\n{bad", "line 2"},
          {R"({"prompt": 3, "continuation": "b"})", "'prompt' is number"},
          {R"({"prompt": "a"})", "'continuation' or an 'answer'"},
          {R"({"prompt": "a", "continuation": "b", "answer": "c"})", "not both"},
          {R"({"prompt": "a", "continuation": ""})", "empty"},
          {R"({"prompt": "a", "continuation": "b", "max_tokens": 0})", "max_tokens"},
          {R"({"prompt": "a", "continuation": "b", "max_tokens": 1e99})", "max_tokens"},
          {R"({"prompt": "a", "continuation": "b", "max_tokens": 18446744073709551615})", "max_tokens"},
          {R"({"prompt": "a", "answer": "(a*)*b", "match": "regex"})", "pattern"},
          {R"({"prompt": "a", "answer": "b", "match": "fuzzy"})", "exact or regex"},
          {"{\"id\": 1, \"prompt\": \"a\", \"continuation\": \"b\"}\n{\"id\": \"1\", \"prompt\": \"a\", "
           "\"continuation\": \"b\"}",
           "used before"}}) {
        const auto cases = parse_manifest(text, "m.jsonl");
        ASSERT_FALSE(cases.ok()) << text;
        EXPECT_NE(cases.error().message.find(part), std::string::npos) << cases.error().message;
        EXPECT_EQ(cases.error().message.rfind("m.jsonl", 0), 0u) << cases.error().message;
    }
    EXPECT_FALSE(parse_manifest(std::string(100000, '['), "m.jsonl").ok());
}

TEST(Manifest, PatternsWantWordsAndLength) {
    const auto p = Pattern::parse("(?s)(?=.*Karl)(?=.*dog).{12,}");
    ASSERT_TRUE(p);
    EXPECT_TRUE(p->matches("the dog\nof Karl"));
    EXPECT_FALSE(p->matches("dog, Karl"));
    EXPECT_FALSE(p->matches("the dog of somebody else"));
    EXPECT_FALSE(p->matches("Karl dog \xc3\xa9\xc3\xa9"));  // 11 characters in 13 bytes
    for (const char* bad : {"", "Karl", "(?s)", "(?s)(?=.*a.*b).{1,}", "(?s)(?=.*).{1,}", "(?s)(?=.*a).{,}",
                            "(?s).{-1,}", "(?s)(?=.*a", "(?s).{99999999999999999999,}", "(?s).{1,}x"})
        EXPECT_FALSE(Pattern::parse(bad)) << bad;
}

Case wanted(std::string continuation, bool end, std::string final_answer = {}) {
    Case c;
    c.continuation = std::move(continuation);
    c.end = end;
    c.final_answer = std::move(final_answer);
    return c;
}

TEST(Verdicts, FollowTheirRules) {
    const Case whole = wanted("Paris.", true), open = wanted("Paris.", false),
               thinks = wanted("hm</think>Paris.", true, "Paris.");
    EXPECT_EQ(judge(whole, "Par", false), Verdict::undecided);
    EXPECT_EQ(judge(whole, "Pax", false), Verdict::wrong);
    EXPECT_EQ(judge(whole, "Paris.", false), Verdict::undecided);  // it may go on
    EXPECT_EQ(judge(whole, "Paris.\n", true), Verdict::right);
    EXPECT_EQ(judge(whole, "Paris. It", false), Verdict::wrong);
    EXPECT_EQ(judge(whole, "Par", true), Verdict::wrong);
    EXPECT_EQ(judge(open, "Paris. It", false), Verdict::right);
    EXPECT_EQ(judge(open, "Par", true), Verdict::wrong);
    EXPECT_EQ(judge(thinks, "no idea", false), Verdict::undecided);
    EXPECT_EQ(judge(thinks, "other thoughts</think> Paris.", true), Verdict::right);
    EXPECT_EQ(judge(thinks, "Paris.</think>Rome.", true), Verdict::wrong);
    EXPECT_EQ(judge(thinks, "Paris.", true), Verdict::right);
}

CaseResult result(const std::string& id, const std::string& kind, double nll, int64_t n, bool correct) {
    CaseResult r;
    r.id = id, r.kind = kind, r.hash = std::hash<std::string>()(id);
    r.n_token = n, r.nll = nll, r.first_rank = correct ? 1 : 3, r.correct = correct;
    return r;
}

TEST(Results, ComeBackFromTheirLines) {
    CaseResult r = result("a\n\"b", "k", 1.0 / 3, 7, true);
    r.output = "x\xff";
    CaseResult pattern;
    pattern.id = "p", pattern.hash = 5, pattern.correct = false;
    const auto back = parse_results(to_json_line(r) + "\n" + to_json_line(pattern), "r");
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back.value()[0].id, r.id);
    EXPECT_EQ(back.value()[0].hash, r.hash);
    EXPECT_EQ(back.value()[0].nll, r.nll);  // doubles are written so that they come back exactly
    EXPECT_EQ(back.value()[0].correct, true);
    EXPECT_EQ(back.value()[0].output, "x\xef\xbf\xbd");
    EXPECT_EQ(back.value()[1].n_token, 0);
    for (const char* bad : {"", "{}", R"({"id": "a", "case": "xyz"})", R"({"id": "a", "case": "1", "n_token": 3})",
                            R"({"id": "a", "case": "1", "n_token": 3, "nll": null})"})
        EXPECT_FALSE(parse_results(bad, "r").ok()) << bad;
}

TEST(Compare, CountsWinsAndAnswersPerKind) {
    const std::vector<CaseResult> a = {result("1", "x", 4, 2, true), result("2", "x", 3, 3, true),
                                       result("3", "y", 5, 5, false), result("4", "y", 8, 4, true),
                                       result("only a", "y", 1, 1, true)};
    const std::vector<CaseResult> b = {result("4", "y", 6, 4, false), result("1", "x", 2, 2, true),
                                       result("2", "x", 3, 3, false), result("3", "y", 10, 5, false)};
    const auto c = compare_results(a, b);
    ASSERT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(c.value().n_common, 4);
    EXPECT_EQ(c.value().n_only_a, 1);
    EXPECT_EQ(c.value().n_only_b, 0);
    ASSERT_EQ(c.value().groups.size(), 3u);
    const CompareGroup& all = c.value().groups[0];
    EXPECT_EQ(all.b_wins, 2);  // 1 and 4
    EXPECT_EQ(all.a_wins, 1);  // 3
    EXPECT_EQ(all.ties, 1);    // 2
    EXPECT_NEAR(all.nll.difference.mean, (-1 + 0 + 1 - 0.5) / 4, 1e-15);
    EXPECT_EQ(all.a_right, 3);
    EXPECT_EQ(all.b_right, 1);
    EXPECT_EQ(all.only_a, 2);
    EXPECT_NEAR(all.answer_p, 0.5, 1e-12);
    EXPECT_EQ(c.value().groups[1].kind, "x");
    EXPECT_EQ(c.value().groups[1].n_nll, 2);

    std::vector<CaseResult> other = b;
    other[0].hash ^= 1;
    EXPECT_FALSE(compare_results(a, other).ok());
    EXPECT_FALSE(compare_results(a, std::vector<CaseResult>{result("z", "x", 1, 1, true)}).ok());
}

TEST(Compare, AccuracyIsPerKind) {
    const auto kinds =
        accuracy_by_kind(std::vector<CaseResult>{result("1", "x", 4, 2, true), result("2", "y", 3, 3, false)});
    ASSERT_EQ(kinds.size(), 3u);
    EXPECT_EQ(kinds[0].n_right, 1);
    EXPECT_DOUBLE_EQ(kinds[0].mean_nll.mean, 1.5);
    EXPECT_EQ(kinds[1].kind, "x");
}

}  // namespace
}  // namespace vesta::score
