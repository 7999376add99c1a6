// Whole conversions of the two tiny checkpoints (official names and packing; tiny-pro has partial FP8 blocks).
#include "convert/convert.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "gguf/file.h"
#include "numbers.h"

namespace vesta::convert {
namespace {

namespace fs = std::filesystem;
using quant::Type;

std::string tiny(const std::string& model) { return std::string(VESTA_TEST_DATA) + "/" + model; }

fs::path fresh_folder(const std::string& name) {
    const fs::path folder = fs::path(VESTA_TEST_TMP) / ("convert_" + name);
    fs::remove_all(folder);
    fs::create_directories(folder);
    return folder;
}

std::string file_bytes(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

Result<Summary> convert(const std::string& from, const fs::path& out, const std::string& recipe = "native",
                        bool overwrite = false, int n_thread = 1, const ProgressFn& progress = {}) {
    VESTA_TRY(const Plan p, plan({.from = from, .recipe = find_recipe(recipe).value(), .version = "test"}));
    return execute(p, out, overwrite, n_thread, progress);
}

// Values of source s of a planned tensor, read independently.
std::vector<double> numbers_of(const Plan& p, const std::string& official) {
    const safetensors::TensorInfo* weight = p.checkpoint->find(official);
    const safetensors::TensorInfo* scale =
        official.ends_with(".weight") ? p.checkpoint->find(scale_name(official)) : nullptr;
    return checkpoint_numbers(*weight, scale);
}

class TinyModels : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Convert, TinyModels, ::testing::Values("tiny-flash", "tiny-pro"));

TEST_P(TinyModels, NativeKeepsEveryValueOfEveryTensor) {
    const fs::path out = fresh_folder(std::string("native_") + GetParam()) / "m.gguf";
    const auto summary = convert(tiny(GetParam()), out);
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_EQ(summary.value().file_bytes, fs::file_size(out));
    const auto file = gguf::File::open(out);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const Plan p = plan({.from = tiny(GetParam()), .recipe = find_recipe("native").value()}).value();
    EXPECT_EQ(file.value().tensors().size(), p.tensors.size());

    std::set<std::string> used;
    for (const ExpectedTensor& e : expected_tensors(p.config)) {
        const gguf::TensorInfo* t = file.value().find_tensor(e.gguf_name);
        ASSERT_NE(t, nullptr) << e.gguf_name;
        std::vector<double> expected;
        for (const std::string& s : e.sources) {
            const std::vector<double> part = numbers_of(p, s);
            expected.insert(expected.end(), part.begin(), part.end());
            used.insert(s);
            if (s.ends_with(".weight") && p.checkpoint->find(scale_name(s)) != nullptr) used.insert(scale_name(s));
        }
        ASSERT_EQ(t->n_elem(), expected.size()) << e.gguf_name;
        EXPECT_EQ(gguf_numbers(t->type, t->bytes, t->n_elem()), expected) << e.gguf_name;
        const Type stored = p.checkpoint->find(e.sources[0])->dtype == safetensors::DType::i8    ? Type::mxfp4
                            : p.checkpoint->find(e.sources[0])->dtype == safetensors::DType::i64 ? Type::i32
                            : e.shape.size() == 1                                                ? Type::f32
                            : p.checkpoint->find(e.sources[0])->dtype == safetensors::DType::f32 ? Type::f32
                                                                                                 : Type::bf16;
        EXPECT_EQ(t->type, stored) << e.gguf_name;
    }
    EXPECT_EQ(used.size(), p.checkpoint->n_tensor());  // nothing of the checkpoint was left out
}

TEST_P(TinyModels, F32IsExactToo) {
    const fs::path out = fresh_folder(std::string("f32_") + GetParam()) / "m.gguf";
    ASSERT_TRUE(convert(tiny(GetParam()), out, "f32").ok());
    const auto file = gguf::File::open(out);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const Plan p = plan({.from = tiny(GetParam()), .recipe = find_recipe("f32").value()}).value();
    for (const PlannedTensor& t : p.tensors) {
        const gguf::TensorInfo* g = file.value().find_tensor(t.expected.gguf_name);
        ASSERT_NE(g, nullptr);
        EXPECT_TRUE(g->type == Type::f32 || g->type == Type::i32);
        const std::vector<double> first = numbers_of(p, t.expected.sources[0]);
        const std::vector<double> got = gguf_numbers(g->type, g->bytes, first.size());
        EXPECT_EQ(got, first) << t.expected.gguf_name;
    }
}

// Q8_0 with the obvious scale: d = amax/127 rounded to F16 (relative 2^-11), then rounding to a step of d: |error| <=
// d/2 + 127·d·2^-11, so amax/254 + amax/2048 bounds a value; below F16's normal range the scale itself moves by at most
// 2^-25. The encoder may choose another scale, but only one whose squared error over the block is no larger.
TEST_P(TinyModels, Q8StaysWithinItsErrorBound) {
    const fs::path out = fresh_folder(std::string("q8_") + GetParam()) / "m.gguf";
    ASSERT_TRUE(convert(tiny(GetParam()), out, "q8").ok());
    const auto file = gguf::File::open(out);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const Plan p = plan({.from = tiny(GetParam()), .recipe = find_recipe("q8").value()}).value();
    size_t n_q8 = 0;
    for (const PlannedTensor& t : p.tensors) {
        const gguf::TensorInfo* g = file.value().find_tensor(t.expected.gguf_name);
        ASSERT_NE(g, nullptr);
        ASSERT_EQ(g->type, t.type);
        const std::vector<double> got = gguf_numbers(g->type, g->bytes, g->n_elem());
        std::vector<double> expected;
        for (const std::string& s : t.expected.sources) {
            const std::vector<double> part = numbers_of(p, s);
            expected.insert(expected.end(), part.begin(), part.end());
        }
        ASSERT_EQ(got.size(), expected.size());
        n_q8 += g->type == Type::q8_0;
        const size_t block = g->type == Type::q8_0 ? 32 : 1;
        for (size_t b = 0; b < got.size(); b += block) {
            double amax = 0;
            for (size_t i = b; i < b + block; ++i) amax = std::max(amax, std::fabs(expected[i]));
            const double bound = g->type == Type::q8_0  ? amax / 254 + amax / 2048 + std::ldexp(127, -25)
                                 : g->type == Type::f16 ? std::max(amax * std::ldexp(1, -11), std::ldexp(1, -25))
                                                        : 0;
            double squares = 0;
            for (size_t i = b; i < b + block; ++i) squares += (got[i] - expected[i]) * (got[i] - expected[i]);
            ASSERT_LE(squares, static_cast<double>(block) * bound * bound) << t.expected.gguf_name << " block at " << b;
        }
    }
    EXPECT_GT(n_q8, p.config.n_layer * 10u);
}

TEST_P(TinyModels, ThreadsChangeNoByte) {
    const fs::path folder = fresh_folder(std::string("threads_") + GetParam());
    ASSERT_TRUE(convert(tiny(GetParam()), folder / "1.gguf", "pocket", false, 1).ok());
    ASSERT_TRUE(convert(tiny(GetParam()), folder / "3.gguf", "pocket", false, 3).ok());
    EXPECT_TRUE(file_bytes(folder / "1.gguf") == file_bytes(folder / "3.gguf"));
}

TEST(Convert, RowsThatDoNotDivideIntoBlocksFallBackAndSaySo) {
    // tiny-pro: o_groups · o_lora_rank = 128 divides, q_lora_rank = 96 = 3 · 32 divides: nothing falls back. So ask for
    // a format with blocks of 256.
    Recipe recipe{"coarse", "", {{"*attn_q_b.weight", Type::q2_k}, {"*", std::nullopt}}};
    const auto p = plan({.from = tiny("tiny-pro"), .recipe = recipe});
    ASSERT_TRUE(p.ok()) << p.error().message;
    bool seen = false;
    for (const PlannedTensor& t : p.value().tensors)
        if (t.expected.gguf_name == "blk.0.attn_q_b.weight") {
            EXPECT_EQ(t.type, Type::q8_0);
            seen = true;
        }
    EXPECT_TRUE(seen);
    bool noted = false;
    for (const std::string& note : p.value().notes)
        noted |= note.find("blk.0.attn_q_b.weight") != std::string::npos && note.find("96") != std::string::npos;
    EXPECT_TRUE(noted);
}

TEST(Convert, ProvenanceIsInTheFile) {
    const fs::path out = fresh_folder("provenance") / "m.gguf";
    ASSERT_TRUE(convert(tiny("tiny-flash"), out, "q8").ok());
    const auto file = gguf::File::open(out);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file.value().string("vesta.convert.recipe").value(), "q8");
    EXPECT_EQ(file.value().string("vesta.convert.version").value(), "test");
    EXPECT_EQ(file.value().string("general.name").value(), "tiny-flash");
    EXPECT_EQ(file.value().u32("deepseek4.block_count").value(), 6u);
    EXPECT_EQ(file.value().u32_array("deepseek4.attention.compress_ratios", 10).value(),
              (std::vector<uint32_t>{0, 0, 4, 128, 4, 128, 0}));
    EXPECT_FALSE(file.value().has("tokenizer.ggml.tokens"));  // the tiny models have none
}

TEST(Convert, ExistingFileIsKeptWithoutForce) {
    const fs::path out = fresh_folder("overwrite") / "m.gguf";
    std::ofstream(out) << "precious";
    const auto refused = convert(tiny("tiny-flash"), out);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::already_exists);
    EXPECT_EQ(file_bytes(out), "precious");
    ASSERT_TRUE(convert(tiny("tiny-flash"), out, "native", true).ok());
    EXPECT_TRUE(gguf::File::open(out).ok());
}

TEST(Convert, StoppedConversionLeavesNothing) {
    const fs::path folder = fresh_folder("stopped");
    int calls = 0;
    const auto stopped = convert(tiny("tiny-flash"), folder / "m.gguf", "native", false, 2, [&](const Progress& p) {
        EXPECT_LE(p.done, p.total);
        return ++calls < 50;
    });
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, Code::cancelled);
    EXPECT_EQ(calls, 50);
    EXPECT_TRUE(fs::is_empty(folder));
}

TEST(Convert, ProgressEndsAtTheTotal) {
    Progress last;
    ASSERT_TRUE(convert(tiny("tiny-pro"), fresh_folder("progress") / "m.gguf", "q8", false, 1, [&](const Progress& p) {
                    EXPECT_GE(p.done, last.done);
                    last = p;
                    return true;
                }).ok());
    EXPECT_EQ(last.done, last.total);
    EXPECT_GT(last.total, 0u);
}

// tiny-flash with something changed, written to a folder of its own.
class Damaged : public ::testing::Test {
 protected:
    void SetUp() override {
        folder = fresh_folder(::testing::UnitTest::GetInstance()->current_test_info()->name());
        original = std::make_unique<safetensors::File>(
            safetensors::File::open(tiny("tiny-flash") + "/model.safetensors").value());
        for (const safetensors::TensorInfo& t : original->tensors()) {
            std::vector<std::byte> bytes(t.bytes.begin(), t.bytes.end());
            tensors.push_back({t.name, t.dtype, t.shape, {}});
            contents.push_back(std::move(bytes));
        }
        fs::copy(tiny("tiny-flash") + "/config.json", folder / "config.json");
        fs::permissions(folder / "config.json", fs::perms::owner_write, fs::perm_options::add);
    }
    size_t index_of(const std::string& name) {
        for (size_t i = 0; i < tensors.size(); ++i)
            if (tensors[i].name == name) return i;
        ADD_FAILURE() << name;
        return 0;
    }
    void save() {
        for (size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = contents[i];
        ASSERT_TRUE(safetensors::write_safetensors(folder / "model.safetensors", tensors).ok());
    }
    void drop(const std::string& name) {
        const auto i = static_cast<ptrdiff_t>(index_of(name));
        tensors.erase(tensors.begin() + i);
        contents.erase(contents.begin() + i);
    }
    void expect_refused(Code code, std::initializer_list<const char*> words, const std::string& recipe = "native") {
        const fs::path out = folder / "out.gguf";
        const auto r = convert(folder, out, recipe);
        ASSERT_FALSE(r.ok());
        EXPECT_EQ(r.error().code, code) << r.error().message;
        for (const char* word : words)
            EXPECT_NE(r.error().message.find(word), std::string::npos) << "'" << word << "' in: " << r.error().message;
        for (const auto& entry : fs::directory_iterator(folder))
            EXPECT_EQ(entry.path().filename().string().find("out.gguf"), std::string::npos) << entry.path();
    }
    fs::path folder;
    std::unique_ptr<safetensors::File> original;
    std::vector<safetensors::OutTensor> tensors;
    std::vector<std::vector<std::byte>> contents;
};

TEST_F(Damaged, UnchangedCopyConverts) {
    save();
    const auto r = convert(folder, folder / "out.gguf");
    EXPECT_TRUE(r.ok()) << r.error().message;
}

TEST_F(Damaged, TruncatedFileNamesTheTensor) {
    save();
    fs::resize_file(folder / "model.safetensors", fs::file_size(folder / "model.safetensors") - 1000);
    expect_refused(Code::bad_file, {"model.safetensors", "tensor ", "truncated"});
}

TEST_F(Damaged, MissingTensorIsNamed) {
    drop("layers.3.ffn.experts.4.w2.weight");
    save();
    expect_refused(Code::not_found, {"layers.3.ffn.experts.4.w2.weight", "[256, 256]"});
}

TEST_F(Damaged, MissingScaleIsNamed) {
    drop("layers.3.attn.wq_a.scale");
    save();
    expect_refused(Code::not_found, {"layers.3.attn.wq_a.weight", "layers.3.attn.wq_a.scale"});
}

TEST_F(Damaged, WrongShapeNamesBothShapes) {
    auto& t = tensors[index_of("layers.2.attn.compressor.wkv.weight")];
    std::swap(t.shape[0], t.shape[1]);
    t.shape[0] /= 2, t.shape[1] *= 2;
    save();
    expect_refused(Code::bad_file, {"layers.2.attn.compressor.wkv.weight", "[128, 512]", "[256, 256]"});
}

TEST_F(Damaged, WrongDTypeIsNamed) {
    tensors[index_of("layers.0.ffn.gate.tid2eid")].dtype = safetensors::DType::f64;
    save();
    expect_refused(Code::bad_file, {"layers.0.ffn.gate.tid2eid", "F64", "I64"});
    tensors[index_of("layers.0.ffn.gate.tid2eid")].dtype = safetensors::DType::i64;
    tensors[index_of("norm.weight")].dtype = safetensors::DType::i16;
    save();
    expect_refused(Code::bad_file, {"norm.weight", "I16"});
}

TEST_F(Damaged, UnknownTensorIsNamedOrLeftOut) {
    tensors.push_back({"layers.0.attn.surprise", safetensors::DType::f32, {1}, {}});
    contents.emplace_back(4);
    save();
    expect_refused(Code::unsupported, {"layers.0.attn.surprise", "1 tensors"});
    const auto p = plan({.from = folder, .recipe = find_recipe("native").value(), .ignore_unknown = true});
    ASSERT_TRUE(p.ok()) << p.error().message;
    EXPECT_NE(p.value().notes.front().find("surprise"), std::string::npos);
}

TEST_F(Damaged, ExpertIdOutsideTheModelIsNamed) {
    const int64_t id = 6;  // the model has experts 0..5
    std::memcpy(contents[index_of("layers.1.ffn.gate.tid2eid")].data() + 8 * 100, &id, 8);
    save();
    expect_refused(Code::bad_file, {"layers.1.ffn.gate.tid2eid", "0 to 5"});
}

TEST_F(Damaged, NanAndBadScalesAreNamed) {
    contents[index_of("layers.4.attn.wo_b.weight")][77] = std::byte{0x7F};
    save();
    expect_refused(Code::bad_file, {"layers.4.attn.wo_b.weight", "NaN"});
    contents[index_of("layers.4.attn.wo_b.weight")][77] = std::byte{0};
    contents[index_of("layers.4.ffn.experts.3.w1.scale")][9] = std::byte{255};
    save();
    expect_refused(Code::bad_file, {"layers.4.ffn.experts.3.w1.weight", "layers.4.ffn.experts.3.w1.scale"});
    expect_refused(Code::bad_file, {"layers.4.ffn.experts.3.w1.scale"}, "q8");
}

TEST_F(Damaged, ValueNoFormatHoldsExactlyIsNamed) {
    // The smallest scale and the smallest weight: 2^-136 is below BF16.
    contents[index_of("layers.4.attn.wkv.scale")][0] = std::byte{0};
    contents[index_of("layers.4.attn.wkv.weight")][0] = std::byte{1};
    save();
    expect_refused(Code::unsupported, {"layers.4.attn.wkv.weight", "bf16", "native"});
}

TEST_F(Damaged, ConfigOfAnotherModelIsNoticed) {
    save();
    std::string config = file_bytes(folder / "config.json");
    const auto change = [&](const std::string& from, const std::string& to) {
        std::string text = config;
        text.replace(text.find(from), from.size(), to);
        std::ofstream(folder / "config.json") << text;
    };
    change("\"n_routed_experts\": 6", "\"n_routed_experts\": 8");
    expect_refused(Code::bad_file, {"layers.0.ffn.gate.weight", "[8, 256]"});
    change("\"num_hash_layers\": 2", "\"num_hash_layers\": 1");
    expect_refused(Code::not_found, {"layers.1.ffn.gate.bias"});
    change("deepseek_v4", "glm5");
    expect_refused(Code::unsupported, {"config.json", "model_type", "glm5"});
    fs::remove(folder / "config.json");
    expect_refused(Code::not_found, {"config.json"});
}

TEST_F(Damaged, CheckpointWithoutItsMtpBlockConvertsWithoutIt) {
    for (size_t i = tensors.size(); i-- > 0;)
        if (tensors[i].name.starts_with("mtp.")) {
            tensors.erase(tensors.begin() + static_cast<ptrdiff_t>(i));
            contents.erase(contents.begin() + static_cast<ptrdiff_t>(i));
        }
    save();
    const fs::path out = folder / "out.gguf";
    const auto r = convert(folder, out);
    ASSERT_TRUE(r.ok()) << r.error().message;
    const auto file = gguf::File::open(out);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file.value().u32("deepseek4.nextn_predict_layers").value(), 0u);
    EXPECT_EQ(file.value().u32_array("deepseek4.attention.compress_ratios", 10).value().size(), 6u);
}

TEST_F(Damaged, TransformersStyleNamesGiveTheSameFile) {
    const auto replace = [](std::string& name, const std::string& from, const std::string& to) {
        const size_t at = name.find(from);
        if (at != std::string::npos) name.replace(at, from.size(), to);
    };
    for (auto& t : tensors) {
        replace(t.name, "attn_norm.weight", "input_layernorm.weight");
        replace(t.name, "ffn_norm.weight", "post_attention_layernorm.weight");
        replace(t.name, ".attn.", ".self_attn.");
        replace(t.name, ".ffn.gate.bias", ".mlp.gate.e_score_correction_bias");
        replace(t.name, ".ffn.", ".mlp.");
        replace(t.name, ".w1.", ".gate_proj.");
        replace(t.name, ".w2.", ".down_proj.");
        replace(t.name, ".w3.", ".up_proj.");
        replace(t.name, ".scale", ".weight_scale_inv");
        replace(t.name, "embed.weight", "embed_tokens.weight");
        if (t.name.starts_with("layers.") || t.name.starts_with("embed") || t.name == "norm.weight")
            t.name = "model." + t.name;
        if (t.name == "head.weight") t.name = "lm_head.weight";
    }
    save();
    const auto p =
        plan({.from = folder, .recipe = find_recipe("native").value(), .model_name = "tiny-flash", .version = "test"});
    ASSERT_TRUE(p.ok()) << p.error().message;
    ASSERT_TRUE(execute(p.value(), folder / "other.gguf", false, 1, {}).ok());
    ASSERT_TRUE(convert(tiny("tiny-flash"), folder / "official.gguf").ok());
    EXPECT_TRUE(file_bytes(folder / "other.gguf") == file_bytes(folder / "official.gguf"));
}

TEST_F(Damaged, TwoNamesOfOneWeightAreRefused) {
    tensors.push_back({"model.norm.weight", safetensors::DType::bf16, {256}, {}});
    contents.emplace_back(512);
    save();
    expect_refused(Code::bad_file, {"norm.weight", "same weight"});
}

}  // namespace
}  // namespace vesta::convert
