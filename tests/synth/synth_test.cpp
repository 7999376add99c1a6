// Synthetic models: sizes against the published ones, statistics of the weights, and that they can be run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "gguf/file.h"
#include "quant/format.h"
#include "synth/blocks.h"
#include "synth/synth.h"
#include "vesta/engine.h"

namespace vesta::synth {
namespace {

using quant::Type;

constexpr Type kTypes[] = {Type::f32,  Type::f16,  Type::bf16, Type::q8_0,    Type::q2_k, Type::q3_k,
                           Type::q4_k, Type::q5_k, Type::q6_k, Type::iq2_xxs, Type::mxfp4};

convert::Recipe recipe(const std::string& name) {
    auto r = convert::load_recipe(name);
    VESTA_CHECK(r.ok());
    return r.value();
}
// Every matrix in one format; position biases must be plain floats.
convert::Recipe all_of(Type type) {
    return {.name = "test", .summary = "", .rules = {{"*_ape.weight", Type::f32}, {"*", type}}};
}
Plan make(ShapeOptions shape, convert::Recipe r, uint64_t seed = 1) {
    auto p = plan({.shape = std::move(shape), .recipe = std::move(r), .seed = seed});
    VESTA_CHECK(p.ok());
    return p.value();
}

// The published sizes, in bytes of tensor data (spec of the architecture, summed from its table of tensors).
TEST(SynthPlan, WholeModelsHaveThePublishedSizes) {
    EXPECT_EQ(make({.like = "flash"}, recipe("q2")).data_bytes(), 86714775900u);
    EXPECT_EQ(make({.like = "flash"}, recipe("q4")).data_bytes(), 164628167004u);
    EXPECT_EQ(make({.like = "flash"}, recipe("q2")).tensors.size(), 1328u);
    EXPECT_EQ(make({.like = "pro"}, recipe("q2")).data_bytes(), 464621966732u);
    EXPECT_EQ(make({.like = "pro"}, recipe("q2")).tensors.size(), 1894u);
}

TEST(SynthPlan, ThreeLayersOfFlashAreOneOfEachKind) {
    const Plan p = make({.like = "flash", .n_layer = 3}, recipe("q4"));
    EXPECT_EQ(p.config.compress_ratios, (std::vector<uint32_t>{0, 4, 128}));
    EXPECT_EQ(p.config.n_hash_layer, 1u);
    EXPECT_EQ(make({.like = "pro", .n_layer = 3}, recipe("q4")).config.compress_ratios,
              (std::vector<uint32_t>{4, 128, 4}));
    EXPECT_EQ(make({.like = "flash", .ratios = {128, 0}}, recipe("q4")).config.n_layer, 2u);
}

TEST(SynthPlan, RefusesWhatCannotBe) {
    const auto refuse = [](ShapeOptions s) {
        const auto p = plan({.shape = std::move(s), .recipe = recipe("q4")});
        return p.ok() ? std::string() : p.error().message;
    };
    EXPECT_NE(refuse({.like = "mistral"}).find("no model shape 'mistral'"), std::string::npos);
    EXPECT_NE(refuse({.ratios = {0, 5}}).find("compression ratio 5"), std::string::npos);
    EXPECT_NE(refuse({.n_layer = 3, .ratios = {0, 4}}).find("3 layers, but 2"), std::string::npos);
    EXPECT_NE(refuse({.n_expert = 5}).find("5 experts: expected 6"), std::string::npos);
    EXPECT_NE(refuse({.n_layer = 2, .n_hash_layer = 3}).find("hash layers"), std::string::npos);
    const auto p = plan({.shape = {}, .recipe = all_of(Type::q4_0)});
    ASSERT_FALSE(p.ok());
    EXPECT_EQ(p.error().code, Code::unsupported);
}

class Blocks : public testing::TestWithParam<Type> {};

TEST_P(Blocks, HaveTheWantedMeanAndDeviation) {
    const quant::Format& f = quant::format(GetParam());
    const int64_t n_block = (1 << 18) / f.block_elems, n = n_block * f.block_elems;
    std::vector<std::byte> bytes(static_cast<size_t>(n_block * f.block_bytes));
    for (const double deviation : {1.0 / 64, 1.0}) {
        fill_blocks(GetParam(), stream(7, "w"), 0, n_block, deviation, bytes.data());
        std::vector<float> x(static_cast<size_t>(n));
        f.decode(bytes.data(), x.data(), n);
        double sum = 0, square = 0;
        for (const float v : x) {
            ASSERT_TRUE(std::isfinite(v));
            sum += v, square += double{v} * v;
        }
        const double mean = sum / static_cast<double>(n), rms = std::sqrt(square / static_cast<double>(n));
        // 2^18 values, but in super-blocks a scale is shared by up to 256 of them: a few percent of noise.
        EXPECT_NEAR(rms / deviation, 1.0, 0.03) << f.name;
        EXPECT_NEAR(mean / deviation, 0.0, 0.03) << f.name;
    }
}

TEST_P(Blocks, DoNotDependOnTheCut) {
    const quant::Format& f = quant::format(GetParam());
    const auto block = static_cast<size_t>(f.block_bytes);
    std::vector<std::byte> whole(100 * block), parts(100 * block);
    fill_blocks(GetParam(), stream(3, "t"), 0, 100, 0.02, whole.data());
    for (const auto& [first, n] : {std::pair{64, 36}, std::pair{0, 8}, std::pair{8, 56}})
        fill_blocks(GetParam(), stream(3, "t"), first, n, 0.02, parts.data() + static_cast<size_t>(first) * block);
    EXPECT_EQ(whole, parts);
    fill_blocks(GetParam(), stream(4, "t"), 0, 100, 0.02, parts.data());
    EXPECT_NE(whole, parts) << "another seed";
    fill_blocks(GetParam(), stream(3, "u"), 0, 100, 0.02, parts.data());
    EXPECT_NE(whole, parts) << "another name";
}

// The whole depth of Flash in every format: activations stay finite, and the model does say something.
TEST_P(Blocks, ModelsOf43LayersStayFinite) {
    const Plan p = make({.like = "pocket", .n_layer = 43, .n_vocab = 512}, all_of(GetParam()));
    const auto image = build(p, 2, {});
    ASSERT_TRUE(image.ok());
    auto engine = Engine::open_bytes(image.value().bytes(), "synthetic", {.n_thread = 2});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    auto session = engine.value()->new_session({.n_ctx = 160, .chunk = 16});
    ASSERT_TRUE(session.ok());
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 20; ++i) tokens.push_back(10 + i * 7919 % 490);
    const Status s = session.value()->prefill(tokens);
    ASSERT_TRUE(s.ok()) << s.error().message;
    double square = 0;
    for (const float v : session.value()->logits()) square += double{v} * v;
    EXPECT_GT(square, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Formats, Blocks, testing::ValuesIn(kTypes),
                         [](const auto& i) { return std::string(quant::format(i.param).name); });

TEST(SynthFile, IsTheSameBytesOnDiskAndInMemoryForAnyNumberOfThreads) {
    const Plan p = make({.like = "pocket", .ratios = {0, 4, 128}}, recipe("q2"));
    const std::string path = strf("{}/synth-{}.gguf", VESTA_TEST_TMP, ::getpid());
    const Status written = write(p, path, true, 3, {});
    ASSERT_TRUE(written.ok()) << written.error().message;
    std::ifstream in(path, std::ios::binary);
    const std::string disk((std::istreambuf_iterator<char>(in)), {});
    std::remove(path.c_str());
    for (const int n_thread : {1, 2}) {
        const auto image = build(p, n_thread, {});
        ASSERT_TRUE(image.ok());
        const auto bytes = image.value().bytes();
        ASSERT_EQ(bytes.size(), disk.size());
        EXPECT_EQ(std::memcmp(bytes.data(), disk.data(), disk.size()), 0);
    }
    EXPECT_EQ(write(p, std::string(VESTA_TEST_TMP) + "/no/such/folder/x", true, 1, {}).error().code, Code::not_found);
}

TEST(SynthFile, HasDifferentExpertsForEveryTokenOfAHashLayer) {
    const Plan p = make({.like = "pocket", .ratios = {0, 4}, .n_expert = 5}, recipe("q8"));
    const auto image = build(p, 1, {});
    ASSERT_TRUE(image.ok());
    const auto file = gguf::File::parse(image.value().bytes(), "synthetic");
    ASSERT_TRUE(file.ok()) << file.error().message;
    const gguf::TensorInfo* t = file.value().find_tensor("blk.0.ffn_gate_tid2eid.weight");
    ASSERT_NE(t, nullptr);
    std::vector<int> used(5);
    for (uint64_t row = 0; row < t->dims[1]; ++row) {
        int32_t ids[4];
        std::memcpy(ids, t->bytes.data() + row * 16, 16);
        for (int a = 0; a < 4; ++a) {
            ASSERT_TRUE(ids[a] >= 0 && ids[a] < 5);
            ++used[static_cast<size_t>(ids[a])];
            for (int b = 0; b < a; ++b) ASSERT_NE(ids[a], ids[b]);
        }
    }
    for (const int n : used) EXPECT_GT(n, 2000);  // of 4096 rows × 4 of 5
}

// Large vocabularies leave the range of pairs; the engine's tokenizer checks all of the rules.
TEST(SynthFile, VocabulariesOfAnySizeLoad) {
    for (const uint32_t n_vocab : {512u, 4096u, 129280u}) {
        const Plan p = make({.like = "pocket", .ratios = {0}, .n_vocab = n_vocab}, recipe("q8"));
        const auto image = build(p, 2, {});
        ASSERT_TRUE(image.ok());
        const auto engine = Engine::open_bytes(image.value().bytes(), "synthetic", {.n_thread = 1});
        ASSERT_TRUE(engine.ok()) << engine.error().message;
        EXPECT_EQ(engine.value()->info().n_vocab, n_vocab);
    }
}

}  // namespace
}  // namespace vesta::synth
