#include "snapshot/layout.h"

#include <bit>
#include <cstring>

#include "base/hash.h"
#include "base/utf8.h"

namespace vesta::snapshot {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are copied as they lie in the file");

constexpr std::string_view kMagic{"VESTAKV\0", 8};

// Byte offsets in page 0; the magic is at 0.
namespace at {
constexpr size_t version = 8, n_section = 12, file_bytes = 16, model = 24, row_format = 32;
constexpr size_t weight_bits = 36, reason = 40, n_layer = 44, n_token = 48, n_vocab = 56, text_hash = 64;
constexpr size_t text_bytes = 72, created = 80, directory_hash = 88, reserved = 96, checksum = kPageBytes - 8;
}  // namespace at

template <class T>
T load(std::span<const std::byte> bytes, size_t offset) {
    VESTA_CHECK(offset + sizeof(T) <= bytes.size());
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

template <class T>
void store(std::span<std::byte> bytes, size_t offset, T value) {
    VESTA_CHECK(offset + sizeof(T) <= bytes.size());
    std::memcpy(bytes.data() + offset, &value, sizeof value);
}

uint64_t page_checksum(std::span<const std::byte> page) { return hash_of(page.first(at::checksum)); }

// The first bytes as a person may recognise them: "GGUF" rather than four numbers.
std::string shown(std::span<const std::byte> bytes) {
    return printable({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

uint64_t hash_of(std::span<const std::byte> bytes) {
    Hash64 hash;
    hash.add(bytes);
    return hash.digest();
}

std::string section_name(const Section& s) {
    switch (static_cast<Kind>(s.kind)) {
        case Kind::tokens:
            return "section tokens";
        case Kind::logits:
            return "section logits";
        case Kind::rows:
            return strf("section rows of layer {}", s.index);
        case Kind::text:
            return "section text";
        case Kind::tool_calls:
            return "section tool_calls";
    }
    return strf("section of unknown kind {}", s.kind);
}

const Section* Layout::find(Kind kind, uint32_t index) const {
    for (const Section& s : section)
        if (s.is(kind) && s.index == index) return &s;
    return nullptr;
}

Page encode_header(const Layout& layout) {
    Page page{};
    const Header& h = layout.header;
    std::memcpy(page.data(), kMagic.data(), kMagic.size());
    store(page, at::version, kVersion);
    store(page, at::n_section, layout.n_section);
    store(page, at::file_bytes, layout.file_bytes);
    store(page, at::model, h.model);
    store(page, at::row_format, h.row_format);
    store(page, at::weight_bits, h.weight_bits);
    store(page, at::reason, static_cast<uint32_t>(h.reason));
    store(page, at::n_layer, h.n_layer);
    store(page, at::n_token, h.n_token);
    store(page, at::n_vocab, h.n_vocab);
    store(page, at::text_hash, h.text_hash);
    store(page, at::text_bytes, h.text_bytes);
    store(page, at::created, h.created);
    store(page, at::directory_hash, layout.directory_hash);
    store(page, at::checksum, page_checksum(page));
    return page;
}

std::vector<std::byte> encode_directory(std::span<const Section> section) {
    std::vector<std::byte> bytes(section.size() * kEntryBytes);
    for (size_t i = 0; i < section.size(); ++i) {
        const std::span<std::byte> entry = std::span(bytes).subspan(i * kEntryBytes, kEntryBytes);
        store(entry, 0, section[i].kind);
        store(entry, 4, section[i].index);
        store(entry, 8, section[i].flags);
        store(entry, 12, static_cast<uint32_t>(section[i].encoding));
        store(entry, 16, section[i].stored_bytes);
        store(entry, 24, section[i].raw_bytes);
        store(entry, 32, section[i].hash);
    }
    return bytes;
}

Result<Layout> decode_header(const std::string& path, std::span<const std::byte> page, uint64_t file_bytes) {
    VESTA_CHECK(page.size() == kPageBytes);
    const auto bad = [&](std::string what) { return Error{Code::bad_file, strf("{}: {}", path, what)}; };
    if (std::memcmp(page.data(), kMagic.data(), kMagic.size()) != 0)
        return bad(strf("header: not a snapshot file: it begins with '{}', expected '{}'", shown(page.first(8)),
                        shown(std::as_bytes(std::span(kMagic)))));
    // Before the checksum: another version may have it elsewhere.
    if (const auto v = load<uint32_t>(page, at::version); v != kVersion)
        return Error{Code::unsupported,
                     strf("{}: header: version {}, expected {}; it was written by another Vesta", path, v, kVersion)};
    if (const auto stored = load<uint64_t>(page, at::checksum); stored != page_checksum(page))
        return bad(
            strf("header: checksum {:016x}, expected {:016x}; the file is damaged", page_checksum(page), stored));
    for (size_t i = at::reserved; i < at::checksum; ++i)
        if (page[i] != std::byte{0})
            return Error{Code::unsupported,
                         strf("{}: header: byte {} is {}, expected 0; it was written by a newer Vesta", path, i,
                              static_cast<int>(page[i]))};

    Layout layout;
    Header& h = layout.header;
    layout.n_section = load<uint32_t>(page, at::n_section);
    layout.file_bytes = load<uint64_t>(page, at::file_bytes);
    layout.directory_hash = load<uint64_t>(page, at::directory_hash);
    h.model = load<uint64_t>(page, at::model);
    h.row_format = load<uint32_t>(page, at::row_format);
    h.weight_bits = load<uint32_t>(page, at::weight_bits);
    h.n_layer = load<uint32_t>(page, at::n_layer);
    h.n_token = load<uint64_t>(page, at::n_token);
    h.n_vocab = load<uint64_t>(page, at::n_vocab);
    h.text_hash = load<uint64_t>(page, at::text_hash);
    h.text_bytes = load<uint64_t>(page, at::text_bytes);
    h.created = load<int64_t>(page, at::created);
    const auto reason = load<uint32_t>(page, at::reason);
    if (reason > static_cast<uint32_t>(Reason::shutdown))
        return bad(strf("header: reason {}, expected at most {}", reason, static_cast<uint32_t>(Reason::shutdown)));
    h.reason = static_cast<Reason>(reason);
    if (layout.file_bytes != file_bytes)
        return bad(
            strf("header: file_bytes is {}, but the file has {} bytes; it is cut short or has bytes after its end",
                 layout.file_bytes, file_bytes));
    if (layout.n_section > kMaxSections)
        return bad(strf("header: n_section is {}, expected at most {}", layout.n_section, kMaxSections));
    if (layout.n_section * uint64_t{kEntryBytes} > file_bytes - kHeadBytes)
        return bad(
            strf("header: n_section is {}, and the directory of {} bytes does not fit into the {} bytes of the file",
                 layout.n_section, layout.n_section * uint64_t{kEntryBytes}, file_bytes));
    if (h.n_layer > layout.n_section)
        return bad(strf("header: n_layer is {}, but there are {} sections", h.n_layer, layout.n_section));
    if (h.text_bytes > kMaxTextBytes)
        return bad(strf("header: text_bytes is {}, expected at most {}", h.text_bytes, kMaxTextBytes));
    if (h.text_bytes == 0 && h.text_hash != 0)
        return bad(strf("header: text_hash is {:016x}, expected 0 in a file without text", h.text_hash));
    return layout;
}

namespace {

// What an entry says by itself; `room`: bytes of the file that no section before it has taken.
Status check_entry(const Section& s, uint32_t encoding, uint64_t room, const Header& h) {
    const auto bad = [&](std::string what) { return Error{Code::bad_file, strf("{}: {}", section_name(s), what)}; };
    const auto newer = [&](std::string what) {
        return Error{Code::unsupported, strf("{}: {}; it was written by a newer Vesta", section_name(s), what)};
    };
    if ((s.flags & ~kOptional) != 0) return newer(strf("flags {:#x}, expected at most {:#x}", s.flags, kOptional));
    if (s.stored_bytes > room)
        return bad(strf("stored_bytes is {}, but only {} bytes of the file are left", s.stored_bytes, room));

    const bool known =
        s.kind >= static_cast<uint32_t>(Kind::tokens) && s.kind <= static_cast<uint32_t>(Kind::tool_calls);
    if (!known) {
        if (s.flags == kOptional) return {};  // somebody else's; its bytes are still counted and its checksum verified
        return newer(strf("kind {}, expected {} to {}", s.kind, static_cast<uint32_t>(Kind::tokens),
                          static_cast<uint32_t>(Kind::tool_calls)));
    }
    const uint32_t flags = s.is(Kind::text) || s.is(Kind::tool_calls) ? kOptional : 0;
    if (s.flags != flags) return bad(strf("flags {:#x}, expected {:#x}", s.flags, flags));
    if (!s.is(Kind::rows) && s.index != 0) return bad(strf("index {}, expected 0", s.index));
    if (encoding > static_cast<uint32_t>(Encoding::zstd))
        return newer(strf("encoding {}, expected at most {}", encoding, static_cast<uint32_t>(Encoding::zstd)));
    if (s.encoding == Encoding::zstd && !s.is(Kind::rows)) return bad("compressed, expected plain: only rows may be");
    if (s.encoding == Encoding::plain && s.raw_bytes != s.stored_bytes)
        return bad(strf("raw_bytes is {}, expected stored_bytes = {}", s.raw_bytes, s.stored_bytes));
    if (s.encoding == Encoding::zstd && s.raw_bytes <= s.stored_bytes)
        return bad(strf("raw_bytes is {}, expected more than the {} compressed bytes", s.raw_bytes, s.stored_bytes));

    switch (static_cast<Kind>(s.kind)) {
        case Kind::tokens:
            if (s.raw_bytes % 4 != 0 || s.raw_bytes / 4 != h.n_token)
                return bad(strf("raw_bytes is {}, expected 4 for each of {} tokens", s.raw_bytes, h.n_token));
            break;
        case Kind::logits:
            if (s.raw_bytes == 0 || s.raw_bytes % 4 != 0 || s.raw_bytes / 4 != h.n_vocab)
                return bad(strf("raw_bytes is {}, expected 4 for each of {} logits", s.raw_bytes, h.n_vocab));
            break;
        case Kind::rows:
            if (s.index >= h.n_layer) return bad(strf("the file has {} layers", h.n_layer));
            break;
        case Kind::text:
            if (s.raw_bytes == 0 || s.raw_bytes != h.text_bytes)
                return bad(strf("raw_bytes is {}, expected text_bytes = {} and not 0", s.raw_bytes, h.text_bytes));
            if (s.hash != h.text_hash)
                return bad(strf("checksum {:016x}, expected text_hash = {:016x}", s.hash, h.text_hash));
            break;
        case Kind::tool_calls:
            if (s.raw_bytes == 0 || s.raw_bytes > kMaxTextBytes)
                return bad(strf("raw_bytes is {}, expected 1 to {}", s.raw_bytes, kMaxTextBytes));
            break;
    }
    return {};
}

}  // namespace

Status decode_directory(const std::string& path, std::span<const std::byte> bytes, Layout* layout) {
    VESTA_CHECK(bytes.size() == layout->n_section * kEntryBytes);
    const auto bad = [&](std::string what) { return Error{Code::bad_file, strf("{}: {}", path, what)}; };
    if (const uint64_t found = hash_of(bytes); found != layout->directory_hash)
        return bad(
            strf("directory: checksum {:016x}, expected {:016x}; the file is damaged", found, layout->directory_hash));
    const Header& h = layout->header;
    uint64_t offset = kHeadBytes + bytes.size();
    uint32_t n_rows = 0;
    layout->section.reserve(layout->n_section);
    for (uint32_t i = 0; i < layout->n_section; ++i) {
        const auto entry = bytes.subspan(i * kEntryBytes, kEntryBytes);
        const auto encoding = load<uint32_t>(entry, 12);
        const Section s{.kind = load<uint32_t>(entry, 0),
                        .index = load<uint32_t>(entry, 4),
                        .flags = load<uint32_t>(entry, 8),
                        .encoding = static_cast<Encoding>(encoding),
                        .stored_bytes = load<uint64_t>(entry, 16),
                        .raw_bytes = load<uint64_t>(entry, 24),
                        .hash = load<uint64_t>(entry, 32),
                        .offset = offset};
        if (i > 0) {
            const Section& before = layout->section.back();
            if (before.kind == s.kind && before.index == s.index) return bad(strf("{}: twice", section_name(s)));
            if (before.kind > s.kind || (before.kind == s.kind && before.index > s.index))
                return bad(strf("{}: after {}, expected before it", section_name(s), section_name(before)));
        }
        if (auto status = check_entry(s, encoding, layout->file_bytes - offset, h); !status.ok())
            return Error{status.error().code, strf("{}: {}", path, status.error().message)};
        n_rows += s.is(Kind::rows) ? 1 : 0;
        offset += s.stored_bytes;
        layout->section.push_back(s);
    }
    // Ascending, no index twice and none at or above n_layer: as many as layers are all of them.
    if (n_rows != h.n_layer) return bad(strf("directory: rows of {} layers, expected {}", n_rows, h.n_layer));
    if (layout->find(Kind::tokens) == nullptr) return bad("directory: section tokens is missing");
    if (h.n_vocab > 0 && layout->find(Kind::logits) == nullptr)
        return bad(strf("directory: section logits is missing, expected {} logits", h.n_vocab));
    if (h.text_bytes > 0 && layout->find(Kind::text) == nullptr)
        return bad(strf("directory: section text is missing, expected {} bytes", h.text_bytes));
    if (offset != layout->file_bytes)
        return bad(
            strf("directory: sections end at byte {}, expected the end of the file, {}", offset, layout->file_bytes));
    return {};
}

Page encode_slot(uint64_t sequence, const Usage& usage) {
    Page page{};
    store(page, 0, sequence);
    store(page, 8, usage.hits);
    store(page, 16, usage.last_used);
    store(page, at::checksum, page_checksum(page));
    return page;
}

Slot decode_slot(std::span<const std::byte> page) {
    VESTA_CHECK(page.size() == kPageBytes);
    if (load<uint64_t>(page, at::checksum) != page_checksum(page)) return {};
    return {.sequence = load<uint64_t>(page, 0),
            .usage = {.hits = load<uint64_t>(page, 8), .last_used = load<int64_t>(page, 16)},
            .valid = true};
}

int newest_slot(const Slot& first, const Slot& second) {
    if (!first.valid) return second.valid ? 1 : -1;
    return second.valid && second.sequence > first.sequence ? 1 : 0;
}

}  // namespace vesta::snapshot
