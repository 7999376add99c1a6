// The base file: what is written comes back, and whatever is not such a file is refused.
#include "score/base_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "sample/logprob.h"
#include "score/text.h"

namespace vesta::score {
namespace {

BaseHeader header(uint32_t n_vocab, uint32_t k, uint64_t n_record) {
    BaseHeader h;
    h.n_vocab = n_vocab;
    h.k = k;
    h.n_record = n_record;
    h.ctx = 64;
    h.stride = 32;
    h.text_hash = 0x1122334455667788ull;
    h.token_hash = 99;
    h.model_fingerprint = 7;
    h.model_name = "toy \xc3\xa9";
    return h;
}

BaseRecord random_record(const BaseHeader& h, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits(h.n_vocab);
    for (float& l : logits) l = normal(random);
    const double norm = sample::log_sum_exp(logits);
    BaseRecord r;
    r.row = truncate(logits, h.k, norm);
    r.logprob = static_cast<float>(static_cast<double>(logits[seed % h.n_vocab]) - norm);
    return r;
}

std::string temporary(const std::string& name) {
    std::filesystem::create_directories(VESTA_TEST_TMP);
    return strf("{}/{}-{}", VESTA_TEST_TMP, name, ::getpid());
}

std::string written(const BaseHeader& h) {
    const std::string path = temporary("score.base");
    auto w = BaseWriter::create(path, h, true);
    EXPECT_TRUE(w.ok());
    for (uint32_t i = 0; i < h.n_record; ++i) EXPECT_TRUE(w.value().append(random_record(h, i)).ok());
    EXPECT_TRUE(w.value().commit().ok());
    std::string bytes = read_text_file(path).value();
    ::unlink(path.c_str());
    return bytes;
}

Result<BaseFile> parse(const std::string& bytes) { return BaseFile::parse(std::as_bytes(std::span(bytes)), "x.base"); }

TEST(ScoreBase, RecordsComeBackBitForBit) {
    for (const BaseHeader& h : {header(300, 8, 40), header(70000, 64, 5), header(6, 6, 3)}) {  // u16, u32, no rest
        const std::string bytes = written(h);
        const auto base = parse(bytes);
        ASSERT_TRUE(base.ok()) << base.error().message;
        EXPECT_EQ(base.value().header().model_name, h.model_name);
        EXPECT_EQ(base.value().header().text_hash, h.text_hash);
        for (uint32_t i = 0; i < h.n_record; ++i) {
            const auto r = base.value().record(i);
            ASSERT_TRUE(r.ok()) << r.error().message;
            const BaseRecord want = random_record(h, i);
            EXPECT_EQ(r.value().logprob, want.logprob);
            EXPECT_EQ(r.value().row.log_rest, want.row.log_rest);
            EXPECT_EQ(r.value().row.ids, want.row.ids);
            EXPECT_EQ(r.value().row.logprobs, want.row.logprobs);
        }
    }
}

TEST(ScoreBase, EveryTruncationAndEveryExtensionIsRefused) {
    const std::string bytes = written(header(300, 8, 3));
    for (size_t n = 0; n < bytes.size(); ++n) {
        const auto base = parse(bytes.substr(0, n));
        ASSERT_FALSE(base.ok()) << n;
        EXPECT_EQ(base.error().message.rfind("x.base: ", 0), 0u);
    }
    EXPECT_FALSE(parse(bytes + "x").ok());
}

TEST(ScoreBase, HostileHeadersAreRefused) {
    const std::string good = written(header(300, 8, 3));
    struct Hostile {
        const char* what;
        size_t at;
        uint64_t value;
        size_t n;
    };
    const uint64_t huge = std::numeric_limits<uint64_t>::max();
    for (const Hostile& h : {Hostile{"magic", 0, 0, 1},
                             {"version", 8, 2, 4},
                             {"no vocabulary", 12, 0, 4},
                             {"vocabulary beyond int32", 12, huge, 4},
                             {"k of 0", 16, 0, 4},
                             {"k above n_vocab", 16, 301, 4},
                             {"k huge", 16, huge, 4},
                             {"records huge", 20, huge, 8},
                             {"records whose product wraps", 20, uint64_t{1} << 61, 8},
                             {"one record more", 20, 4, 8},
                             {"negative ctx", 28, huge, 8},
                             {"stride 0", 36, 0, 8},
                             {"stride above ctx", 36, 65, 8},
                             {"name beyond the file", 68, 4096, 4},
                             {"name huge", 68, huge, 4}}) {
        std::string bytes = good;
        std::memcpy(bytes.data() + h.at, &h.value, h.n);
        EXPECT_FALSE(parse(bytes).ok()) << h.what;
    }
}

TEST(ScoreBase, RecordsThatBreakTheirPromisesAreRefused) {
    const BaseHeader h = header(300, 4, 1);
    const std::string good = written(h);
    const size_t start = good.size() - h.record_bytes(), ids = start + 8, logprobs = ids + 8;
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    const auto refuse = [&](const char* what, size_t at, auto value) {
        std::string bytes = good;
        std::memcpy(bytes.data() + at, &value, sizeof value);
        const auto base = parse(bytes);
        ASSERT_TRUE(base.ok());
        EXPECT_FALSE(base.value().record(0).ok()) << what;
    };
    ASSERT_TRUE(parse(good).value().record(0).ok());
    refuse("true token NaN", start, nan);
    refuse("true token certain twice over", start, 0.5f);
    refuse("true token impossible", start, -inf);
    refuse("rest NaN", start + 4, nan);
    refuse("rest nothing although tokens are left", start + 4, -inf);
    refuse("rest everything", start + 4, 0.0f);
    refuse("id outside", ids, uint16_t{300});
    uint16_t second = 0;
    std::memcpy(&second, good.data() + ids + 2, 2);
    refuse("id twice", ids, second);
    refuse("not descending", logprobs + 12, -0.001f);
    refuse("NaN", logprobs, nan);
    refuse("mass missing", logprobs + 12, -90.0f);
}

TEST(ScoreBase, AnotherTextVocabularyOrWindowIsNamed) {
    const std::string bytes = written(header(300, 8, 3));
    const auto base = parse(bytes);
    ASSERT_TRUE(base.ok());
    const BaseHeader same = base.value().header();
    EXPECT_TRUE(check_base(base.value(), same).ok());
    const auto message = [&](auto change) {
        BaseHeader h = same;
        change(h);
        const Status s = check_base(base.value(), h);
        return s.ok() ? std::string() : s.error().message;
    };
    EXPECT_NE(message([](BaseHeader& h) { h.n_vocab = 400; }).find("vocabulary of 300"), std::string::npos);
    EXPECT_NE(message([](BaseHeader& h) { h.text_hash ^= 1; }).find("another text"), std::string::npos);
    EXPECT_NE(message([](BaseHeader& h) { h.token_hash ^= 1; }).find("other tokens"), std::string::npos);
    EXPECT_NE(message([](BaseHeader& h) { h.ctx = 128; }).find("--ctx 64"), std::string::npos);
    EXPECT_NE(message([](BaseHeader& h) { h.stride = 64; }).find("--stride 32"), std::string::npos);
    EXPECT_NE(message([](BaseHeader& h) { h.n_record = 2; }).find("3 scored tokens"), std::string::npos);
}

TEST(ScoreBase, SeedsAreTheCommittedOnes) {
    const std::pair<const char*, std::string> seeds[] = {{"narrow", written(header(300, 5, 2))},
                                                         {"wide", written(header(70000, 3, 1))},
                                                         {"no_rest", written(header(6, 6, 1))},
                                                         {"empty", written(header(300, 5, 0))}};
    const std::filesystem::path folder = VESTA_SOURCE_DIR "/tests/fuzz/corpus/score_base";
    for (const auto& [name, bytes] : seeds) {
        if (std::getenv("VESTA_WRITE_SEEDS") != nullptr) std::ofstream(folder / name, std::ios::binary) << bytes;
        EXPECT_TRUE(parse(bytes).ok());
        std::ifstream in(folder / name, std::ios::binary);
        const std::string found((std::istreambuf_iterator<char>(in)), {});
        // The header is the same everywhere; the last bit of a logarithm may differ between C libraries.
        EXPECT_EQ(found.size(), bytes.size()) << name << ": run this test once with VESTA_WRITE_SEEDS=1";
    }
}

}  // namespace
}  // namespace vesta::score
