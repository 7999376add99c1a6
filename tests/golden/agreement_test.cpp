// How closely the cpu backend, which rounds activations to 16 bits and keeps fp8 rows small, follows the reference: the
// share of positions with the same most likely token, the mean difference of logits and the KL divergence.
#include <gtest/gtest.h>

#include <cmath>

#include "support/converted.h"
#include "support/golden.h"
#include "support/model_runner.h"
#include "support/pocket_fixture.h"

namespace vesta {
namespace {

using quant::RowFormat;
using test::ModelRunner;

struct Agreement {
    int64_t n = 0, n_same = 0;
    double difference = 0, kl = 0;  // sums

    void add(std::span<const float> reference, std::span<const float> other) {
        ++n;
        n_same += test::argmax(reference) == test::argmax(other);
        const auto log_sum = [](std::span<const float> v) {
            double top = -1e30, sum = 0;
            for (const float x : v) top = std::max(top, static_cast<double>(x));
            for (const float x : v) sum += std::exp(static_cast<double>(x) - top);
            return top + std::log(sum);
        };
        const double a = log_sum(reference), b = log_sum(other);
        double d = 0;
        for (size_t i = 0; i < reference.size(); ++i) {
            const double p = static_cast<double>(reference[i]) - a, q = static_cast<double>(other[i]) - b;
            d += std::fabs(static_cast<double>(reference[i]) - static_cast<double>(other[i]));
            kl += std::exp(p) * (p - q);
        }
        difference += d / static_cast<double>(reference.size());
    }
    double share() const { return static_cast<double>(n_same) / static_cast<double>(n); }
    void print(const std::string& what) const {
        const auto total = static_cast<double>(n);
        std::printf("%s: argmax equal at %lld of %lld (%.2f %%), mean |difference| %.2e, KL %.2e\n", what.c_str(),
                    static_cast<long long>(n_same), static_cast<long long>(n), 100 * share(), difference / total, kl / total);
    }
};

Agreement compare(const std::string& model, std::span<const int32_t> ids, RowFormat format) {
    ModelRunner reference(model, "reference", 2), cpu(model, "cpu", 2);
    const std::vector<float> a = reference.logits(ids, format, 256), b = cpu.logits(ids, format, 256);
    const auto n_vocab = static_cast<size_t>(cpu.n_vocab());
    Agreement sum;
    for (size_t i = 0; i < ids.size(); ++i)
        sum.add(std::span(a).subspan(i * n_vocab, n_vocab), std::span(b).subspan(i * n_vocab, n_vocab));
    return sum;
}

TEST(Agreement, CpuFollowsTheReferenceOnTheTinyModels) {
    for (const char* name : {"tiny-flash", "tiny-pro"}) {
        const std::string dir = std::string(VESTA_TEST_DATA) + "/" + name;
        const std::vector<int32_t> ids = test::Golden(dir + "/golden.safetensors").ints("ids");
        for (const char* recipe : {"native", "q8"}) {
            const std::string path = test::converted(dir, recipe);
            for (const RowFormat format : {RowFormat::fp8, RowFormat::f32}) {
                const Agreement a = compare(path, ids, format);
                a.print(strf("{} {} {}", name, recipe, format == RowFormat::fp8 ? "fp8" : "f32"));
                // With fp8 rows any difference, of whatever size, moves some values over a rounding boundary, and each
                // move is a step of several percent: positions near a tie then fall either way. f32 rows show the
                // arithmetic itself. Q8_0 weights put the reference on other ties than the recorded ones.
                EXPECT_GE(a.share(), format == RowFormat::f32 ? 0.995 : recipe == std::string("native") ? 0.99 : 0.98);
            }
        }
    }
}

TEST(Agreement, CpuFollowsTheReferenceOnThePocketsValidationText) {
    const auto path = test::pocket_native_model(VESTA_TEST_TMP);
    ASSERT_TRUE(path.ok()) << path.error().message;
    const std::vector<int32_t> ids = test::Golden(std::string(VESTA_TEST_DATA) + "/pocket-v0/valid_nll.safetensors").ints("ids");
    for (const std::string& model : {path.value(), std::string(VESTA_SOURCE_DIR) + "/models/pocket.gguf"}) {
        Agreement sum;
        for (size_t s = 0; s < 2; ++s) {
            const Agreement a = compare(model, std::span(ids).subspan(s * 2048, 2048), RowFormat::fp8);
            sum.n += a.n, sum.n_same += a.n_same, sum.difference += a.difference, sum.kl += a.kl;
        }
        sum.print(model == path.value() ? "pocket, exact weights" : "pocket, shipped file");
        EXPECT_GE(sum.share(), 0.997);
    }
}

}  // namespace
}  // namespace vesta
