// The exact pocket checkpoint comes back from the repository, and converts.
#include "support/pocket_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "convert/convert.h"
#include "gguf/file.h"
#include "numbers.h"

namespace vesta::test {
namespace {

namespace fs = std::filesystem;

// The recipe the shipped file says it was made with; it names the formats and the size that may be expected.
std::string shipped_recipe(const gguf::File& model) {
    const auto name = model.string("vesta.quantize.recipe");
    return std::string(name.ok() ? name.value() : model.string("vesta.convert.recipe").value());
}

TEST(Pocket, ShippedFileIsOfABuiltInRecipeAndWithinItsSize) {
    const std::string path = PocketFiles::in_source_tree().model;
    const auto model = gguf::File::open(path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto recipe = convert::find_recipe(shipped_recipe(model.value()));
    ASSERT_TRUE(recipe.ok()) << recipe.error().message;
    EXPECT_LE(fs::file_size(path), recipe.value().name == "pocket-small" ? 32'000'000u : 56'000'000u);
    EXPECT_EQ(model.value().string("general.name").value(), "pocket");
    // Where it was made is nobody's business.
    for (const char* key : {"vesta.convert.source", "vesta.quantize.source"}) {
        const auto source = model.value().string(key);
        if (source.ok()) {
            EXPECT_EQ(source.value(), "pocket") << key;
        }
    }
}

// rebuild compares every tensor's hash with the original's; here the result is used like any checkpoint.
TEST(Pocket, ExactCheckpointIsRebuiltAndItsModelFileHoldsEveryValue) {
    const auto folder = pocket_checkpoint(VESTA_TEST_TMP);
    ASSERT_TRUE(folder.ok()) << folder.error().message;
    const auto path = pocket_native_model(VESTA_TEST_TMP);
    ASSERT_TRUE(path.ok()) << path.error().message;
    const auto model = gguf::File::open(path.value());
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto checkpoint = safetensors::Checkpoint::open(folder.value());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(checkpoint.value().n_tensor(), 1186u);
    EXPECT_EQ(model.value().tensors().size(), 272u);
    EXPECT_EQ(model.value().strings("tokenizer.ggml.tokens").value().size(), 4096u);
    EXPECT_EQ(model.value().string("vesta.chat.dialect").value(), "dsv4");
    // One tensor of each packing; tests/convert/convert_test.cpp does all of the tiny models.
    for (const auto& [gguf, official] : {std::pair{"blk.3.attn_q_b.weight", "layers.3.attn.wq_b.weight"},
                                         {"token_embd.weight", "embed.weight"},
                                         {"blk.5.hc_ffn_fn.weight", "layers.5.hc_ffn_fn"},
                                         {"blk.1.ffn_gate_tid2eid.weight", "layers.1.ffn.gate.tid2eid"}}) {
        const gguf::TensorInfo* t = model.value().find_tensor(gguf);
        ASSERT_NE(t, nullptr);
        const std::string name = official;
        const safetensors::TensorInfo* scale =
            name.ends_with(".weight") ? checkpoint.value().find(convert::scale_name(name)) : nullptr;
        EXPECT_EQ(convert::gguf_numbers(t->type, t->bytes, t->n_elem()),
                  convert::checkpoint_numbers(*checkpoint.value().find(name), scale))
            << gguf;
    }
}

double relative_error(const gguf::TensorInfo& exact, const gguf::TensorInfo& shipped) {
    const auto values = [](const gguf::TensorInfo& t) {
        std::vector<float> v(t.n_elem());
        quant::format(t.type).decode(t.bytes.data(), v.data(), static_cast<int64_t>(v.size()));
        return v;
    };
    const std::vector<float> a = values(exact), b = values(shipped);
    double error = 0, energy = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double x = static_cast<double>(a[i]), d = x - static_cast<double>(b[i]);
        error += d * d, energy += x * x;
    }
    return std::sqrt(error / energy);
}

// The experts have the format the recipe names; what has the exact file's format has its bytes (MXFP4 keeps an FP4
// checkpoint's experts); the rest is as close as its format allows. The bounds, of the root mean square relative to the
// values', are 1.4 to 3 times the worst tensor seen with recipes pocket and pocket-small: a wrong block order or scale
// is an error of about 1, and an importance matrix trades some of the plain error away.
TEST(Pocket, ShippedFileHoldsTheExactOnesValuesAsItsRecipeSays) {
    const auto path = pocket_native_model(VESTA_TEST_TMP);
    ASSERT_TRUE(path.ok()) << path.error().message;
    const auto exact = gguf::File::open(path.value());
    const auto shipped = gguf::File::open(PocketFiles::in_source_tree().model);
    ASSERT_TRUE(exact.ok() && shipped.ok());
    const auto recipe = convert::find_recipe(shipped_recipe(shipped.value()));
    ASSERT_TRUE(recipe.ok()) << recipe.error().message;
    const std::map<quant::Type, double> bounds = {
        {quant::Type::f16, 1e-3}, {quant::Type::q8_0, 0.01}, {quant::Type::q6_k, 0.05}, {quant::Type::q5_k, 0.12},
        {quant::Type::q4_k, 0.2}, {quant::Type::q3_k, 0.3},  {quant::Type::q2_k, 0.45}, {quant::Type::iq2_xxs, 0.6}};
    ASSERT_EQ(shipped.value().tensors().size(), exact.value().tensors().size());
    size_t n_expert_tensor = 0;
    for (const gguf::TensorInfo& t : exact.value().tensors()) {
        SCOPED_TRACE(t.name);
        const gguf::TensorInfo* other = shipped.value().find_tensor(t.name);
        ASSERT_NE(other, nullptr);
        ASSERT_EQ(other->n_elem(), t.n_elem());
        n_expert_tensor += t.type == quant::Type::mxfp4;
        if (const auto type = recipe.value().type_for(t.name); t.type == quant::Type::mxfp4) {
            EXPECT_EQ(other->type, type.value_or(quant::Type::mxfp4));
        }
        if (other->type == t.type) {
            ASSERT_EQ(other->bytes.size(), t.bytes.size());
            EXPECT_EQ(std::memcmp(other->bytes.data(), t.bytes.data(), t.bytes.size()), 0);
        } else {
            const auto bound = bounds.find(other->type);
            ASSERT_NE(bound, bounds.end()) << quant::format(other->type).name;
            EXPECT_LT(relative_error(t, *other), bound->second) << quant::format(other->type).name;
        }
    }
    EXPECT_EQ(n_expert_tensor, 9u * 3u);  // 8 layers and the MTP block
}

// The same fixture code with a small checkpoint and model files whose experts have 2, 4 and 8 bits, or are exact.
TEST(Pocket, FixtureWorksWhateverFormatsTheModelFileHas) {
    const std::string tiny = VESTA_TEST_DATA "/tiny-flash";
    const fs::path folder = fs::path(VESTA_TEST_TMP) / "pocket_formats";
    fs::remove_all(folder);
    fs::create_directories(folder / "checkpoint");
    for (const char* name : {"config.json", "model.safetensors"})
        fs::copy_file(fs::path(tiny) / name, folder / "checkpoint" / name);
    std::ofstream(folder / "checkpoint" / "tokenizer.json") << "{}";
    const auto original = safetensors::Checkpoint::open(tiny);
    ASSERT_TRUE(original.ok()) << original.error().message;
    std::map<std::string, uint64_t> fixture_bytes;
    for (const char* recipe : {"q2", "q4", "q8", "pocket"}) {
        SCOPED_TRACE(recipe);
        const fs::path model = folder / (std::string(recipe) + ".gguf");
        const auto plan = convert::plan({.from = tiny, .recipe = convert::find_recipe(recipe).value()});
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        ASSERT_TRUE(convert::execute(plan.value(), model.string(), true, 1, {}).ok());
        const PocketFiles files{model.string(), (folder / "fixture").string(), (folder / "hashes").string()};
        const Status made = make_pocket_fixture((folder / "checkpoint").string(), files, /*level=*/3);
        ASSERT_TRUE(made.ok()) << made.error().message;
        fixture_bytes[recipe] = fs::file_size(files.fixture);
        const Status rebuilt = rebuild_pocket_checkpoint(files, (folder / "rebuilt").string());
        ASSERT_TRUE(rebuilt.ok()) << rebuilt.error().message;
        const auto again = safetensors::Checkpoint::open((folder / "rebuilt").string());
        ASSERT_TRUE(again.ok()) << again.error().message;
        ASSERT_EQ(again.value().n_tensor(), original.value().n_tensor());
        for (const safetensors::TensorInfo* t : original.value().tensors()) {
            const safetensors::TensorInfo* other = again.value().find(t->name);
            ASSERT_NE(other, nullptr) << t->name;
            EXPECT_EQ(other->dtype, t->dtype) << t->name;
            EXPECT_EQ(other->shape, t->shape) << t->name;
            EXPECT_TRUE(std::ranges::equal(other->bytes, t->bytes)) << t->name;
        }
    }
    EXPECT_LT(fixture_bytes["pocket"], fixture_bytes["q4"]);
    EXPECT_LT(fixture_bytes["q4"], fixture_bytes["q2"]);
}

// Whether the experts are exact in it or not.
TEST(Pocket, FixtureOfAnotherModelFileIsNoticed) {
    const PocketFiles shipped = PocketFiles::in_source_tree();
    const fs::path folder = fs::path(VESTA_TEST_TMP) / "pocket_changed";
    fs::remove_all(folder);
    fs::create_directories(folder);
    const auto model = gguf::File::open(shipped.model);
    ASSERT_TRUE(model.ok());
    for (const auto& [gguf, official] : {std::pair{"blk.4.attn_kv.weight", "layers.4.attn.wkv.weight"},
                                         {"blk.3.ffn_down_exps.weight", "layers.3.ffn.experts."}}) {
        PocketFiles files = shipped;
        files.model = (folder / "changed.gguf").string();
        fs::copy_file(shipped.model, files.model, fs::copy_options::overwrite_existing);
        const gguf::TensorInfo* t = model.value().find_tensor(gguf);
        ASSERT_NE(t, nullptr);
        const auto end = static_cast<std::streamoff>(fs::file_size(files.model));
        // The data section ends with the file: count from the last byte of the tensor with the largest offset.
        uint64_t data_bytes = 0;
        for (const gguf::TensorInfo& other : model.value().tensors())
            data_bytes = std::max<uint64_t>(data_bytes, (other.offset + other.bytes.size() + 31) / 32 * 32);
        {
            std::fstream file(files.model, std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(end - static_cast<std::streamoff>(data_bytes) + static_cast<std::streamoff>(t->offset) + 2);
            file.put(static_cast<char>(~static_cast<unsigned char>(t->bytes[2])));
        }
        const Status status = rebuild_pocket_checkpoint(files, (folder / "out").string());
        ASSERT_FALSE(status.ok());
        EXPECT_NE(status.error().message.find(official), std::string::npos) << status.error().message;
        EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors"));
    }
}

}  // namespace
}  // namespace vesta::test
