#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "sample/count_allocations.h"

namespace vesta::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplerParams plain() {  // every step off: the distribution is the softmax
    SamplerParams p;
    p.min_p = 0;
    return p;
}

Sampler make(const SamplerParams& params, size_t n_vocab) {
    auto sampler = Sampler::create(params, static_cast<int32_t>(n_vocab));
    EXPECT_TRUE(sampler.ok()) << sampler.error().message;
    return std::move(sampler).value();
}

std::map<int32_t, double> probabilities(Sampler& sampler, const std::vector<float>& logits) {
    std::map<int32_t, double> p;
    const auto d = sampler.distribution(logits);
    EXPECT_TRUE(d.ok());
    if (d.ok())
        for (const Candidate& c : d.value()) p[c.id] = c.p;
    return p;
}

std::map<int32_t, double> probabilities(const SamplerParams& params, const std::vector<float>& logits) {
    Sampler sampler = make(params, logits.size());
    return probabilities(sampler, logits);
}

std::vector<int32_t> kept(const SamplerParams& params, const std::vector<float>& logits) {
    std::vector<int32_t> ids;
    for (const auto& [id, p] : probabilities(params, logits)) ids.push_back(id);
    return ids;
}

// Softmax at temperature t by the definition, in long double.
std::vector<double> softmax(const std::vector<float>& logits, double t = 1) {
    long double sum = 0;
    for (const float l : logits) sum += std::exp(static_cast<long double>(l) / t);
    std::vector<double> p;
    for (const float l : logits) p.push_back(static_cast<double>(std::exp(static_cast<long double>(l) / t) / sum));
    return p;
}

using Ids = std::vector<int32_t>;

TEST(Distribution, EqualsSoftmaxWhenEveryFilterIsOff) {
    const std::vector<float> logits = {1.5f, -2, 0, 3.25f, 3.25f, -17, 0.125f};
    for (const double t : {0.1, 0.7, 1.0, 2.0, 100.0}) {
        SamplerParams params = plain();
        params.temperature = t;
        const auto p = probabilities(params, logits);
        const auto expected = softmax(logits, t);
        ASSERT_EQ(p.size(), logits.size());
        for (size_t i = 0; i < logits.size(); ++i)
            EXPECT_NEAR(p.at(static_cast<int32_t>(i)), expected[i], 1e-14) << "temperature " << t << ", token " << i;
    }
}

TEST(Distribution, SurvivesTheLargestAndTheSmallestFloats) {
    const float huge = std::numeric_limits<float>::max();
    SamplerParams params = plain();
    EXPECT_EQ(kept(params, {-huge, huge, -huge}), Ids{1});
    auto p = probabilities(params, {huge, huge});
    EXPECT_DOUBLE_EQ(p[0], 0.5);
    params.temperature = 1e-300;  // positive, so a draw; but no loser is left
    EXPECT_EQ(kept(params, {0, std::numeric_limits<float>::denorm_min(), 0}), Ids{1});
    p = probabilities(params, {2, 1, 2});
    EXPECT_DOUBLE_EQ(p[0], 0.5);
    EXPECT_DOUBLE_EQ(p[2], 0.5);
}

// Pearson's test over many draws. The seeds are fixed, so this cannot fail by bad luck; the limit is the 0.1 % point.
TEST(Sample, DrawsFollowTheDistribution) {
    const std::vector<float> logits = {2, 1, 0.5f, 0, -1, 2.5f, 1.75f, -0.25f};
    constexpr double kLimit7 = 24.32;  // chi-square, 7 degrees of freedom
    constexpr int kDraws = 100000;
    for (const uint64_t seed : {1u, 2u, 3u}) {
        for (const double t : {0.6, 1.0, 1.7}) {
            SamplerParams params = plain();
            params.temperature = t;
            params.seed = seed;
            Sampler sampler = make(params, logits.size());
            std::vector<int> n(logits.size());
            for (int i = 0; i < kDraws; ++i) ++n[static_cast<size_t>(sampler.sample(logits).value())];
            const auto expected = softmax(logits, t);
            double chi2 = 0;
            for (size_t i = 0; i < n.size(); ++i)
                chi2 += std::pow(n[i] - kDraws * expected[i], 2) / (kDraws * expected[i]);
            EXPECT_LT(chi2, kLimit7) << "seed " << seed << ", temperature " << t;
        }
    }
}

TEST(Sample, DrawsWithTopKFollowTheRenormalisedDistribution) {
    const std::vector<float> logits = {0, 3, 2, 1, 2.5f};
    SamplerParams params = plain();
    params.top_k = 3;
    Sampler sampler = make(params, logits.size());
    constexpr int kDraws = 100000;
    std::vector<int> n(5);
    for (int i = 0; i < kDraws; ++i) ++n[static_cast<size_t>(sampler.sample(logits).value())];
    EXPECT_EQ(n[0] + n[3], 0);
    const double sum = std::exp(3) + std::exp(2) + std::exp(2.5);
    double chi2 = 0;
    for (const size_t i : {1u, 2u, 4u}) {
        const double expected = kDraws * std::exp(logits[i]) / sum;
        chi2 += std::pow(n[i] - expected, 2) / expected;
    }
    EXPECT_LT(chi2, 13.82);  // 2 degrees of freedom, 0.1 %
}

TEST(Sample, OneSeedGivesOneSequence) {
    const std::vector<float> logits(50, 0.0f);
    SamplerParams params = plain();
    params.seed = 42;
    Sampler a = make(params, 50), b = make(params, 50);
    params.seed = 43;
    Sampler c = make(params, 50);
    int n_same = 0;
    for (int i = 0; i < 200; ++i) {
        const int32_t id = a.sample(logits).value();
        EXPECT_EQ(b.sample(logits).value(), id);
        n_same += c.sample(logits).value() == id;
    }
    EXPECT_LT(n_same, 20);  // 4 expected by chance
}

TEST(Sample, TheSequenceOfASeedIsFixedForAllTime) {
    // 8 equal tokens: the draw is the top three bits of the generator, known from SplitMix64's published outputs.
    const std::vector<float> logits(8, 1.0f);
    SamplerParams params = plain();
    params.seed = 1234567;
    Sampler sampler = make(params, 8);
    for (const uint64_t raw : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u})
        EXPECT_EQ(sampler.sample(logits).value(), static_cast<int32_t>(raw >> 61));
}

TEST(Greedy, TakesTheLargestAndTheLowerIdOfATie) {
    SamplerParams params;
    params.temperature = 0;
    Sampler sampler = make(params, 5);
    EXPECT_EQ(sampler.sample(std::vector<float>{0, 5, 1, 5, 5}).value(), 1);
    EXPECT_EQ(sampler.sample(std::vector<float>{-3, -3, -3, -3, -3}).value(), 0);
    EXPECT_EQ(sampler.sample(std::vector<float>{-3, -4, -5, -6, -1}).value(), 4);
}

TEST(Greedy, StillAppliesPenaltiesAndBias) {
    SamplerParams params;
    params.temperature = 0;
    params.logit_bias = {{2, 3.0}};
    params.presence_penalty = 2;
    Sampler sampler = make(params, 3);
    const std::vector<float> logits = {2, 1, 0};
    EXPECT_EQ(sampler.sample(logits).value(), 2);
    sampler.accept(2);  // 3 - 2 = 1 < 2
    EXPECT_EQ(sampler.sample(logits).value(), 0);
}

TEST(TopK, CutsTiesAtTheHigherId) {
    SamplerParams params = plain();
    params.top_k = 3;
    EXPECT_EQ(kept(params, {1, 1, 2, 1, 1}), (Ids{0, 1, 2}));
    params.top_k = 1;
    EXPECT_EQ(kept(params, {1, 7, 2, 7, 7}), Ids{1});
    params.top_k = 100;
    EXPECT_EQ(kept(params, {1, 7, 2}).size(), 3u);
}

TEST(TopP, KeepsTheSmallestSetThatReachesTheMass) {
    const std::vector<float> even(4, 0.0f);  // four times exactly 0.25
    const auto n_kept = [&](double top_p) {
        SamplerParams params = plain();
        params.top_p = top_p;
        return kept(params, even);
    };
    EXPECT_EQ(n_kept(1e-9), Ids{0});  // never empty
    EXPECT_EQ(n_kept(0.25), Ids{0});
    EXPECT_EQ(n_kept(std::nextafter(0.25, 1)), (Ids{0, 1}));
    EXPECT_EQ(n_kept(0.5), (Ids{0, 1}));
    EXPECT_EQ(n_kept(0.75), (Ids{0, 1, 2}));
    EXPECT_EQ(n_kept(std::nextafter(0.75, 1)), (Ids{0, 1, 2, 3}));
    EXPECT_EQ(n_kept(std::nextafter(1.0, 0)), (Ids{0, 1, 2, 3}));
    EXPECT_EQ(n_kept(1), (Ids{0, 1, 2, 3}));
}

TEST(TopP, SortsByProbabilityAndRenormalises) {
    // p ∝ 1, 8, 2, 4: masses 8/15, 12/15, 14/15
    const float ln2 = std::log(2.0f);
    const std::vector<float> logits = {0, 3 * ln2, ln2, 2 * ln2};
    SamplerParams params = plain();
    params.top_p = 0.79;
    const auto p = probabilities(params, logits);
    ASSERT_EQ(p.size(), 2u);
    EXPECT_NEAR(p.at(1), 2.0 / 3, 1e-6);
    EXPECT_NEAR(p.at(3), 1.0 / 3, 1e-6);
    params.top_p = 0.81;
    EXPECT_EQ(kept(params, logits), (Ids{1, 2, 3}));
    params.top_p = 0.9;  // of what top-k left (8 and 4: masses 2/3, 1)
    params.top_k = 2;
    EXPECT_EQ(kept(params, logits), (Ids{1, 3}));
    params.top_p = 0.6;
    EXPECT_EQ(kept(params, logits), Ids{1});
}

TEST(MinP, KeepsWhatReachesTheShareOfTheTop) {
    const float ln2 = std::log(2.0f);
    const std::vector<float> logits = {10 * ln2, 9 * ln2, 8 * ln2, 7 * ln2};  // 1, 1/2, 1/4, 1/8 of the top
    SamplerParams params = plain();
    params.min_p = 0.3;
    EXPECT_EQ(kept(params, logits), (Ids{0, 1}));
    params.min_p = 0.2;
    EXPECT_EQ(kept(params, logits), (Ids{0, 1, 2}));
    params.min_p = 1;
    EXPECT_EQ(kept(params, {3, 5, 5, 4}), (Ids{1, 2}));  // exactly the top ones
    params.min_p = 0.3;
    params.temperature = 2;  // shares become their square roots: 1, .71, .5, .35
    EXPECT_EQ(kept(params, logits), (Ids{0, 1, 2, 3}));
}

TEST(MinP, GivesTheSameSetBeforeAndAfterTopK) {
    // Against a direct transcription of the documented order, over random logits.
    Rng rng(99);
    for (int round = 0; round < 500; ++round) {
        std::vector<float> logits(40);
        for (float& l : logits) l = static_cast<float>(static_cast<int>(rng.uniform() * 12)) / 2;  // many ties
        SamplerParams params;
        params.top_k = 1 + static_cast<int32_t>(rng.uniform() * 45);
        params.min_p = rng.uniform();
        params.top_p = 0.05 + 0.95 * rng.uniform();
        params.temperature = 0.2 + 2 * rng.uniform();

        const auto p = softmax(logits, params.temperature);
        std::vector<std::pair<double, int32_t>> rows;
        for (size_t i = 0; i < p.size(); ++i) rows.push_back({-p[i], static_cast<int32_t>(i)});
        std::sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
            const float la = logits[static_cast<size_t>(a.second)], lb = logits[static_cast<size_t>(b.second)];
            return la != lb ? la > lb : a.second < b.second;
        });
        if (rows.size() > static_cast<size_t>(params.top_k)) rows.resize(static_cast<size_t>(params.top_k));
        const double top = -rows[0].first;
        std::erase_if(rows, [&](const auto& r) { return -r.first < params.min_p * top; });
        double total = 0, mass = 0;
        for (const auto& r : rows) total -= r.first;
        Ids expected;
        for (const auto& r : rows) {
            expected.push_back(r.second);
            mass -= r.first;
            if (mass >= params.top_p * total) break;
        }
        std::sort(expected.begin(), expected.end());
        ASSERT_EQ(kept(params, logits), expected) << "round " << round;
    }
}

TEST(RepetitionPenalty, DividesPositiveLogitsAndMultipliesNegativeOnes) {
    SamplerParams params = plain();
    params.repetition_penalty = 2;
    Sampler sampler = make(params, 4);
    sampler.accept_prompt(std::vector<int32_t>{0, 0});  // once or twice makes no difference
    sampler.accept(1);
    const auto p = probabilities(sampler, {3, -3, 3, -3});
    const auto expected = softmax({1.5f, -6, 3, -3});
    for (int32_t i = 0; i < 4; ++i) EXPECT_NEAR(p.at(i), expected[static_cast<size_t>(i)], 1e-14) << i;
}

TEST(PresenceAndFrequency, SubtractOnceAndPerOccurrenceInTheGeneratedText) {
    SamplerParams params = plain();
    params.presence_penalty = 0.5;
    params.frequency_penalty = 0.25;
    Sampler sampler = make(params, 4);
    sampler.accept_prompt(std::vector<int32_t>{3, 3, 3});  // the prompt does not count
    for (const int32_t id : {0, 1, 1, 1}) sampler.accept(id);
    const auto p = probabilities(sampler, {1, 2, 3, 4});
    const auto expected = softmax({1 - 0.5f - 0.25f, 2 - 0.5f - 0.75f, 3, 4});
    for (int32_t i = 0; i < 4; ++i) EXPECT_NEAR(p.at(i), expected[static_cast<size_t>(i)], 1e-14) << i;
}

TEST(PenaltyWindow, ForgetsTheOldestToken) {
    SamplerParams params = plain();
    params.presence_penalty = 1;
    params.penalty_window = 2;
    Sampler sampler = make(params, 3);
    for (const int32_t id : {0, 1, 1}) sampler.accept(id);  // 0 has left
    auto p = probabilities(sampler, {0, 0, 0});
    EXPECT_DOUBLE_EQ(p.at(0), p.at(2));
    EXPECT_NEAR(p.at(1) / p.at(0), std::exp(-1), 1e-14);
    sampler.accept(2);
    sampler.accept_prompt(std::vector<int32_t>{2});  // 1 has left; a prompt token takes a place in the window
    p = probabilities(sampler, {0, 0, 0});
    EXPECT_DOUBLE_EQ(p.at(0), p.at(1));
    EXPECT_NEAR(p.at(2) / p.at(0), std::exp(-1), 1e-14);
    sampler.forget();
    p = probabilities(sampler, {0, 0, 0});
    EXPECT_DOUBLE_EQ(p.at(0), p.at(2));
}

TEST(LogitBias, HundredChoosesAndMinusHundredBans) {
    Rng rng(5);
    std::vector<float> logits(30);
    for (float& l : logits) l = static_cast<float>(rng.uniform() * 30 - 15);
    SamplerParams params = plain();
    params.logit_bias = {{4, 100}};
    Sampler choose = make(params, logits.size());
    logits[9] = 16;                           // the favourite
    params.logit_bias = {{9, 5}, {9, -100}};  // the last entry wins
    Sampler ban = make(params, logits.size());
    for (int i = 0; i < 5000; ++i) {
        ASSERT_EQ(choose.sample(logits).value(), 4);
        ASSERT_NE(ban.sample(logits).value(), 9);
    }
}

TEST(LogitBias, IsAddedAfterThePenalties) {
    SamplerParams params = plain();
    params.repetition_penalty = 2;
    params.logit_bias = {{0, 2}};
    Sampler sampler = make(params, 2);
    sampler.accept(0);
    const auto p = probabilities(sampler, {4, 0});
    EXPECT_NEAR(p.at(0), softmax({4 / 2.0f + 2, 0})[0], 1e-14);
}

TEST(NonFinite, IsAnErrorThatNamesTheToken) {
    for (const float bad : {kNan, kInf, -kInf}) {
        for (const double t : {0.0, 1.0}) {
            SamplerParams params;
            params.temperature = t;
            Sampler sampler = make(params, 4);
            const auto r = sampler.sample(std::vector<float>{1, 2, bad, bad});
            ASSERT_FALSE(r.ok());
            EXPECT_EQ(r.error().code, Code::numeric);
            const std::string value = std::isnan(bad) ? "nan" : bad > 0 ? "inf" : "-inf";
            EXPECT_EQ(r.error().message, "logits: token 2 has the value " + value + "; 2 of 4 logits are not finite");
        }
    }
}

TEST(NonFinite, DoesNotMoveTheRandomState) {
    const std::vector<float> good(16, 0.0f);
    std::vector<float> bad = good;
    bad[3] = kNan;
    Sampler a = make(plain(), 16), b = make(plain(), 16);
    EXPECT_FALSE(a.sample(bad).ok());
    for (int i = 0; i < 10; ++i) EXPECT_EQ(a.sample(good).value(), b.sample(good).value());
}

TEST(Params, AreRefusedWithTheFieldAndTheRange) {
    const auto message = [](auto change) {
        SamplerParams params;
        change(params);
        const auto r = Sampler::create(params, 10);
        if (r.ok()) return std::string("accepted");
        EXPECT_EQ(r.error().code, Code::invalid_argument);
        return r.error().message;
    };
    EXPECT_EQ(message([](SamplerParams& p) { p.temperature = -1; }), "temperature is -1, expected 0 (greedy) to 100");
    EXPECT_EQ(message([](SamplerParams& p) { p.temperature = std::nan(""); }),
              "temperature is nan, expected 0 (greedy) to 100");
    EXPECT_EQ(message([](SamplerParams& p) { p.top_k = -1; }), "top_k is -1, expected 0 (off) or more");
    EXPECT_EQ(message([](SamplerParams& p) { p.top_p = 0; }), "top_p is 0, expected more than 0, up to 1 (off)");
    EXPECT_EQ(message([](SamplerParams& p) { p.top_p = 1.5; }), "top_p is 1.5, expected more than 0, up to 1 (off)");
    EXPECT_EQ(message([](SamplerParams& p) { p.min_p = 1.01; }), "min_p is 1.01, expected 0 (off) to 1");
    EXPECT_EQ(message([](SamplerParams& p) { p.repetition_penalty = 0; }),
              "repetition_penalty is 0, expected 0.01 to 100 (1 is off)");
    EXPECT_EQ(message([](SamplerParams& p) { p.presence_penalty = 3; }),
              "presence_penalty is 3, expected -2 to 2 (0 is off)");
    EXPECT_EQ(message([](SamplerParams& p) { p.frequency_penalty = -2.5; }),
              "frequency_penalty is -2.5, expected -2 to 2 (0 is off)");
    EXPECT_EQ(message([](SamplerParams& p) { p.penalty_window = -1; }),
              "penalty_window is -1, expected 0 (all tokens) to 16777216");
    EXPECT_EQ(message([](SamplerParams& p) {
                  p.logit_bias = {{10, 1}};
              }),
              "logit_bias names token 10, expected an id from 0 to 9");
    EXPECT_EQ(message([](SamplerParams& p) {
                  p.logit_bias = {{-1, 1}};
              }),
              "logit_bias names token -1, expected an id from 0 to 9");
    EXPECT_EQ(message([](SamplerParams& p) {
                  p.logit_bias = {{3, 100.5}};
              }),
              "logit_bias of token 3 is 100.5, expected -100 to 100");
    EXPECT_EQ(message([](SamplerParams&) {}), "accepted");
}

TEST(Sampler, AllocatesNothingAfterConstruction) {
    constexpr size_t kVocab = 5000;
    std::vector<float> logits(kVocab);
    Rng rng(3);
    for (float& l : logits) l = static_cast<float>(rng.uniform() * 20);
    for (const int variant : {0, 1, 2}) {
        SamplerParams params = plain();
        params.repetition_penalty = 1.1;
        params.frequency_penalty = 0.1;
        if (variant == 1) params.top_k = 40, params.top_p = 0.9, params.penalty_window = 64;
        if (variant == 2) params.min_p = 0.05, params.top_p = 0.95, params.logit_bias = {{1, 2}, {3, -4}};
        Sampler sampler = make(params, kVocab);
        const size_t before = n_allocation();
        for (int i = 0; i < 300; ++i) sampler.accept(sampler.sample(logits).value());
        EXPECT_EQ(n_allocation(), before) << "variant " << variant;
    }
}

TEST(Sampler, OneTokenVocabularyWorks) {
    for (const double t : {0.0, 1.0}) {
        SamplerParams params;
        params.temperature = t;
        params.top_k = 1;
        params.top_p = 0.5;
        Sampler sampler = make(params, 1);
        EXPECT_EQ(sampler.sample(std::vector<float>{-3}).value(), 0);
    }
}

}  // namespace
}  // namespace vesta::sample
