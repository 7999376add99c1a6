// Damaged, cut, grown, foreign and lying files: each refused with a reason that names the thing, at no cost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "support/allocations.h"
#include "sample.h"
#include "support/snapshot_mutator.h"

namespace vesta::snapshot {
namespace {

using test::Bytes;
using test::SnapshotBytes;
using test::SnapshotMutation;
namespace kv = test::kv;

std::vector<std::byte> written(const Sample& sample, bool compress) {
    const Folder folder;
    const Status status = write(folder.file("a"), sample.view(), {.compress = compress});
    EXPECT_TRUE(status.ok()) << status.error().message;
    return file_bytes(folder.file("a"));
}

// Refusals that need to know the model; a file like that is a good file of somebody else's.
bool needs_a_model(const std::string& message) {
    for (const char* part : {"header: model is", "header: row_format is", " for 37 tokens", "section tokens: token"})
        if (message.find(part) != std::string::npos) return true;
    return false;
}

void expect_refused(const Sample& sample, bool compress) {
    const Folder folder;
    const std::string path = folder.file("damaged.kv");
    const auto file = written(sample, compress);
    const Expected expected = sample.expected();
    int n_mutation = 0;
    test::for_each_snapshot_mutation(file, sample.n_vocab, [&](const SnapshotMutation& m) {
        SCOPED_TRACE(m.name);
        ++n_mutation;
        put_file(path, m.bytes);
        const size_t before = test::allocated_bytes();
        const auto contents = read(path, expected);
        const auto summary = read_summary(path);
        const auto text = read_text(path);
        const Status verified = verify(path);
        const Status used = record_use(path, 1);
        // Five looks at a file, each with a directory, buffers, messages and at most the file's own contents.
        EXPECT_LT(test::allocated_bytes() - before, 5 * (64 * 1024 + 4 * file.size()) + (compress ? size_t{2} << 20 : 0));
        if (m.harmless) {
            ASSERT_TRUE(contents.ok()) << contents.error().message;
            EXPECT_EQ(contents.value().tokens, sample.tokens);
            EXPECT_EQ(contents.value().text, sample.text);
            EXPECT_TRUE(std::ranges::equal(contents.value().rows, sample.rows()));
            EXPECT_TRUE(verified.ok() && summary.ok() && text.ok() && used.ok());
            return;
        }
        ASSERT_FALSE(contents.ok());
        const std::string& message = contents.error().message;
        EXPECT_EQ(message.rfind(path + ": ", 0), 0u) << message;
        for (const std::string& part : m.mentions) EXPECT_NE(message.find(part), std::string::npos) << message;
        EXPECT_TRUE(contents.error().code == Code::bad_file || contents.error().code == Code::unsupported ||
                    contents.error().code == Code::no_memory)
            << code_name(contents.error().code) << " " << message;
        EXPECT_TRUE(!verified.ok() || needs_a_model(message)) << message;
        EXPECT_TRUE(!text.ok() || text.value() == sample.text);
        for (const Status* s : {&verified, &used})
            EXPECT_TRUE(s->ok() || s->error().message.starts_with(path + ": ")) << s->error().message;
    });
    EXPECT_GT(n_mutation, 4000);
}

TEST(SnapshotMutation, EveryMutationOfAPlainFileIsRefused) { expect_refused(Sample::make(37), false); }

TEST(SnapshotMutation, EveryMutationOfAPackedFileIsRefused) {
    Sample sample = Sample::make(37, 3, 2000);
    for (auto& rows : sample.layer)
        for (std::byte& b : rows) b &= std::byte{0x11};
    expect_refused(sample, true);
}

TEST(SnapshotMutation, TheMutatorsTablesDescribeWhatIsWritten) {
    for (const bool compress : {false, true}) {
        Sample sample = Sample::make(37);
        std::fill(sample.layer[1].begin(), sample.layer[1].end(), std::byte{9});
        const auto file = written(sample, compress);
        const SnapshotBytes parts = SnapshotBytes::parse(file);
        EXPECT_TRUE(parts.build() == file);
        EXPECT_EQ(parts.get(kv::kModel), sample.header.model);
        EXPECT_EQ(parts.get(kv::kNToken), 37u);
        EXPECT_EQ(parts.get(kv::kReason), 2u);
        ASSERT_EQ(parts.section.size(), 7u);
        EXPECT_EQ(parts.section[3].encoding, compress ? 1u : 0u);
        EXPECT_EQ(parts.section[3].raw_bytes, 201u);
        // The slots as the page on the format has them: sequence, hits, last use, zeros, checksum.
        for (const int slot : {0, 1}) {
            Bytes page(kv::kPage);
            test::put_number(page, 0, 8, slot == 0 ? 1 : 0);
            test::put_number(page, 16, 8, 1'700'000'000);
            test::put_number(page, kv::kChecksum, 8, test::xxh3(std::span(page).first(kv::kChecksum)));
            EXPECT_TRUE(std::equal(page.begin(), page.end(), file.begin() + (1 + slot) * 4096));
        }
    }
}

// A section packed by zstd itself, with sizes of the test's choice.
Bytes packed(size_t n, std::byte value) {
    const Bytes raw(n, value);
    Bytes out(ZSTD_compressBound(n));
    out.resize(ZSTD_compress(out.data(), out.size(), raw.data(), raw.size(), 1));
    return out;
}

struct Bomb {
    const char* name;
    size_t says, holds;
    const char* expected;
};

TEST(SnapshotMutation, APackedLayerThatUnpacksToAnotherSizeIsRefused) {
    const Folder folder;
    const std::string path = folder.file("bomb.kv");
    Sample sample = Sample::make(5, 1, 1'000'000);
    const auto file = written(sample, false);
    for (const Bomb& bomb : {Bomb{"right", 1'000'000, 1'000'000, nullptr},
                             Bomb{"one more", 1'000'000, 1'000'001, "section rows of layer 0: unpacks to more"},
                             Bomb{"one less", 1'000'000, 999'999, "section rows of layer 0: unpacks to 999999 bytes"},
                             Bomb{"nothing", 1'000'000, 0, "section rows of layer 0: unpacks to 0 bytes"},
                             Bomb{"a hundred times more", 1'000'000, 100'000'000, "section rows of layer 0: "}}) {
        SCOPED_TRACE(bomb.name);
        SnapshotBytes parts = SnapshotBytes::parse(file);
        auto* rows = parts.find(kv::kRows);
        rows->stored = packed(bomb.holds, std::byte{7});
        rows->raw_bytes = bomb.says;
        rows->encoding = 1;
        put_file(path, parts.build());
        const size_t before = test::allocated_bytes();
        const auto contents = read(path, sample.expected());
        const Status verified = verify(path);
        EXPECT_LT(test::allocated_bytes() - before, size_t{4} << 20);
        EXPECT_EQ(verified.ok(), contents.ok());
        if (bomb.expected == nullptr) {
            ASSERT_TRUE(contents.ok()) << contents.error().message;
            EXPECT_TRUE(std::ranges::equal(contents.value().rows, Bytes(1'000'000, std::byte{7})));
            continue;
        }
        ASSERT_FALSE(contents.ok());
        for (const std::string& message : {contents.error().message, verified.error().message})
            EXPECT_NE(message.find(bomb.expected), std::string::npos) << message;
    }
}

// A frame may ask its reader for a window of any size; 1 GiB for a file of some KB is refused before it is taken.
TEST(SnapshotMutation, APackedLayerThatWantsAHugeWindowIsRefused) {
    const Folder folder;
    const std::string path = folder.file("window.kv");
    const Sample sample = Sample::make(5, 1, 1'000'000);
    SnapshotBytes parts = SnapshotBytes::parse(written(sample, false));
    auto* rows = parts.find(kv::kRows);
    // RFC 8878: magic; descriptor 0 (window byte, no content size); window 2^(10 + 20); one last RLE block of 100
    // bytes.
    const uint8_t frame[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 20 << 3, 0x23, 0x03, 0x00, 0x07};
    rows->stored.assign(reinterpret_cast<const std::byte*>(frame), reinterpret_cast<const std::byte*>(frame) + 10);
    rows->encoding = 1;
    put_file(path, parts.build());
    const auto contents = read(path, sample.expected());
    ASSERT_FALSE(contents.ok());
    EXPECT_NE(contents.error().message.find("memory"), std::string::npos) << contents.error().message;
    EXPECT_FALSE(verify(path).ok());
}

TEST(SnapshotMutation, TextThatIsTooLongIsNotAllocated) {
    const Folder folder;
    const std::string path = folder.file("sparse.kv");
    SnapshotBytes parts = SnapshotBytes::parse(written(Sample::make(3), false));
    // A sparse file that really is as long as it says.
    parts.find(kv::kText)->stored.clear();
    Bytes file = parts.build();
    const uint64_t huge = (uint64_t{1} << 28) + 1;
    const size_t entry = kv::kDirectory + 5 * kv::kEntry;
    ASSERT_EQ(test::get_number(file, entry, 4), kv::kText);
    test::put_number(file, entry + kv::kStoredBytes.at, 8, huge);
    test::put_number(file, entry + kv::kRawBytes.at, 8, huge);
    test::put_number(file, kv::kTextBytes.at, 8, huge);
    test::put_number(file, kv::kFileBytes.at, 8, file.size() + huge);
    SnapshotBytes::seal(file, parts.section.size());
    put_file(path, file);
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(file.size() + huge)), 0);
    const size_t before = test::allocated_bytes();
    const auto text = read_text(path);
    EXPECT_LT(test::allocated_bytes() - before, 64u * 1024);
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.error().message.find("text_bytes"), std::string::npos) << text.error().message;
}

TEST(SnapshotMutation, WhatTheCallerCannotHoldIsRefusedByName) {
    const Folder folder;
    const std::string path = folder.file("a.kv");
    const Sample sample = Sample::make(37);
    ASSERT_TRUE(write(path, sample.view(), {}).ok());
    const auto refusal = [&](const std::function<void(Expected&)>& change) {
        Expected e = sample.expected();
        change(e);
        const auto contents = read(path, e);
        return contents.ok() ? Error{Code::cancelled, "accepted"} : contents.error();
    };
    const auto contains = [](const Error& e, Code code, const std::string& part) {
        return e.code == code && e.message.find(part) != std::string::npos
                   ? testing::AssertionSuccess()
                   : testing::AssertionFailure() << code_name(e.code) << " " << e.message;
    };
    EXPECT_TRUE(contains(refusal([](Expected& e) { e.model = 1; }), Code::unsupported,
                         "model is 1122334455667788, expected 0000000000000001"));
    EXPECT_TRUE(
        contains(refusal([](Expected& e) { e.row_format = 3; }), Code::unsupported, "row_format is 2, expected 3"));
    EXPECT_TRUE(contains(refusal([](Expected& e) { e.max_tokens = 36; }), Code::no_memory,
                         "n_token is 37, expected at most 36"));
    EXPECT_TRUE(contains(refusal([](Expected& e) { e.n_vocab = 65; }), Code::bad_file, "n_vocab is 64, expected 65"));
    const auto layers = [](std::vector<uint64_t> bytes) {
        return [bytes](Expected& e) { e.layer_bytes = [bytes](uint64_t) { return bytes; }; };
    };
    EXPECT_TRUE(contains(refusal(layers({100, 201})), Code::bad_file, "n_layer is 3, expected 2"));
    EXPECT_TRUE(contains(refusal(layers({100, 201, 302, 4})), Code::bad_file, "n_layer is 3, expected 4"));
    EXPECT_TRUE(contains(refusal(layers({100, 200, 302})), Code::bad_file,
                         "section rows of layer 1: raw_bytes is 201, expected 200 for 37 tokens"));
    EXPECT_TRUE(contains(refusal([](Expected&) {}), Code::cancelled, "accepted"));
}

TEST(SnapshotMutation, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
    const Folder folder;
    const std::string path = folder.file("a.kv");
    ASSERT_TRUE(write(path, Sample::make(3).view(), {}).ok());
    const std::string fifo = folder.file("fifo"), loop = folder.file("loop"), link = folder.file("link");
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    ASSERT_EQ(::symlink(loop.c_str(), loop.c_str()), 0);
    ASSERT_EQ(::symlink(path.c_str(), link.c_str()), 0);
    struct Case {
        std::string path, expected;
        Code code;
    };
    for (const Case& c :
         {Case{fifo, "expected a regular file", Code::invalid_argument},
          Case{folder.path(), "is a directory, expected a regular file", Code::invalid_argument},
          Case{"/dev/null", "expected a regular file", Code::invalid_argument},
          Case{"/dev/zero", "expected a regular file", Code::invalid_argument}, Case{loop, "cannot open", Code::io},
          Case{folder.file("none"), "cannot open", Code::not_found}, Case{path + "/a.kv", "cannot open", Code::io}}) {
        SCOPED_TRACE(c.path);
        const auto contents = read(c.path, Sample::make(3).expected());
        ASSERT_FALSE(contents.ok());
        EXPECT_EQ(contents.error().code, c.code);
        EXPECT_EQ(contents.error().message.rfind(c.path + ": ", 0), 0u) << contents.error().message;
        EXPECT_NE(contents.error().message.find(c.expected), std::string::npos) << contents.error().message;
        EXPECT_FALSE(read_summary(c.path).ok());
        EXPECT_FALSE(read_text(c.path).ok());
        EXPECT_FALSE(verify(c.path).ok());
    }
    EXPECT_TRUE(verify(link).ok());  // a link to a good file is a good file
}

TEST(SnapshotWrite, WhatNoReaderWouldTakeIsNotWritten) {
    const Folder folder;
    const std::string path = folder.file("a.kv");
    const auto refusal = [&](const std::function<void(Sample&)>& change) {
        Sample sample = Sample::make(9);
        change(sample);
        const Status status = write(path, sample.view(), {});
        return status.ok() ? std::string("written") : status.error().message;
    };
    EXPECT_NE(refusal([](Sample& s) { s.tokens[4] = -1; }).find("token 4 is -1"), std::string::npos);
    EXPECT_NE(refusal([](Sample& s) { s.logits[63] = NAN; }).find("logit 63 is nan"), std::string::npos);
    EXPECT_NE(refusal([](Sample& s) { s.layer.resize(4096); }).find("4096 layers"), std::string::npos);
    EXPECT_NE(refusal([](Sample& s) { s.text.resize((size_t{1} << 28) + 1); }).find("bytes of text"),
              std::string::npos);
    EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace vesta::snapshot
