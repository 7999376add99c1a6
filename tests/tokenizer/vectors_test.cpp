// The official vectors: ids that three other tokenizers agreed on, for DeepSeek-V3's vocabulary.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tokenizer/fixture.h"

namespace vesta::tokenizer {
namespace {

using nlohmann::json;

std::vector<json> vectors(const std::string& kind) {
    std::ifstream in(VESTA_TEST_DATA "/tokenizer_dsv3.jsonl");
    std::vector<json> out;
    for (std::string line; std::getline(in, line);) {
        json v = json::parse(line);
        if (v["kind"] == kind) out.push_back(std::move(v));
    }
    return out;
}

std::string from_base64(std::string_view s) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    uint32_t bits = 0;
    int n_bit = 0;
    for (const char c : s) {
        if (c == '=') break;
        bits = bits << 6 | static_cast<uint32_t>(kDigits.find(c));
        if ((n_bit += 6) >= 8) out.push_back(static_cast<char>(static_cast<unsigned char>(bits >> (n_bit -= 8))));
    }
    return out;
}

TEST(OfficialVectors, All214StringsEncodeToTheirIds) {
    const std::vector<json> all = vectors("encode");
    ASSERT_EQ(all.size(), 214u);
    for (const json& v : all) {
        const auto text = v["text"].get<std::string>();
        EXPECT_EQ(encode(v3(), text, SpecialMode::recognise), v["ids"].get<std::vector<int32_t>>())
            << v["cat"] << ": " << text.substr(0, 200);
    }
}

TEST(OfficialVectors, All58IdListsDecodeToTheirBytes) {
    const std::vector<json> all = vectors("decode");
    ASSERT_EQ(all.size(), 58u);
    for (const json& v : all)
        EXPECT_EQ(decode(v3(), v["ids"].get<std::vector<int32_t>>()), from_base64(v["bytes_b64"].get<std::string>()))
            << v["ids"];
}

TEST(OfficialVectors, IdsDecodeBackToTheirText) {
    for (const json& v : vectors("encode"))
        EXPECT_EQ(decode(v3(), v["ids"].get<std::vector<int32_t>>()), v["text"].get<std::string>());
}

TEST(OfficialVectors, IdsOfTheSpecification) {
    // docs/tokenizer.md: resolved by spelling, never by number; these are the numbers DeepSeek-V3 gives.
    const std::pair<const char*, int32_t> expected[] = {
        {"<｜begin▁of▁sentence｜>", 0}, {"<｜end▁of▁sentence｜>", 1},       {"<｜▁pad▁｜>", 2},
        {"<｜fim▁hole｜>", 128800},     {"<｜fim▁begin｜>", 128801},        {"<｜fim▁end｜>", 128802},
        {"<｜User｜>", 128803},         {"<｜Assistant｜>", 128804},        {"<|EOT|>", 128805},
        {"<｜tool▁sep｜>", 128814},     {"<｜tool▁calls▁begin｜>", 128806}, {"<｜place▁holder▁no▁799｜>", 128799},
    };
    for (const auto& [text, id] : expected) EXPECT_EQ(v3().special(text), id) << text;
    EXPECT_EQ(v3().n_vocab(), 128815);
    EXPECT_EQ(v3().bos(), 0);
    EXPECT_EQ(v3().eos(), 1);
    EXPECT_EQ(v3().pad(), 2);
    EXPECT_EQ(v3().specials().size(), 818u);           // every added token of the source file, no other
    EXPECT_EQ(v3().special("<think>"), std::nullopt);  // ordinary text in V3
    EXPECT_EQ(encode(v3(), "Hello! 毕老师！1 + 1 = 2 ĠÑĤÐ²ÑĬÑĢ"),
              (std::vector<int32_t>{19923, 3,   223,   5464, 5008, 1175,  19,   940,   223, 19,  438,   223, 20,
                                    6113,  257, 76589, 131,  100,  76032, 1628, 76589, 131, 108, 76589, 131, 98}));
}

}  // namespace
}  // namespace vesta::tokenizer
