// tokenizer.json to tokenizer.ggml.*: what is carried over, and what is refused because text would be cut differently.
#include "convert/vocabulary.h"

#include <gtest/gtest.h>

#include "configs.h"
#include "gguf/file.h"

namespace vesta::convert {
namespace {

using nlohmann::json;

json toy_tokenizer() {
    const char* third =
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
        " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
    const auto split = [](const char* regex) {
        return json{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
    };
    return {
        {"version", "1.0"},
        {"normalizer", nullptr},
        {"pre_tokenizer",
         {{"type", "Sequence"},
          {"pretokenizers",
           {split("\\p{N}{1,3}"),
            split("[一-龥぀-ゟ゠-ヿ]+"),
            split(third),
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}}},
        {"model",
         {{"type", "BPE"},
          {"byte_fallback", false},
          {"vocab", {{"<bos>", 0}, {"<eos>", 1}, {"a", 2}, {"b", 3}, {"Ġ", 4}, {"ab", 5}, {"Ġab", 6}}},
          {"merges", json::array({json::array({"a", "b"}), json::array({"Ġ", "ab"})})}}},
        {"added_tokens",
         {{{"id", 0}, {"content", "<bos>"}, {"special", true}},
          {{"id", 1}, {"content", "<eos>"}, {"special", true}},
          {{"id", 9}, {"content", "<think>"}, {"special", false}}}},
    };
}

constexpr uint32_t kRows = 12;
Result<Vocabulary> read(const json& t, const std::string& pad = "") {
    return read_vocabulary(reparsed(t), kRows, 1, pad, "tok");
}

TEST(Vocabulary, TokensTypesMergesAndPlaceholders) {
    const auto r = read(toy_tokenizer());
    ASSERT_TRUE(r.ok()) << r.error().message;
    const Vocabulary& v = r.value();
    ASSERT_EQ(v.tokens.size(), kRows);
    EXPECT_EQ(v.tokens[0], "<bos>");
    EXPECT_EQ(v.tokens[6], "Ġab");
    EXPECT_EQ(v.tokens[9], "<think>");
    EXPECT_EQ(v.types, (std::vector<int32_t>{3, 3, 1, 1, 1, 1, 1, 5, 5, 4, 5, 5}));
    EXPECT_EQ(v.merges, (std::vector<std::string>{"a b", "Ġ ab"}));
    EXPECT_EQ(v.n_placeholder, 4u);
    EXPECT_EQ(v.padding_token, 1u);  // none known: the end-of-text token
    EXPECT_NE(v.tokens[7], v.tokens[8]);
    EXPECT_EQ(read(toy_tokenizer(), "<think>").value().padding_token, 9u);
    EXPECT_EQ(read(toy_tokenizer(), "<none>").value().padding_token, 1u);
}

TEST(Vocabulary, MergesMayBeStrings) {
    json t = toy_tokenizer();
    t["model"]["merges"] = {"a b", "Ġ ab"};
    EXPECT_EQ(read(t).value().merges, (std::vector<std::string>{"a b", "Ġ ab"}));
}

TEST(Vocabulary, PlaceholdersAvoidTokensThatLookLikeThem) {
    json t = toy_tokenizer();
    const std::string filler = read(t).value().tokens[7];
    t["added_tokens"].push_back({{"id", 8}, {"content", filler}, {"special", true}});
    const Vocabulary v = read(t).value();
    EXPECT_NE(v.tokens[7], filler);
    EXPECT_EQ(v.tokens[8], filler);
}

TEST(Vocabulary, WritesTheConventionalKeys) {
    gguf::Writer writer;
    write_vocabulary(read(toy_tokenizer()).value(), 0, 1, writer);
    const std::vector<std::byte> bytes = writer.header();
    const auto f = gguf::File::parse(bytes, "v");
    ASSERT_TRUE(f.ok()) << f.error().message;
    EXPECT_EQ(f.value().string("tokenizer.ggml.model").value(), "gpt2");
    EXPECT_EQ(f.value().string("tokenizer.ggml.pre").value(), "joyai-llm");
    EXPECT_EQ(f.value().strings("tokenizer.ggml.tokens").value().size(), kRows);
    EXPECT_EQ(f.value().strings("tokenizer.ggml.merges").value().size(), 2u);
    EXPECT_EQ(f.value().i32_array("tokenizer.ggml.token_type", 100).value().size(), kRows);
    EXPECT_EQ(f.value().u32("tokenizer.ggml.bos_token_id").value(), 0u);
    EXPECT_EQ(f.value().u32("tokenizer.ggml.eos_token_id").value(), 1u);
    EXPECT_EQ(f.value().u32("tokenizer.ggml.padding_token_id").value(), 1u);
    EXPECT_FALSE(f.value().boolean("tokenizer.ggml.add_bos_token").value());
}

struct Change {
    const char* pointer;  // JSON pointer
    json value;
    Code code;
    const char* named;
};

TEST(Vocabulary, DamageAndOtherTokenizersAreRefusedByName) {
    const Change changes[] = {
        {"/model/type", "Unigram", Code::unsupported, "BPE"},
        {"/model/byte_fallback", true, Code::unsupported, "byte_fallback"},
        {"/model/ignore_merges", true, Code::unsupported, "ignore_merges"},
        {"/normalizer", {{"type", "NFC"}}, Code::unsupported, "normalizer"},
        {"/pre_tokenizer", nullptr, Code::unsupported, "pre_tokenizer"},
        {"/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\p{N}", Code::unsupported, "step 1"},
        {"/pre_tokenizer/pretokenizers/1/behavior", "Removed", Code::unsupported, "step 2"},
        {"/pre_tokenizer/pretokenizers/3/use_regex", true, Code::unsupported, "ByteLevel"},
        {"/model/vocab", json::object(), Code::bad_file, "vocab"},
        {"/model/vocab", json::array(), Code::bad_file, "vocab"},
        {"/model/vocab/a", 12, Code::bad_file, "\"a\""},
        {"/model/vocab/a", -1, Code::bad_file, "\"a\""},
        {"/model/vocab/a", 9223372036854775808u, Code::bad_file, "\"a\""},
        {"/model/vocab/a", "2", Code::bad_file, "\"a\""},
        {"/model/vocab/a", 3, Code::bad_file, "share id 3"},
        {"/model/merges", "a b", Code::bad_file, "merges"},
        {"/model/merges/1", json::array({"a"}), Code::bad_file, "merge 1"},
        {"/model/merges/1", "ab", Code::bad_file, "merge 1"},
        {"/model/merges/1", "a b c", Code::bad_file, "merge 1"},
        {"/model/merges/1", 7, Code::bad_file, "merge 1"},
        {"/model/merges/1", json::array({"a", "Ġ"}), Code::bad_file, "aĠ"},
        {"/added_tokens", 3, Code::bad_file, "added_tokens"},
        {"/added_tokens/2/id", 12, Code::bad_file, "<think>"},
        {"/added_tokens/2/id", 5, Code::bad_file, "id 5"},
        {"/added_tokens/2/content", "ab", Code::bad_file, "two ids"},
        {"/added_tokens/2/content", "", Code::bad_file, "added_tokens"},
        {"/added_tokens/2/lstrip", true, Code::unsupported, "lstrip"},
    };
    for (const Change& c : changes) {
        json t = toy_tokenizer();
        t[json::json_pointer(c.pointer)] = c.value;
        const auto r = read(t);
        ASSERT_FALSE(r.ok()) << c.pointer << " = " << c.value;
        EXPECT_EQ(r.error().code, c.code) << r.error().message;
        EXPECT_NE(r.error().message.find(c.named), std::string::npos) << r.error().message;
        EXPECT_EQ(r.error().message.rfind("tok: ", 0), 0u);
    }
    EXPECT_FALSE(read(json::array()).ok());
    EXPECT_FALSE(read(json()).ok());
}

}  // namespace
}  // namespace vesta::convert
