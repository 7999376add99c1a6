// Any bytes as a snapshot file: refused with a message that begins with the file's name, or everything that is read
// from it agrees with everything else. Inputs are compact files with a byte of wishes
// (tests/support/snapshot_compact.h). The seeds in corpus/snapshot are written by the test SnapshotSeeds
// (tests/snapshot/seed_test.cpp).
#include <sys/mman.h>
#include <unistd.h>

#include <limits>

#include "../support/snapshot_compact.h"
#include "snapshot/file.h"

namespace {

using namespace vesta;
namespace kv = test::kv;

// A file in memory; it has a name all the same.
int memory_file() {
    static const int fd = ::memfd_create("snapshot", MFD_CLOEXEC);
    VESTA_CHECK(fd >= 0);
    return fd;
}

constexpr uint64_t kMaxTokens = 1 << 16, kMaxLayerBytes = 1 << 20;

// What a session would expect that fits this file, as far as it has limits of its own.
snapshot::Expected expected_of(std::span<const std::byte> file) {
    std::vector<uint64_t> layer_bytes;
    for (uint64_t i = 0; i < test::get_number(file, kv::kNSection.at, 4); ++i) {
        const size_t at = kv::kDirectory + i * kv::kEntry;
        if (at + kv::kEntry > file.size()) break;
        if (test::get_number(file, at, 4) != kv::kRows) continue;
        layer_bytes.push_back(std::min(kMaxLayerBytes, test::get_number(file, at + kv::kRawBytes.at, 8)));
    }
    const uint64_t n_vocab = test::get_number(file, kv::kNVocab.at, 8);
    return {.model = test::get_number(file, kv::kModel.at, 8),
            .row_format = static_cast<uint32_t>(test::get_number(file, kv::kRowFormat.at, 4)),
            .n_vocab = n_vocab > 0 ? n_vocab : uint64_t{1} << 31,
            .max_tokens = kMaxTokens,
            .layer_bytes = [layer_bytes](uint64_t) { return layer_bytes; }};
}

template <class R>
bool ok(const R& result, const std::string& path) {
    VESTA_CHECK(result.ok() || result.error().message.rfind(path + ": ", 0) == 0);
    return result.ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const test::Bytes file = test::expand(std::as_bytes(std::span(data, size)));
    const int fd = memory_file();
    VESTA_CHECK(::ftruncate(fd, 0) == 0);
    VESTA_CHECK(::pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()));
    const std::string path = strf("/proc/self/fd/{}", fd);

    const snapshot::Expected expected = expected_of(file);
    const auto summary = snapshot::read_summary(path);
    const auto text = snapshot::read_text(path);
    const auto contents = snapshot::read(path, expected);
    const Status verified = snapshot::verify(path);
    if (ok(contents, path)) {
        const snapshot::Contents& c = contents.value();
        VESTA_CHECK(ok(verified, path) && ok(summary, path) && ok(text, path));
        VESTA_CHECK(text.value() == c.text && c.text.size() == c.header.text_bytes);
        VESTA_CHECK(c.tokens.size() == c.header.n_token && c.logits.size() == c.header.n_vocab);
        uint64_t row_bytes = 0;
        for (const uint64_t n : expected.layer_bytes(c.header.n_token)) row_bytes += n;
        VESTA_CHECK(c.rows.size() == row_bytes);
        VESTA_CHECK(summary.value().file_bytes == file.size());
        VESTA_CHECK(snapshot::text_hash(c.text) == c.header.text_hash);
        VESTA_CHECK(c.usage.hits == summary.value().usage.hits);
    } else if (ok(verified, path)) {  // good, but more than the limits above
        const uint64_t n_token = summary.value().header.n_token;
        VESTA_CHECK(n_token > kMaxTokens || contents.error().message.find("raw_bytes") != std::string::npos);
    }

    const Status used = snapshot::record_use(path, 12345);
    VESTA_CHECK(ok(used, path) || !ok(summary, path) || used.error().message.find("sequence") != std::string::npos);
    VESTA_CHECK(ok(snapshot::verify(path), path) == verified.ok());
    if (used.ok()) {
        const snapshot::Usage before = summary.value().usage, after = snapshot::read_summary(path).value().usage;
        VESTA_CHECK(after.last_used == 12345);
        VESTA_CHECK(after.hits == before.hits + (before.hits < std::numeric_limits<uint64_t>::max() ? 1 : 0));
    }
    return 0;
}
