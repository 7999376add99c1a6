// Text to token ids and back: byte-level BPE with the pre-tokenizer of DeepSeek V3/V4 (docs/tokenizer.md). Knows the
// vocabulary and its markers as strings; knows nothing of conversations (room chat) and of models.
//
// Two promises hold for every vocabulary that is accepted:
//   decode(encode(x)) == x for any bytes x, valid UTF-8 or not;
//   text encoded with SpecialMode::text contains no special id.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "tokenizer/segment.h"

namespace vesta::tokenizer {

// What a vocabulary consists of, owned. Strings are in the mapped form of byte-level BPE (space is 'Ġ', newline 'Ċ');
// markers are spelled literally.
struct Vocab {
    std::string name = "vocabulary";   // for messages
    std::vector<std::string> tokens;   // index = id; distinct, not empty
    std::vector<std::string> merges;   // "A B"; index = rank
    std::vector<int32_t> token_types;  // empty, or one per token: 1 normal, 3 control, 4 user-defined, 5 unused, 6 byte
    std::optional<int32_t> bos, eos, pad;
};

enum class SpecialMode {
    text,       // markers in the text stay ordinary text: the mode for everything that came from outside
    recognise,  // markers become their token, leftmost and longest first, before pre-tokenization
};

class Tokenizer {
 public:
    // Reads tokenizer.ggml.{tokens,merges} and, where present, .token_type, .model, .pre and the ids. Keeps views into
    // the file: `file` must outlive the tokenizer.
    static Result<Tokenizer> from_gguf(const gguf::File& file);
    static Result<Tokenizer> from_vocab(Vocab vocab);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    // All const members are safe from any thread. Valid ids are 0 .. n_vocab()-1.
    int32_t n_vocab() const;
    std::optional<int32_t> bos() const;  // from the file's metadata, else by spelling
    std::optional<int32_t> eos() const;
    std::optional<int32_t> pad() const;

    // The id of the special token with exactly this spelling. Special are: tokens of type 3 and 4; the bos, eos and pad
    // ids; and tokens that no merge makes and that are spelled <｜…｜>, <|EOT|>, <think>, </think> or ｜DSML｜.
    std::optional<int32_t> special(std::string_view text) const;
    bool is_special(int32_t id) const;          // false for ids out of range
    std::span<const int32_t> specials() const;  // ordered by spelling (bytes)

    // The token as the vocabulary spells it (mapped form). Requires a valid id. Lives as long as the vocabulary.
    std::string_view spelling(int32_t id) const;

    // Appends the ids of `text`; no BOS is added. Linear-logarithmic in the length of the text, whatever it holds.
    // Requires: text.size() <= kMaxTextBytes. Takes up to 48 bytes of scratch per byte of the longest piece.
    void encode(std::string_view text, SpecialMode mode, std::vector<int32_t>& out) const;
    static constexpr size_t kMaxTextBytes = size_t{1} << 28;

    // A control segment must be exactly one special token (else not_found names it); text segments are encoded with
    // SpecialMode::text, each on its own. On an error `out` is as before.
    Status encode_segments(std::span<const Segment> segments, std::vector<int32_t>& out) const;

    // Appends the token's bytes: part of a character is possible. Special tokens print as spelled. Requires a valid id.
    void append_token_bytes(int32_t id, std::string& out) const;
    // The bytes of all tokens in order; an id out of range is an error that names it.
    Result<std::string> decode(std::span<const int32_t> ids) const;

 private:
    struct Data;
    explicit Tokenizer(std::unique_ptr<const Data> data);
    std::unique_ptr<const Data> data_;
};

// Decodes one sequence token by token and never emits half a character: at most three bytes are held back until the
// next token or flush(). Bytes that cannot become a valid character pass through unchanged, so that the concatenated
// output is exactly Tokenizer::decode of the ids (without the specials if they are hidden). One per stream; keeps a
// reference.
class StreamDecoder {
 public:
    enum class Specials { print, hide };
    explicit StreamDecoder(const Tokenizer& tokenizer, Specials specials = Specials::print)
        : tokenizer_(tokenizer), specials_(specials) {}

    void push(int32_t id, std::string& out);  // appends what became complete. Requires a valid id
    void flush(std::string& out);             // end of the stream: appends the held bytes, raw
    std::string_view held() const { return held_; }

 private:
    const Tokenizer& tokenizer_;
    Specials specials_;
    std::string held_;
};

}  // namespace vesta::tokenizer
