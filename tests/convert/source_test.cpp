// One tensor at a time: packings, partial blocks, and the faults that stop a conversion.
#include "convert/source.h"

#include <gtest/gtest.h>

#include <random>

#include "numbers.h"

namespace vesta::convert {
namespace {

using quant::Type;
using safetensors::DType;
using safetensors::TensorInfo;

std::vector<std::byte> random_bytes(size_t n, uint32_t seed, uint8_t low = 0, uint8_t high = 255) {
    std::mt19937 random(seed);
    std::vector<std::byte> out(n);
    for (std::byte& b : out) b = static_cast<std::byte>(low + random() % (high - low + 1u));
    return out;
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
}

// Owns the bytes of a weight and its scale.
struct Toy {
    std::vector<std::byte> weight_bytes, scale_bytes;
    TensorInfo weight, scale;
    Source source;

    Toy(Encoding encoding, DType dtype, std::vector<std::byte> w, uint64_t n_row, uint64_t n_col,
        DType scale_dtype = DType::f8_e8m0, std::vector<std::byte> s = {}, std::vector<uint64_t> scale_shape = {})
        : weight_bytes(std::move(w)), scale_bytes(std::move(s)) {
        weight = {"w", dtype, {n_row, encoding == Encoding::fp4 ? n_col / 2 : n_col}, weight_bytes};
        scale = {"s", scale_dtype, std::move(scale_shape), scale_bytes};
        source = {encoding, &weight, scale_bytes.empty() ? nullptr : &scale, n_row, n_col, 128, 128};
    }
    Toy(const Toy&) = delete;
    Toy& operator=(const Toy&) = delete;
};

std::vector<std::byte> without_nan(std::vector<std::byte> e4m3) {
    for (std::byte& b : e4m3)
        if ((b & std::byte{0x7F}) == std::byte{0x7F}) b = std::byte{0x7E};
    return e4m3;
}

// Encodes in uneven pieces and compares with the independent reading.
void expect_exact(const Toy& toy, Type type) {
    const Source& s = toy.source;
    const auto n = static_cast<int64_t>(s.n_row * s.n_col);
    std::vector<std::byte> out(static_cast<size_t>(quant::row_bytes(type, n)));
    const size_t row_bytes = out.size() / s.n_row;
    for (uint64_t row = 0; row < s.n_row;) {
        const uint64_t n_row = std::min<uint64_t>(s.n_row - row, 7);
        ASSERT_EQ(encode_rows(s, row, n_row, type, true, 0, out.data() + row * row_bytes), Fault::none);
        row += n_row;
    }
    EXPECT_EQ(gguf_numbers(type, out, s.n_row * s.n_col), checkpoint_numbers(toy.weight, s.scale));
}

TEST(Source, Fp8WithPartialBlocksIsExactInBf16) {
    for (const auto& [n_row, n_col] :
         {std::pair<uint64_t, uint64_t>{96, 256}, {1024, 96}, {130, 130}, {1, 1}, {128, 128}}) {
        const uint64_t scale_rows = (n_row + 127) / 128, scale_cols = (n_col + 127) / 128;
        const Toy toy(Encoding::fp8, DType::f8_e4m3, without_nan(random_bytes(n_row * n_col, 1)), n_row, n_col,
                      DType::f8_e8m0, random_bytes(scale_rows * scale_cols, 2, 90, 140), {scale_rows, scale_cols});
        expect_exact(toy, Type::bf16);
        expect_exact(toy, Type::f32);
    }
}

TEST(Source, EveryFp8ByteTimesEveryPowerOfTwoThatFitsIsExact) {
    std::vector<std::byte> all(256);
    for (size_t i = 0; i < 256; ++i) all[i] = static_cast<std::byte>(i);
    // BF16 reaches from 2^-133 (subnormal step) to almost 2^128; e4m3 from 2^-9 to 448 < 2^9.
    for (int e = 3; e <= 246; ++e) {
        const Toy toy(Encoding::fp8, DType::f8_e4m3, without_nan(all), 1, 256, DType::f8_e8m0,
                      std::vector(2, static_cast<std::byte>(e)), {1, 2});
        expect_exact(toy, Type::bf16);
    }
}

TEST(Source, Fp8BeyondBf16IsReportedNotRounded) {
    std::byte out[64];
    const Toy tiny(Encoding::fp8, DType::f8_e4m3, std::vector(1, std::byte{0x01}), 1, 1, DType::f8_e8m0,
                   std::vector(1, std::byte{0}), {1, 1});  // 2^-9 · 2^-127
    EXPECT_EQ(encode_rows(tiny.source, 0, 1, Type::bf16, true, 0, out), Fault::not_exact);
    EXPECT_EQ(encode_rows(tiny.source, 0, 1, Type::bf16, false, 0, out), Fault::none);
    const Toy huge(Encoding::fp8, DType::f8_e4m3, std::vector(1, std::byte{0x7E}), 1, 1, DType::f8_e8m0,
                   std::vector(1, std::byte{250}), {1, 1});  // 448 · 2^123
    EXPECT_EQ(encode_rows(huge.source, 0, 1, Type::bf16, true, 0, out), Fault::not_finite);
}

TEST(Source, Fp8WithF32ScalesDecodesAndIsExactOnlyWhenTheProductFits) {
    const Toy odd(Encoding::fp8, DType::f8_e4m3, without_nan(random_bytes(64, 5)), 2, 32, DType::f32,
                  bytes_of(std::vector<float>{0.0123f}), {1, 1});
    std::vector<float> values(64);
    decode_rows(odd.source, 0, 2, values.data());
    const std::vector<double> expected = checkpoint_numbers(odd.weight, &odd.scale);
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(values[i], static_cast<float>(expected[i]));
    std::vector<std::byte> out(128);
    EXPECT_EQ(encode_rows(odd.source, 0, 2, Type::bf16, true, 0, out.data()), Fault::not_exact);
    EXPECT_EQ(encode_rows(odd.source, 0, 2, Type::bf16, false, 0, out.data()), Fault::none);
    const Toy power(Encoding::fp8, DType::f8_e4m3, without_nan(random_bytes(64, 6)), 2, 32, DType::f32,
                    bytes_of(std::vector<float>{0.03125f}), {1, 1});
    expect_exact(power, Type::bf16);
}

TEST(Source, Fp4RepackKeepsEveryCodeAndScale) {
    const uint64_t n_row = 37, n_col = 96;
    const Toy toy(Encoding::fp4, DType::i8, random_bytes(n_row * n_col / 2, 3), n_row, n_col, DType::f8_e8m0,
                  random_bytes(n_row * n_col / 32, 4, 0, 252), {n_row, n_col / 32});
    expect_exact(toy, Type::mxfp4);
    expect_exact(toy, Type::f32);
}

TEST(Source, Fp4BlockByHand) {
    // Codes 0..15 twice: bytes hold (0,1), (2,3), ...; scale 2^1.
    std::vector<std::byte> packed;
    for (int k = 0; k < 16; ++k) packed.push_back(static_cast<std::byte>(((2 * k) & 15) | ((2 * k + 1) & 15) << 4));
    const Toy toy(Encoding::fp4, DType::i8, packed, 1, 32, DType::f8_e8m0, {std::byte{128}}, {1, 1});
    std::byte block[17];
    ASSERT_EQ(encode_rows(toy.source, 0, 1, Type::mxfp4, true, 0, block), Fault::none);
    EXPECT_EQ(block[0], std::byte{128});
    for (int j = 0; j < 16; ++j) EXPECT_EQ(block[1 + j], static_cast<std::byte>(j | j << 4));
    float values[32];
    ASSERT_EQ(decode_rows(toy.source, 0, 1, values), Fault::none);
    const float expected[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};
    for (int i = 0; i < 32; ++i) EXPECT_EQ(values[i], expected[i % 16]);
}

TEST(Source, BadScalesAndNumbersAreFaults) {
    std::byte out[4 * 64];
    for (const int e : {253, 254, 255}) {
        const Toy fp4(Encoding::fp4, DType::i8, random_bytes(16, 1), 1, 32, DType::f8_e8m0, {static_cast<std::byte>(e)},
                      {1, 1});
        EXPECT_EQ(encode_rows(fp4.source, 0, 1, Type::mxfp4, true, 0, out), Fault::bad_scale);
        EXPECT_EQ(encode_rows(fp4.source, 0, 1, Type::q8_0, false, 0, out), Fault::bad_scale);
    }
    const Toy nan_scale(Encoding::fp8, DType::f8_e4m3, std::vector(32, std::byte{0}), 1, 32, DType::f8_e8m0,
                        {std::byte{255}}, {1, 1});
    EXPECT_EQ(encode_rows(nan_scale.source, 0, 1, Type::bf16, true, 0, out), Fault::bad_scale);
    const Toy nan_weight(Encoding::fp8, DType::f8_e4m3, std::vector(32, std::byte{0xFF}), 1, 32, DType::f8_e8m0,
                         {std::byte{127}}, {1, 1});
    EXPECT_EQ(encode_rows(nan_weight.source, 0, 1, Type::q8_0, false, 0, out), Fault::not_finite);
    for (const float x : {INFINITY, -INFINITY, NAN}) {
        const Toy f32(Encoding::f32, DType::f32, bytes_of(std::vector<float>{1, x}), 1, 2);
        EXPECT_EQ(encode_rows(f32.source, 0, 1, Type::f32, true, 0, out), Fault::not_finite);
    }
    const Toy large(Encoding::f32, DType::f32, bytes_of(std::vector<float>{1, 70000}), 1, 2);
    EXPECT_EQ(encode_rows(large.source, 0, 1, Type::f16, false, 0, out), Fault::does_not_fit);
    EXPECT_EQ(encode_rows(large.source, 0, 1, Type::f32, true, 0, out), Fault::none);
    const Toy third(Encoding::f32, DType::f32, bytes_of(std::vector<float>{1.0f / 3, 1}), 1, 2);
    EXPECT_EQ(encode_rows(third.source, 0, 1, Type::bf16, true, 0, out), Fault::not_exact);
}

TEST(Source, ExpertIdsOutsideTheModelAreFaults) {
    std::byte out[32];
    const auto fault = [&](std::vector<int64_t> ids) {
        const Toy toy(Encoding::ids, DType::i64, bytes_of(ids), 2, ids.size() / 2);
        return encode_rows(toy.source, 0, 2, Type::i32, true, 8, out);
    };
    EXPECT_EQ(fault({0, 7, 3, 1}), Fault::none);
    EXPECT_EQ(read_as<int32_t>(out, 1), 7);
    EXPECT_EQ(fault({0, 8, 3, 1}), Fault::id_range);
    EXPECT_EQ(fault({0, -1, 3, 1}), Fault::id_range);
    EXPECT_EQ(fault({0, (int64_t{1} << 32) + 1, 3, 1}), Fault::id_range);  // would be 1 if cut to 32 bits
    const Toy i32(Encoding::ids, DType::i32, bytes_of(std::vector<int32_t>{5, 9}), 1, 2);
    EXPECT_EQ(encode_rows(i32.source, 0, 1, Type::i32, true, 8, out), Fault::id_range);
    EXPECT_EQ(encode_rows(i32.source, 0, 1, Type::i32, true, 10, out), Fault::none);
}

}  // namespace
}  // namespace vesta::convert
