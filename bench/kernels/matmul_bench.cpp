// Products with weights, from the scalar table to the best of this machine, per format: one row of x against weights
// that come from memory (GB/s, and the share of a plain read of the same bytes, measured in turn with it), and 64 rows
// (multiply-adds per second, weights in cache).
//
// Times are CPU time of the thread: on a machine with busy neighbours it still says what a core does, though not what
// the memory would have given alone. Read shares, not GB/s.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "quant/codecs.h"

namespace vesta::backend {
namespace {

using quant::Type;

constexpr int64_t kIn = 4096;
constexpr size_t kWeights = size_t{256} << 20;  // eight times the L3 of epyc-2c
constexpr size_t kPiece = size_t{4} << 20;      // what is timed at once

double cpu_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Random bits with an ordinary factor wherever a format keeps one: rows must not be full of NaN, infinity or
// subnormals, which processors may handle slowly.
const std::byte* weights(Type type) {
    static std::vector<std::byte> bytes;
    static Type made = Type::f64;
    if (made == type) return bytes.data();
    made = type;
    bytes.resize(kWeights);
    std::mt19937_64 rng(1);
    for (size_t i = 0; i < kWeights; i += 8) quant::store(bytes.data() + i, rng() & 0x3bff3bff3bff3bffu);
    const auto step = static_cast<size_t>(quant::format(type).block_bytes);
    if (type == Type::mxfp4)
        for (size_t i = 0; i + step <= kWeights; i += step) bytes[i] = std::byte{120};
    return bytes.data();
}

struct Rows {
    std::vector<float> x;
    std::vector<std::byte> a16;
    Rows(const Kernels& k, int64_t n)
        : x(static_cast<size_t>(n * kIn)), a16(static_cast<size_t>(n * a16::row_bytes(kIn)) + 64) {
        std::mt19937 rng(2);
        std::normal_distribution<float> normal;
        for (float& v : x) v = normal(rng);
        for (int64_t t = 0; t < n; ++t) k.a16.quantize(x.data() + t * kIn, kIn, first() + t * a16::row_bytes(kIn));
    }
    std::byte* first() { return a16.data() + (64 - reinterpret_cast<uintptr_t>(a16.data()) % 64) % 64; }
};

uint64_t read_all(const std::byte* p, size_t n) {
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 64 <= n; i += 64)
        for (size_t j = 0; j < 8; ++j) sum[j] += quant::load<uint64_t>(p + i + 8 * j);
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

// `decoded`: through f32, as formats without a kernel are read.
void run(const Kernels& k, Type type, bool decoded, const MatmulTask& task) {
    if (decoded)
        k.matmul_decoded(task, quant::format(type));
    else
        matmul(k, type, task);
}

void one_row(benchmark::State& state, const Kernels* k, Type type, bool decoded) {
    const std::byte* w = weights(type);
    Rows rows(*k, 1);
    const int64_t row_bytes = quant::row_bytes(type, kIn), n_out = static_cast<int64_t>(kPiece) / row_bytes / 32 * 32;
    const auto piece = static_cast<size_t>(n_out * row_bytes);
    std::vector<float> y(static_cast<size_t>(n_out));
    std::vector<double> share, speed;
    size_t at = 0;
    for (auto _ : state) {
        if (at + 2 * piece > kWeights) at = 0;
        double start = cpu_seconds();
        run(*k, type, decoded,
            {.w = w + at,
             .w_stride = row_bytes,
             .n_out = n_out,
             .n_in = kIn,
             .x = rows.x.data(),
             .x_stride = kIn,
             .a16 = rows.first(),
             .n_row = 1,
             .y = y.data(),
             .y_stride = n_out});
        const double took = cpu_seconds() - start;
        start = cpu_seconds();
        benchmark::DoNotOptimize(read_all(w + at + piece, piece));
        share.push_back((cpu_seconds() - start) / took);
        speed.push_back(static_cast<double>(piece) / took / 1e9);
        state.SetIterationTime(took);
        at += 2 * piece;
    }
    const auto median = [](std::vector<double>& v) {
        std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
        return v[v.size() / 2];
    };
    state.counters["GB/s"] = median(speed);
    state.counters["% of read"] = 100 * median(share);
}

void many_rows(benchmark::State& state, const Kernels* k, Type type, bool decoded) {
    const std::byte* w = weights(type);
    constexpr int64_t kRow = 64;
    Rows rows(*k, kRow);
    const int64_t row_bytes = quant::row_bytes(type, kIn), n_out = 64;
    std::vector<float> y(static_cast<size_t>(n_out * kRow));
    double best = 1e9;
    for (auto _ : state) {
        const double start = cpu_seconds();
        run(*k, type, decoded,
            {.w = w,
             .w_stride = row_bytes,
             .n_out = n_out,
             .n_in = kIn,
             .x = rows.x.data(),
             .x_stride = kIn,
             .a16 = rows.first(),
             .n_row = kRow,
             .y = y.data(),
             .y_stride = n_out});
        const double took = cpu_seconds() - start;
        best = std::min(best, took);
        state.SetIterationTime(took);
    }
    state.counters["GMAC/s"] = static_cast<double>(n_out * kRow * kIn) / best / 1e9;
}

void register_all() {
    for (const Type type : {Type::q8_0, Type::mxfp4, Type::q4_k, Type::q5_k, Type::q6_k, Type::q3_k, Type::q2_k,
                            Type::iq2_xxs, Type::f16, Type::bf16, Type::f32}) {
        for (const Kernels* k : usable_kernels()) {
            for (const bool decoded : {true, false}) {
                if (decoded && (!reads_a16(type) || k == avx512_kernels())) continue;  // which has AVX2's
                const std::string name =
                    std::string("/") + quant::format(type).name + "/" + k->name + (decoded ? " decoded" : "");
                benchmark::RegisterBenchmark(("one_row" + name).c_str(), one_row, k, type, decoded)
                    ->UseManualTime()
                    ->Unit(benchmark::kMicrosecond);
                benchmark::RegisterBenchmark(("64_rows" + name).c_str(), many_rows, k, type, decoded)
                    ->UseManualTime()
                    ->Unit(benchmark::kMicrosecond);
            }
        }
    }
}

}  // namespace
}  // namespace vesta::backend

int main(int argc, char** argv) {
    vesta::backend::register_all();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
}
