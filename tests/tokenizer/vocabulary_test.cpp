// What a vocabulary must satisfy, and what the refusal says.
#include <gtest/gtest.h>

#include <functional>

#include "gguf/writer.h"
#include "tokenizer/fixture.h"

namespace vesta::tokenizer {
namespace {

std::string refusal(Vocab v) {
    const Result<Tokenizer> r = Tokenizer::from_vocab(std::move(v));
    if (r.ok()) return "accepted";
    EXPECT_EQ(r.error().code, Code::bad_file);
    return r.error().message;
}

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

TEST(Vocabulary, TheSmallOneIsAccepted) {
    const Result<Tokenizer> t = Tokenizer::from_vocab(small_vocab({"a b", "ab c"}, {{"<｜User｜>", 3}}));
    ASSERT_TRUE(t.ok()) << t.error().message;
    EXPECT_EQ(t.value().n_vocab(), 259);
    EXPECT_EQ(encode(t.value(), "abcab"), (std::vector<int32_t>{257, 256}));
    EXPECT_EQ(t.value().spelling(257), "abc");
    EXPECT_EQ(t.value().bos(), std::nullopt);
}

TEST(Vocabulary, RefusesDuplicateTokens) {
    const std::string m = refusal(small_vocab({}, {{"xy", 1}, {"z<", 1}, {"xy", 1}}));
    EXPECT_SAYS(m, "tokens 256 and 258 are both 'xy'");
}

TEST(Vocabulary, RefusesAMissingByte) {
    Vocab v = small_vocab({}, {{"xy", 1}});
    v.tokens['Q'] = "QQ";
    EXPECT_SAYS(refusal(std::move(v)), "byte 0x51 (spelled 'Q')");
}

TEST(Vocabulary, RefusesTooFewTokensAndEmptyOnes) {
    EXPECT_SAYS(refusal({}), "0 tokens");
    EXPECT_SAYS(refusal(small_vocab({}, {{"", 1}})), "token 256 is an empty string");
}

TEST(Vocabulary, RefusesMergesThatDoNotFit) {
    const auto with_merge = [](std::string merge) {
        Vocab v = small_vocab({"a b"});
        v.merges.push_back(std::move(merge));
        return refusal(std::move(v));
    };
    EXPECT_SAYS(with_merge("a c"), "merge 1 ('a c'): 'ac' is not in the vocabulary");
    EXPECT_SAYS(with_merge("xx b"), "merge 1 ('xx b'): 'xx' is not in the vocabulary");
    EXPECT_SAYS(with_merge("a yy"), "'yy' is not in the vocabulary");
    EXPECT_SAYS(with_merge("a b"), "merge 1 ('a b') repeats merge 0");
    for (const char* merge : {"", " ", "ab", " b", "a ", "a  b", "a b c"}) EXPECT_SAYS(with_merge(merge), "merge 1 is");
}

TEST(Vocabulary, RefusesIdsAndTypesOutOfRange) {
    Vocab v = small_vocab({}, {{"<e>", 1}});
    v.eos = 257;
    EXPECT_SAYS(refusal(v), "the eos token is 257, but ids end at 256");
    v.eos = -1;
    EXPECT_SAYS(refusal(v), "the eos token is -1");
    v.eos = 256;
    v.token_types[5] = 7;
    EXPECT_SAYS(refusal(v), "token 5 has type 7");
    v.token_types.pop_back();
    EXPECT_SAYS(refusal(v), "256 token types for 257 tokens");
}

TEST(Vocabulary, RefusesSpecialTokensThatTextCouldMake) {
    Vocab merged = small_vocab({"< x", "<x >"});
    merged.token_types[257] = 3;
    EXPECT_SAYS(refusal(merged),
                "token 257 '<x>' cannot be special (its type is 3, control), because merge 1 makes it");
    Vocab byte = small_vocab({});
    byte.token_types['A'] = 4;
    EXPECT_SAYS(refusal(byte), "it is a byte token");
    Vocab eos = small_vocab({"e s"});
    eos.eos = 256;
    EXPECT_SAYS(refusal(eos), "(the eos token), because merge 0 makes it");
}

TEST(Vocabulary, MessagesEscapeWhatTheFileHolds) {
    const std::string m = refusal(small_vocab({}, {{"\x1b[31m", 1}, {"\x1b[31m", 1}}));
    EXPECT_SAYS(m, "\\x1b[31m");
    EXPECT_EQ(m.find('\x1b'), std::string::npos);
}

// A GGUF with the small vocabulary, each key written by a function that a test may replace.
struct FileParts {
    using Put = std::function<void(gguf::Writer&, const char* key)>;
    Vocab v = small_vocab({"a b"}, {{"<think>", 1}, {"<e>", 1}});
    Put tokens = [this](gguf::Writer& w, const char* key) { w.add_strings(key, v.tokens); };
    Put merges = [this](gguf::Writer& w, const char* key) { w.add_strings(key, v.merges); };
    Put types = [this](gguf::Writer& w, const char* key) { w.add_i32_array(key, v.token_types); };
    Put eos = [](gguf::Writer& w, const char* key) { w.add_u32(key, 258); };
    Put model = [](gguf::Writer& w, const char* key) { w.add_string(key, "gpt2"); };
    Put pre = [](gguf::Writer& w, const char* key) { w.add_string(key, "joyai-llm"); };

    // Calls `use` with the tokenizer that the file gives, or with its error.
    template <class Use>
    void load(Use use) const {
        gguf::Writer w;
        const std::pair<const char*, const Put*> keys[] = {
            {"tokenizer.ggml.model", &model},      {"tokenizer.ggml.pre", &pre},
            {"tokenizer.ggml.tokens", &tokens},    {"tokenizer.ggml.merges", &merges},
            {"tokenizer.ggml.token_type", &types}, {"tokenizer.ggml.eos_token_id", &eos}};
        for (const auto& [key, put] : keys)
            if (*put) (*put)(w, key);
        const std::vector<std::byte> bytes = w.header();
        const Result<gguf::File> file = gguf::File::parse(bytes, "test.gguf");
        ASSERT_TRUE(file.ok()) << file.error().message;
        use(Tokenizer::from_gguf(file.value()));
    }
    std::string message() const {
        std::string m = "accepted";
        load([&](const Result<Tokenizer>& r) {
            if (!r.ok()) m = r.error().message;
        });
        return m;
    }
};

TEST(FromGguf, ReadsTokensMergesTypesAndIds) {
    FileParts().load([](const Result<Tokenizer>& t) {
        ASSERT_TRUE(t.ok()) << t.error().message;
        EXPECT_EQ(encode(t.value(), "ab"), std::vector<int32_t>{256});
        EXPECT_EQ(t.value().special("<think>"), 257);  // typed normal, but spelled as a marker and made by no merge
        EXPECT_EQ(t.value().special("<e>"), 258);      // by its role
        EXPECT_EQ(t.value().eos(), 258);
        EXPECT_EQ(t.value().special("ab"), std::nullopt);
        EXPECT_EQ(t.value().special("nothing"), std::nullopt);
    });
}

TEST(FromGguf, NeedsOnlyTokensAndMerges) {
    FileParts parts;
    parts.types = parts.eos = parts.model = parts.pre = nullptr;
    parts.load([](const Result<Tokenizer>& t) {
        ASSERT_TRUE(t.ok()) << t.error().message;
        EXPECT_EQ(t.value().special("<think>"), 257);
        EXPECT_EQ(t.value().special("<e>"), std::nullopt);
    });
    FileParts no_tokens, no_merges;
    no_tokens.tokens = nullptr;
    EXPECT_SAYS(no_tokens.message(), "tokenizer.ggml.tokens");
    no_merges.merges = nullptr;
    EXPECT_SAYS(no_merges.message(), "tokenizer.ggml.merges");
}

TEST(FromGguf, RefusesArraysOfAnotherElementType) {
    const std::vector<float> floats(259, 1.0f);
    const std::vector<int32_t> integers(259, 1);
    const auto as_floats = [&](gguf::Writer& w, const char* key) { w.add_f32_array(key, floats); };
    const auto as_integers = [&](gguf::Writer& w, const char* key) { w.add_i32_array(key, integers); };
    const auto as_strings = [](gguf::Writer& w, const char* key) {
        w.add_strings(key, std::vector<std::string>(259, "1"));
    };
    const auto as_number = [](gguf::Writer& w, const char* key) { w.add_u32(key, 1); };
    for (FileParts::Put FileParts::*part : {&FileParts::tokens, &FileParts::merges}) {
        for (const FileParts::Put& wrong :
             {FileParts::Put(as_floats), FileParts::Put(as_integers), FileParts::Put(as_number)}) {
            FileParts parts;
            parts.*part = wrong;
            EXPECT_SAYS(parts.message(), "expected an array of strings");
        }
    }
    for (const FileParts::Put& wrong :
         {FileParts::Put(as_floats), FileParts::Put(as_strings), FileParts::Put(as_number)}) {
        FileParts parts;
        parts.types = wrong;
        EXPECT_SAYS(parts.message(), "tokenizer.ggml.token_type");
    }
}

TEST(FromGguf, TypesStoredInBytesAreReadAsBytes) {  // a reader that assumes i32 runs past the end of such an array
    FileParts parts;
    std::vector<std::byte> bytes(259, std::byte{1});
    bytes[258] = std::byte{4};
    parts.types = [&](gguf::Writer& w, const char* key) {
        w.add_value(key, {gguf::ValueType::array, gguf::ValueType::u8, bytes.size(), bytes});
    };
    parts.eos = nullptr;
    parts.load([](const Result<Tokenizer>& t) {
        ASSERT_TRUE(t.ok()) << t.error().message;
        EXPECT_EQ(t.value().special("<e>"), 258);
        EXPECT_EQ(t.value().specials().size(), 2u);
    });
    bytes.pop_back();
    EXPECT_SAYS(parts.message(), "258 entries");
}

TEST(FromGguf, RefusesAnotherKindOfTokenizer) {
    FileParts parts;
    parts.model = [](gguf::Writer& w, const char* key) { w.add_string(key, "llama"); };
    EXPECT_SAYS(parts.message(), "tokenizer.ggml.model is 'llama'");
    FileParts other_pre;
    other_pre.pre = [](gguf::Writer& w, const char* key) { w.add_string(key, "qwen2"); };
    EXPECT_SAYS(other_pre.message(), "tokenizer.ggml.pre is 'qwen2'; supported are");
    FileParts far_id;
    far_id.eos = [](gguf::Writer& w, const char* key) { w.add_u32(key, 259); };
    EXPECT_SAYS(far_id.message(), "tokenizer.ggml.eos_token_id is 259, but there are 259 tokens");
}

TEST(FromGguf, StringsStayInTheFile) {
    const gguf::StringArray stored = v3_file().strings("tokenizer.ggml.tokens").value();
    int32_t id = 0;
    for (const std::string_view token : stored) ASSERT_EQ(v3().spelling(id++).data(), token.data());
}

}  // namespace
}  // namespace vesta::tokenizer
