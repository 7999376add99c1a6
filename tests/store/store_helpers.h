// A toy engine whose vocabulary has merges (one text, several tokenizations), folders that go away again, and snapshot
// files made by hand.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "snapshot/file.h"
#include "store/disk_store.h"
#include "store/key.h"
#include "support/toy_model.h"
#include "tokenizer/tokenizer.h"
#include "vesta/engine.h"

namespace vesta::store {

// Ids 0..255 are the bytes, 256..259 the four markers, then what the merges make.
constexpr int32_t kBos = 256, kEos = 257, kUser = 258, kAssistant = 259;

inline std::vector<std::byte> toy_bytes(float changed_weight = 0) {
    test::ToyShape shape;
    shape.n_vocab = 268;
    test::ToyModel model(shape);
    const std::vector<std::string> merges = {"h e", "l l", "he ll", "hell o", "w o", "r l", "wo rl", "worl d"};
    const std::vector<std::string> made = {"he", "ll", "hell", "hello", "wo", "rl", "worl", "world"};
    for (auto& [name, value] : model.keys) {
        if (name == "tokenizer.ggml.tokens")
            std::copy(made.begin(), made.end(), std::get<std::vector<std::string>>(value).begin() + 260);
        if (name == "tokenizer.ggml.token_type")
            std::fill_n(std::get<std::vector<int32_t>>(value).begin() + 260, made.size(), 1);
    }
    model.set("tokenizer.ggml.merges", merges);
    if (changed_weight != 0)
        for (int64_t i = 0; i < 64; ++i) model.tensor("output_norm.weight").put(i, changed_weight);
    return model.bytes();
}

// Keeps the bytes for the process: engines of a test may end in any order.
inline std::unique_ptr<Engine> open_engine(const std::string& backend = "cpu") {
    static const std::vector<std::byte> bytes = toy_bytes();
    EngineOptions options;
    options.backend = backend;
    options.n_thread = 1;
    auto engine = Engine::open_bytes(bytes, "toy.gguf", options);
    if (!engine.ok()) throw std::runtime_error(engine.error().message);
    return std::move(engine).value();
}

// One for the tests that only read from it.
inline const Engine& shared_engine() {
    static const std::unique_ptr<Engine> engine = open_engine();
    return *engine;
}
inline const tokenizer::Tokenizer& toy_tokenizer() { return shared_engine().tokenizer(); }

class TemporaryFolder {
 public:
    TemporaryFolder() {
        std::filesystem::create_directories(VESTA_TEST_TMP);
        std::string pattern = strf("{}/store-XXXXXX", VESTA_TEST_TMP);
        if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
        path_ = pattern;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

    std::vector<std::string> names(const std::string& suffix) const {
        std::vector<std::string> out;
        for (const auto& e : std::filesystem::directory_iterator(path_))
            if (e.path().string().ends_with(suffix)) out.push_back(e.path().filename().string());
        std::sort(out.begin(), out.end());
        return out;
    }

 private:
    std::string path_;
};

// The bytes of a key, one unit after the other, spelled out by hand: bytes as themselves, control tokens as -id.
inline std::vector<int32_t> units(std::span<const int32_t> tokens) {
    std::vector<int32_t> out;
    for (const int32_t id : tokens) {
        if (id >= kBos && id <= kAssistant) {
            out.push_back(-id);
            continue;
        }
        std::string bytes;
        toy_tokenizer().append_token_bytes(id, bytes);
        for (const char b : bytes) out.push_back(static_cast<unsigned char>(b));
    }
    return out;
}

inline std::vector<int32_t> encode(std::string_view text) {
    std::vector<int32_t> out;
    toy_tokenizer().encode(text, tokenizer::SpecialMode::text, out);
    return out;
}

// Each byte a token of its own: another tokenization of the same text.
inline std::vector<int32_t> byte_tokens(std::string_view text) {
    std::vector<int32_t> by_byte(256, -1), out;
    for (int32_t id = 0; id < 256; ++id) {
        std::string bytes;
        toy_tokenizer().append_token_bytes(id, bytes);
        by_byte[static_cast<unsigned char>(bytes.at(0))] = id;
    }
    for (const char b : text) out.push_back(by_byte[static_cast<unsigned char>(b)]);
    return out;
}

// A snapshot file with rows that no engine would take, for everything that happens before a file is loaded.
struct HandMade {
    std::vector<int32_t> tokens;
    snapshot::Reason reason = snapshot::Reason::cold;
    uint64_t row_bytes = 1000;
    int64_t created = 1000;
    uint64_t model = 0;  // 0: the toy's
    uint32_t row_format = shared_engine().row_format_number(CacheFormat::fp8);
    std::string text = {};  // empty: the key of the tokens
};
inline void write_by_hand(const std::string& path, const HandMade& h) {
    const std::vector<std::byte> rows(h.row_bytes, std::byte{7});
    const std::string text = h.text.empty() ? key_of(toy_tokenizer(), h.tokens).value().bytes : h.text;
    snapshot::View view;
    view.header.model = h.model != 0 ? h.model : shared_engine().fingerprint();
    view.header.row_format = h.row_format;
    view.header.reason = h.reason;
    view.header.created = h.created;
    view.tokens = h.tokens;
    view.layer = {rows};
    view.text = text;
    const Status status = snapshot::write(path, view, {});
    ASSERT_TRUE(status.ok()) << status.error().message;
}

inline std::vector<int32_t> joined(std::vector<int32_t> a, std::span<const int32_t> b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

}  // namespace vesta::store
