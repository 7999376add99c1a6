// Reading: the head says how much there is, and only when all of that agrees with the file's real size and with what
// the caller expects is anything allocated. Every section is hashed as it comes in.
#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>

#include "base/hash.h"
#include "snapshot/input.h"
#include "snapshot/packing.h"

namespace vesta::snapshot {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// Doubles the kernel's read-ahead; a system without it reads all the same.
void will_read_in_order([[maybe_unused]] const Input& input) {
#ifdef POSIX_FADV_SEQUENTIAL
    ::posix_fadvise(input.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
}

Error bad_section(const Input& input, const Section& s, std::string_view what) {
    return Error{Code::bad_file, strf("{}: {}: {}", input.path(), section_name(s), what)};
}

Status check_hash(const Input& input, const Section& s, const Hash64& hash) {
    if (const uint64_t found = hash.digest(); found != s.hash)
        return bad_section(input, s, strf("checksum {:016x}, expected {:016x}; the file is damaged", found, s.hash));
    return {};
}

// The stored bytes, a piece at a time: visit(piece, offset in the section). What it finds wrong counts only when the
// checksum is right: a damaged file should be called damaged.
template <class F>
Status for_each_piece(const Input& input, const Section& s, std::span<std::byte> buffer, F&& visit) {
    Hash64 hash;
    Status found;
    for (uint64_t i = 0; i < s.stored_bytes; i += buffer.size()) {
        const auto piece = buffer.first(static_cast<size_t>(std::min<uint64_t>(buffer.size(), s.stored_bytes - i)));
        VESTA_TRY_STATUS(input.read(s.offset + i, piece, section_name(s)));
        hash.add(piece);
        if (found.ok()) found = visit(std::span<const std::byte>(piece), i);
    }
    VESTA_TRY_STATUS(check_hash(input, s, hash));
    return found;
}

// Room for a piece of the largest section: small files are looked at with small buffers.
std::vector<std::byte> piece_buffer(const Layout& layout) {
    uint64_t largest = 1;
    for (const Section& s : layout.section) largest = std::max(largest, s.stored_bytes);
    return std::vector<std::byte>(static_cast<size_t>(std::min<uint64_t>(largest, kPieceBytes)));
}

// Packed bytes through `buffer` into `out`, which may be smaller than what they unpack to (Unpacker::begin).
Status unpack_section(const Input& input, const Section& s, std::span<std::byte> buffer, std::span<std::byte> out) {
    VESTA_TRY(Unpacker unpacker, Unpacker::create());
    unpacker.begin(s.raw_bytes, out);
    Status unpacked = for_each_piece(input, s, buffer, [&](std::span<const std::byte> piece, uint64_t) -> Status {
        auto status = unpacker.feed(piece);
        return status.ok() ? Status() : bad_section(input, s, status.error().message);
    });
    VESTA_TRY_STATUS(std::move(unpacked));
    const Status ended = unpacker.end();
    return ended.ok() ? Status() : bad_section(input, s, ended.error().message);
}

// Into the place where the bytes stay; `buffer` is for packed ones. Requires: out.size() == s.raw_bytes.
Status read_section(const Input& input, const Section& s, std::span<std::byte> buffer, std::span<std::byte> out) {
    VESTA_CHECK(out.size() == s.raw_bytes);
    if (s.encoding == Encoding::zstd) return unpack_section(input, s, buffer, out);
    Hash64 hash;
    for (size_t i = 0; i < out.size(); i += kPieceBytes) {
        const auto piece = out.subspan(i, std::min(kPieceBytes, out.size() - i));
        VESTA_TRY_STATUS(input.read(s.offset + i, piece, section_name(s)));
        hash.add(piece);
    }
    return check_hash(input, s, hash);
}

Status check_token(const Input& input, const Section& s, uint64_t i, int32_t id, uint64_t n_vocab) {
    if (id >= 0 && static_cast<uint64_t>(id) < n_vocab) return {};
    return bad_section(input, s, strf("token {} is {}, expected an id below {}", i, id, n_vocab));
}

Status check_logit(const Input& input, const Section& s, uint64_t i, float logit) {
    if (std::isfinite(logit)) return {};
    return bad_section(input, s, strf("logit {} is {}, expected a finite number", i, logit));
}

// The numbers of a piece of tokens or logits; of other sections nothing.
Status check_values(const Input& input, const Header& h, const Section& s, std::span<const std::byte> piece,
                    uint64_t offset) {
    // Where a file has no logits it does not say how large the vocabulary is.
    const uint64_t n_vocab = h.n_vocab > 0 ? h.n_vocab : uint64_t{1} << 31;
    const bool tokens = s.is(Kind::tokens);
    if (!tokens && !s.is(Kind::logits)) return {};
    for (size_t i = 0; i + 4 <= piece.size(); i += 4) {
        int32_t id;
        float logit;
        std::memcpy(&id, piece.data() + i, 4);
        std::memcpy(&logit, piece.data() + i, 4);
        VESTA_TRY_STATUS(tokens ? check_token(input, s, (offset + i) / 4, id, n_vocab)
                                : check_logit(input, s, (offset + i) / 4, logit));
    }
    return {};
}

Status check_expected(const std::string& path, const Layout& layout, const Expected& expected) {
    const Header& h = layout.header;
    const auto refuse = [&](Code code, std::string what) { return Error{code, strf("{}: {}", path, what)}; };
    if (h.model != expected.model)
        return refuse(Code::unsupported,
                      strf("header: model is {:016x}, expected {:016x}; it was computed with another "
                           "model file",
                           h.model, expected.model));
    if (h.row_format != expected.row_format)
        return refuse(Code::unsupported,
                      strf("header: row_format is {}, expected {}; the cache is kept in another format", h.row_format,
                           expected.row_format));
    if (h.n_token > expected.max_tokens)
        return refuse(Code::no_memory,
                      strf("header: n_token is {}, expected at most {}; a larger context would hold it", h.n_token,
                           expected.max_tokens));
    if (h.n_vocab != 0 && h.n_vocab != expected.n_vocab)
        return refuse(Code::bad_file, strf("header: n_vocab is {}, expected {}", h.n_vocab, expected.n_vocab));
    VESTA_CHECK(expected.layer_bytes != nullptr);
    const std::vector<uint64_t> layer_bytes = expected.layer_bytes(h.n_token);
    if (h.n_layer != layer_bytes.size())
        return refuse(Code::bad_file, strf("header: n_layer is {}, expected {}", h.n_layer, layer_bytes.size()));
    for (const Section& s : layout.section)
        if (s.is(Kind::rows) && s.raw_bytes != layer_bytes[s.index])
            return refuse(Code::bad_file, strf("{}: raw_bytes is {}, expected {} for {} tokens", section_name(s),
                                               s.raw_bytes, layer_bytes[s.index], h.n_token));
    return {};
}

Result<Usage> read_usage(const Input& input) {
    std::vector<std::byte> pages(2 * kPageBytes);
    VESTA_TRY_STATUS(input.read(kPageBytes, pages, "usage"));
    const Slot slot[2] = {decode_slot(std::span(pages).first(kPageBytes)),
                          decode_slot(std::span(pages).last(kPageBytes))};
    const int newest = newest_slot(slot[0], slot[1]);
    return newest < 0 ? Usage{} : slot[newest].usage;
}

// Allocations below are of sizes that a file of this size may well have; a machine may still be too small for them.
template <class F>
auto with_memory(const std::string& path, uint64_t bytes, F&& f) -> decltype(f()) {
    const auto refused = [&] { return Error{Code::no_memory, strf("{}: no memory for its {} bytes", path, bytes)}; };
    try {
        return f();
    } catch (const std::bad_alloc&) {
        return refused();
    } catch (const std::length_error&) {
        return refused();
    }
}

Result<Contents> read_contents(const Input& input, const Layout& layout, const Expected& expected) {
    Contents c;
    c.header = layout.header;
    VESTA_TRY(c.usage, read_usage(input));
    uint64_t row_bytes = 0;
    for (const Section& s : layout.section) row_bytes += s.is(Kind::rows) ? s.raw_bytes : 0;
    c.rows.resize(row_bytes);
    std::vector<std::byte> buffer = piece_buffer(layout);
    size_t row = 0;
    for (const Section& s : layout.section) {
        const auto into = [&](auto& container) {
            container.resize(static_cast<size_t>(s.raw_bytes / sizeof(container[0])));
            return read_section(input, s, buffer, std::as_writable_bytes(std::span(container)));
        };
        switch (static_cast<Kind>(s.kind)) {
            case Kind::tokens:
                VESTA_TRY_STATUS(into(c.tokens));
                for (size_t i = 0; i < c.tokens.size(); ++i)
                    VESTA_TRY_STATUS(check_token(input, s, i, c.tokens[i], expected.n_vocab));
                break;
            case Kind::logits:
                VESTA_TRY_STATUS(into(c.logits));
                for (size_t i = 0; i < c.logits.size(); ++i) VESTA_TRY_STATUS(check_logit(input, s, i, c.logits[i]));
                break;
            case Kind::rows:
                VESTA_TRY_STATUS(read_section(input, s, buffer, std::span(c.rows).subspan(row, s.raw_bytes)));
                row += s.raw_bytes;
                break;
            case Kind::text:
                VESTA_TRY_STATUS(into(c.text));
                break;
            case Kind::tool_calls:
                VESTA_TRY_STATUS(into(c.tool_calls));
                break;
            default:  // optional and unknown: only whether it is whole
                VESTA_TRY_STATUS(for_each_piece(input, s, buffer, [](auto, uint64_t) { return Status(); }));
        }
    }
    return c;
}

Status verify_sections(const Input& input, const Layout& layout) {
    std::vector<std::byte> buffer = piece_buffer(layout), unpacked;
    for (const Section& s : layout.section) {
        if (s.encoding == Encoding::zstd && s.is(Kind::rows)) {
            unpacked.resize(static_cast<size_t>(std::min<uint64_t>(s.raw_bytes, kPieceBytes)));
            VESTA_TRY_STATUS(unpack_section(input, s, buffer, unpacked));
            continue;
        }
        const auto visit = [&](std::span<const std::byte> piece, uint64_t offset) {
            return check_values(input, layout.header, s, piece, offset);
        };
        VESTA_TRY_STATUS(for_each_piece(input, s, buffer, visit));
    }
    return {};
}

}  // namespace

Result<Summary> read_summary(const std::string& path) {
    VESTA_TRY(const Input input, Input::open(path));
    VESTA_TRY(const Layout layout, input.layout());
    Summary summary;
    summary.header = layout.header;
    summary.file_bytes = layout.file_bytes;
    VESTA_TRY(summary.usage, read_usage(input));
    for (const Section& s : layout.section) summary.compressed |= s.is(Kind::rows) && s.encoding == Encoding::zstd;
    return summary;
}

Result<std::string> read_text(const std::string& path) {
    VESTA_TRY(const Input input, Input::open(path));
    VESTA_TRY(const Layout layout, input.layout());
    const Section* s = layout.find(Kind::text);
    if (s == nullptr) return std::string();
    return with_memory(path, s->raw_bytes, [&]() -> Result<std::string> {
        std::string text(static_cast<size_t>(s->raw_bytes), '\0');
        VESTA_TRY_STATUS(read_section(input, *s, {}, std::as_writable_bytes(std::span(text))));
        return text;
    });
}

Result<Contents> read(const std::string& path, const Expected& expected) {
    VESTA_TRY(const Input input, Input::open(path));
    VESTA_TRY(const Layout layout, input.layout());
    VESTA_TRY_STATUS(check_expected(path, layout, expected));
    will_read_in_order(input);
    return with_memory(path, layout.file_bytes, [&] { return read_contents(input, layout, expected); });
}

Status verify(const std::string& path) {
    VESTA_TRY(const Input input, Input::open(path));
    VESTA_TRY(const Layout layout, input.layout());
    will_read_in_order(input);
    return with_memory(path, kPieceBytes, [&] { return verify_sections(input, layout); });
}

}  // namespace vesta::snapshot
