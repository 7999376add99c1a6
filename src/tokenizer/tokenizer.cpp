#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/split.h"
#include "tokenizer/vocabulary.h"

namespace vesta::tokenizer {
namespace {

// Names under which files declare the pre-tokenizer of split.h. Another name means other piece boundaries, hence other
// ids for the same text; there is no safe default.
constexpr std::array<std::string_view, 2> kPreTokenizers = {"joyai-llm", "deepseek-v3"};

Result<std::optional<int32_t>> read_id(const gguf::File& file, std::string_view key, uint64_t n_token) {
    if (!file.has(key)) return std::optional<int32_t>();
    VESTA_TRY(const uint32_t id, file.u32(key));
    if (id >= n_token)
        return Error{Code::bad_file, strf("{}: {} is {}, but there are {} tokens", file.name(), key, id, n_token)};
    return std::optional<int32_t>(static_cast<int32_t>(id));
}

Status check_kind(const gguf::File& file) {
    if (file.has("tokenizer.ggml.model")) {
        VESTA_TRY(const std::string_view model, file.string("tokenizer.ggml.model"));
        if (model != "gpt2")
            return Error{Code::unsupported, strf("{}: tokenizer.ggml.model is '{}'; only 'gpt2' (byte-level BPE) is "
                                                 "supported",
                                                 file.name(), printable(model))};
    }
    if (file.has("tokenizer.ggml.pre")) {
        VESTA_TRY(const std::string_view pre, file.string("tokenizer.ggml.pre"));
        if (std::find(kPreTokenizers.begin(), kPreTokenizers.end(), pre) == kPreTokenizers.end())
            return Error{Code::unsupported, strf("{}: tokenizer.ggml.pre is '{}'; supported are '{}' and '{}', which "
                                                 "split text alike",
                                                 file.name(), printable(pre), kPreTokenizers[0], kPreTokenizers[1])};
    }
    return {};
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_gguf(const gguf::File& file) {
    VESTA_TRY_STATUS(check_kind(file));
    VESTA_TRY(const gguf::StringArray tokens, file.strings("tokenizer.ggml.tokens"));
    VESTA_TRY(const gguf::StringArray merges, file.strings("tokenizer.ggml.merges"));
    auto data = std::make_unique<Data>();
    data->tokens.reserve(tokens.size());
    for (const std::string_view token : tokens) data->tokens.push_back(token);
    std::vector<std::string_view> merge_strings;
    merge_strings.reserve(merges.size());
    for (const std::string_view merge : merges) merge_strings.push_back(merge);
    std::vector<int32_t> types;
    if (file.has("tokenizer.ggml.token_type")) {
        VESTA_TRY(types, file.i32_array("tokenizer.ggml.token_type", tokens.size()));
        if (types.size() != tokens.size())
            return Error{Code::bad_file, strf("{}: tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens {}",
                                              file.name(), types.size(), tokens.size())};
    }
    VESTA_TRY(data->bos, read_id(file, "tokenizer.ggml.bos_token_id", tokens.size()));
    VESTA_TRY(data->eos, read_id(file, "tokenizer.ggml.eos_token_id", tokens.size()));
    VESTA_TRY(data->pad, read_id(file, "tokenizer.ggml.padding_token_id", tokens.size()));
    VESTA_TRY_STATUS(data->build(file.name(), merge_strings, types));
    return Tokenizer(std::move(data));
}

Result<Tokenizer> Tokenizer::from_vocab(Vocab vocab) {
    auto data = std::make_unique<Data>();
    data->owned = std::move(vocab);
    Vocab& owned = data->owned;
    data->tokens.assign(owned.tokens.begin(), owned.tokens.end());
    data->bos = owned.bos, data->eos = owned.eos, data->pad = owned.pad;
    VESTA_TRY_STATUS(data->build(owned.name, {owned.merges.begin(), owned.merges.end()}, owned.token_types));
    owned.merges = {};  // the table replaces them
    return Tokenizer(std::move(data));
}

int32_t Tokenizer::n_vocab() const { return static_cast<int32_t>(data_->tokens.size()); }
std::optional<int32_t> Tokenizer::bos() const { return data_->bos; }
std::optional<int32_t> Tokenizer::eos() const { return data_->eos; }
std::optional<int32_t> Tokenizer::pad() const { return data_->pad; }
std::span<const int32_t> Tokenizer::specials() const { return data_->matcher.ids(); }

std::optional<int32_t> Tokenizer::special(std::string_view text) const {
    const int32_t id = data_->index.find(data_->tokens, text);
    if (!is_special(id)) return std::nullopt;
    return id;
}

bool Tokenizer::is_special(int32_t id) const {
    return id >= 0 && id < n_vocab() && data_->special[static_cast<size_t>(id)];
}

std::string_view Tokenizer::spelling(int32_t id) const {
    VESTA_CHECK(id >= 0 && id < n_vocab());
    return data_->tokens[static_cast<size_t>(id)];
}

void Tokenizer::encode(std::string_view text, SpecialMode mode, std::vector<int32_t>& out) const {
    VESTA_CHECK(text.size() <= kMaxTextBytes);
    Bpe bpe(data_->merges, data_->byte_ids);
    const auto encode_plain = [&](std::string_view plain) {
        Splitter splitter(plain);
        for (std::string_view piece; splitter.next(piece);) bpe.encode(piece, out);
    };
    size_t start = 0;
    if (mode == SpecialMode::recognise) {
        for (size_t at = 0, length = 0; at < text.size();) {
            const int32_t id = data_->matcher.match(data_->tokens, text.substr(at), length);
            if (id < 0) {
                ++at;
                continue;
            }
            encode_plain(text.substr(start, at - start));
            out.push_back(id);
            at += length;
            start = at;
        }
    }
    encode_plain(text.substr(start));
}

Status Tokenizer::encode_segments(std::span<const Segment> segments, std::vector<int32_t>& out) const {
    const size_t before = out.size();
    for (size_t i = 0; i < segments.size(); ++i) {
        const Segment& segment = segments[i];
        if (segment.control) {
            const std::optional<int32_t> id = special(segment.text);
            if (!id) {
                out.resize(before);
                return Error{Code::not_found, strf("segment {}: '{}' is not a special token of this vocabulary", i,
                                                   printable(std::string_view(segment.text).substr(0, 80)))};
            }
            out.push_back(*id);
        } else if (segment.text.size() > kMaxTextBytes) {
            out.resize(before);
            return Error{Code::unsupported, strf("segment {}: {} bytes of text; at most {} can be tokenized at once", i,
                                                 segment.text.size(), kMaxTextBytes)};
        } else {
            encode(segment.text, SpecialMode::text, out);
        }
    }
    return {};
}

void Tokenizer::append_token_bytes(int32_t id, std::string& out) const {
    const std::string_view text = spelling(id);
    if (is_special(id) || !append_mapped_bytes(text, out)) out.append(text);
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids) const {
    std::string out;
    for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] >= n_vocab())
            return Error{Code::invalid_argument, strf("token id {} (number {} of {}) is not in the vocabulary; ids are "
                                                      "0 to {}",
                                                      ids[i], i + 1, ids.size(), n_vocab() - 1)};
        append_token_bytes(ids[i], out);
    }
    return out;
}

void StreamDecoder::push(int32_t id, std::string& out) {
    if (specials_ == Specials::hide && tokenizer_.is_special(id)) return;
    tokenizer_.append_token_bytes(id, held_);
    const size_t complete = complete_utf8_prefix(held_);
    out.append(held_, 0, complete);
    held_.erase(0, complete);
}

void StreamDecoder::flush(std::string& out) {
    out.append(held_);
    held_.clear();
}

}  // namespace vesta::tokenizer
