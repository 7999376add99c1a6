// Sizes of the kv cache: the plan is exact, is what gets allocated, and is refused when the options make no sense.
#include "kv/cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace vesta::kv {
namespace {

using quant::RowFormat;

// The published schedules: Flash 0, 0, then (4, 128) x 20, then 4; Pro 128, 128, then (4, 128) x 29, then 4. One
// drafter.
Shape published(int n_layer, int64_t first_ratio) {
    Shape s{.head_dim = 512, .n_rot = 64, .index_dim = 128, .window = 128, .layer = {}};
    for (int i = 0; i < n_layer; ++i) {
        const int64_t r = i < 2 ? first_ratio : i % 2 == 0 ? 4 : 128;
        s.layer.push_back({.ratio = r, .n_lane = r == 4 ? 2 : 1, .indexed = r == 4});
    }
    s.layer.push_back({});
    return s;
}
Shape flash() { return published(43, 0); }
Shape pro() { return published(61, 128); }

Plan plan_for(const Shape& s, RowFormat format, int64_t n_ctx = 1048576, int64_t max_pass_rows = 512) {
    return plan(s, {.n_ctx = n_ctx, .max_pass_rows = max_pass_rows, .format = format});
}

// Bytes of the growing part as in the model's documents: layers of ratio 4 and 128, row bytes R and index row bytes I.
double per_token(double n4, double n128, double row, double index_row) {
    return n4 * row / 4 + n128 * row / 128 + n4 * index_row / 4;
}

TEST(KvPlan, RowsOfThePublishedModelsHaveTheirKnownSizes) {
    // 448 e4m3 + 8 scale bytes + 64 int16; 64 bytes of nibbles + 4 scales.
    EXPECT_EQ(quant::attn_row_bytes(RowFormat::fp8, 512, 64), 584);
    EXPECT_EQ(quant::index_row_bytes(RowFormat::fp8, 128), 68);
    EXPECT_EQ(quant::attn_row_bytes(RowFormat::fp8_exact, 512, 64), 712);
    EXPECT_EQ(quant::attn_row_bytes(RowFormat::f32, 512, 64), 2048);
    EXPECT_EQ(quant::attn_row_bytes(RowFormat::f16, 512, 64), 1024);
}

TEST(KvPlan, GrowthPerTokenOfFlashAndPro) {
    EXPECT_EQ(plan_for(flash(), RowFormat::fp8).bytes_per_token, per_token(21, 20, 584, 68));
    EXPECT_EQ(static_cast<int>(plan_for(flash(), RowFormat::fp8).bytes_per_token), 3514);
    EXPECT_EQ(plan_for(flash(), RowFormat::f32).bytes_per_token, 13760);
    EXPECT_EQ(plan_for(flash(), RowFormat::f16).bytes_per_token, 6880);
    EXPECT_EQ(plan_for(pro(), RowFormat::fp8).bytes_per_token, per_token(30, 31, 584, 68));
    EXPECT_EQ(static_cast<int>(plan_for(pro(), RowFormat::fp8).bytes_per_token), 5031);
    EXPECT_EQ(plan_for(pro(), RowFormat::f32).bytes_per_token, 19696);
}

TEST(KvPlan, AMillionTokensOfFlash) {
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    const auto grown = [](const Plan& p) { return static_cast<double>(p.compressed_bytes + p.index_bytes) / kGiB; };
    EXPECT_NEAR(grown(plan_for(flash(), RowFormat::fp8)), 3.43, 0.005);
    EXPECT_NEAR(grown(plan_for(flash(), RowFormat::f32)), 13.44, 0.005);
    EXPECT_NEAR(grown(plan_for(pro(), RowFormat::fp8)), 4.91, 0.005);
    EXPECT_NEAR(grown(plan_for(pro(), RowFormat::f32)), 19.23, 0.005);
}

TEST(KvPlan, EveryByteIsAccountedFor) {
    const auto padded = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };  // each store starts on a cache line
    const Plan p = plan_for(flash(), RowFormat::fp8, 1048576, 512);
    EXPECT_EQ(p.window_bytes, 44 * (128 + 512) * 584);
    EXPECT_EQ(p.compressed_bytes, 21 * padded((1048576 / 4 + 1) * 584) + 20 * padded((1048576 / 128 + 1) * 584));
    EXPECT_EQ(p.index_bytes, 21 * padded((1048576 / 4 + 1) * 68));
    // c and z, f32: 8 rows of 1024 and of 256; 128 rows of 512.
    EXPECT_EQ(p.frontier_bytes, 21 * 2 * 8 * (1024 + 256) * 4 + 20 * 2 * 128 * 512 * 4);
    EXPECT_EQ(p.frontier_bytes, 12206080);
    EXPECT_EQ(plan_for(pro(), RowFormat::fp8).frontier_bytes, 18710528);
    EXPECT_EQ(p.total(), p.window_bytes + p.compressed_bytes + p.index_bytes + p.frontier_bytes);
}

TEST(KvPlan, GrowsByExactlyTheCompressedRows) {
    const Plan small = plan_for(flash(), RowFormat::fp8, 128 * 64),
               large = plan_for(flash(), RowFormat::fp8, 128 * 1024);
    EXPECT_EQ(small.window_bytes, large.window_bytes);
    EXPECT_EQ(small.frontier_bytes, large.frontier_bytes);
    const auto grown = static_cast<double>(large.total() - small.total());
    // Padding of 62 stores differs by less than a line each.
    EXPECT_NEAR(grown, large.bytes_per_token * 128 * (1024 - 64), 62 * 64);
}

TEST(KvPlan, OptionsOutOfRangeCountAsTheNearestInRange) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    EXPECT_EQ(plan_for(flash(), RowFormat::f32, kMost, kMost).total(),
              plan_for(flash(), RowFormat::f32, kMaxContext, kMaxContext).total());
    EXPECT_EQ(plan_for(flash(), RowFormat::fp8, -kMost, 1).total(), plan_for(flash(), RowFormat::fp8, 0, 1).total());
}

// What create() hands out: stores of the planned sizes, on cache lines, in one block and apart from each other.
TEST(KvCache, TheStoresFillThePlanWithoutOverlap) {
    for (const RowFormat format : {RowFormat::f32, RowFormat::f16, RowFormat::fp8, RowFormat::fp8_exact}) {
        const Options options{.n_ctx = 1000, .max_pass_rows = 37, .format = format};
        const Shape shape = flash();
        auto made = Cache::create(shape, options);
        ASSERT_TRUE(made.ok()) << made.error().message;
        Cache& cache = *made.value();
        EXPECT_EQ(cache.n_layer(), 44);
        std::set<std::pair<uintptr_t, uintptr_t>> ranges;
        int64_t total = 0;
        const auto add = [&](const void* data, int64_t bytes) {
            if (bytes == 0) return;
            const auto at = reinterpret_cast<uintptr_t>(data);
            EXPECT_EQ(at % 64, 0u);
            ranges.insert({at, at + static_cast<uintptr_t>(bytes)});
            total += (bytes + 63) / 64 * 64;
        };
        for (int64_t i = 0; i < cache.n_layer(); ++i) {
            const ops::LayerCache& c = cache.layer(i);
            const Shape::Layer& layer = shape.layer[static_cast<size_t>(i)];
            EXPECT_EQ(c.format, format);
            EXPECT_EQ(c.window.capacity, 128 + 37);
            EXPECT_EQ(c.compressed.capacity, layer.ratio > 0 ? 1000 / layer.ratio + 1 : 0);
            EXPECT_EQ(c.index.capacity, layer.indexed ? 1000 / layer.ratio + 1 : 0);
            EXPECT_EQ(c.attn_frontier.capacity, layer.ratio * layer.n_lane);
            add(c.window.data, c.window.row_bytes * c.window.capacity);
            add(c.compressed.data, c.compressed.row_bytes * c.compressed.capacity);
            add(c.index.data, c.index.row_bytes * c.index.capacity);
            for (const ops::Frontier* f : {&c.attn_frontier, &c.index_frontier})
                for (const float* x : {f->c, f->z}) add(x, f->width * f->capacity * 4);
        }
        EXPECT_EQ(total, plan(shape, options).total());
        uintptr_t end = 0;
        for (const auto& [first, last] : ranges) {
            EXPECT_GE(first, end);
            end = last;
        }
        EXPECT_EQ(end - ranges.begin()->first,
                  static_cast<uintptr_t>(total) - (64 - static_cast<uintptr_t>(end % 64)) % 64);
    }
}

TEST(KvCache, EveryByteCanBeWritten) {
    Shape shape{.head_dim = 80,
                .n_rot = 16,
                .index_dim = 32,
                .window = 8,
                .layer = {{}, {.ratio = 4, .n_lane = 2, .indexed = true}, {.ratio = 8, .n_lane = 1, .indexed = false}}};
    auto made = Cache::create(shape, {.n_ctx = 50, .max_pass_rows = 3, .format = RowFormat::fp8});
    ASSERT_TRUE(made.ok());
    for (int64_t i = 0; i < made.value()->n_layer(); ++i) {
        ops::LayerCache& c = made.value()->layer(i);
        for (const ops::RowStore* s : {&c.window, &c.compressed, &c.index})
            for (int64_t p = 0; p < s->capacity; ++p) std::fill_n(s->row(p), s->row_bytes, std::byte{1});
        for (const ops::Frontier* f : {&c.attn_frontier, &c.index_frontier})
            for (int64_t p = 0; p < f->capacity; ++p)
                std::fill_n(f->c_row(p), f->width, 1.0f), std::fill_n(f->z_row(p), f->width, 2.0f);
    }
}

TEST(KvCache, RingsFindARowByItsPosition) {
    auto made = Cache::create(flash(), {.n_ctx = 4096, .max_pass_rows = 16, .format = RowFormat::fp8});
    ASSERT_TRUE(made.ok());
    const ops::LayerCache& c = made.value()->layer(2);
    EXPECT_EQ(c.window.row(1000), c.window.row(1000 + 144));
    EXPECT_EQ(c.attn_frontier.c_row(9), c.attn_frontier.c_row(1));
    EXPECT_NE(c.compressed.row(1024), c.compressed.row(0));  // never wraps: row n_ctx / 4 has its own place
}

TEST(KvCache, CountsTokens) {
    auto made = Cache::create(flash(), {.n_ctx = 100});
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made.value()->n_token(), 0);
    made.value()->advance(40);
    made.value()->advance(2);
    EXPECT_EQ(made.value()->n_token(), 42);
    made.value()->clear();
    EXPECT_EQ(made.value()->n_token(), 0);
}

// Reserved, not committed: a million tokens of Pro in f32 are 19 GiB of addresses and a few pages of memory.
TEST(KvCache, AMillionTokensCanBeReservedWithoutHavingTheMemory) {
    const auto made = Cache::create(pro(), {.n_ctx = 1048576, .max_pass_rows = 512, .format = RowFormat::fp8});
    EXPECT_TRUE(made.ok()) << made.error().message;
}

TEST(KvCache, OptionsOutOfRangeAreRefusedWithTheirNumber) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
    for (const int64_t bad : {int64_t{0}, int64_t{-1}, kMaxContext + 1, kMost, kLeast}) {
        auto context = Cache::create(flash(), {.n_ctx = bad});
        ASSERT_FALSE(context.ok());
        EXPECT_EQ(context.error().code, Code::invalid_argument);
        EXPECT_NE(context.error().message.find(strf("context of {} tokens", bad)), std::string::npos);
        auto chunk = Cache::create(flash(), {.n_ctx = 10, .max_pass_rows = bad});
        ASSERT_FALSE(chunk.ok());
        EXPECT_EQ(chunk.error().code, Code::invalid_argument);
        EXPECT_NE(chunk.error().message.find(strf("chunk of {} tokens", bad)), std::string::npos);
    }
}

TEST(KvCache, AReservationTheSystemCannotGiveIsAnError) {
    Shape shape = pro();
    shape.layer.assign(1024, {.ratio = 4, .n_lane = 2, .indexed = true});
    shape.head_dim = 1 << 14;
    // 1024 layers of 4 million rows of 64 KiB: beyond the address space of any processor.
    const auto made = Cache::create(shape, {.n_ctx = kMaxContext, .max_pass_rows = 1, .format = RowFormat::f32});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::no_memory);
    EXPECT_NE(made.error().message.find("bytes refused"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace vesta::kv
