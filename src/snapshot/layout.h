// The bytes of a snapshot file's head, and what they must be: the header page, the two usage pages and the directory,
// in the layout of docs/kv-format.md. Knows numbers and offsets, opens nothing. A file is believed only as far as its
// real size goes; what passes here can be allocated and read without looking at the head again.
//
//   page 0        header: who computed it, how much of it there is; ends with its own checksum
//   page 1, 2     usage slots, written in turns; outside every other checksum
//   then          directory: one entry of 40 bytes per section, its checksum in the header
//   then          the sections' bytes, one directly after the other, to the last byte of the file
//
// The directory has no offsets: sections follow each other, so they can neither overlap nor leave bytes between them
// that nobody checks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "snapshot/file.h"

namespace vesta::snapshot {

constexpr uint32_t kVersion = 1;
// A header and a usage slot have a page each, the largest unit that disks write: a write of one slot that power cuts
// short hurts that slot only.
constexpr size_t kPageBytes = 4096;
constexpr size_t kHeadBytes = 3 * kPageBytes;  // the directory stands here
constexpr size_t kEntryBytes = 40;
constexpr uint32_t kMaxSections = 4096;  // far above any model's layers; 160 KB of directory
constexpr uint64_t kMaxTextBytes = uint64_t{1}
                                   << 28;  // text, and tool calls: 16 bytes per token of the longest context

enum class Kind : uint32_t { tokens = 1, logits = 2, rows = 3, text = 4, tool_calls = 5 };
enum class Encoding : uint32_t { plain = 0, zstd = 1 };
constexpr uint32_t kOptional = 1;  // flag: a reader that does not know the kind may go on without it

struct Section {
    uint32_t kind = 0;   // Kind, or what a newer writer added
    uint32_t index = 0;  // the layer of rows; else 0
    uint32_t flags = 0;
    Encoding encoding = Encoding::plain;
    uint64_t stored_bytes = 0;
    uint64_t raw_bytes = 0;
    uint64_t hash = 0;    // XXH3 of the stored bytes
    uint64_t offset = 0;  // follows from the sections before it; not stored
    bool is(Kind k) const { return kind == static_cast<uint32_t>(k); }
};
std::string section_name(const Section& section);  // "section rows of layer 3"

struct Layout {
    Header header;
    std::vector<Section> section = {};  // ascending by (kind, index)
    uint64_t file_bytes = 0;
    uint64_t directory_hash = 0;
    uint32_t n_section = 0;
    const Section* find(Kind kind, uint32_t index = 0) const;
};

using Page = std::array<std::byte, kPageBytes>;

// XXH3 of bytes that are there as a whole.
uint64_t hash_of(std::span<const std::byte> bytes);

Page encode_header(const Layout& layout);
std::vector<std::byte> encode_directory(std::span<const Section> section);

// Everything but `section`. `file_bytes` is the real size. Errors begin with `path`.
Result<Layout> decode_header(const std::string& path, std::span<const std::byte> page, uint64_t file_bytes);
// Adds the sections, all checked against each other, the header and the end of the file.
// Requires: bytes.size() == layout.n_section * kEntryBytes.
Status decode_directory(const std::string& path, std::span<const std::byte> bytes, Layout* layout);

// One usage slot. The valid one with the higher sequence number counts.
struct Slot {
    uint64_t sequence = 0;
    Usage usage;
    bool valid = false;
};
Page encode_slot(uint64_t sequence, const Usage& usage);
Slot decode_slot(std::span<const std::byte> page);
// 0 or 1: which of the two counts; -1: neither is valid.
int newest_slot(const Slot& first, const Slot& second);

}  // namespace vesta::snapshot
