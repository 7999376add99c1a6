// The kernel tables on random shapes: block formats against the scalar definition, f32 sums against their order written
// down once more, bit for bit. Every input ends where memory ends, so that reading on is a fault, and begins at any
// address.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "quant/codecs.h"
#include "quant/kv_row.h"
#include "support/random_blocks.h"

namespace vesta::backend {
namespace {

using quant::Type;

// Bytes whose end is the end of a page, with nothing mapped behind it.
class Fenced {
 public:
    explicit Fenced(int64_t n_bytes) {
        const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), n = static_cast<size_t>(n_bytes);
        size_ = (n + page - 1) / page * page + page;
        map_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map_ == MAP_FAILED) std::abort();
        std::byte* fence = static_cast<std::byte*>(map_) + size_ - page;
        if (::mprotect(fence, page, PROT_NONE) != 0) std::abort();
        data_ = fence - n;
    }
    Fenced(const Fenced&) = delete;
    Fenced& operator=(const Fenced&) = delete;
    ~Fenced() { ::munmap(map_, size_); }
    std::byte* data() const { return data_; }
    float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
    void* map_ = nullptr;
    size_t size_ = 0;
    std::byte* data_ = nullptr;
};

void fill_gaussian(float* x, int64_t n, std::mt19937& rng, float sigma = 1.0f) {
    std::normal_distribution<float> normal(0.0f, sigma);
    for (int64_t i = 0; i < n; ++i) x[i] = normal(rng);
}

int64_t pick_number(std::mt19937& rng, int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng() % static_cast<uint32_t>(high - low + 1));
}

// A product of any shape: rows of w some bytes apart, rows of x listed in any order, some of them twice.
struct Shape {
    Type type;
    int64_t n_out, n_in, n_row, n_x, w_stride, y_stride;
    std::vector<int32_t> pick;

    Shape(Type t, int64_t rows, int64_t in, std::mt19937& rng) : type(t), n_in(in), n_row(rows) {
        n_out = pick_number(rng, 1, 41);
        n_x = pick_number(rng, 1, n_row + 2);
        w_stride = quant::row_bytes(quant::format(type), n_in) + pick_number(rng, 0, 5);
        y_stride = n_out + pick_number(rng, 0, 3);
        for (int64_t i = 0; i < n_row; ++i) pick.push_back(static_cast<int32_t>(pick_number(rng, 0, n_x - 1)));
    }
    int64_t w_bytes() const { return (n_out - 1) * w_stride + quant::row_bytes(quant::format(type), n_in); }
    int64_t y_count() const { return (n_row - 1) * y_stride + n_out; }
    MatmulTask task(const Fenced& w, const Fenced& y) const {
        return {.w = w.data(),
                .w_stride = w_stride,
                .n_out = n_out,
                .n_in = n_in,
                .pick = pick.data(),
                .n_row = n_row,
                .y = y.floats(),
                .y_stride = y_stride};
    }
    std::string name() const {
        return std::string(quant::format(type).name) + " " + std::to_string(n_out) + "x" + std::to_string(n_in) +
               ", rows of x: " + std::to_string(n_row);
    }
};

void fill_weights(const Shape& s, const Fenced& w, std::mt19937& rng) {
    const quant::Format& f = quant::format(s.type);
    std::vector<float> row(static_cast<size_t>(s.n_in));
    for (int64_t o = 0; o < s.n_out; ++o) {
        std::byte* to = w.data() + o * s.w_stride;
        if (f.block_elems == 1) {
            fill_gaussian(row.data(), s.n_in, rng, 0.05f);
            f.encode(row.data(), to, s.n_in);
            continue;
        }
        test::random_blocks(f, to, s.n_in, rng);
        for (int64_t b = 0; s.type == Type::mxfp4 && b < s.n_in / 32; ++b)
            to[17 * b] = static_cast<std::byte>(pick_number(rng, 110, 124));
    }
}

TEST(KernelTables, AreThoseThisRunIsMeantToTest) {
    std::string names;
    std::set<std::string> different;
    for (const Kernels* k : usable_kernels()) {
        names += (names.empty() ? "" : " ") + std::string(k->name);
        different.insert(k->name);
    }
    EXPECT_EQ(usable_kernels().front(), &scalar_kernels());
    EXPECT_EQ(usable_kernels().back(), &best_kernels());
    EXPECT_EQ(different.size(), usable_kernels().size()) << names;
    // Set where the processor is chosen (under an emulator): a table that is not found would not be tested.
    const char* meant = std::getenv("VESTA_EXPECT_KERNELS");
    EXPECT_EQ(names, meant == nullptr ? names : meant);
}

constexpr Type kBlockFormats[] = {Type::q8_0, Type::mxfp4, Type::q2_k, Type::q3_k,
                                  Type::q4_k, Type::q5_k,  Type::q6_k, Type::iq2_xxs};

class BlockFormat : public testing::TestWithParam<Type> {};

TEST_P(BlockFormat, AnyShapeHasTheBitsOfTheScalarDefinition) {
    const quant::Format& f = quant::format(GetParam());
    std::mt19937 rng(static_cast<unsigned>(GetParam()) + 100);
    // Numbers of rows around tiles and sweeps; the others up to 70 in one of the formats each.
    std::vector<int64_t> rows = {1, 2, 3, 4, 5, 63, 64, 65, 70};
    const auto* at = std::find(std::begin(kBlockFormats), std::end(kBlockFormats), GetParam());
    for (int64_t n = 6 + (at - std::begin(kBlockFormats)); n < 70; n += 8) rows.push_back(n);
    for (const int64_t n_row : rows) {
        const int64_t most = f.block_elems == 32 ? 25 : 3;
        const Shape s(GetParam(), n_row, f.block_elems * pick_number(rng, 1, most), rng);
        const Fenced w(s.w_bytes()), y(4 * s.y_count()), a16(s.n_x * a16::row_bytes(s.n_in));
        fill_weights(s, w, rng);
        std::vector<float> x(static_cast<size_t>(s.n_x * s.n_in));
        fill_gaussian(x.data(), s.n_x * s.n_in, rng);
        std::vector<float> expected;
        for (const Kernels* k : usable_kernels()) {
            for (int64_t t = 0; t < s.n_x; ++t)
                k->a16.quantize(&x[static_cast<size_t>(t * s.n_in)], s.n_in, a16.data() + t * a16::row_bytes(s.n_in));
            std::fill_n(y.floats(), s.y_count(), 77.0f);
            MatmulTask task = s.task(w, y);
            task.a16 = a16.data();
            a16_kernel(*k, s.type)(task);
            const std::vector<float> got(y.floats(), y.floats() + s.y_count());
            if (expected.empty()) expected = got;
            ASSERT_EQ(std::memcmp(got.data(), expected.data(), 4 * got.size()), 0) << k->name << ", " << s.name();
            for (int64_t t = 0; t + 1 < s.n_row; ++t)
                for (int64_t o = s.n_out; o < s.y_stride; ++o)
                    ASSERT_EQ(got[static_cast<size_t>(t * s.y_stride + o)], 77.0f) << k->name << ", " << s.name();
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, BlockFormat, testing::ValuesIn(kBlockFormats),
                         [](const auto& i) { return std::string(quant::format(i.param).name); });

// --- sums of f32 --------------------

// How a table adds: its number of running sums, and whether a product is rounded before it is added.
struct Order {
    int n_sum;
    bool fused;
};
Order order_of(const Kernels& k) {
    const std::string name = k.name;
    return {.n_sum = name == "avx512" ? 16 : 8, .fused = name != "scalar"};
}
float add_product(Order order, float a, float b, float sum) { return order.fused ? std::fma(a, b, sum) : sum + a * b; }
float dot(Order order, const float* w, const float* x, int64_t n) {
    float sum[16] = {};
    for (int64_t i = 0; i < n; ++i) sum[i % order.n_sum] = add_product(order, w[i], x[i], sum[i % order.n_sum]);
    for (int half = order.n_sum / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) sum[i] += sum[i + half];
    return sum[0];
}

class FloatFormat : public testing::TestWithParam<Type> {};

TEST_P(FloatFormat, AnyShapeIsTheRunningSumsOfItsTable) {
    const quant::Format& f = quant::format(GetParam());
    std::mt19937 rng(static_cast<unsigned>(GetParam()) + 200);
    for (const int64_t n_row : {1, 2, 3, 4, 5, 6, 7, 13, 30, 64, 66}) {
        const Shape s(GetParam(), n_row, f.block_elems * pick_number(rng, 1, f.block_elems == 1 ? 300 : 12), rng);
        const int64_t x_stride = s.n_in + pick_number(rng, 0, 3);
        const Fenced w(s.w_bytes()), y(4 * s.y_count()), x(4 * ((s.n_x - 1) * x_stride + s.n_in));
        fill_weights(s, w, rng);
        fill_gaussian(x.floats(), (s.n_x - 1) * x_stride + s.n_in, rng);
        std::vector<float> values(static_cast<size_t>(s.n_out * s.n_in));
        for (int64_t o = 0; o < s.n_out; ++o)
            f.decode(w.data() + o * s.w_stride, &values[static_cast<size_t>(o * s.n_in)], s.n_in);
        for (const Kernels* k : usable_kernels()) {
            MatmulTask task = s.task(w, y);
            task.x = x.floats();
            task.x_stride = x_stride;
            matmul(*k, s.type, task);
            Order order = order_of(*k);
            if (f.block_elems > 1) order.n_sum = 8;  // decoded weights: avx512 has avx2's function
            for (int64_t t = 0; t < s.n_row; ++t)
                for (int64_t o = 0; o < s.n_out; ++o)
                    ASSERT_EQ(y.floats()[t * s.y_stride + o],
                              dot(order, &values[static_cast<size_t>(o * s.n_in)],
                                  x.floats() + s.pick[static_cast<size_t>(t)] * x_stride, s.n_in))
                        << k->name << ", " << s.name() << ", at " << t << "," << o;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, FloatFormat,
                         testing::Values(Type::f32, Type::f16, Type::bf16, Type::q4_0, Type::q5_0, Type::q4_1),
                         [](const auto& i) { return std::string(quant::format(i.param).name); });

TEST(Mix, AnyShapeIsAddedInTheOrderOfTheRows) {
    std::mt19937 rng(300);
    for (int draw = 0; draw < 40; ++draw) {
        const int64_t n_mix = pick_number(rng, 1, 9), n_row = pick_number(rng, 1, 40), n_col = pick_number(rng, 1, 90);
        const int64_t p_stride = n_row + pick_number(rng, 0, 2), row_stride = n_col + pick_number(rng, 0, 3);
        const Fenced p(4 * ((n_mix - 1) * p_stride + n_row)), rows(4 * ((n_row - 1) * row_stride + n_col)),
            y(4 * n_mix * n_col);
        fill_gaussian(p.floats(), (n_mix - 1) * p_stride + n_row, rng);
        fill_gaussian(rows.floats(), (n_row - 1) * row_stride + n_col, rng);
        for (const Kernels* k : usable_kernels()) {
            k->mix({.p = p.floats(),
                    .p_stride = p_stride,
                    .n_mix = n_mix,
                    .rows = rows.floats(),
                    .row_stride = row_stride,
                    .n_row = n_row,
                    .n_col = n_col,
                    .y = y.floats(),
                    .y_stride = n_col});
            for (int64_t h = 0; h < n_mix; ++h) {
                for (int64_t d = 0; d < n_col; ++d) {
                    float sum = 0.0f;
                    for (int64_t i = 0; i < n_row; ++i)
                        sum = add_product(order_of(*k), p.floats()[h * p_stride + i], rows.floats()[i * row_stride + d],
                                          sum);
                    ASSERT_EQ(y.floats()[h * n_col + d], sum)
                        << k->name << " " << n_mix << "," << n_row << "," << n_col;
                }
            }
        }
    }
}

// The other kernels at the end of memory; what they compute is tested in kernels_test.cpp.
TEST(KernelTables, ReadAndWriteNothingBehindTheirArrays) {
    std::mt19937 rng(400);
    for (int64_t n = 0; n <= 35; ++n) {
        const Fenced x(4 * n), y(4 * n), w(4 * n);
        for (const Kernels* k : usable_kernels()) {
            fill_gaussian(x.floats(), n, rng);
            fill_gaussian(y.floats(), n, rng);
            k->scale_mul(w.floats(), x.floats(), 2.0f, nullptr, n);
            k->scale_mul(y.floats(), x.floats(), 2.0f, w.floats(), n);
            k->axpy(y.floats(), 0.5f, x.floats(), n);
            k->swiglu(y.floats(), x.floats(), w.floats(), 10.0f, 1.0f, n);
            const double squares = k->sum_squares(x.floats(), n);
            const float top = k->max(x.floats(), n), sum = k->exp_sum(x.floats(), n, top);
            EXPECT_TRUE(n == 0 || (sum >= 1.0f && squares > 0.0)) << k->name;
        }
    }
    for (const auto& [dim, n_rot] : {std::pair<int, int>{512, 64}, {128, 64}, {74, 10}}) {
        const int64_t n_bytes = quant::attn_row_bytes(quant::RowFormat::fp8, dim, n_rot);
        const Fenced row(n_bytes), index(68), out(4 * dim), keys(4 * 128);
        std::memset(row.data(), 0x31, static_cast<size_t>(n_bytes));
        std::memset(index.data(), 0x31, 68);
        for (const Kernels* k : usable_kernels()) {
            k->decode_attn_fp8(row.data(), dim, n_rot, out.floats());
            k->decode_index_fp8(index.data(), 128, keys.floats());
            EXPECT_TRUE(std::isfinite(out.floats()[dim - 1]) && std::isfinite(keys.floats()[127])) << k->name;
        }
    }
}

}  // namespace
}  // namespace vesta::backend
