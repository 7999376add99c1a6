// Any bytes through the tokenizer: they come back exactly, ids are in range, text never yields a special id, and the
// stream decoder agrees with decode. The first byte picks what is exercised: 0x00-0x7F a text, 0x80-0xFF the bytes as a
// hostile vocabulary, which must be refused or keep the same promises.
#include <cstdint>
#include <cstdlib>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace vesta::tokenizer;

void require(bool condition) {
    if (!condition) std::abort();
}

Vocab byte_vocab() {
    Vocab v;
    for (int b = 0; b < 256; ++b) {
        std::string spelling;
        vesta::append_utf8(spelling, kByteAlphabet.code_point_of[static_cast<size_t>(b)]);
        v.tokens.push_back(std::move(spelling));
    }
    return v;
}

void add_merge(Vocab& v, const std::string& a, const std::string& b) {
    v.tokens.push_back(a + b);
    v.merges.push_back(a + " " + b);
}

const Tokenizer& small_tokenizer() {
    static const Tokenizer t = [] {
        Vocab v = byte_vocab();
        // Letters that pair up, doubling spaces and newlines, and halves of a three-byte character (▁ = E2 96 81).
        for (const auto& [a, b] : std::initializer_list<std::pair<const char*, const char*>>{{"a", "b"},
                                                                                             {"b", "a"},
                                                                                             {"ab", "ab"},
                                                                                             {"a", "a"},
                                                                                             {"Ġ", "Ġ"},
                                                                                             {"ĠĠ", "ĠĠ"},
                                                                                             {"Ġ", "a"},
                                                                                             {"Ċ", "Ċ"},
                                                                                             {"â", "ĸ"},
                                                                                             {"âĸ", "ģ"},
                                                                                             {"<", "ab"},
                                                                                             {"1", "2"},
                                                                                             {"12", "3"}})
            add_merge(v, a, b);
        for (const char* marker : {"<think>", "</think>", "<｜User｜>", "<｜Us｜>", "｜DSML｜", "<|EOT|>"})
            v.tokens.emplace_back(marker);
        return Tokenizer::from_vocab(std::move(v)).value();
    }();
    return t;
}

void check_text(const Tokenizer& t, std::string_view text) {
    for (const SpecialMode mode : {SpecialMode::text, SpecialMode::recognise}) {
        std::vector<int32_t> ids;
        t.encode(text, mode, ids);
        StreamDecoder stream(t);
        std::string streamed;
        for (const int32_t id : ids) {
            require(id >= 0 && id < t.n_vocab());
            require(mode == SpecialMode::recognise || !t.is_special(id));
            stream.push(id, streamed);
            require(stream.held().size() <= 3);
        }
        stream.flush(streamed);
        require(t.decode(ids).value() == text);
        require(streamed == text);
    }
}

// Tokens and merges from the bytes, separated by 0x00 (next token), 0x01 (next merge) and 0x02 (role and type).
void check_vocabulary(std::string_view bytes) {
    Vocab v = byte_vocab();
    v.token_types.assign(256, 1);
    std::string item;
    for (const char c : bytes) {
        if (c == 0) {
            v.tokens.push_back(std::exchange(item, {}));
            v.token_types.push_back(1);
        } else if (c == 1) {
            v.merges.push_back(std::exchange(item, {}));
        } else if (c == 2) {
            if (!item.empty()) v.token_types.back() = item[0] - '0';
            if (item.size() > 1) v.eos = item[1] * 8;
            item.clear();
        } else {
            item.push_back(c);
        }
    }
    const vesta::Result<Tokenizer> t = Tokenizer::from_vocab(std::move(v));
    if (!t.ok()) {
        require(vesta::is_valid_utf8(t.error().message));
        return;
    }
    check_text(t.value(), bytes);
    for (const int32_t id : t.value().specials()) check_text(t.value(), t.value().spelling(id));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (data[0] < 0x80)
        check_text(small_tokenizer(), rest);
    else
        check_vocabulary(rest);
    return 0;
}
