#include "bench_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>

#include "base/memory.h"
#include "tokenizer/tokenizer.h"

namespace vesta::app {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string cpu_name() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);)
        if (line.starts_with("model name") && line.find(':') != std::string::npos) {
            const size_t at = line.find_first_not_of(' ', line.find(':') + 1);
            return at == std::string::npos ? "" : line.substr(at);
        }
    return "unknown processor";
}

const char* cache_name(CacheFormat f) { return f == CacheFormat::fp8 ? "fp8" : f == CacheFormat::f16 ? "f16" : "f32"; }

class Run {
 public:
    Run(Engine& engine, const BenchPlan& plan, const ProgressFn& progress, BenchReport& report)
        : engine_(engine), plan_(plan), progress_(progress), report_(report), n_vocab_(engine.info().n_vocab) {
        // Units of progress: tokens to compute.
        for (const int64_t n : plan.prefill)
            total_ += static_cast<uint64_t>(n) * static_cast<uint64_t>(plan.repeat + plan.warmup);
        if (!plan.depth.empty()) total_ += static_cast<uint64_t>(plan.depth.back());
        total_ += plan.depth.size() * static_cast<uint64_t>((plan.repeat + plan.warmup) * plan.n_decode);
    }

    Status measure_prefill(Session& s) {
        for (const int64_t n : plan_.prefill) {
            std::vector<double> rates;
            for (int r = 0; r < plan_.warmup + plan_.repeat; ++r) {
                s.clear();
                const auto start = Clock::now();
                VESTA_TRY_STATUS(fill(s, n));
                if (r >= plan_.warmup) rates.push_back(static_cast<double>(n) / seconds_since(start));
            }
            report_.rows.push_back({.kind = BenchKind::prefill, .context = n, .n_token = n, .rate = spread_of(rates)});
        }
        return {};
    }

    // One growing context; what decoding adds at a frontier is taken back before it grows on.
    Status measure_frontiers(Session& s) {
        s.clear();
        double total = 0;
        for (const int64_t depth : plan_.depth) {
            const int64_t n = depth - s.n_token();
            const auto start = Clock::now();
            VESTA_TRY_STATUS(fill(s, depth));
            const double seconds = seconds_since(start);
            total += seconds;
            const double rate = static_cast<double>(n) / seconds;
            report_.rows.push_back({.kind = BenchKind::increment,
                                    .context = depth,
                                    .n_token = n,
                                    .rate = {rate, rate, rate},
                                    .total_seconds = total});
            if (plan_.n_decode == 0) continue;
            VESTA_TRY(const Snapshot here, s.snapshot());
            std::vector<double> rates;
            for (int r = 0; r < plan_.warmup + plan_.repeat; ++r) {
                const auto begin = Clock::now();
                VESTA_TRY_STATUS(decode(s));
                if (r >= plan_.warmup) rates.push_back(plan_.n_decode / seconds_since(begin));
                VESTA_TRY_STATUS(s.restore(here));
            }
            report_.rows.push_back(decode_row(depth, spread_of(rates)));
        }
        return {};
    }

 private:
    Status tell(uint64_t n) {
        done_ += n;
        if (progress_ && !progress_({"bench", {}, done_, total_, "tokens"})) return Error{Code::cancelled, "stopped"};
        return {};
    }

    Status fill(Session& s, int64_t n) {
        std::vector<int32_t> tokens;
        for (int64_t i = s.n_token(); i < n; ++i) tokens.push_back(bench_token(i, n_vocab_));
        uint64_t last = 0;
        VESTA_TRY_STATUS(s.prefill(tokens, [&](const Progress& p) {
            const bool go_on = tell(p.done - last).ok();
            last = p.done;
            return go_on;
        }));
        return {};
    }

    Status decode(Session& s) {
        const std::optional<int32_t> eos = engine_.tokenizer().eos();
        for (int i = 0; i < plan_.n_decode; ++i) {
            VESTA_TRY_STATUS(
                s.decode(plan_.same_tokens ? bench_token(i, n_vocab_) : likeliest_except(s.logits(), eos)));
        }
        return tell(static_cast<uint64_t>(plan_.n_decode));
    }

    BenchRow decode_row(int64_t depth, Spread rate) const {
        const TokenTraffic t = engine_.traffic(plan_.session.cache_format, depth + plan_.n_decode / 2);
        return {.kind = BenchKind::decode,
                .context = depth,
                .n_token = plan_.n_decode,
                .rate = rate,
                .weight_bytes = t.weight_bytes(),
                .window_bytes = t.window,
                .compressed_bytes = t.compressed,
                .index_bytes = t.index,
                .frontier_bytes = t.frontier};
    }

    Engine& engine_;
    const BenchPlan& plan_;
    const ProgressFn& progress_;
    BenchReport& report_;
    int64_t n_vocab_;
    uint64_t done_ = 0, total_ = 0;
};

}  // namespace

int32_t bench_token(int64_t i, int64_t n_vocab) { return static_cast<int32_t>(10 + (i * 7919) % (n_vocab - 20)); }

int32_t likeliest_except(std::span<const float> logits, std::optional<int32_t> eos) {
    size_t best = eos == 0 ? 1 : 0;
    for (size_t id = best; id < logits.size(); ++id)
        if (logits[id] > logits[best] && static_cast<int32_t>(id) != eos) best = id;
    return static_cast<int32_t>(best);
}

Result<BenchReport> run_bench(const std::function<Result<std::unique_ptr<Engine>>()>& open, BenchPlan plan,
                              const ProgressFn& progress) {
    std::sort(plan.depth.begin(), plan.depth.end());
    plan.depth.erase(std::unique(plan.depth.begin(), plan.depth.end()), plan.depth.end());
    int64_t longest = 1;
    for (const int64_t n : plan.prefill) longest = std::max(longest, n);
    for (const int64_t n : plan.depth) longest = std::max(longest, n + plan.n_decode);
    plan.session.n_ctx = longest;

    BenchReport report;
    const auto start = Clock::now();
    VESTA_TRY(auto engine, open());
    report.load_seconds = seconds_since(start);
    const EngineInfo& info = engine->info();
    if (info.n_vocab <= 20)
        return Error{Code::unsupported,
                     strf("{}: a vocabulary of {} is too small to measure with", info.path, info.n_vocab)};
    VESTA_TRY(auto session, engine->new_session(plan.session));
    VESTA_TRY_STATUS(session->decode(bench_token(0, info.n_vocab)));
    report.first_token_seconds = seconds_since(start);

    report.model = info.name.empty() ? info.path : info.name;
    report.path = info.path;
    report.backend = info.backend;
    report.cache = cache_name(plan.session.cache_format);
    report.cpu = cpu_name();
    report.decoding = plan.same_tokens ? "fixed tokens" : "greedy";
    report.file_bytes = engine->memory(plan.session).weight_bytes;
    report.n_parameter = info.n_parameter;
    report.n_thread = info.n_thread;
    report.repeat = plan.repeat;
    report.warmup = plan.warmup;
    report.n_decode = plan.n_decode;
    report.chunk = plan.session.chunk;
    Run run(*engine, plan, progress, report);
    VESTA_TRY_STATUS(run.measure_prefill(*session));
    VESTA_TRY_STATUS(run.measure_frontiers(*session));
    report.peak_rss_bytes = peak_rss_bytes();
    return report;
}

}  // namespace vesta::app
