// Snapshot files as a fuzzer likes them: without the pages of zeros, and with a byte of wishes which fields are made
// right before the file is read, because a mutation that only breaks a checksum learns nothing about what is behind it.
//
//   compact = wishes (1) · header fields (96) · slot 0 (24) · slot 1 (24) · directory and sections, as in the file
#pragma once

#include <algorithm>

#include "snapshot_mutator.h"

namespace vesta::test {

namespace wish {
constexpr unsigned kMagic = 1, kFileBytes = 2, kSections = 4, kDirectory = 8, kHeader = 16, kSlots = 32, kAll = 63;
}

constexpr size_t kCompactHead = 1 + kv::kReserved + 2 * 24;

// Requires a file with zeros where the format has them.
inline Bytes compact(std::span<const std::byte> file, unsigned wishes) {
    Bytes out;
    out.reserve(file.size());
    out.push_back(static_cast<std::byte>(wishes));
    const auto add = [&](size_t at, size_t n) {
        out.insert(out.end(), file.begin() + static_cast<std::ptrdiff_t>(at),
                   file.begin() + static_cast<std::ptrdiff_t>(at + n));
    };
    add(0, kv::kReserved), add(kv::kPage, 24), add(2 * kv::kPage, 24);
    add(kv::kDirectory, file.size() - kv::kDirectory);
    return out;
}

// Any bytes; short ones count as followed by zeros.
inline Bytes expand(std::span<const std::byte> data) {
    Bytes c(data.begin(), data.end());
    c.resize(std::max(c.size(), kCompactHead));
    const auto wishes = static_cast<unsigned>(c[0]);
    const size_t rest = c.size() - kCompactHead;
    Bytes file(kv::kDirectory + rest);
    std::memcpy(file.data(), c.data() + 1, kv::kReserved);
    std::memcpy(file.data() + kv::kPage, c.data() + 1 + kv::kReserved, 24);
    std::memcpy(file.data() + 2 * kv::kPage, c.data() + 1 + kv::kReserved + 24, 24);
    if (rest > 0) std::memcpy(file.data() + kv::kDirectory, c.data() + kCompactHead, rest);

    if (wishes & wish::kMagic) {
        std::memcpy(file.data(), "VESTAKV", 8);
        put_number(file, kv::kVersion.at, 4, 1);
    }
    if (wishes & wish::kFileBytes) put_number(file, kv::kFileBytes.at, 8, file.size());
    const auto n_section =
        static_cast<size_t>(std::min<uint64_t>(get_number(file, kv::kNSection.at, 4), rest / kv::kEntry));
    if (wishes & wish::kSections) {
        size_t offset = kv::kDirectory + n_section * kv::kEntry;
        for (size_t i = 0; i < n_section; ++i) {
            const auto entry = std::span(file).subspan(kv::kDirectory + i * kv::kEntry, kv::kEntry);
            const uint64_t n = get_number(entry, kv::kStoredBytes.at, 8);
            if (n > file.size() - offset) break;
            const uint64_t hash = xxh3(std::span(file).subspan(offset, static_cast<size_t>(n)));
            put_number(entry, kv::kHash.at, 8, hash);
            if (get_number(entry, kv::kKind.at, 4) == kv::kText) put_number(file, kv::kTextHash.at, 8, hash);
            offset += static_cast<size_t>(n);
        }
    }
    const auto seal = [&](const kv::Field& field, uint64_t hash) { put_number(file, field.at, field.size, hash); };
    if (wishes & wish::kDirectory)
        seal(kv::kDirectoryHash, xxh3(std::span(file).subspan(kv::kDirectory, n_section * kv::kEntry)));
    if (wishes & wish::kHeader) seal({"checksum", kv::kChecksum, 8}, xxh3(std::span(file).first(kv::kChecksum)));
    for (int slot = 0; slot < 2 && (wishes & wish::kSlots) != 0; ++slot) SnapshotBytes::seal_slot(file, slot);
    return file;
}

}  // namespace vesta::test
