// `vesta inspect` as a user or a script sees it: the program is run, its output and exit code are looked at.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gguf/toy.h"
#include "support/command.h"

namespace vesta::gguf {
namespace {

using test::Output;

Output inspect(const std::string& arguments) {
    return test::shell(strf("'{}' inspect {} 2>&1", VESTA_BINARY, arguments));
}

nlohmann::json inspect_json(const std::string& path, const std::string& more = "") {
    const Output run = inspect(strf("'{}' --json {}", path, more));
    EXPECT_EQ(run.exit, 0) << run.out;
    return nlohmann::json::parse(run.out);
}

std::string save(const char* name, const Bytes& bytes) {
    std::filesystem::create_directories(VESTA_TEST_TMP);
    const std::string path = strf("{}/{}", VESTA_TEST_TMP, name);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path;
}

// A file with these tensors, all zeros.
std::string save(const char* name, Writer& w) {
    Bytes bytes = w.header();
    bytes.resize(bytes.size() + w.data_bytes());
    return save(name, bytes);
}

TEST(Inspect, JsonHoldsEveryKeyTensorAndTotal) {
    const std::string path = save("inspect_toy.gguf", make_toy().bytes);
    const nlohmann::json j = inspect_json(path);
    EXPECT_EQ(j["file"]["path"], path);
    EXPECT_EQ(j["file"]["bytes"], std::filesystem::file_size(path));
    EXPECT_EQ(j["file"]["alignment"], 32);
    EXPECT_EQ(j["architecture"], "deepseek4");
    EXPECT_EQ(j["parameters"], 5 * 3 + 64 * 2 + 7 * 2 * 2);  // the i32 table is no weight
    EXPECT_DOUBLE_EQ(j["bits_per_weight"].get<double>(), 8. * (15 * 4 + 4 * 34 + 28 * 2) / 171);
    EXPECT_EQ(j["mtp"], false);
    EXPECT_EQ(j["runnable"], false);

    EXPECT_EQ(j["metadata"].size(), 12u);
    EXPECT_EQ(j["metadata"]["toy.epsilon"]["value"], 1e-6);
    EXPECT_EQ(j["metadata"]["toy.big"]["value"], uint64_t{1} << 40);
    EXPECT_EQ(j["metadata"]["toy.flags"]["value"], (nlohmann::json{false, true, true}));
    EXPECT_EQ(j["metadata"]["toy.tokens"]["element_type"], "string");

    ASSERT_EQ(j["tensors"].size(), 4u);
    EXPECT_EQ(j["tensors"][1]["name"], "blk.0.proj");
    EXPECT_EQ(j["tensors"][1]["type"], "q8_0");
    EXPECT_EQ(j["tensors"][1]["dims"], (nlohmann::json{64, 2}));
    EXPECT_EQ(j["tensors"][1]["bytes"], 136);
    EXPECT_EQ(j["tensors"][1]["offset"], j["file"]["data_start"].get<uint64_t>() + 64);

    uint64_t n_byte = 0;
    double share = 0;
    for (const nlohmann::json& t : j["types"]) n_byte += t["bytes"].get<uint64_t>(), share += t["share"].get<double>();
    EXPECT_EQ(n_byte, 60u + 136u + 56u + 132u);
    EXPECT_NEAR(share, 1, 1e-12);
}

TEST(Inspect, LongArraysAreAbbreviatedUnlessFullIsAsked) {
    Writer w;
    w.add_u32_array("numbers", std::vector<uint32_t>(1000, 7));
    w.add_string("text", std::string(500, 'y'));
    const std::string path = save("inspect_long.gguf", w);
    const nlohmann::json brief = inspect_json(path)["metadata"]["numbers"];
    EXPECT_EQ(brief["count"], 1000);
    EXPECT_EQ(brief["value"].size(), 8u);
    EXPECT_EQ(inspect_json(path, "--full")["metadata"]["numbers"]["value"].size(), 1000u);
    const Output text = inspect(strf("'{}'", path));
    EXPECT_NE(text.out.find("u32[1000]"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("[7, 7, 7, 7, 7, 7, 7, 7, ...\n"), std::string::npos) << text.out;
    EXPECT_EQ(text.out.find(std::string(100, 'y')), std::string::npos) << text.out;
    EXPECT_NE(inspect(strf("'{}' --full", path)).out.find(std::string(500, 'y')), std::string::npos);
}

TEST(Inspect, BytesThatAreNoUtf8MakeValidJsonAndSafeText) {
    Writer w;
    w.add_string("general.name", "a\xff\x1b[31mz");
    w.add_strings("words", std::vector<std::string>{"\xe2\x96", "ok"});
    const std::string path = save("inspect_bytes.gguf", w);
    const nlohmann::json j = inspect_json(path);
    EXPECT_EQ(j["name"], "a\xef\xbf\xbd\x1b[31mz");  // JSON escapes the control character
    EXPECT_EQ(j["metadata"]["words"]["value"][0], "\xef\xbf\xbd\xef\xbf\xbd");
    const Output text = inspect(strf("'{}'", path));
    EXPECT_EQ(text.out.find('\x1b'), std::string::npos);  // no colours in a pipe, no escapes out of the file
    EXPECT_NE(text.out.find("a\\xff\\x1b[31mz"), std::string::npos) << text.out;
}

TEST(Inspect, KindsOfFilesAreTold) {
    const auto kind = [](const char* name, auto fill) {
        Writer w;
        fill(w);
        const nlohmann::json j = inspect_json(save(name, w));
        EXPECT_EQ(j["runnable"], false) << name;
        EXPECT_TRUE(j["reason"].is_string()) << name;
        return j["kind"].get<std::string>();
    };
    const std::vector<uint64_t> one = {4};
    EXPECT_EQ(kind("k1.gguf", [&](Writer& w) { w.add_tensor("mtp.0.norm.weight", quant::Type::f32, one); }), "mtp");
    EXPECT_EQ(kind("k2.gguf",
                   [&](Writer& w) {
                       w.add_tensor("mtp.0.norm.weight", quant::Type::f32, one);
                       w.add_tensor("mtp.2.markov_head.markov_w1.weight", quant::Type::f32, one);
                   }),
              "dspark");
    EXPECT_EQ(kind("k3.gguf",
                   [&](Writer& w) {
                       w.add_tensor("blk.0.ffn_down.weight.in_sum2", quant::Type::f32, one);
                       w.add_tensor("blk.0.ffn_down.weight.counts", quant::Type::f32, one);
                   }),
              "imatrix");
    EXPECT_EQ(kind("k4.gguf", [](Writer& w) { w.add_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a"}); }),
              "vocabulary");
    EXPECT_EQ(kind("k5.gguf",
                   [&](Writer& w) {
                       w.add_string("general.architecture", "llama");
                       w.add_tensor("output.weight", quant::Type::f32, one);
                   }),
              "model");
    EXPECT_EQ(kind("k6.gguf",
                   [&](Writer& w) {
                       w.add_string("general.architecture", "deepseek4");
                       w.add_tensor("output.weight", quant::Type::f32, one);
                   }),
              "part");
    EXPECT_EQ(kind("k7.gguf", [](Writer&) {}), "other");
}

TEST(Inspect, AnMtpBlockIsCountedUnderBothNamingSchemes) {
    for (const char* name : {"mtp.0.enorm.weight", "blk.7.nextn.enorm.weight"}) {
        const std::string prefix = std::string(name).substr(0, std::string_view(name).find('.', 4) + 1);
        Writer w;
        w.add_string("general.architecture", "deepseek4");
        w.add_tensor("token_embd.weight", quant::Type::f32, std::vector<uint64_t>{10});
        w.add_tensor("output.weight", quant::Type::f32, std::vector<uint64_t>{20});
        w.add_tensor(name, quant::Type::f32, std::vector<uint64_t>{3});
        w.add_tensor(prefix + "attn_norm.weight", quant::Type::f32, std::vector<uint64_t>{4});
        const nlohmann::json j = inspect_json(save("inspect_mtp.gguf", w));
        EXPECT_EQ(j["mtp"], true) << name;
        EXPECT_EQ(j["mtp_parameters"], 7) << name;
        EXPECT_EQ(j["parameters"], 37) << name;
        EXPECT_EQ(j["kind"], "model");
    }
}

TEST(Inspect, DamagedFilesMissingFilesAndBadUsageHaveTheirExitCodes) {
    Bytes bytes = make_toy().bytes;
    bytes.resize(bytes.size() - 100);
    const Output cut = inspect(strf("'{}'", save("inspect_cut.gguf", bytes)));
    EXPECT_EQ(cut.exit, 3);
    EXPECT_NE(cut.out.find("vesta inspect: "), std::string::npos) << cut.out;
    EXPECT_NE(cut.out.find("'output.ids'"), std::string::npos) << cut.out;
    EXPECT_NE(cut.out.find("truncated"), std::string::npos) << cut.out;
    EXPECT_EQ(inspect("no-such-file.gguf").exit, 1);
    EXPECT_EQ(inspect("").exit, 2);
    EXPECT_EQ(inspect("a b").exit, 2);
    EXPECT_EQ(inspect("x --frobnicate").exit, 2);
    const Output help = inspect("--help");
    EXPECT_EQ(help.exit, 0);
    EXPECT_NE(help.out.find("examples:"), std::string::npos);
}

}  // namespace
}  // namespace vesta::gguf
