// A checked vocabulary, indexed: what the tokenizer's encode and decode work on. Strings are views (into the mapped
// file or into the Vocab it owns); 129 280 tokens and 127 741 merges take about 8 MB beside them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer.h"

namespace vesta::tokenizer {

// string -> id, over views that are kept elsewhere. Open addressing, at most half full.
class TokenIndex {
 public:
    // Builds the index; returns the ids of two tokens with the same string if there are any.
    std::optional<std::pair<int32_t, int32_t>> build(const std::vector<std::string_view>& tokens);
    int32_t find(const std::vector<std::string_view>& tokens, std::string_view text) const;  // -1 when absent

 private:
    size_t probe(const std::vector<std::string_view>& tokens, std::string_view text) const;
    std::vector<int32_t> slots_;
};

// The special tokens, found in a text: ordered by bytes, so that walking down a text narrows a range of them.
class SpecialMatcher {
 public:
    void build(const std::vector<std::string_view>& tokens, std::vector<int32_t> ids);
    std::span<const int32_t> ids() const { return ids_; }
    // The longest special token at the start of `text`, and its length; -1 when there is none.
    int32_t match(const std::vector<std::string_view>& tokens, std::string_view text, size_t& length) const;

 private:
    std::vector<int32_t> ids_;
    std::array<bool, 256> first_byte_{};
};

struct Tokenizer::Data {
    Vocab owned;  // empty when the strings are in a file
    std::vector<std::string_view> tokens;
    TokenIndex index;
    MergeTable merges;
    std::array<int32_t, 256> byte_ids{};
    std::vector<bool> special;  // by id
    SpecialMatcher matcher;
    std::optional<int32_t> bos, eos, pad;

    // Checks and indexes `tokens` (already set; so are bos, eos and pad where known). `name` is for messages.
    Status build(const std::string& name, const std::vector<std::string_view>& merge_strings,
                 std::span<const int32_t> types);

 private:
    Status index_tokens(const std::string& name);
    Status index_merges(const std::string& name, const std::vector<std::string_view>& merge_strings,
                        std::vector<uint32_t>& made_by);
    Status find_specials(const std::string& name, std::span<const int32_t> types, const std::vector<uint32_t>& made_by);
};

}  // namespace vesta::tokenizer
