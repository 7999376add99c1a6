// Keys: a sequence of tokens as the bytes it renders to, so that snapshots are found by what a prompt says and not by
// how some client's text happened to be cut into tokens. Rendering alone would not do: a user may type "<｜User｜>",
// and a conversation in which somebody did must never be taken for one in which the control token stands. So text and
// control tokens are written differently, with the one byte that valid UTF-8 never has:
//
//   text byte b        b                     0xFF in text: 0xFF 0xFF
//   control token      0xFF 0x01 <its spelling, 0xFF doubled> 0xFF 0x02
//
// Every unit says where it ends, so one key is the beginning of another only if the first sequence's units are the
// beginning of the second's; and equal keys mean equal renderings with the control tokens in the same places. The
// choice not taken is token ids in the hash: two tokenizations of one text must find the same file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/segment.h"
#include "tokenizer/tokenizer.h"

namespace vesta::store {

struct Key {
    std::string bytes;
    std::vector<uint64_t> ends;  // ends[i]: length of the key after token i; ascending
};

// Error: invalid_argument for an id outside the vocabulary, with its place.
Result<Key> key_of(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> tokens);

// The way back: what a key, or the rest of one that begins between two units, was written from. Neighbouring text makes
// one segment. Error: bad_file with the offset where the bytes are no key.
Result<std::vector<tokenizer::Segment>> segments_of(std::string_view key);

// For people: text as it is, control tokens as they are spelled; bytes that are no key stay what they are.
std::string readable(std::string_view key);

// May a stored sequence whose key is the first `at` bytes of this prompt's key be continued with the rest? Yes after a
// token of the prompt, and inside one if it is text and `at` parts neither a character nor a doubled 0xFF. Never inside
// a control token. Requires: key is key_of(tokenizer, prompt), at <= key.bytes.size().
bool can_continue_at(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> prompt, const Key& key, size_t at);

// The prompt's tokens after the first `at` bytes of its key. Where `at` is the end of a token they are the prompt's
// own; inside one, text is tokenized again from there to the next control token, and the prompt's own follow. Requires
// can_continue_at(). Errors of Tokenizer::encode_segments (a text too long to tokenize at once).
Result<std::vector<int32_t>> tokens_after(const tokenizer::Tokenizer& tokenizer, std::span<const int32_t> prompt,
                                          const Key& key, size_t at);

}  // namespace vesta::store
