// What is written comes back, whatever parts there are.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "sample.h"

namespace vesta::snapshot {
namespace {

void expect_same(const Contents& c, const Sample& s) {
    EXPECT_EQ(c.header.model, s.header.model);
    EXPECT_EQ(c.header.row_format, s.header.row_format);
    EXPECT_EQ(c.header.weight_bits, s.header.weight_bits);
    EXPECT_EQ(c.header.reason, s.header.reason);
    EXPECT_EQ(c.header.created, s.header.created);
    EXPECT_EQ(c.header.n_token, s.tokens.size());
    EXPECT_EQ(c.header.n_vocab, s.logits.size());
    EXPECT_EQ(c.header.n_layer, s.layer.size());
    EXPECT_EQ(c.header.text_bytes, s.text.size());
    EXPECT_EQ(c.tokens, s.tokens);
    EXPECT_EQ(c.logits, s.logits);
    EXPECT_EQ(std::vector<std::byte>(c.rows.begin(), c.rows.end()), s.rows());
    EXPECT_EQ(c.text, s.text);
    EXPECT_EQ(c.tool_calls, s.tool_calls);
    EXPECT_EQ(c.usage.hits, 0u);
    EXPECT_EQ(c.usage.last_used, s.header.created);
}

struct Case {
    const char* name;
    Sample sample;
    bool compress = false;    // asked for
    bool compressed = false;  // done: noise does not get smaller
    friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

// Four values instead of 256: zstd packs four codes into a byte.
void make_dull(std::vector<std::byte>* rows) {
    for (std::byte& b : *rows) b &= std::byte{0x41};
}

std::vector<Case> cases() {
    std::vector<Case> all;
    all.push_back({"Everything", Sample::make(37)});
    all.push_back({"NoLogits", Sample::make(37)});
    all.back().sample.logits.clear();
    all.push_back({"NoText", Sample::make(37)});
    all.back().sample.text.clear();
    all.push_back({"NoToolCalls", Sample::make(37)});
    all.back().sample.tool_calls.clear();
    all.push_back({"TokensAndRowsOnly", Sample::make(1)});
    all.back().sample.logits.clear(), all.back().sample.text.clear(), all.back().sample.tool_calls.clear();
    all.push_back({"ZeroTokens", Sample::make(0)});
    all.push_back({"NothingAtAll", Sample::make(0, 0)});
    all.back().sample.logits.clear(), all.back().sample.text.clear(), all.back().sample.tool_calls.clear();
    all.push_back({"LayersWithoutRows", Sample::make(5, 4, 0)});
    all.push_back({"ManyLayers", Sample::make(2000, 100, 64)});
    all.push_back({"PiecesOfAMegabyte", Sample::make(300, 2, (size_t{1} << 20) + 1)});
    all.push_back({"CompressedNoise", Sample::make(37), true, false});
    all.push_back({"CompressedZeroTokens", Sample::make(0, 3, 0), true, false});
    all.push_back({"Compressed", Sample::make(37, 5, 3000), true, true});
    for (auto& rows : all.back().sample.layer) std::fill(rows.begin(), rows.end() - 64, std::byte{3});
    all.push_back({"CompressedAndNoiseInTurns", Sample::make(37, 6, 300'000), true, true});
    for (size_t i = 0; i < 6; i += 2) make_dull(&all.back().sample.layer[i]);
    // More than one piece, more than zstd's window, and a layer that only turns out to be noise after a megabyte.
    all.push_back({"CompressedLarge", Sample::make(37, 2, 9'000'000), true, true});
    make_dull(&all.back().sample.layer[0]);
    std::fill_n(all.back().sample.layer[1].begin(), 2'000, std::byte{1});
    return all;
}

class RoundTrip : public testing::TestWithParam<Case> {};

TEST_P(RoundTrip, WhatIsWrittenComesBack) {
    const Folder folder;
    const std::string path = folder.file("a.kv");
    const Sample& sample = GetParam().sample;
    const Status written = write(path, sample.view(), {.compress = GetParam().compress});
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(folder.names(), std::vector<std::string>{"a.kv"});

    const auto contents = read(path, sample.expected());
    ASSERT_TRUE(contents.ok()) << contents.error().message;
    expect_same(contents.value(), sample);

    const auto summary = read_summary(path);
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_EQ(summary.value().header.n_token, sample.tokens.size());
    EXPECT_EQ(summary.value().header.text_hash, text_hash(sample.text));
    EXPECT_EQ(summary.value().file_bytes, std::filesystem::file_size(path));
    EXPECT_EQ(summary.value().compressed, GetParam().compressed);
    uint64_t plain_bytes = 3 * 4096 + 40 + sample.tokens.size() * 4 + sample.rows().size() + sample.layer.size() * 40;
    if (!sample.logits.empty()) plain_bytes += 40 + sample.logits.size() * 4;
    if (!sample.text.empty()) plain_bytes += 40 + sample.text.size();
    if (!sample.tool_calls.empty()) plain_bytes += 40 + sample.tool_calls.size();
    if (GetParam().compressed)
        EXPECT_LT(summary.value().file_bytes, plain_bytes);
    else
        EXPECT_EQ(summary.value().file_bytes, plain_bytes);

    const auto text = read_text(path);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(text.value(), sample.text);
    const Status verified = verify(path);
    EXPECT_TRUE(verified.ok()) << verified.error().message;
}

INSTANTIATE_TEST_SUITE_P(Snapshot, RoundTrip, testing::ValuesIn(cases()),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(SnapshotWrite, OnlyTheOwnerMayReadTheFile) {
    const Folder folder;
    const mode_t before = ::umask(0);
    ASSERT_TRUE(write(folder.file("a.kv"), Sample::make(3).view(), {}).ok());
    ::umask(before);
    struct stat st {};
    ASSERT_EQ(::stat(folder.file("a.kv").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0600u);
}

}  // namespace
}  // namespace vesta::snapshot
