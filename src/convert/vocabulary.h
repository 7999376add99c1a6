// tokenizer.json as GGUF keys. The checkpoint's tokenizer is a byte-level BPE with the DeepSeek V3 pre-tokenizer; this
// reads its tables, checks that they are that kind and consistent, and refuses anything the engine's tokenizer would
// not reproduce, because a nearly right tokenizer gives nearly right text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/writer.h"

namespace vesta::convert {

// GGUF token types.
enum class TokenType : int32_t { normal = 1, control = 3, user_defined = 4, unused = 5 };

struct Vocabulary {
    std::vector<std::string> tokens;  // by id, n_vocab entries; byte-level spelling, added tokens literal
    std::vector<int32_t> types;       // TokenType of each
    std::vector<std::string> merges;  // "A B" by rank
    uint32_t n_placeholder = 0;       // ids the tokenizer does not name; filled so that tokens match output rows
    uint32_t padding_token = 0;
};

// `pad_token`: from tokenizer_config.json, empty when unknown. `name` is used in messages.
Result<Vocabulary> read_vocabulary(const nlohmann::json& tokenizer, uint32_t n_vocab, uint32_t eos_token,
                                   const std::string& pad_token, const std::string& name);

// tokenizer.ggml.* keys.
void write_vocabulary(const Vocabulary& vocabulary, uint32_t bos_token, uint32_t eos_token, gguf::Writer& writer);

}  // namespace vesta::convert
