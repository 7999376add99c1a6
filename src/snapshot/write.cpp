// Writing: the sections first, each hashed piece by piece while it is in the cache, then the head, then flush and
// rename.
#include <algorithm>
#include <cmath>
#include <memory>

#include "base/file.h"
#include "base/hash.h"
#include "snapshot/layout.h"
#include "snapshot/packing.h"

namespace vesta::snapshot {
namespace {

// Hashed and written at a time. Large enough that the call costs nothing, small enough that the second look at the
// bytes finds them in L2.
constexpr size_t kPieceBytes = size_t{1} << 20;

class Writer {
 public:
    Writer(AtomicFile* file, uint64_t offset) : file_(file), offset_(offset) {}

    Status add(Kind kind, uint32_t index, std::span<const std::byte> bytes) {
        Section s = entry(kind, index, bytes.size());
        Hash64 hash;
        for (size_t i = 0; i < bytes.size(); i += kPieceBytes)
            VESTA_TRY_STATUS(put(bytes.subspan(i, std::min(kPieceBytes, bytes.size() - i)), s.offset + i, &hash));
        s.hash = hash.digest();
        return close(s);
    }

    // Packed, or as it is when packing does not make it smaller: then what was written so far is written over.
    Status add_packed(Kind kind, uint32_t index, std::span<const std::byte> bytes) {
        Section s = entry(kind, index, bytes.size());
        s.encoding = Encoding::zstd;
        s.stored_bytes = 0;
        if (packer_ == nullptr) {
            VESTA_TRY(Packer packer, Packer::create());
            packer_ = std::make_unique<Packer>(std::move(packer));
            buffer_.resize(kPieceBytes);
        }
        Hash64 hash;
        packer_->begin(bytes);
        for (;;) {
            VESTA_TRY(const auto piece, packer_->next(buffer_));
            if (piece.empty()) break;
            if (s.stored_bytes + piece.size() >= bytes.size()) return add(kind, index, bytes);
            VESTA_TRY_STATUS(put(piece, s.offset + s.stored_bytes, &hash));
            s.stored_bytes += piece.size();
        }
        s.hash = hash.digest();
        return close(s);
    }

    uint64_t offset() const { return offset_; }
    const std::vector<Section>& section() const { return section_; }

 private:
    Section entry(Kind kind, uint32_t index, uint64_t raw_bytes) const {
        Section s;
        s.kind = static_cast<uint32_t>(kind);
        s.index = index;
        s.flags = kind == Kind::text || kind == Kind::tool_calls ? kOptional : 0;
        s.stored_bytes = s.raw_bytes = raw_bytes;
        s.offset = offset_;
        return s;
    }
    Status put(std::span<const std::byte> piece, uint64_t offset, Hash64* hash) {
        hash->add(piece);
        return file_->write_at(offset, piece);
    }
    Status close(const Section& s) {
        offset_ += s.stored_bytes;
        section_.push_back(s);
        return {};
    }

    AtomicFile* file_;
    uint64_t offset_;
    std::vector<Section> section_;
    std::unique_ptr<Packer> packer_;
    std::vector<std::byte> buffer_;
};

// What no reader would take is not written.
Status check_view(const std::string& path, const View& view, size_t n_section) {
    const auto bad = [&](Code code, std::string what) { return Error{code, strf("{}: not written: {}", path, what)}; };
    if (n_section > kMaxSections)
        return bad(Code::invalid_argument, strf("{} layers are more than a file has room for", view.layer.size()));
    if (view.header.reason > Reason::shutdown)
        return bad(Code::invalid_argument, strf("unknown reason {}", static_cast<uint32_t>(view.header.reason)));
    for (size_t i = 0; i < view.tokens.size(); ++i)
        if (view.tokens[i] < 0)
            return bad(Code::invalid_argument, strf("token {} is {}, expected an id", i, view.tokens[i]));
    for (size_t i = 0; i < view.logits.size(); ++i)
        if (!std::isfinite(view.logits[i]))
            return bad(Code::numeric, strf("logit {} is {}, expected a finite number", i, view.logits[i]));
    for (const auto& [name, text] : {std::pair{"text", view.text}, std::pair{"tool calls", view.tool_calls}})
        if (text.size() > kMaxTextBytes)
            return bad(Code::invalid_argument,
                       strf("{} bytes of {}, expected at most {}", text.size(), name, kMaxTextBytes));
    return {};
}

}  // namespace

uint64_t text_hash(std::string_view text) { return text.empty() ? 0 : hash_of(std::as_bytes(std::span(text))); }

const char* reason_name(Reason reason) {
    switch (reason) {
        case Reason::manual:
            return "manual";
        case Reason::cold:
            return "cold";
        case Reason::continued:
            return "continued";
        case Reason::evict:
            return "evict";
        case Reason::shutdown:
            return "shutdown";
    }
    return "unknown";
}

Status write(const std::string& path, const View& view, const WriteOptions& options) {
    const size_t n_section = 1 + (view.logits.empty() ? 0 : 1) + view.layer.size() + (view.text.empty() ? 0 : 1) +
                             (view.tool_calls.empty() ? 0 : 1);
    VESTA_TRY_STATUS(check_view(path, view, n_section));
    VESTA_TRY(AtomicFile file, AtomicFile::create(path, options.overwrite, 0600));

    Writer writer(&file, kHeadBytes + n_section * kEntryBytes);
    VESTA_TRY_STATUS(writer.add(Kind::tokens, 0, std::as_bytes(view.tokens)));
    if (!view.logits.empty()) VESTA_TRY_STATUS(writer.add(Kind::logits, 0, std::as_bytes(view.logits)));
    // Only rows are packed: they are all but a hundredth of a file, and tokens and text can be looked up without zstd.
    for (uint32_t i = 0; i < view.layer.size(); ++i)
        VESTA_TRY_STATUS(options.compress ? writer.add_packed(Kind::rows, i, view.layer[i])
                                          : writer.add(Kind::rows, i, view.layer[i]));
    if (!view.text.empty()) VESTA_TRY_STATUS(writer.add(Kind::text, 0, std::as_bytes(std::span(view.text))));
    if (!view.tool_calls.empty())
        VESTA_TRY_STATUS(writer.add(Kind::tool_calls, 0, std::as_bytes(std::span(view.tool_calls))));
    VESTA_CHECK(writer.section().size() == n_section);

    const std::vector<std::byte> directory = encode_directory(writer.section());
    Layout layout{.header = view.header,
                  .file_bytes = writer.offset(),
                  .directory_hash = hash_of(directory),
                  .n_section = static_cast<uint32_t>(n_section)};
    layout.header.n_token = view.tokens.size();
    layout.header.n_vocab = view.logits.size();
    layout.header.n_layer = static_cast<uint32_t>(view.layer.size());
    layout.header.text_bytes = view.text.size();
    layout.header.text_hash = text_hash(view.text);
    VESTA_TRY_STATUS(file.write_at(0, encode_header(layout)));
    VESTA_TRY_STATUS(file.write_at(kPageBytes, encode_slot(1, {.hits = 0, .last_used = view.header.created})));
    VESTA_TRY_STATUS(file.write_at(2 * kPageBytes, encode_slot(0, {.hits = 0, .last_used = view.header.created})));
    VESTA_TRY_STATUS(file.write_at(kHeadBytes, directory));
    return file.commit();
}

}  // namespace vesta::snapshot
