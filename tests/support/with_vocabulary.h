// The tiny checkpoints have no tokenizer, and an engine wants one: copies a model file and adds a vocabulary of the 256
// bytes and placeholders.
#pragma once

#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "gguf/writer.h"
#include "support/byte_vocabulary.h"

namespace vesta::test {

inline void add_byte_vocabulary(gguf::Writer& out, size_t n_token) {
    std::vector<std::string> tokens = byte_tokens();
    std::vector<int32_t> types(256, 1);
    while (tokens.size() < n_token) {
        tokens.push_back("placeholder" + std::to_string(tokens.size()));
        types.push_back(5);
    }
    out.add_strings("tokenizer.ggml.tokens", tokens);
    out.add_strings("tokenizer.ggml.merges", std::vector<std::string>{});
    out.add_i32_array("tokenizer.ggml.token_type", types);
}

// Beside the original, removed by the caller.
inline std::string with_vocabulary(const std::string& path) {
    const auto file = gguf::File::open(path);
    if (!file.ok()) throw std::runtime_error(file.error().message);
    gguf::Writer out;
    for (const gguf::File::Entry& e : file.value().metadata()) out.add_value(e.key, e.value);
    const gguf::TensorInfo* table = file.value().find_tensor("token_embd.weight");
    if (table == nullptr) throw std::runtime_error(path + " has no embeddings");
    add_byte_vocabulary(out, table->dims[1]);
    for (const gguf::TensorInfo& t : file.value().tensors()) out.add_tensor(t.name, t.type, {t.dims, t.n_dim});
    const std::string to = path + ".with-vocabulary";
    if (const Status s = out.begin(to, true); !s.ok()) throw std::runtime_error(s.error().message);
    for (size_t i = 0; i < file.value().tensors().size(); ++i)
        if (const Status s = out.write_tensor(i, 0, file.value().tensors()[i].bytes); !s.ok())
            throw std::runtime_error(s.error().message);
    if (const Status s = out.finish(); !s.ok()) throw std::runtime_error(s.error().message);
    return to;
}

}  // namespace vesta::test
