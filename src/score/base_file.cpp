#include "score/base_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/utf8.h"

namespace vesta::score {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's numbers are copied as they lie in memory");

constexpr std::string_view kMagic = "VSTABASE";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMaxName = 4096;
constexpr size_t kBufferBytes = size_t{1} << 20;

// Takes values off the front of `bytes`; never past the end.
class Reader {
 public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    template <class T>
    bool take(T& value) {
        if (bytes_.size() < sizeof value) return false;
        std::memcpy(&value, bytes_.data(), sizeof value);
        bytes_ = bytes_.subspan(sizeof value);
        return true;
    }
    bool take(std::string& text, size_t n) {
        if (bytes_.size() < n) return false;
        text.assign(reinterpret_cast<const char*>(bytes_.data()), n);
        bytes_ = bytes_.subspan(n);
        return true;
    }
    std::span<const std::byte> rest() const { return bytes_; }

 private:
    std::span<const std::byte> bytes_;
};

template <class T>
void put(std::string& out, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
}

Error bad(const std::string& name, std::string what) {
    return Error{Code::bad_file, strf("{}: {}", printable(name), std::move(what))};
}

}  // namespace

uint64_t hash_bytes(std::span<const std::byte> bytes) {
    uint64_t h = 0xcbf29ce484222325ull;
    for (const std::byte b : bytes) h = (h ^ static_cast<uint64_t>(b)) * 0x100000001b3ull;
    return h;
}

uint64_t hash_tokens(std::span<const int32_t> ids) { return hash_bytes(std::as_bytes(ids)); }

Result<uint64_t> model_fingerprint(const std::string& path) {
    VESTA_TRY(const MappedFile file, MappedFile::open(path));
    const std::span<const std::byte> all = file.bytes();
    constexpr size_t kPieces = 64, kPiece = 16384;
    const uint64_t size = all.size();
    uint64_t h = hash_bytes(std::as_bytes(std::span(&size, 1)));
    if (all.size() <= kPieces * kPiece) return h ^ hash_bytes(all);
    for (size_t i = 0; i < kPieces; ++i) {
        const size_t at = (all.size() - kPiece) / (kPieces - 1) * i;
        h = (h ^ hash_bytes(all.subspan(at, kPiece))) * 0x100000001b3ull;
    }
    return h;
}

Result<BaseFile> BaseFile::open(const std::string& path) {
    VESTA_TRY(MappedFile file, MappedFile::open(path));
    VESTA_TRY(BaseFile base, parse(file.bytes(), path));
    base.file_ = std::move(file);  // the mapping stays where it is
    return base;
}

Result<BaseFile> BaseFile::parse(std::span<const std::byte> bytes, const std::string& name) {
    BaseFile base;
    base.name_ = name;
    BaseHeader& h = base.header_;
    Reader in(bytes);
    std::string magic;
    uint32_t version = 0, n_name = 0;
    if (!in.take(magic, kMagic.size()) || magic != kMagic)
        return bad(name, "not a base file: it does not begin with 'VSTABASE'; `vesta score --save-base` writes one");
    if (!in.take(version)) return bad(name, "ends inside its header");
    if (version != kVersion)
        return Error{Code::unsupported,
                     strf("{}: base file version {}; this build reads {}", printable(name), version, kVersion)};
    if (!in.take(h.n_vocab) || !in.take(h.k) || !in.take(h.n_record) || !in.take(h.ctx) || !in.take(h.stride) ||
        !in.take(h.text_hash) || !in.take(h.token_hash) || !in.take(h.model_fingerprint) || !in.take(n_name))
        return bad(name, "ends inside its header");
    if (n_name > kMaxName) return bad(name, strf("a model name of {} bytes; at most {}", n_name, kMaxName));
    if (!in.take(h.model_name, n_name)) return bad(name, "ends inside the model's name");
    if (h.n_vocab == 0 || h.n_vocab > uint32_t{1} << 30 || h.k == 0 || h.k > h.n_vocab)
        return bad(name, strf("{} of {} tokens per record; expected 1 to n_vocab of a vocabulary of at most 2^30", h.k,
                              h.n_vocab));
    if (h.stride < 1 || h.ctx < h.stride || h.ctx > int64_t{1} << 30)
        return bad(name, strf("ctx {} and stride {}; expected 1 <= stride <= ctx <= 2^30", h.ctx, h.stride));
    base.records_ = in.rest();
    // Division, not multiplication: n_record is whatever the file says.
    if (base.records_.size() % h.record_bytes() != 0 || base.records_.size() / h.record_bytes() != h.n_record)
        return bad(name, strf("{} bytes of records; {} records of {} bytes were announced", base.records_.size(),
                              h.n_record, h.record_bytes()));
    return base;
}

Result<BaseRecord> BaseFile::record(uint64_t i) const {
    VESTA_CHECK(i < header_.n_record);
    Reader in(records_.subspan(i * header_.record_bytes(), header_.record_bytes()));
    BaseRecord r;
    bool complete = in.take(r.logprob) && in.take(r.row.log_rest);
    r.row.ids.resize(header_.k);
    r.row.logprobs.resize(header_.k);
    for (int32_t& id : r.row.ids) {
        uint16_t narrow = 0;
        uint32_t wide = 0;
        complete = complete && (header_.id_bytes() == 2 ? in.take(narrow) : in.take(wide));
        const uint32_t value = header_.id_bytes() == 2 ? narrow : wide;
        if (value >= header_.n_vocab)
            return bad(name_, strf("record {}: token id {} in a vocabulary of {}", i, value, header_.n_vocab));
        id = static_cast<int32_t>(value);
    }
    for (float& p : r.row.logprobs) complete = complete && in.take(p);
    VESTA_CHECK(complete);  // parse() made sure of the bytes

    if (!(r.logprob <= 0) || std::isinf(r.logprob))
        return bad(name_, strf("record {}: log-probability {} of the true token; expected a finite number of at most 0",
                               i, r.logprob));
    double mass = 0;
    for (size_t j = 0; j < r.row.logprobs.size(); ++j) {
        const float p = r.row.logprobs[j];
        if (!(p <= 0) || std::isinf(p) || (j > 0 && p > r.row.logprobs[j - 1]))
            return bad(name_, strf("record {}: log-probability {} at rank {}; expected finite numbers of at most 0, "
                                   "largest first",
                                   i, p, j));
        mass += std::exp(static_cast<double>(p));
    }
    const bool all = header_.k == header_.n_vocab;
    if (!(r.row.log_rest <= 0) || std::isinf(r.row.log_rest) != all)
        return bad(name_, strf("record {}: log of the remaining mass is {}; expected {}", i, r.row.log_rest,
                               all ? "-inf, as every token is listed" : "a finite number of at most 0"));
    mass += std::exp(static_cast<double>(r.row.log_rest));
    // Rounding to f32 moves a logarithm of -16 by 1e-6 of itself at most; a sum of true probabilities stays close to 1.
    if (std::fabs(mass - 1) > 1e-3) return bad(name_, strf("record {}: probabilities add up to {}", i, mass));
    std::vector<int32_t> sorted = r.row.ids;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) return bad(name_, strf("record {}: token id {} is there twice", i, *twice));
    return r;
}

Result<BaseWriter> BaseWriter::create(const std::string& path, const BaseHeader& header, bool overwrite) {
    VESTA_CHECK(header.k >= 1 && header.k <= header.n_vocab);
    VESTA_TRY(AtomicFile file, AtomicFile::create(path, overwrite));
    BaseWriter writer(std::move(file), header);
    std::string& out = writer.buffer_;
    const std::string name = header.model_name.substr(0, kMaxName);
    out += kMagic;
    put(out, kVersion);
    put(out, header.n_vocab);
    put(out, header.k);
    put(out, header.n_record);
    put(out, header.ctx);
    put(out, header.stride);
    put(out, header.text_hash);
    put(out, header.token_hash);
    put(out, header.model_fingerprint);
    put(out, static_cast<uint32_t>(name.size()));
    out += name;
    return writer;
}

Status BaseWriter::append(const BaseRecord& r) {
    VESTA_CHECK(r.row.ids.size() == header_.k && r.row.logprobs.size() == header_.k);
    put(buffer_, r.logprob);
    put(buffer_, r.row.log_rest);
    for (const int32_t id : r.row.ids) {
        if (header_.id_bytes() == 2)
            put(buffer_, static_cast<uint16_t>(id));
        else
            put(buffer_, static_cast<uint32_t>(id));
    }
    for (const float p : r.row.logprobs) put(buffer_, p);
    ++n_written_;
    if (buffer_.size() < kBufferBytes) return {};
    VESTA_TRY_STATUS(file_.write(std::as_bytes(std::span(buffer_))));
    buffer_.clear();
    return {};
}

Status BaseWriter::commit() {
    VESTA_CHECK(n_written_ == header_.n_record);
    VESTA_TRY_STATUS(file_.write(std::as_bytes(std::span(buffer_))));
    buffer_.clear();
    return file_.commit();
}

}  // namespace vesta::score
