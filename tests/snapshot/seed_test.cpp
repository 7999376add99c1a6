// The seeds of the fuzzer: small valid files, in the compact form it mutates. They are committed; this test keeps them
// equal to what is written today, or writes them again when the environment variable VESTA_WRITE_SEEDS is set.
#include <gtest/gtest.h>

#include <cstdlib>

#include "sample.h"
#include "support/snapshot_compact.h"

namespace vesta::snapshot {
namespace {

using test::Bytes;
using test::SnapshotBytes;

struct Seed {
    const char* name;
    Sample sample;
    Bytes file;
};

Seed seed(const char* name, const Sample& sample, bool compress = false) {
    const Folder folder;
    const Status status = write(folder.file("a"), sample.view(), {.compress = compress});
    EXPECT_TRUE(status.ok()) << status.error().message;
    return {name, sample, file_bytes(folder.file("a"))};
}

std::vector<Seed> seeds() {
    std::vector<Seed> all;
    Sample sample = Sample::make(5, 2, 40);
    sample.logits.resize(sample.n_vocab = 8);
    for (int32_t& id : sample.tokens) id %= 8;
    all.push_back(seed("whole", sample));
    SnapshotBytes parts = SnapshotBytes::parse(all.back().file);
    parts.section.push_back({.kind = 9, .flags = 1, .encoding = 3, .raw_bytes = 2, .stored = Bytes(5, std::byte{1})});
    all.push_back({"unknown_section", sample, parts.build()});
    sample.logits.clear(), sample.text.clear(), sample.tool_calls.clear();
    all.push_back(seed("tokens_and_rows", sample));
    for (auto& rows : sample.layer) rows.assign(200, std::byte{3});
    sample.layer.back()[100] = std::byte{1};
    // Of one byte, as older and newer versions of zstd have it: what they find in more may differ.
    parts = SnapshotBytes::parse(seed("", sample).file);
    for (auto& s : parts.section)
        if (s.kind == test::kv::kRows) {
            const uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 200, 0x43, 0x06, 0x00, 0x03};
            s.stored.assign(reinterpret_cast<const std::byte*>(frame), reinterpret_cast<const std::byte*>(frame) + 10);
            s.encoding = 1;
        }
    sample.layer.back()[100] = std::byte{3};
    all.push_back({"packed", sample, parts.build()});
    sample.tokens.clear(), sample.layer.clear();
    all.push_back(seed("nothing", sample));
    return all;
}

TEST(SnapshotSeeds, AreValidAndEqualToTheCommittedOnes) {
    const std::filesystem::path corpus = VESTA_SOURCE_DIR "/tests/fuzz/corpus/snapshot";
    const Folder folder;
    for (const Seed& s : seeds()) {
        SCOPED_TRACE(s.name);
        put_file(folder.file(s.name), s.file);
        const auto contents = read(folder.file(s.name), s.sample.expected());
        ASSERT_TRUE(contents.ok()) << contents.error().message;
        EXPECT_TRUE(std::ranges::equal(contents.value().rows, s.sample.rows()));

        const Bytes compact = test::compact(s.file, test::wish::kAll);
        EXPECT_TRUE(test::expand(compact) == s.file);
        EXPECT_TRUE(test::expand(test::compact(s.file, 0)).size() == s.file.size());
        const std::filesystem::path path = corpus / s.name;
        if (std::getenv("VESTA_WRITE_SEEDS") != nullptr) put_file(path, compact);
        EXPECT_TRUE(file_bytes(path) == compact) << path << " differs; run this test once with VESTA_WRITE_SEEDS=1";
    }
}

}  // namespace
}  // namespace vesta::snapshot
