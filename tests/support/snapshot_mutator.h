// Damaged and lying snapshot files. Written from the tables of docs/kv-format.md, not from src/snapshot, so that the
// two can disagree. A SnapshotBytes is a file taken apart; build() puts it together with correct sizes and checksums,
// so a lie in one field reaches the check that is meant for it and not only the checksum before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace vesta::test {

using Bytes = std::vector<std::byte>;

// Where the fields are.
namespace kv {
constexpr size_t kPage = 4096, kDirectory = 3 * kPage, kEntry = 40, kChecksum = kPage - 8;
struct Field {
    const char* name;
    size_t at, size;
};
constexpr Field kMagic{"magic", 0, 8}, kVersion{"version", 8, 4}, kNSection{"n_section", 12, 4};
constexpr Field kFileBytes{"file_bytes", 16, 8}, kModel{"model", 24, 8}, kRowFormat{"row_format", 32, 4};
constexpr Field kReason{"reason", 40, 4}, kNLayer{"n_layer", 44, 4}, kNToken{"n_token", 48, 8};
constexpr Field kNVocab{"n_vocab", 56, 8}, kTextHash{"text_hash", 64, 8}, kTextBytes{"text_bytes", 72, 8};
constexpr Field kDirectoryHash{"directory_hash", 88, 8};
constexpr size_t kReserved = 96;
constexpr Field kKind{"kind", 0, 4}, kIndex{"index", 4, 4}, kFlags{"flags", 8, 4}, kEncoding{"encoding", 12, 4};
constexpr Field kStoredBytes{"stored_bytes", 16, 8}, kRawBytes{"raw_bytes", 24, 8}, kHash{"hash", 32, 8};
constexpr uint32_t kTokens = 1, kLogits = 2, kRows = 3, kText = 4, kToolCalls = 5;
}  // namespace kv

inline uint64_t get_number(std::span<const std::byte> bytes, size_t at, size_t size) {
    uint64_t n = 0;
    std::memcpy(&n, bytes.data() + at, size);
    return n;
}
inline void put_number(std::span<std::byte> bytes, size_t at, size_t size, uint64_t n) {
    std::memcpy(bytes.data() + at, &n, size);
}
inline uint64_t xxh3(std::span<const std::byte> bytes) {
    Hash64 hash;
    hash.add(bytes);
    return hash.digest();
}

struct SnapshotBytes {
    struct Section {
        uint32_t kind = 0, index = 0, flags = 0, encoding = 0;
        uint64_t raw_bytes = 0;
        Bytes stored;
        std::string name() const {
            const char* const names[] = {"tokens", "logits", "rows", "text", "tool_calls"};
            if (kind == kv::kRows) return strf("section rows of layer {}", index);
            return kind >= 1 && kind <= 5 ? strf("section {}", names[kind - 1]) : strf("kind {}", kind);
        }
    };
    Bytes head;  // header page and usage slots
    std::vector<Section> section;

    // Requires a valid file.
    static SnapshotBytes parse(std::span<const std::byte> file) {
        SnapshotBytes s;
        s.head.assign(file.begin(), file.begin() + kv::kDirectory);
        const uint64_t n_section = get_number(file, 12, 4);
        size_t offset = kv::kDirectory + n_section * kv::kEntry;
        for (uint64_t i = 0; i < n_section; ++i) {
            const auto entry = file.subspan(kv::kDirectory + i * kv::kEntry, kv::kEntry);
            const auto n = static_cast<size_t>(get_number(entry, 16, 8));
            const auto stored = file.subspan(offset, n);
            s.section.push_back({.kind = static_cast<uint32_t>(get_number(entry, 0, 4)),
                                 .index = static_cast<uint32_t>(get_number(entry, 4, 4)),
                                 .flags = static_cast<uint32_t>(get_number(entry, 8, 4)),
                                 .encoding = static_cast<uint32_t>(get_number(entry, 12, 4)),
                                 .raw_bytes = get_number(entry, 24, 8),
                                 .stored = Bytes(stored.begin(), stored.end())});
            offset += n;
        }
        return s;
    }

    void set(const kv::Field& field, uint64_t value) { put_number(head, field.at, field.size, value); }
    uint64_t get(const kv::Field& field) const { return get_number(head, field.at, field.size); }
    Section* find(uint32_t kind, uint32_t index = 0) {
        for (Section& s : section)
            if (s.kind == kind && s.index == index) return &s;
        return nullptr;
    }

    Bytes build() const {
        Bytes file = head;
        for (const Section& s : section) {
            Bytes entry(kv::kEntry);
            put_number(entry, 0, 4, s.kind);
            put_number(entry, 4, 4, s.index);
            put_number(entry, 8, 4, s.flags);
            put_number(entry, 12, 4, s.encoding);
            put_number(entry, 16, 8, s.stored.size());
            put_number(entry, 24, 8, s.raw_bytes);
            put_number(entry, 32, 8, xxh3(s.stored));
            file.insert(file.end(), entry.begin(), entry.end());
        }
        for (const Section& s : section) file.insert(file.end(), s.stored.begin(), s.stored.end());
        put_number(file, kv::kNSection.at, 4, section.size());
        put_number(file, kv::kFileBytes.at, 8, file.size());
        seal(file, section.size());
        return file;
    }

    // Checksums of directory and header, whatever they say. `n_section`: how many entries there really are.
    static void seal(std::span<std::byte> file, size_t n_section) {
        put_number(file, kv::kDirectoryHash.at, 8, xxh3(file.subspan(kv::kDirectory, n_section * kv::kEntry)));
        put_number(file, kv::kChecksum, 8, xxh3(file.first(kv::kChecksum)));
    }
    static void seal_slot(std::span<std::byte> file, int slot) {
        const auto page = file.subspan((1 + static_cast<size_t>(slot)) * kv::kPage, kv::kPage);
        put_number(page, kv::kChecksum, 8, xxh3(page.first(kv::kChecksum)));
    }
};

struct SnapshotMutation {
    std::string name;
    Bytes bytes;
    bool harmless = false;              // still the same snapshot: only the usage may be lost
    std::vector<std::string> mentions;  // each occurs in the message of the refusal
};

// Hands over every mutation of a valid file, one at a time. `n_vocab`: what the reader will expect. All but the
// harmless ones must be refused by a reader that expects what the file was written with.
inline void for_each_snapshot_mutation(std::span<const std::byte> file, uint64_t n_vocab,
                                       const std::function<void(const SnapshotMutation&)>& visit) {
    const SnapshotBytes good = SnapshotBytes::parse(file);
    const size_t n_section = good.section.size(), sections_at = kv::kDirectory + n_section * kv::kEntry;
    const Bytes original(file.begin(), file.end());
    const auto give = [&](std::string name, Bytes bytes, std::vector<std::string> mentions, bool harmless = false) {
        visit({std::move(name), std::move(bytes), harmless, std::move(mentions)});
    };
    const auto flipped = [&](size_t at, std::byte mask) {
        Bytes b = original;
        b[at] ^= mask;
        return b;
    };
    const auto changed = [&](const std::function<void(SnapshotBytes&)>& change) {
        SnapshotBytes s = good;
        change(s);
        return s.build();
    };
    // A field of the header, or of an entry, with every checksum made right afterwards.
    const auto with_header = [&](const kv::Field& f, uint64_t value) {
        Bytes b = original;
        put_number(b, f.at, f.size, value);
        const bool fits = f.at == kv::kNSection.at && value <= (b.size() - kv::kDirectory) / kv::kEntry;
        SnapshotBytes::seal(b, fits ? static_cast<size_t>(value) : n_section);
        return b;
    };
    const auto with_entry = [&](size_t i, const kv::Field& f, uint64_t value) {
        Bytes b = original;
        put_number(b, kv::kDirectory + i * kv::kEntry + f.at, f.size, value);
        SnapshotBytes::seal(b, n_section);
        return b;
    };

    // One byte, everywhere in the head; first, middle and last of every section.
    for (size_t at = 0; at < kv::kPage; ++at)
        give(strf("flip header byte {}", at), flipped(at, std::byte{0x20}), {"header"});
    for (size_t at = kv::kDirectory; at < sections_at; ++at)
        give(strf("flip directory byte {}", at), flipped(at, std::byte{1}), {"directory"});
    for (const size_t at : {kv::kPage, kv::kPage + 8, kv::kPage + 2000, 2 * kv::kPage - 1, 2 * kv::kPage,
                            2 * kv::kPage + 16, 3 * kv::kPage - 8})
        give(strf("flip usage byte {}", at), flipped(at, std::byte{0x80}), {}, true);
    {
        Bytes b = flipped(kv::kPage + 1, std::byte{1});
        b[2 * kv::kPage + 1] ^= std::byte{1};
        give("flip both usage slots", std::move(b), {}, true);
    }
    size_t offset = sections_at;
    std::vector<size_t> boundary = {
        0, 1, kv::kPage, 2 * kv::kPage, kv::kDirectory, kv::kDirectory + kv::kEntry, sections_at};
    for (const auto& s : good.section) {
        const size_t n = s.stored.size();
        if (n > 0)
            for (const size_t at : {offset, offset + n / 2, offset + n - 1})
                give(strf("flip {} at {}", s.name(), at), flipped(at, std::byte{0x10}), {s.name(), "checksum"});
        boundary.push_back(offset + n / 2);
        offset += n;
        boundary.push_back(offset);
    }

    // Cut, and bytes after the end; then the same with a header that agrees.
    for (const size_t at : boundary)
        for (const size_t end : {at > 0 ? at - 1 : 0, at}) {
            if (end >= original.size()) continue;
            Bytes b(original.begin(), original.begin() + static_cast<std::ptrdiff_t>(end));
            give(strf("cut to {} bytes", end), b, {end < kv::kDirectory ? "header" : "file_bytes"});
            if (end < kv::kDirectory) continue;
            put_number(b, kv::kFileBytes.at, 8, end);
            put_number(b, kv::kChecksum, 8, xxh3(std::span(b).first(kv::kChecksum)));
            give(strf("cut to {} bytes, sealed", end), std::move(b), {end < sections_at ? "n_section" : "section"});
        }
    for (const size_t n : {size_t{1}, size_t{8}, kv::kPage}) {
        Bytes b = original;
        b.insert(b.end(), n, std::byte{0});
        give(strf("append {} bytes", n), b, {"file_bytes"});
        put_number(b, kv::kFileBytes.at, 8, b.size());
        SnapshotBytes::seal(b, n_section);
        give(strf("append {} bytes, sealed", n), std::move(b), {"directory", "end of the file"});
    }

    // Every length, with right checksums: far too much, nearly right, nothing.
    const auto lies = [](uint64_t right, size_t size) {
        std::vector<uint64_t> out;
        for (const uint64_t v : {uint64_t{0}, right - 1, right + 1, right * 2, uint64_t{0x7fffffff},
                                 uint64_t{0xffffffff}, uint64_t{1} << 62, uint64_t{1} << 63, ~uint64_t{0}}) {
            const uint64_t value = size == 4 ? v & 0xffffffff : v;
            if (value != right) out.push_back(value);
        }
        return out;
    };
    for (const kv::Field& f : {kv::kNSection, kv::kFileBytes, kv::kNLayer, kv::kNToken, kv::kNVocab, kv::kTextBytes})
        for (const uint64_t v : lies(good.get(f), f.size)) give(strf("{} = {}", f.name, v), with_header(f, v), {});
    for (size_t i = 0; i < n_section; ++i) {
        const auto& s = good.section[i];
        for (const uint64_t v : lies(s.stored.size(), 8))
            give(strf("{}: stored_bytes = {}", s.name(), v), with_entry(i, kv::kStoredBytes, v), {"section"});
        for (const uint64_t v : lies(s.raw_bytes, 8))
            give(strf("{}: raw_bytes = {}", s.name(), v), with_entry(i, kv::kRawBytes, v), {s.name(), "raw_bytes"});
    }

    // Somebody else's.
    give("foreign magic", with_header(kv::kMagic, 0x46554747), {"header", "not a snapshot file", "GGUF"});
    for (const uint64_t v : {uint64_t{0}, uint64_t{2}, uint64_t{0xffffffff}})
        give(strf("foreign version {}", v), with_header(kv::kVersion, v), {"header", "version", "expected 1"});
    give("foreign model", with_header(kv::kModel, good.get(kv::kModel) ^ 1), {"header", "model"});
    give("foreign row format", with_header(kv::kRowFormat, good.get(kv::kRowFormat) + 1), {"header", "row_format"});
    give("unknown reason", with_header(kv::kReason, 5), {"header", "reason 5"});
    for (const size_t at : {kv::kReserved, kv::kPage / 2, kv::kChecksum - 1})
        give(strf("reserved byte {}", at), with_header({"reserved", at, 1}, 1), {"header", strf("byte {}", at)});
    give("foreign text hash", with_header(kv::kTextHash, good.get(kv::kTextHash) + 1), {"text_hash"});
    give("foreign directory hash",
         [&] {
             Bytes b = original;
             b[kv::kDirectoryHash.at] ^= std::byte{1};
             put_number(b, kv::kChecksum, 8, xxh3(std::span(b).first(kv::kChecksum)));
             return b;
         }(),
         {"directory", "checksum"});

    // The directory: order, repeats, what is missing, what nobody knows.
    for (size_t i = 0; i < n_section; ++i) {
        const std::string name = good.section[i].name();
        if (i + 1 < n_section) {
            give(strf("{} after its successor", name),
                 changed([&](SnapshotBytes& s) { std::swap(s.section[i], s.section[i + 1]); }), {name, "before"});
            give(strf("overlap: {} reaches into the next", name),
                 with_entry(i, kv::kStoredBytes, good.section[i].stored.size() + 4), {});
        }
        give(strf("{} twice", name), changed([&](SnapshotBytes& s) {
                 const auto copy = s.section[i];
                 s.section.insert(s.section.begin() + static_cast<std::ptrdiff_t>(i), copy);
             }),
             {name, "twice"});
        if (good.section[i].kind != kv::kToolCalls)
            give(strf("{} is missing", name), changed([&](SnapshotBytes& s) {
                     s.section.erase(s.section.begin() + static_cast<std::ptrdiff_t>(i));
                 }),
                 {});
        give(strf("{}: unknown flag", name), with_entry(i, kv::kFlags, good.section[i].flags | 2), {name, "flags"});
        give(strf("{}: other flag", name), with_entry(i, kv::kFlags, good.section[i].flags ^ 1), {name, "flags"});
        give(strf("{}: unknown encoding", name), with_entry(i, kv::kEncoding, 2), {name, "encoding"});
        give(strf("{}: other encoding", name), with_entry(i, kv::kEncoding, good.section[i].encoding ^ 1), {name});
        give(strf("{}: index 2^32-1", name), with_entry(i, kv::kIndex, 0xffffffff), {});
        give(strf("{}: index + 1", name), with_entry(i, kv::kIndex, good.section[i].index + 1), {});
        give(strf("{}: kind 0", name), with_entry(i, kv::kKind, 0), {});
        if (good.section[i].kind != kv::kToolCalls)  // that would be an unknown optional one
            give(strf("{}: kind + 1", name), with_entry(i, kv::kKind, good.section[i].kind + 1), {});
    }
    const auto with_unknown = [&](uint32_t kind, uint32_t flags, uint32_t encoding) {
        return changed([&](SnapshotBytes& s) {
            s.section.push_back({.kind = kind,
                                 .index = 7,
                                 .flags = flags,
                                 .encoding = encoding,
                                 .raw_bytes = 999,
                                 .stored = Bytes(33, std::byte{0x5a})});
        });
    };
    give("unknown section, optional", with_unknown(6, 1, 0), {}, true);
    give("unknown section, optional, in an encoding nobody knows", with_unknown(0xffffffff, 1, 77), {}, true);
    give("unknown section, required", with_unknown(6, 0, 0), {"kind 6", "newer"});
    {
        Bytes b = with_unknown(6, 1, 0);
        b.back() ^= std::byte{1};
        give("unknown section, damaged", std::move(b), {"kind 6", "checksum"});
    }

    // Numbers that are no ids and no logits, under right checksums.
    const auto with_number = [&](uint32_t kind, size_t i, uint32_t bits) {
        return changed([&](SnapshotBytes& s) { put_number(s.find(kind)->stored, 4 * i, 4, bits); });
    };
    if (const size_t n = good.get(kv::kNToken); n > 0) {
        give("token -1", with_number(kv::kTokens, n / 2, 0xffffffff),
             {"section tokens", strf("token {} is -1", n / 2)});
        give("token n_vocab", with_number(kv::kTokens, n - 1, static_cast<uint32_t>(n_vocab)),
             {"section tokens", strf("token {} is {}", n - 1, n_vocab)});
        give("token -2^31", with_number(kv::kTokens, 0, 0x80000000), {"section tokens", "token 0"});
    }
    if (const size_t n = good.get(kv::kNVocab); n > 0) {
        give("logit NaN", with_number(kv::kLogits, n - 1, 0x7fc00000), {"section logits", strf("logit {}", n - 1)});
        give("logit infinite", with_number(kv::kLogits, 0, 0xff800000), {"section logits", "logit 0"});
    }

    // Whole layers of another size; a packed layer that is no zstd, cut, or has something behind it.
    for (size_t i = 0; i < n_section; ++i) {
        if (good.section[i].kind != kv::kRows) continue;
        const std::string name = good.section[i].name();
        const auto with_rows = [&](const std::function<void(SnapshotBytes::Section&)>& change) {
            return changed([&](SnapshotBytes& s) { change(s.section[i]); });
        };
        if (good.section[i].encoding == 0) {
            give(strf("{} one byte longer", name), with_rows([](auto& s) { s.stored.push_back({}), ++s.raw_bytes; }),
                 {name, "raw_bytes"});
            if (!good.section[i].stored.empty())
                give(strf("{} one byte shorter", name), with_rows([](auto& s) { s.stored.pop_back(), --s.raw_bytes; }),
                     {name, "raw_bytes"});
            if (good.section[i].stored.size() > 1)
                give(strf("{} said to be packed", name),
                     with_rows([](auto& s) { s.encoding = 1, s.stored.pop_back(); }), {name, "zstd"});
        } else {
            give(strf("{}: frame cut", name), with_rows([](auto& s) { s.stored.pop_back(); }), {name, "zstd"});
            give(strf("{}: byte after the frame", name), with_rows([](auto& s) { s.stored.push_back({}); }), {name});
            give(strf("{}: frame damaged", name), with_rows([](auto& s) { s.stored[0] ^= std::byte{1}; }),
                 {name, "zstd"});
        }
    }

    // Files that never were snapshots.
    give("empty", {}, {"header"});
    give("zeros", Bytes(original.size(), std::byte{0}), {"not a snapshot"});
    give("ones", Bytes(original.size(), std::byte{0xff}), {"not a snapshot"});
}

}  // namespace vesta::test
