// What `vesta bench` measured, and the forms it is given out in: a table for people, CSV and JSON for programs, ratios
// to an earlier CSV, a plot. Knows nothing of how it was measured.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace vesta::app {

// Tokens per second over the repeats.
struct Spread {
    double median = 0, min = 0, max = 0;
};
Spread spread_of(std::vector<double> values);  // Requires: not empty

// prefill: a prompt of `context` tokens from nothing. increment: the tokens from the frontier before to `context`,
// once. decode: single tokens after `context` tokens.
enum class BenchKind { prefill, increment, decode };
const char* bench_kind_name(BenchKind kind);

struct BenchRow {
    BenchKind kind{};
    int64_t context = 0, n_token = 0;
    Spread rate;
    double total_seconds = 0;  // increment: since the empty session
    // decode: bytes read per token, at the middle of the tokens measured
    int64_t weight_bytes = 0, window_bytes = 0, compressed_bytes = 0, index_bytes = 0, frontier_bytes = 0;
    int64_t cache_bytes() const { return window_bytes + compressed_bytes + index_bytes + frontier_bytes; }
    double bytes_per_second() const { return static_cast<double>(weight_bytes + cache_bytes()) * rate.median; }
};

struct BenchReport {
    std::string version, model, path, backend, cache, cpu, decoding;
    int64_t file_bytes = 0, n_parameter = 0;
    int n_thread = 0, repeat = 0, warmup = 0, n_decode = 0;
    int64_t chunk = 0;
    double peak = 0;  // bytes per second with n_thread threads; 0: not measured
    double load_seconds = 0, first_token_seconds = 0;
    int64_t peak_rss_bytes = 0;
    std::vector<BenchRow> rows;
    double of_peak(const BenchRow& r) const { return peak > 0 ? r.bytes_per_second() / peak : 0; }
};

// Rates of another run by kind and context.
using Baseline = std::map<std::pair<std::string, int64_t>, double>;

std::string bench_table(const BenchReport& report, const Baseline* baseline);  // with a column of ratios if given
std::string bench_csv(const BenchReport& report);
std::string bench_json(const BenchReport& report);
// Reads what bench_csv wrote (columns are found by name). Errors: bad_file with the line.
Result<Baseline> parse_bench_csv(const std::string& text, const std::string& name);

// Tokens per second over context, decode and prefill, as SVG; the baseline in grey.
std::string bench_svg(const BenchReport& report, const Baseline* baseline);

}  // namespace vesta::app
