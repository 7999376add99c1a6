// A reference model's predictions over one text, kept so that other models can be compared without running it again.
// Per scored token: the log-probability of the token that came, the k likeliest tokens with theirs, and the mass of all
// others in one number. f32, because the divergence of a good 8-bit file is about 1e-4 nats and f16 logarithms are off
// by more than that; 64 tokens of a vocabulary of 129280 take 520 bytes a position, full rows would take 517 kB.
//
// Little-endian, no alignment, sizes in bytes:
//    8  magic "VSTABASE"          4  version (1)          4  n_vocab           4  k, at most n_vocab
//    8  n_record                  8  ctx                  8  stride
//    8  text hash                 8  token hash           8  model fingerprint
//    4  name size, at most 4096   .  model name, for messages only
//   then n_record records, in the order of the text:
//    4  f32 log-probability of the true token
//    4  f32 log of the mass outside the k tokens (-infinity if k = n_vocab)
//   2k or 4k  ids, likeliest first, no id twice: u16 when n_vocab <= 65536, else u32
//   4k  f32 log-probabilities of the k tokens
// and nothing after them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"
#include "score/rows.h"

namespace vesta::score {

struct BaseHeader {
    uint32_t n_vocab = 0, k = 0;
    uint64_t n_record = 0;
    int64_t ctx = 0, stride = 0;
    uint64_t text_hash = 0, token_hash = 0;  // hash_bytes() of the text, and of the ids as i32 in memory order
    uint64_t model_fingerprint = 0;
    std::string model_name;

    uint64_t id_bytes() const { return n_vocab <= 65536 ? 2 : 4; }
    uint64_t record_bytes() const { return 8 + k * (id_bytes() + 4); }  // no overflow: k is 32 bits
};

struct BaseRecord {
    float logprob = 0;  // of the token that came
    Truncated row;
};

// FNV-1a, 64 bits: tells files apart, keeps no secrets.
uint64_t hash_bytes(std::span<const std::byte> bytes);
inline uint64_t hash_text(std::string_view text) { return hash_bytes(std::as_bytes(std::span(text))); }
uint64_t hash_tokens(std::span<const int32_t> ids);
// Of a model file: its size and 64 pieces of 16 KiB spread evenly over it. A name tag, not a proof: reading all of a
// 150 GB file would take longer than scoring, and two recipes that differ at all have other sizes or other offsets.
Result<uint64_t> model_fingerprint(const std::string& path);

class BaseFile {
 public:
    static Result<BaseFile> open(const std::string& path);
    // `bytes` must outlive the result. `name` stands in messages.
    static Result<BaseFile> parse(std::span<const std::byte> bytes, const std::string& name);

    const BaseHeader& header() const { return header_; }
    const std::string& name() const { return name_; }
    // Checked when read: ids in range and distinct, logarithms at most 0 and not NaN, descending, total mass about 1.
    // Requires i < n_record.
    Result<BaseRecord> record(uint64_t i) const;

 private:
    MappedFile file_;  // empty when parsed from memory
    std::span<const std::byte> records_;
    BaseHeader header_;
    std::string name_;
};

// Appends records; the file appears under its name at commit().
class BaseWriter {
 public:
    static Result<BaseWriter> create(const std::string& path, const BaseHeader& header, bool overwrite);
    // Requires k ids and logprobs.
    Status append(const BaseRecord& record);
    // Requires that n_record records were appended.
    Status commit();
    const BaseHeader& header() const { return header_; }

 private:
    BaseWriter(AtomicFile file, BaseHeader header) : file_(std::move(file)), header_(std::move(header)) {}
    AtomicFile file_;
    BaseHeader header_;
    uint64_t n_written_ = 0;
    std::string buffer_;
};

}  // namespace vesta::score
