#include "bench_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "terminal.h"

namespace vesta::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kColumns =
    "kind,context,tokens,tok_s_median,tok_s_min,tok_s_max,total_s,weight_bytes,window_bytes,compressed_bytes,index_"
    "bytes,"
    "frontier_bytes,gb_s,of_peak,threads,chunk,cache,backend,model\n";

std::string csv_text(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 32) continue;  // a line is a row
        out += c == '"' ? "\"\"" : std::string(1, c);
    }
    return out + "\"";
}

// One line of CSV; quoted fields may hold commas and doubled quotes.
std::vector<std::string> csv_fields(std::string_view line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (quoted) {
            if (c == '"' && i + 1 < line.size() && line[i + 1] == '"')
                fields.back() += '"', ++i;
            else if (c == '"')
                quoted = false;
            else
                fields.back() += c;
        } else if (c == '"') {
            quoted = true;
        } else if (c == ',') {
            fields.emplace_back();
        } else if (c != '\r') {
            fields.back() += c;
        }
    }
    return fields;
}

template <class T>
bool parse(const std::string& text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

std::string ratio_text(const BenchRow& r, const Baseline& baseline) {
    const auto it = baseline.find({bench_kind_name(r.kind), r.context});
    if (it == baseline.end() || !(it->second > 0)) return "-";
    return strf("{:.2f}x", r.rate.median / it->second);
}

}  // namespace

Spread spread_of(std::vector<double> values) {
    VESTA_CHECK(!values.empty());
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    return {median, values.front(), values.back()};
}

const char* bench_kind_name(BenchKind kind) {
    switch (kind) {
        case BenchKind::prefill:
            return "prefill";
        case BenchKind::increment:
            return "increment";
        case BenchKind::decode:
            return "decode";
    }
    return "?";
}

std::string bench_table(const BenchReport& b, const Baseline* baseline) {
    std::string out = strf("{}  {}  {} parameters\n{}  {} thread{}, backend {}, cache {}, chunk {}, median of {}\n",
                           b.model, format_bytes(static_cast<uint64_t>(b.file_bytes)),
                           b.n_parameter >= 1000000000 ? strf("{:.2f} G", static_cast<double>(b.n_parameter) * 1e-9)
                                                       : strf("{:.1f} M", static_cast<double>(b.n_parameter) * 1e-6),
                           b.cpu, b.n_thread, b.n_thread == 1 ? "" : "s", b.backend, b.cache, b.chunk, b.repeat);
    if (b.peak > 0) out += strf("peak read bandwidth {:.1f} GB/s\n", b.peak * 1e-9);
    out += strf("load {:.0f} ms, first token after {:.0f} ms, peak RSS {}\n\n", b.load_seconds * 1e3,
                b.first_token_seconds * 1e3, format_bytes(static_cast<uint64_t>(b.peak_rss_bytes)));
    out += strf("{:<10}{:>9}{:>8}{:>10}{:>19}{:>12}{:>12}{:>8}{:>8}{}\n", "", "context", "tokens", "tok/s", "min - max",
                "weights/tok", "cache/tok", "GB/s", "% peak", baseline != nullptr ? "   ratio" : "");
    for (const BenchRow& r : b.rows) {
        const bool reads = r.kind == BenchKind::decode;
        out += strf("{:<10}{:>9}{:>8}{:>10.2f}{:>19}{:>12}{:>12}{:>8}{:>8}", bench_kind_name(r.kind), r.context,
                    r.n_token, r.rate.median,
                    r.kind == BenchKind::increment ? strf("{:.2f} s in all", r.total_seconds)
                                                   : strf("{:.2f} - {:.2f}", r.rate.min, r.rate.max),
                    reads ? format_bytes(static_cast<uint64_t>(r.weight_bytes)) : "",
                    reads ? format_bytes(static_cast<uint64_t>(r.cache_bytes())) : "",
                    reads ? strf("{:.2f}", r.bytes_per_second() * 1e-9) : "",
                    reads && b.peak > 0 ? strf("{:.0f} %", 100 * b.of_peak(r)) : "");
        if (baseline != nullptr) out += strf("{:>8}", ratio_text(r, *baseline));
        out += '\n';
    }
    return out;
}

std::string bench_csv(const BenchReport& b) {
    std::string out = kColumns;
    for (const BenchRow& r : b.rows)
        out +=
            strf("{},{},{},{:.4f},{:.4f},{:.4f},{:.4f},{},{},{},{},{},{:.4f},{:.4f},{},{},{},{},{}\n",
                 bench_kind_name(r.kind), r.context, r.n_token, r.rate.median, r.rate.min, r.rate.max, r.total_seconds,
                 r.weight_bytes, r.window_bytes, r.compressed_bytes, r.index_bytes, r.frontier_bytes,
                 r.bytes_per_second() * 1e-9, b.of_peak(r), b.n_thread, b.chunk, b.cache, b.backend, csv_text(b.model));
    return out;
}

std::string bench_json(const BenchReport& b) {
    Json j;
    j["engine"] = "vesta";
    j["version"] = b.version;
    j["model"] = b.model;
    j["path"] = b.path;
    j["file_bytes"] = b.file_bytes;
    j["parameters"] = b.n_parameter;
    j["cpu"] = b.cpu;
    j["backend"] = b.backend;
    j["threads"] = b.n_thread;
    j["chunk"] = b.chunk;
    j["cache"] = b.cache;
    j["repeat"] = b.repeat;
    j["warmup"] = b.warmup;
    j["decode_tokens"] = b.n_decode;
    j["decoding"] = b.decoding;
    j["peak_bytes_per_s"] = b.peak > 0 ? Json(b.peak) : Json();
    j["load_s"] = b.load_seconds;
    j["first_token_s"] = b.first_token_seconds;
    j["peak_rss_bytes"] = b.peak_rss_bytes;
    // The medians alone, in the shape that bench/peers/llama_peer prints.
    for (const BenchKind kind : {BenchKind::prefill, BenchKind::decode}) {
        j[bench_kind_name(kind)] = Json::object();
        for (const BenchRow& r : b.rows)
            if (r.kind == kind) j[bench_kind_name(kind)][std::to_string(r.context)] = r.rate.median;
    }
    j["rows"] = Json::array();
    for (const BenchRow& r : b.rows) {
        Json row = {{"kind", bench_kind_name(r.kind)},
                    {"context", r.context},
                    {"tokens", r.n_token},
                    {"tok_s", {{"median", r.rate.median}, {"min", r.rate.min}, {"max", r.rate.max}}}};
        if (r.kind == BenchKind::increment) row["total_s"] = r.total_seconds;
        if (r.kind == BenchKind::decode) {
            row["weight_bytes"] = r.weight_bytes;
            row["cache_bytes"] = {{"window", r.window_bytes},
                                  {"compressed", r.compressed_bytes},
                                  {"index", r.index_bytes},
                                  {"frontier", r.frontier_bytes}};
            row["bytes_per_s"] = r.bytes_per_second();
            row["of_peak"] = b.peak > 0 ? Json(b.of_peak(r)) : Json();
        }
        j["rows"].push_back(std::move(row));
    }
    return j.dump(1, ' ', false, Json::error_handler_t::replace);
}

Result<Baseline> parse_bench_csv(const std::string& text, const std::string& name) {
    Baseline out;
    std::vector<std::string> header;
    size_t at = 0, line_number = 0;
    size_t kind = 0, context = 0, median = 0;
    while (at < text.size()) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string_view line(text.data() + at, end - at);
        at = end + 1;
        ++line_number;
        if (line.empty() || line == "\r") continue;
        const std::vector<std::string> fields = csv_fields(line);
        if (header.empty()) {
            header = fields;
            for (const auto& [column, index] :
                 {std::pair{"kind", &kind}, {"context", &context}, {"tok_s_median", &median}}) {
                const auto it = std::find(header.begin(), header.end(), column);
                if (it == header.end())
                    return Error{Code::bad_file,
                                 strf("{}: line 1: no column '{}'; expected a CSV of `vesta bench`", name, column)};
                *index = static_cast<size_t>(it - header.begin());
            }
            continue;
        }
        int64_t position = 0;
        double rate = 0;
        if (fields.size() != header.size() || !parse(fields[context], position) || !parse(fields[median], rate) ||
            !std::isfinite(rate))
            return Error{Code::bad_file,
                         strf("{}: line {}: expected {} fields with numbers for context and tok_s_median, "
                              "found '{}'",
                              name, line_number, header.size(), printable(line.substr(0, 80)))};
        out[{fields[kind], position}] = rate;
    }
    if (header.empty()) return Error{Code::bad_file, strf("{}: is empty, expected a CSV of `vesta bench`", name)};
    return out;
}

}  // namespace vesta::app
