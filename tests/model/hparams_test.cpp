// What the metadata turns into: rotary frequencies of Flash against known numbers, and the rules that are not metadata.
#include "model/deepseek_v4/hparams.h"

#include <gtest/gtest.h>

#include "support/toy_model.h"

namespace vesta::model::deepseek_v4 {
namespace {

Hparams flash() {
    Hparams h{};
    h.n_rot = 64;
    h.rope_base = 10000, h.compress_rope_base = 160000;
    h.yarn_factor = 16, h.yarn_beta_fast = 32, h.yarn_beta_slow = 1;
    h.yarn_original_ctx = 65536;
    return h;
}

TEST(RopeFreq, KnownValuesOfFlash) {
    struct Known {
        size_t pair;
        double main, compress;
    };
    const Known known[] = {{0, 1, 1},
                           {1, 7.498942093e-1, 6.876560219e-1},
                           {15, 1.333521432e-2, 3.635538584e-3},
                           {16, 1e-2, 2.265625e-3},
                           {20, 3.16227766e-3, 2.969777783e-4},
                           {24, 1e-3, 1.953125e-5},
                           {25, 7.498942093e-4, 5.372312671e-6},
                           {31, 1.333521432e-4, 5.680529037e-7}};
    const std::vector<float> main = flash().rope_freq(false), compress = flash().rope_freq(true);
    ASSERT_EQ(main.size(), 32u);
    ASSERT_EQ(compress.size(), 32u);
    for (const Known& k : known) {  // one rounding to f32, and ten digits
        EXPECT_NEAR(main[k.pair] / k.main, 1.0, 1e-7) << k.pair;
        EXPECT_NEAR(compress[k.pair] / k.compress, 1.0, 1e-7) << k.pair;
    }
}

// The ramp starts after pair 15 and ends at pair 25.
TEST(RopeFreq, YarnStretchesOnlySlowPairs) {
    Hparams stretched = flash(), plain = flash();
    plain.yarn_factor = 1;
    const std::vector<float> a = stretched.rope_freq(true), b = plain.rope_freq(true);
    for (size_t i = 0; i < 32; ++i) {
        const double slower = static_cast<double>(b[i]) / static_cast<double>(a[i]);
        EXPECT_NEAR(slower, i <= 15 ? 1.0 : i >= 25 ? 16.0 : 8.5, i <= 15 || i >= 25 ? 2e-6 : 7.49) << i;
    }
}

TEST(RopeFreq, OddSettingsGiveFiniteFrequencies) {
    for (const float base : {1.0f, 1.0001f, 1e12f})
        for (const float beta : {1e-3f, 1.0f, 1e6f})
            for (const int64_t original : {int64_t{1}, int64_t{1} << 32}) {
                Hparams h = flash();
                h.rope_base = h.compress_rope_base = base;
                h.yarn_beta_fast = h.yarn_beta_slow = beta;
                h.yarn_original_ctx = original;
                for (const bool compressed : {false, true})
                    for (const float f : h.rope_freq(compressed)) EXPECT_TRUE(std::isfinite(f) && f >= 0 && f <= 1);
            }
}

TEST(Hparams, OfTheToyModel) {
    const std::vector<std::byte> bytes = test::ToyModel().bytes();
    const auto file = gguf::File::parse(bytes, "toy.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto h = read_hparams(file.value());
    ASSERT_TRUE(h.ok()) << h.error().message;
    EXPECT_EQ(h.value().ratio, (std::vector<int64_t>{0, 4, 8}));
    EXPECT_EQ(h.value().swiglu_clamp.size(), 4u);
    EXPECT_EQ(h.value().n_mix(), 24);
    EXPECT_TRUE(h.value().is_hash(0));
    EXPECT_FALSE(h.value().is_hash(1));
    EXPECT_EQ(h.value().n_lane(4), 2);
    EXPECT_EQ(h.value().n_lane(8), 1);
    EXPECT_EQ(h.value().n_lane(128), 1);
}

}  // namespace
}  // namespace vesta::model::deepseek_v4
