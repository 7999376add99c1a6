// The kernel tables of the cpu backend against f64 arithmetic on what quant says the weights mean, and against
// themselves: no result may depend on how many rows there are or where a tile begins.
#include "backend/cpu/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/kv_row.h"

namespace vesta::backend {
namespace {

using quant::Type;

std::vector<const Kernels*> tables() { return usable_kernels(); }

std::vector<float> gaussian(int64_t n, unsigned seed, float sigma = 1.0f) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0.0f, sigma);
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = normal(rng);
    return x;
}

// A matrix in its file format: encoded Gaussians where there is an encoder, else random bits around an f16 scale of
// 2^-6.
struct Matrix {
    Type type;
    int64_t n_out, n_in, stride;
    std::vector<std::byte> bytes;
    std::vector<float> values;  // decoded

    Matrix(Type t, int64_t out, int64_t in, unsigned seed) : type(t), n_out(out), n_in(in) {
        const quant::Format& f = quant::format(t);
        stride = quant::row_bytes(f, in) + 3;  // rows need not be adjacent nor aligned
        bytes.resize(static_cast<size_t>(stride * out));
        values.resize(static_cast<size_t>(out * in));
        std::mt19937 rng(seed);
        for (int64_t o = 0; o < out; ++o) {
            std::byte* row = bytes.data() + o * stride;
            if (f.encode != nullptr) {
                f.encode(gaussian(in, seed + static_cast<unsigned>(o) + 1, 0.05f).data(), row, in);
            } else {
                for (int64_t i = 0; i < quant::row_bytes(f, in); ++i) row[i] = static_cast<std::byte>(rng());
                for (int64_t b = 0; b < in / f.block_elems; ++b) set_scales(row + b * f.block_bytes);
            }
            f.decode(row, values.data() + o * in, in);
        }
    }

    // Random bytes are no sensible f16: puts 2^-6 where this format keeps its factors.
    void set_scales(std::byte* block) const {
        const auto put = [&](int at) {
            block[at] = std::byte{0};
            block[at + 1] = std::byte{0x24};
        };
        switch (type) {
            case Type::q2_k:
                put(80), put(82);
                break;
            case Type::q3_k:
                put(108);
                break;
            case Type::q6_k:
                put(208);
                break;
            case Type::q4_k:
            case Type::q5_k:
            case Type::q4_1:
                put(0), put(2);
                break;
            default:
                put(0);
                break;
        }
    }
};

// A float or an int of the arrays behind the codes of an a16 row.
template <class T>
T a16_at(const std::byte* row, int64_t array, int64_t i) {
    return quant::load<T>(row + array + 4 * i);
}

// The rows of x as they are, and rounded by the table that is to read them.
struct Inputs {
    int64_t n_row, n_in, stride;
    std::vector<float> x;
    std::vector<std::byte> a16;

    Inputs(const Kernels& k, int64_t rows, int64_t in, unsigned seed)
        : Inputs(k, rows, in, gaussian(rows * in, seed)) {}
    Inputs(const Kernels& k, int64_t rows, int64_t in, std::vector<float> values)
        : n_row(rows), n_in(in), stride(a16::row_bytes(in)), x(std::move(values)) {
        if (in % a16::kBlock != 0) return;
        a16.resize(static_cast<size_t>(rows * stride), std::byte{0x55});
        for (int64_t t = 0; t < rows; ++t) round(k, t);
    }
    void round(const Kernels& k, int64_t t) {
        k.a16.quantize(&x[static_cast<size_t>(t * n_in)], n_in, a16.data() + t * stride);
    }
    const std::byte* row(int64_t t) const { return a16.data() + t * stride; }
    float scale(int64_t t, int64_t i) const { return a16_at<float>(row(t), a16::scale_at(n_in), i / 32); }
    int code(const Kernels& k, int64_t t, int64_t i) const {
        if (!k.a16.split) return quant::load<int16_t>(row(t) + 2 * i);
        const std::byte* pair = row(t) + i / 64 * 128 + i % 64;
        return 256 * quant::load<int8_t>(pair) + quant::load<int8_t>(pair + 64);
    }
};

MatmulTask task_of(const Matrix& w, const Inputs& in) {
    return {.w = w.bytes.data(),
            .w_stride = w.stride,
            .n_out = w.n_out,
            .n_in = w.n_in,
            .x = in.x.data(),
            .x_stride = in.n_in,
            .a16 = in.a16.data(),
            .n_row = in.n_row};
}

// y [n_row, n_out] of the whole product in one call.
std::vector<float> product(const Kernels& k, const Matrix& w, const Inputs& in) {
    std::vector<float> y(static_cast<size_t>(in.n_row * w.n_out), -1.0f);
    MatmulTask task = task_of(w, in);
    task.y = y.data();
    task.y_stride = w.n_out;
    matmul(k, w.type, task);
    return y;
}

struct Case {
    Type type;
    int64_t n_in;
};

class Matmul : public testing::TestWithParam<Case> {};

// Formats with a minimum add two large terms to a small weight: f32 sums round relative to those, not to the weight.
bool has_minimum(Type type) { return type == Type::q2_k || type == Type::q4_k || type == Type::q5_k; }

TEST_P(Matmul, EqualsTheF64ProductOfTheDecodedWeightsWithinItsRounding) {
    const auto [type, n_in] = GetParam();
    const Matrix w(type, 11, n_in, 5);
    for (const Kernels* k : tables()) {
        const Inputs in(*k, 7, n_in, 17);
        const std::vector<float> y = product(*k, w, in);
        for (int64_t t = 0; t < in.n_row; ++t) {
            for (int64_t o = 0; o < w.n_out; ++o) {
                double sum = 0.0, size = 0.0;
                for (int64_t i = 0; i < n_in; ++i) {
                    const double a = w.values[static_cast<size_t>(o * n_in + i)];
                    // What the kernel multiplies: with a block format, the rounded activation.
                    const double b = reads_a16(type) ? static_cast<double>(in.scale(t, i)) * in.code(*k, t, i)
                                                     : static_cast<double>(in.x[static_cast<size_t>(t * n_in + i)]);
                    sum += a * b;
                    double of = std::fabs(a);
                    if (has_minimum(type))
                        for (int64_t j = i / 256 * 256; j < i / 256 * 256 + 256; ++j)
                            of = std::max(
                                of, 2 * std::fabs(static_cast<double>(w.values[static_cast<size_t>(o * n_in + j)])));
                    size += of * std::fabs(b);
                }
                // f32 sums: each of the n/8 additions of a lane (or two roundings per block of 32) and the 3 of the
                // fold rounds by at most 2^-24 of the sum of magnitudes; errors of random sign stay far below this
                // bound.
                const double bound = (static_cast<double>(n_in) / 8 + 8) * 0x1p-24 * size;
                ASSERT_NEAR(static_cast<double>(y[static_cast<size_t>(t * w.n_out + o)]), sum, bound)
                    << k->name << " " << t << "," << o;
            }
        }
    }
}

TEST_P(Matmul, BlockFormatsHaveOneResultInAllTables) {
    const auto [type, n_in] = GetParam();
    if (!reads_a16(type)) return;  // f32 sums differ in order from table to table
    const Matrix w(type, 37, n_in, 9);  // more than two tiles of 16 rows, and a rest
    const std::vector<float> x = gaussian(20 * n_in, 21);
    std::vector<std::vector<float>> by_rows;
    for (const Kernels* k : tables()) {
        const Inputs in(*k, 20, n_in, x);
        const std::vector<float> y = product(*k, w, in);
        if (by_rows.empty()) by_rows.push_back(y);
        EXPECT_EQ(y, by_rows[0]) << k->name;
    }
}

TEST_P(Matmul, TypicalErrorIsThatOfF32) {
    // The bound above is loose by design; this one catches a kernel that is right but careless.
    const auto [type, n_in] = GetParam();
    const Matrix w(type, 24, n_in, 6);
    for (const Kernels* k : tables()) {
        const Inputs in(*k, 4, n_in, 18);
        const std::vector<float> y = product(*k, w, in);
        double error = 0.0, size = 0.0;
        for (int64_t t = 0; t < in.n_row; ++t) {
            for (int64_t o = 0; o < w.n_out; ++o) {
                double sum = 0.0;
                for (int64_t i = 0; i < n_in; ++i) {
                    const double p = static_cast<double>(w.values[static_cast<size_t>(o * n_in + i)]) *
                                     static_cast<double>(in.x[static_cast<size_t>(t * n_in + i)]);
                    sum += p;
                    size += p * p;
                }
                error += std::pow(static_cast<double>(y[static_cast<size_t>(t * w.n_out + o)]) - sum, 2);
            }
        }
        // Relative to the root of the summed squares of the products. a16 steps are amax/32512 with amax about 2.1
        // sigma for 32 Gaussians: a root mean square error of 2.1/32512/sqrt(12) = 1.9e-5 of the activation.
        EXPECT_LE(std::sqrt(error / size), reads_a16(type) ? 4e-5 : 2e-6) << k->name;
    }
}

TEST_P(Matmul, OneRowIsTheSameBitsInAnyBatchTileAndCut) {
    const auto [type, n_in] = GetParam();
    const Matrix w(type, 13, n_in, 7);
    for (const Kernels* k : tables()) {
        const Inputs in(*k, 70, n_in, 19);
        const std::vector<float> all = product(*k, w, in);  // 70: past the sweep of 64 rows
        const auto at = [&](int64_t t, int64_t o) {
            return std::bit_cast<uint32_t>(all[static_cast<size_t>(t * w.n_out + o)]);
        };
        for (int64_t n = 1; n <= 9; ++n) {
            for (const int64_t first : {int64_t{0}, int64_t{3}, 70 - n}) {
                std::vector<float> y(static_cast<size_t>(n * 20), -1.0f);
                std::vector<int32_t> pick;  // through the row list, backwards
                for (int64_t i = 0; i < n; ++i) pick.push_back(static_cast<int32_t>(first + n - 1 - i));
                MatmulTask task = task_of(w, in);
                task.n_row = n;
                task.pick = pick.data();
                // Outputs in two calls, cut at n.
                task.y = y.data();
                task.y_stride = 20;
                task.n_out = n;
                matmul(*k, type, task);
                task.w += n * w.stride;
                task.n_out = w.n_out - n;
                task.y += n;
                matmul(*k, type, task);
                for (int64_t t = 0; t < n; ++t) {
                    for (int64_t o = 0; o < w.n_out; ++o)
                        ASSERT_EQ(std::bit_cast<uint32_t>(y[static_cast<size_t>(t * 20 + o)]), at(first + n - 1 - t, o))
                            << k->name << " n=" << n << " first=" << first << " t=" << t << " o=" << o;
                    for (int64_t o = w.n_out; o < 20; ++o) ASSERT_EQ(y[static_cast<size_t>(t * 20 + o)], -1.0f);
                }
            }
        }
    }
}

TEST_P(Matmul, NonFiniteActivationsShowInTheirRowOnly) {
    const auto [type, n_in] = GetParam();
    const Matrix w(type, 5, n_in, 8);
    for (const Kernels* k : tables()) {
        Inputs in(*k, 3, n_in, 20);
        in.x[static_cast<size_t>(n_in + 3)] = std::numeric_limits<float>::infinity();
        if (reads_a16(type)) in.round(*k, 1);
        const std::vector<float> y = product(*k, w, in);
        for (int64_t t = 0; t < 3; ++t)
            for (int64_t o = 0; o < 5; ++o)
                EXPECT_EQ(std::isfinite(y[static_cast<size_t>(t * 5 + o)]), t != 1) << k->name;
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, Matmul,
    testing::Values(Case{Type::f32, 256}, Case{Type::f32, 1021}, Case{Type::f32, 5}, Case{Type::f16, 512},
                    Case{Type::f16, 99}, Case{Type::bf16, 512}, Case{Type::bf16, 99}, Case{Type::q8_0, 32},
                    Case{Type::q8_0, 96}, Case{Type::q8_0, 4096}, Case{Type::mxfp4, 32}, Case{Type::mxfp4, 2048},
                    Case{Type::q8_0, 288}, Case{Type::mxfp4, 544}, Case{Type::q2_k, 256}, Case{Type::q2_k, 2048},
                    Case{Type::q3_k, 256}, Case{Type::q3_k, 512}, Case{Type::q4_k, 256}, Case{Type::q4_k, 768},
                    Case{Type::q5_k, 256}, Case{Type::q5_k, 1024}, Case{Type::q6_k, 256}, Case{Type::q6_k, 512},
                    Case{Type::iq2_xxs, 256}, Case{Type::iq2_xxs, 4096}, Case{Type::q4_0, 288}, Case{Type::q4_1, 96}),
    [](const auto& i) { return std::string(quant::format(i.param.type).name) + "_" + std::to_string(i.param.n_in); });

// Any bytes at all: every code, all scales at their ends, both signs of the f16 factors; against the scalar table,
// whose blocks are exact integers, and which the f64 test above has compared with the decoders.
TEST(BlockFormats, AnyBytesGiveTheBitsOfTheScalarTable) {
    for (const Type type :
         {Type::q8_0, Type::mxfp4, Type::q2_k, Type::q3_k, Type::q4_k, Type::q5_k, Type::q6_k, Type::iq2_xxs}) {
        const quant::Format& f = quant::format(type);
        const int64_t n_in = 512, n_out = 40;
        std::mt19937 rng(static_cast<unsigned>(type));
        for (const int fill : {-1, 0x00, 0xff, 0x7f, 0x80}) {
            std::vector<std::byte> w(static_cast<size_t>(n_out * quant::row_bytes(f, n_in)));
            for (std::byte& b : w) b = static_cast<std::byte>(fill < 0 ? static_cast<int>(rng() & 255u) : fill);
            for (size_t at = 0; fill >= 0 && at < w.size(); at += static_cast<size_t>(f.block_bytes)) {
                // Finite factors of random sign where this format keeps them.
                const std::vector<int> places = type == Type::q2_k    ? std::vector{80, 82}
                                                : type == Type::q3_k  ? std::vector{108}
                                                : type == Type::q6_k  ? std::vector{208}
                                                : type == Type::mxfp4 ? std::vector<int>{}
                                                : type == Type::q4_k  ? std::vector{0, 2}
                                                : type == Type::q5_k  ? std::vector{0, 2}
                                                                      : std::vector{0};
                for (const int place : places)
                    quant::store(w.data() + at + place, static_cast<uint16_t>(0x1000u + (rng() & 0x8fffu)));
                if (type == Type::mxfp4) w[at] = static_cast<std::byte>(rng() % 255);
            }
            for (const int64_t n_row : {1, 9}) {
                std::vector<float> x = gaussian(n_row * n_in, 33);
                for (size_t i = 0; i < 64; ++i) x[i] = i % 3 == 0 ? -4.0f : 4.0f;  // codes at both ends
                for (size_t i = 64; i < 96; ++i) x[i] = -4.0f;
                std::vector<float> expected;
                for (const Kernels* k : tables()) {
                    const Inputs in(*k, n_row, n_in, x);
                    std::vector<float> y(static_cast<size_t>(n_row * n_out));
                    a16_kernel(*k, type)({.w = w.data(),
                                          .w_stride = quant::row_bytes(f, n_in),
                                          .n_out = n_out,
                                          .n_in = n_in,
                                          .a16 = in.a16.data(),
                                          .n_row = n_row,
                                          .y = y.data(),
                                          .y_stride = n_out});
                    if (expected.empty()) expected = y;
                    for (size_t i = 0; i < y.size(); ++i) {
                        if (std::isnan(expected[i]))
                            ASSERT_TRUE(std::isnan(y[i])) << k->name << " " << f.name << " " << i;
                        else
                            ASSERT_EQ(y[i], expected[i]) << k->name << " " << f.name << " fill " << fill << " at " << i;
                    }
                }
            }
        }
    }
}

TEST(Mxfp4Kernel, ExtremeScalesAreExact) {
    for (const Kernels* k : tables()) {
        for (const int e : {0, 1, 2, 40, 220}) {
            std::vector<std::byte> block(17, std::byte{0x22});  // every code 1.0
            block[0] = static_cast<std::byte>(e);
            // 2^-e so that the product is an ordinary number: x = 2^(127-e) capped to f32's range
            const float x = std::ldexp(1.0f, std::min(120, 127 - e));
            const Inputs in(*k, 1, 32, std::vector<float>(32, x));
            float y = 0.0f;
            k->a16.mxfp4({.w = block.data(),
                          .w_stride = 17,
                          .n_out = 1,
                          .n_in = 32,
                          .a16 = in.a16.data(),
                          .n_row = 1,
                          .y = &y,
                          .y_stride = 1});
            const double expected = 32 * std::ldexp(static_cast<double>(x), e - 127);
            EXPECT_NEAR(y, expected, expected * 1e-6) << k->name << " e=" << e;
        }
    }
}

TEST(QuantizeA16, IsTheNearestStepOfEachBlock) {
    for (const Kernels* k : tables()) {
        std::vector<float> x = gaussian(352, 3);
        for (size_t i = 32; i < 64; ++i) x[i] = 0.0f;
        for (size_t i = 64; i < 96; ++i) x[i] *= 1e-33f;
        for (size_t i = 96; i < 128; ++i) x[i] *= 1e37f;
        for (size_t i = 128; i < 160; ++i) x[i] = i % 2 == 0 ? 3.0f : -3.0f;
        Inputs in(*k, 1, 352, x);
        const std::byte* row = in.row(0);
        for (int64_t b = 0; b < 11; ++b) {
            int sum[2] = {};
            for (int64_t i = 32 * b; i < 32 * b + 32; ++i) {
                const int q = in.code(*k, 0, i);
                sum[i % 32 / 16] += q;
                ASSERT_LE(std::abs(q), a16::kTop);
                const double y = static_cast<double>(in.scale(0, i)) * q;
                const double bound = std::max(1e-30, 0.5 * static_cast<double>(in.scale(0, i)) * (1 + 1e-2));
                ASSERT_NEAR(y, static_cast<double>(x[static_cast<size_t>(i)]), bound) << k->name << " " << i;
            }
            EXPECT_EQ(a16_at<float>(row, a16::sum_at(352), b), static_cast<float>(sum[0] + sum[1]))
                << k->name << " " << b;
            EXPECT_EQ(a16_at<float>(row, a16::low_at(352), b), static_cast<float>(sum[0]));
            EXPECT_EQ(a16_at<float>(row, a16::high_at(352), b), static_cast<float>(sum[1]));
            if (!k->a16.split) continue;
            EXPECT_EQ(a16_at<int32_t>(row, a16::offset_at(352), b), -128 * (sum[0] + sum[1]));
            for (int h = 0; h < 2; ++h)
                EXPECT_EQ(a16_at<int32_t>(row, a16::offset16_at(352), 2 * b + h), -128 * sum[h]);
        }
        in.x[5] = std::nanf("");
        in.x[40] = -std::numeric_limits<float>::infinity();
        in.round(*k, 0);
        EXPECT_TRUE(std::isnan(in.scale(0, 0)));
        EXPECT_TRUE(std::isnan(in.scale(0, 32)));
        EXPECT_FALSE(std::isnan(in.scale(0, 64)));
    }
}

TEST(Mix, EqualsTheF64SumAndDoesNotDependOnTheCut) {
    const int64_t n_mix = 7, n_row = 37, n_col = 43, row_stride = 50;
    const std::vector<float> p = gaussian(n_mix * n_row, 1), rows = gaussian(n_row * row_stride, 2);
    for (const Kernels* k : tables()) {
        std::vector<float> y(static_cast<size_t>(n_mix * n_col), 9.0f);
        MixTask task{.p = p.data(),
                     .p_stride = n_row,
                     .n_mix = n_mix,
                     .rows = rows.data(),
                     .row_stride = row_stride,
                     .n_row = n_row,
                     .n_col = n_col,
                     .y = y.data(),
                     .y_stride = n_col};
        k->mix(task);
        for (int64_t h = 0; h < n_mix; ++h) {
            for (int64_t d = 0; d < n_col; ++d) {
                double sum = 0.0, size = 0.0;
                for (int64_t i = 0; i < n_row; ++i) {
                    const double v = static_cast<double>(p[static_cast<size_t>(h * n_row + i)]) *
                                     static_cast<double>(rows[static_cast<size_t>(i * row_stride + d)]);
                    sum += v;
                    size += std::fabs(v);
                }
                ASSERT_NEAR(static_cast<double>(y[static_cast<size_t>(h * n_col + d)]), sum,
                            (n_row + 1) * 0x1p-24 * size);
            }
        }
        // The same rows in two pieces, one head at a time, and the columns in two pieces at a multiple of eight.
        std::vector<float> pieces(y.size(), 5.0f);
        for (int64_t h = 0; h < n_mix; ++h) {
            for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 24}, {24, n_col - 24}}) {
                MixTask part = task;
                part.p = p.data() + h * n_row;
                part.n_mix = 1;
                part.rows = rows.data() + first;
                part.n_col = count;
                part.y = pieces.data() + h * n_col + first;
                part.n_row = 10;
                k->mix(part);
                part.p += 10;
                part.rows += 10 * row_stride;
                part.n_row = n_row - 10;
                part.accumulate = true;
                k->mix(part);
            }
        }
        EXPECT_EQ(pieces, y) << k->name;
    }
}

TEST(Elementwise, EqualsF64ForEveryLength) {
    for (const Kernels* k : tables()) {
        for (int64_t n = 0; n <= 35; ++n) {
            const auto count = static_cast<size_t>(n);
            const std::vector<float> x = gaussian(n, 4), w = gaussian(n, 5);
            double squares = 0.0;
            float top = -std::numeric_limits<float>::infinity();
            for (const float v : x) {
                squares += static_cast<double>(v) * static_cast<double>(v);
                top = std::max(top, v);
            }
            EXPECT_NEAR(k->sum_squares(x.data(), n), squares, 1e-12 * squares);
            EXPECT_EQ(k->max(x.data(), n), top);

            std::vector<float> y(count + 1, 7.0f);
            k->scale_mul(y.data(), x.data(), 1.5f, w.data(), n);
            for (size_t i = 0; i < count; ++i) EXPECT_EQ(y[i], x[i] * 1.5f * w[i]);
            k->scale_mul(y.data(), x.data(), 1.5f, nullptr, n);
            for (size_t i = 0; i < count; ++i) EXPECT_EQ(y[i], x[i] * 1.5f);
            k->axpy(y.data(), 0.3f, w.data(), n);
            for (size_t i = 0; i < count; ++i) EXPECT_NEAR(y[i], x[i] * 1.5f + 0.3f * w[i], 1e-6f);

            std::vector<float> e = x;
            e.push_back(7.0f);
            const float total = k->exp_sum(e.data(), n, 2.0f);
            double sum = 0.0;
            for (size_t i = 0; i < count; ++i) {
                const double expected = std::exp(static_cast<double>(x[i] - 2.0f));
                sum += expected;
                EXPECT_NEAR(static_cast<double>(e[i]), expected, 2.4e-7 * expected);
            }
            EXPECT_NEAR(static_cast<double>(total), sum, 1e-6 * sum);

            std::vector<float> s(count + 1, 7.0f);
            k->swiglu(s.data(), x.data(), w.data(), 1.25f, 0.7f, n);
            for (size_t i = 0; i < count; ++i) {
                const double g = std::min(x[i], 1.25f), u = std::min(std::max(w[i], -1.25f), 1.25f);
                const double expected = g / (1 + std::exp(-g)) * u * static_cast<double>(0.7f);
                EXPECT_NEAR(static_cast<double>(s[i]), expected, 6e-7 * std::fabs(expected));
            }
            EXPECT_EQ(y[count], 7.0f);
            EXPECT_EQ(e[count], 7.0f);
            EXPECT_EQ(s[count], 7.0f);
        }
    }
}

TEST(ExpSum, IsAccurateOverTheWholeRangeOfF32) {
    for (const Kernels* k : tables()) {
        double worst = 0.0;
        for (float x = -103.0f; x < 88.7f; x += 0.00137f) {
            float y = x;
            k->exp_sum(&y, 1, 0.0f);
            const double expected = std::exp(static_cast<double>(x));
            const double unit = std::max(std::ldexp(1.0, std::ilogb(expected) - 23), 0x1p-149);
            worst = std::max(worst, std::fabs(static_cast<double>(y) - expected) / unit);
        }
        EXPECT_LE(worst, 2.0) << k->name;
        std::vector<float> special = {-std::numeric_limits<float>::infinity(), -200.0f,      0.0f, 89.5f,
                                      std::numeric_limits<float>::infinity(),  std::nanf("")};
        k->exp_sum(special.data(), 6, 0.0f);
        EXPECT_EQ(special[0], 0.0f);
        EXPECT_EQ(special[1], 0.0f);
        EXPECT_EQ(special[2], 1.0f);
        EXPECT_TRUE(std::isinf(special[3]));
        EXPECT_TRUE(std::isinf(special[4]));
        EXPECT_TRUE(std::isnan(special[5]));
    }
}

TEST(Swiglu, ValuesOfTheSpecificationAndNan) {
    for (const Kernels* k : tables()) {
        const float gate[] = {12, -20, 1, std::nanf(""), 1}, up[] = {-11, 3, 2, 1, std::nanf("")};
        float y[5];
        k->swiglu(y, gate, up, 10.0f, 1.0f, 5);
        EXPECT_NEAR(y[0], -99.9954602, 2e-5);
        EXPECT_NEAR(y[1], -1.2366922e-7, 1e-13);
        EXPECT_NEAR(y[2], 1.4621171573, 3e-7);
        EXPECT_TRUE(std::isnan(y[3]));
        EXPECT_TRUE(std::isnan(y[4]));
    }
}

TEST(CacheRows, DecodeBitForBitAsQuantDoes) {
    for (const Kernels* k : tables()) {
        for (const float sigma : {1e-7f, 1e-3f, 1.0f, 1e4f}) {
            for (const auto& [dim, n_rot] : {std::pair<int, int>{512, 64}, {128, 64}, {74, 10}}) {
                std::vector<float> x = gaussian(dim, 21, sigma);
                if (sigma == 1.0f) x[7] = std::nanf("");
                std::vector<std::byte> bytes(
                    static_cast<size_t>(quant::attn_row_bytes(quant::RowFormat::fp8, dim, n_rot)));
                quant::encode_attn_row(quant::RowFormat::fp8, x.data(), dim, n_rot, bytes.data());
                std::vector<float> expected(x.size()), got(x.size());
                quant::decode_attn_row(quant::RowFormat::fp8, bytes.data(), dim, n_rot, expected.data());
                k->decode_attn_fp8(bytes.data(), dim, n_rot, got.data());
                for (size_t i = 0; i < x.size(); ++i) {
                    if (std::isnan(expected[i]))
                        ASSERT_TRUE(std::isnan(got[i])) << k->name;
                    else
                        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
                            << k->name << " " << i;
                }
            }
            const std::vector<float> x = gaussian(128, 22, sigma);
            std::vector<std::byte> bytes(68);
            quant::encode_index_row(quant::RowFormat::fp8, x.data(), 128, bytes.data());
            std::vector<float> expected(128), got(128);
            quant::decode_index_row(quant::RowFormat::fp8, bytes.data(), 128, expected.data());
            k->decode_index_fp8(bytes.data(), 128, got.data());
            for (size_t i = 0; i < 128; ++i)
                ASSERT_EQ(std::fabs(got[i]), std::fabs(expected[i])) << k->name << " " << i;
            EXPECT_EQ(got, expected);
        }
    }
}

// All 256 codes, not only those that an encoder writes.
TEST(CacheRows, EveryE4m3CodeDecodes) {
    for (const Kernels* k : tables()) {
        std::vector<std::byte> bytes(256 + 8 + 2);
        for (size_t i = 0; i < 256; ++i) bytes[i] = static_cast<std::byte>(i);
        for (size_t b = 0; b < 4; ++b) bytes[256 + b] = static_cast<std::byte>(b == 0 ? 0 : 100 + b);
        std::vector<float> expected(257), got(257);
        quant::decode_attn_row(quant::RowFormat::fp8, bytes.data(), 257, 1, expected.data());
        k->decode_attn_fp8(bytes.data(), 257, 1, got.data());
        for (size_t i = 0; i < 257; ++i) {
            if (std::isnan(expected[i]))
                EXPECT_TRUE(std::isnan(got[i]));
            else
                EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << k->name << " " << i;
        }
    }
}

}  // namespace
}  // namespace vesta::backend
