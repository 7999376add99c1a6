#include "imatrix/collector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/registry.h"
#include "dat_bytes.h"
#include "support/toy_model.h"

namespace vesta::imatrix {
namespace {

using test::ToyModel;

// A toy model with a backend, ready to be collected from.
struct Toy {
    explicit Toy(const ToyModel& made_from, const std::string& backend = "reference", int n_thread = 1)
        : bytes(made_from.bytes()) {
        auto parsed = gguf::File::parse(bytes, "toy.gguf");
        if (!parsed.ok()) throw std::runtime_error(parsed.error().message);
        file = std::make_unique<gguf::File>(std::move(parsed).value());
        files = {file.get()};
        auto made = backend::create(backend, n_thread);
        if (!made.ok()) throw std::runtime_error(made.error().message);
        ops = std::move(made).value();
        auto loaded = model::load(*file, nullptr, *ops);
        if (!loaded.ok()) throw std::runtime_error(loaded.error().message);
        model = std::move(loaded).value();
    }
    CollectOptions options(std::vector<Sequence> sequences, int64_t n_ctx = 64, int64_t chunk = 64) const {
        return {.model = model.get(),
                .files = files,
                .backend = ops.get(),
                .sequences = std::move(sequences),
                .n_ctx = n_ctx,
                .chunk = chunk,
                .cache_format = quant::RowFormat::fp8,
                .dataset = "toy.txt"};
    }
    std::vector<std::byte> bytes;
    std::unique_ptr<gguf::File> file;
    std::vector<const gguf::File*> files;
    std::unique_ptr<ops::Ops> ops;
    std::unique_ptr<model::Model> model;
};

Sequence tokens(size_t n, int32_t seed) {
    Sequence s;
    for (size_t i = 0; i < n; ++i) s.push_back((static_cast<int32_t>(i) * 37 + seed * 101 + 11) % 256);
    return s;
}

std::unique_ptr<Collector> started(CollectOptions options, const Matrix* previous = nullptr) {
    auto c = Collector::create(std::move(options), previous);
    if (!c.ok()) throw std::runtime_error(c.error().message);
    return std::move(c).value();
}

std::string formatted(const Matrix& m) {
    const auto bytes = format_dat(m);
    if (!bytes.ok()) throw std::runtime_error(bytes.error().message);
    return std::string(reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size());
}

// The bytes of a finished run.
std::string collected(CollectOptions options, const Matrix* previous = nullptr) {
    const auto c = started(std::move(options), previous);
    while (!c->done()) {
        const Status status = c->step();
        if (!status.ok()) throw std::runtime_error(status.error().message);
    }
    return formatted(std::move(*c).finish());
}

// Logits of every position and the streams at one tap, in one pass over `ids` through any Ops.
struct PassResult {
    std::vector<float> logits, streams;
};
PassResult run_pass(const Toy& toy, ops::Ops& ops, const Sequence& ids, model::Tap at, int layer) {
    const auto n = static_cast<int64_t>(ids.size());
    auto cache = kv::Cache::create(toy.model->cache_shape(),
                                   {.n_ctx = n, .max_pass_rows = n, .format = ops.row_format(quant::RowFormat::fp8)});
    const auto workspace = toy.model->new_workspace(n, n, n);
    std::vector<ops::Row> rows;
    std::vector<int32_t> wanted;
    for (int32_t i = 0; i < n; ++i) {
        rows.push_back({ids[static_cast<size_t>(i)], i, 0});
        wanted.push_back(i);
    }
    PassResult r;
    r.logits.resize(static_cast<size_t>(n * toy.model->info().n_vocab));
    const model::TapFn tap = [&](model::Tap t, int l, const ops::Tensor& x, std::span<const ops::Row>) {
        if (t != at || l != layer) return;
        for (int64_t i = 0; i < x.n_row; ++i) r.streams.insert(r.streams.end(), x.row(i), x.row(i) + x.n_col);
    };
    kv::Cache* const caches[] = {cache.value().get()};
    const Status status = toy.model->forward(
        ops, *workspace,
        {.rows = rows, .cache = caches, .output_rows = wanted, .logits = r.logits.data(), .tap = &tap});
    if (!status.ok()) throw std::runtime_error(status.error().message);
    return r;
}

const float* floats(const Toy& toy, const std::string& name) {
    return reinterpret_cast<const float*>(toy.file->find_tensor(name)->bytes.data());
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// What meets the experts of one scored layer, computed from the streams in front of its expert half by the equations of
// docs/model.md in double: the hyper-connection's pre-gates, the norm, the router, gate and up, the clamped SwiGLU with
// the routing weight in it.
struct ByHand {
    std::vector<std::vector<double>> gate, down;  // per expert: sum of x² per column
    std::vector<uint64_t> n_row;
    std::vector<double> router, shared_down;
};
ByHand expert_half_by_hand(const Toy& toy, const test::ToyShape& s, const std::vector<float>& streams,
                           const std::string& p) {
    const size_t n_embd = s.n_embd, wide = s.n_stream * s.n_embd, n_ff = s.n_ff, n_token = streams.size() / wide;
    ByHand r;
    r.gate.assign(s.n_expert, std::vector<double>(n_embd, 0.0));
    r.down.assign(s.n_expert, std::vector<double>(n_ff, 0.0));
    r.n_row.assign(s.n_expert, 0);
    r.router.assign(n_embd, 0.0);
    r.shared_down.assign(n_ff, 0.0);
    const float *fn = floats(toy, p + "hc_ffn_fn.weight"), *scale = floats(toy, p + "hc_ffn_scale.weight"),
                *base = floats(toy, p + "hc_ffn_base.weight"), *norm = floats(toy, p + "ffn_norm.weight"),
                *router = floats(toy, p + "ffn_gate_inp.weight"), *bias = floats(toy, p + "exp_probs_b.bias");
    const auto dot = [](const float* w, const std::vector<double>& x) {
        double sum = 0;
        for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(w[i]) * x[i];
        return sum;
    };
    const auto normalised = [](std::vector<double> x) {
        double squares = 0;
        for (const double v : x) squares += v * v;
        for (double& v : x) v /= std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
        return x;
    };
    const auto swiglu = [&](const float* gate, const float* up, const std::vector<double>& x, double weight) {
        std::vector<double> y(n_ff);
        for (size_t j = 0; j < n_ff; ++j) {
            const double g = std::min(dot(gate + j * n_embd, x), 10.0);
            const double u = std::clamp(dot(up + j * n_embd, x), -10.0, 10.0);
            y[j] = g * sigmoid(g) * u * weight;
        }
        return y;
    };
    for (size_t t = 0; t < n_token; ++t) {
        const std::vector<double> row(streams.begin() + static_cast<ptrdiff_t>(t * wide),
                                      streams.begin() + static_cast<ptrdiff_t>((t + 1) * wide));
        const std::vector<double> flat = normalised(row);
        std::vector<double> x(n_embd, 0.0);
        for (size_t k = 0; k < s.n_stream; ++k) {
            const double pre =
                sigmoid(dot(fn + k * wide, flat) * static_cast<double>(scale[0]) + static_cast<double>(base[k])) + 1e-6;
            for (size_t d = 0; d < n_embd; ++d) x[d] += pre * row[k * n_embd + d];
        }
        x = normalised(x);
        for (size_t d = 0; d < n_embd; ++d) x[d] *= static_cast<double>(norm[d]);

        std::vector<double> p_expert(s.n_expert);
        std::vector<size_t> order;
        for (size_t e = 0; e < s.n_expert; ++e) {
            p_expert[e] = std::sqrt(std::log1p(std::exp(dot(router + e * n_embd, x))));
            order.push_back(e);
        }
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            return p_expert[a] + static_cast<double>(bias[a]) > p_expert[b] + static_cast<double>(bias[b]);
        });
        order.resize(s.n_used);
        double total = 0;
        for (const size_t e : order) total += p_expert[e];
        for (const size_t e : order) {
            ++r.n_row[e];
            for (size_t d = 0; d < n_embd; ++d) r.gate[e][d] += x[d] * x[d];
            const auto y =
                swiglu(floats(toy, p + "ffn_gate_exps.weight") + e * n_ff * n_embd,
                       floats(toy, p + "ffn_up_exps.weight") + e * n_ff * n_embd, x, 1.5 * p_expert[e] / total);
            for (size_t j = 0; j < n_ff; ++j) r.down[e][j] += y[j] * y[j];
        }
        for (size_t d = 0; d < n_embd; ++d) r.router[d] += x[d] * x[d];
        const auto y = swiglu(floats(toy, p + "ffn_gate_shexp.weight"), floats(toy, p + "ffn_up_shexp.weight"), x, 1.0);
        for (size_t j = 0; j < n_ff; ++j) r.shared_down[j] += y[j] * y[j];
    }
    return r;
}

// f32 arithmetic of the backend against double: 1e-4 relative is ten times what was seen.
void expect_close(const std::vector<double>& got, size_t first, const std::vector<double>& want,
                  const std::string& what) {
    for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[first + i], want[i], 1e-4 * std::max(want[i], 1e-2)) << what << ", column " << i;
}

TEST(Observer, SumsAreTheSquaresThatTheEquationsGive) {
    const ToyModel model;
    const Toy toy(model);
    const Sequence ids = tokens(40, 1);
    for (const std::string layer : {"1", "2"}) {
        const auto c = started(toy.options({ids}));
        ASSERT_TRUE(c->step().ok());
        const Matrix& m = c->snapshot();
        const PassResult pass = run_pass(toy, *toy.ops, ids, model::Tap::after_attention, std::stoi(layer));
        const std::string p = "blk." + layer + ".";
        const ByHand hand = expert_half_by_hand(toy, model.shape, pass.streams, p);
        const Entry &gate = m.entries.at(p + "ffn_gate_exps.weight"), &up = m.entries.at(p + "ffn_up_exps.weight"),
                    &down = m.entries.at(p + "ffn_down_exps.weight");
        EXPECT_EQ(gate.n_row, hand.n_row);
        EXPECT_EQ(up.n_row, hand.n_row);
        EXPECT_EQ(down.n_row, hand.n_row);
        EXPECT_EQ(gate.sum, up.sum);
        for (size_t e = 0; e < model.shape.n_expert; ++e) {
            expect_close(gate.sum, e * model.shape.n_embd, hand.gate[e], strf("layer {} gate of expert {}", layer, e));
            expect_close(down.sum, e * model.shape.n_ff, hand.down[e], strf("layer {} down of expert {}", layer, e));
        }
        expect_close(m.entries.at(p + "ffn_gate_inp.weight").sum, 0, hand.router, "router");
        expect_close(m.entries.at(p + "ffn_gate_shexp.weight").sum, 0, hand.router, "shared gate");
        expect_close(m.entries.at(p + "ffn_down_shexp.weight").sum, 0, hand.shared_down, "shared down");
    }
}

TEST(Observer, DoesNotChangeALogit) {
    const ToyModel model;
    const Sequence ids = tokens(40, 2);
    const auto both = [&](const std::string& backend) {
        const Toy toy(model, backend, 2);
        Matrix m;
        auto observer = Observer::create(*toy.ops, toy.files, m);
        EXPECT_TRUE(observer.ok());
        return std::pair(run_pass(toy, *toy.ops, ids, model::Tap::final_streams, 0).logits,
                         run_pass(toy, *observer.value(), ids, model::Tap::final_streams, 0).logits);
    };
    const auto [plain, seen] = both("reference");
    EXPECT_EQ(std::memcmp(plain.data(), seen.data(), plain.size() * sizeof(float)), 0);
    // cpu: blocks it fuses are composed here; both must stay within the backend's tolerance (docs/backends.md).
    const auto [fused, composed] = both("cpu");
    for (size_t i = 0; i < fused.size(); ++i) ASSERT_NEAR(fused[i], composed[i], 2e-2f) << i;
}

TEST(Observer, CoversEveryMatrixThatIsMultiplied) {
    const ToyModel model;
    const Toy toy(model, "cpu");
    const auto c = started(toy.options({tokens(64, 1), tokens(64, 2), tokens(64, 3)}));
    while (!c->done()) ASSERT_TRUE(c->step().ok());
    const Matrix& m = c->snapshot();
    // Tables that are looked up or added, and the drafter's head, which is not run.
    std::vector<std::string> left;
    for (const std::string& name : not_covered(toy.files, m))
        if (name.find("_ape.weight") == std::string::npos) left.push_back(name);
    EXPECT_EQ(left, (std::vector<std::string>{"token_embd.weight", "mtp.0.hc_head_fn.weight"}));

    const uint64_t n_token = 3 * 64, n_used = model.shape.n_used;
    for (const auto& [name, e] : m.entries) {
        uint64_t rows = 0;
        for (const uint64_t n : e.n_row) rows += n;
        // The drafter sees a token less per sequence; experts n_used times as many rows; groups of outputs one each.
        uint64_t expected = name.starts_with("mtp.0.") ? n_token - 3 : n_token;
        if (name.find("_exps.") != std::string::npos) expected *= n_used;
        if (name.find("attn_output_a") != std::string::npos) expected *= model.shape.n_group;
        if (name.find("h_proj") != std::string::npos) expected *= model.shape.n_stream;
        EXPECT_EQ(rows, expected) << name;
        EXPECT_EQ(e.n_call, 3) << name;
        for (const double s : e.sum) EXPECT_TRUE(s >= 0 && std::isfinite(s)) << name;
    }
}

TEST(Collector, PerplexityIsThatOfTheModelsOwnPrediction) {
    const Toy toy{ToyModel{}};
    const Sequence ids = tokens(20, 5);
    const auto c = started(toy.options({ids, tokens(9, 6)}, 64, 6));
    EXPECT_TRUE(std::isnan(c->perplexity()));
    ASSERT_TRUE(c->step().ok());
    const std::vector<float> logits = run_pass(toy, *toy.ops, ids, model::Tap::final_streams, 0).logits;
    const size_t n_vocab = logits.size() / ids.size();
    double log_probability = 0;
    for (size_t t = 0; t + 1 < ids.size(); ++t) {
        long double total = 0;
        for (size_t v = 0; v < n_vocab; ++v) total += std::exp(static_cast<long double>(logits[t * n_vocab + v]));
        log_probability += logits[t * n_vocab + static_cast<size_t>(ids[t + 1])] - static_cast<double>(std::log(total));
    }
    EXPECT_NEAR(c->perplexity(), std::exp(-log_probability / 19), 1e-9 * c->perplexity());
}

TEST(Collector, TheFileDependsOnNeitherThreadsNorChunks) {
    const ToyModel model;
    const std::vector<Sequence> text = {tokens(50, 1), tokens(64, 2), tokens(7, 3)};
    const std::string expected = collected(Toy(model, "cpu", 1).options(text));
    for (const int n_thread : {2, 4})
        EXPECT_EQ(collected(Toy(model, "cpu", n_thread).options(text)), expected) << n_thread;
    for (const int64_t chunk : {1, 5, 16})
        EXPECT_EQ(collected(Toy(model, "cpu", 2).options(text, 64, chunk)), expected) << chunk;
    const std::string reference = collected(Toy(model, "reference", 1).options(text));
    for (const int64_t chunk : {1, 13})
        EXPECT_EQ(collected(Toy(model, "reference", 1).options(text, 64, chunk)), reference) << chunk;
}

TEST(Collector, AContinuedRunEndsInTheSameBytes) {
    const Toy toy{ToyModel{}};
    const std::vector<Sequence> text = {tokens(30, 1), tokens(20, 2), tokens(10, 3), tokens(25, 4)};
    const std::string expected = collected(toy.options(text));
    for (size_t stop = 0; stop <= text.size(); ++stop) {
        const auto first = started(toy.options(text));
        for (size_t i = 0; i < stop; ++i) ASSERT_TRUE(first->step().ok());
        if (stop == 0) continue;  // nothing to save yet
        const std::string saved = formatted(first->snapshot());
        const auto read = parse_dat(std::as_bytes(std::span(saved)), "saved.dat");
        ASSERT_TRUE(read.ok()) << read.error().message;
        EXPECT_FALSE(read.value().run->finished);
        EXPECT_EQ(collected(toy.options(text), &read.value()), expected) << stop;
    }
}

TEST(Collector, AFinishedFileHoldsMeansAndRowsOnly) {
    const Toy toy{ToyModel{}};
    const std::string bytes = collected(toy.options({tokens(30, 1), tokens(20, 2)}));
    const auto read = parse_dat(std::as_bytes(std::span(bytes)), "done.dat");
    ASSERT_TRUE(read.ok());
    EXPECT_TRUE(read.value().run->finished);
    EXPECT_EQ(read.value().run->n_token, 50u);
    EXPECT_EQ(read.value().n_chunk, 2);
    for (const auto& [name, e] : read.value().entries) {
        EXPECT_TRUE(e.sum.empty()) << name;
        EXPECT_FALSE(e.n_row.empty()) << name;
    }
    // A reader of the plain format gets finite means of the right length.
    const auto plain = test::read_plainly(bytes);
    EXPECT_EQ(plain.mean.at("blk.1.ffn_down_exps.weight").size(), 4u * 32);
    EXPECT_EQ(plain.dataset, "toy.txt");
    // Continuing it over the same text is nothing to do and changes nothing.
    EXPECT_EQ(collected(toy.options({tokens(30, 1), tokens(20, 2)}), &read.value()), bytes);
    // Over more text it starts from the means: equal to the last bits of a float.
    const std::vector<Sequence> more = {tokens(30, 1), tokens(20, 2), tokens(33, 3)};
    const std::string longer = collected(toy.options(more), &read.value()), whole = collected(toy.options(more));
    const auto a = test::read_plainly(longer), b = test::read_plainly(whole);
    for (const auto& [name, mean] : b.mean)
        for (size_t i = 0; i < mean.size(); ++i)
            ASSERT_NEAR(a.mean.at(name)[i], mean[i], 1e-6f * std::max(mean[i], 1.0f)) << name;
}

TEST(Collector, RefusesToContinueSomethingElse) {
    const Toy toy{ToyModel{}};
    const std::vector<Sequence> text = {tokens(30, 1), tokens(20, 2)};
    const auto c = started(toy.options(text));
    ASSERT_TRUE(c->step().ok());
    ASSERT_TRUE(c->step().ok());
    const Matrix saved = c->snapshot();
    const auto says = [&](CollectOptions o, const Matrix& from) {
        const auto r = Collector::create(std::move(o), &from);
        if (r.ok()) return std::string("accepted");
        EXPECT_EQ(r.error().code, Code::invalid_argument) << r.error().message;
        return r.error().message;
    };
    EXPECT_EQ(says(toy.options(text), saved), "accepted");
    EXPECT_NE(says(toy.options({tokens(30, 1), tokens(20, 9)}), saved).find("another text"), std::string::npos);
    EXPECT_NE(says(toy.options({tokens(30, 1)}), saved).find("covers 2 sequences"), std::string::npos);
    EXPECT_NE(says(toy.options(text, 65), saved).find("--ctx 64"), std::string::npos);
    Matrix merged = saved;
    ASSERT_TRUE(merge(merged, saved).ok());
    EXPECT_NE(says(toy.options(text), merged).find("merged"), std::string::npos);
    ToyModel changed;
    changed.tensor("blk.2.attn_q_a.weight").put(3, 0.25f);
    EXPECT_NE(says(Toy(changed).options(text), saved).find("another model"), std::string::npos);
    // The right state over entries that are not this model's.
    Matrix wrong = saved;
    wrong.entries.begin()->second.n_row.push_back(1);
    EXPECT_FALSE(Collector::create(toy.options(text), &wrong).ok());
    Matrix extra = saved;
    extra.entries["blk.9.attn_q_a.weight"] = saved.entries.at("blk.1.attn_q_a.weight");
    EXPECT_NE(Collector::create(toy.options(text), &extra).error().message.find("1 of"), std::string::npos);
}

TEST(Collector, ExpertsNeverHitAreOnesInTheFileAndKnownAsSuch) {
    ToyModel model;
    for (int64_t i = 0; i < 4; ++i) model.tensor("blk.2.exp_probs_b.bias").put(i, i == 3 ? -100.0f : 0.0f);
    const Toy toy(model);
    const std::string bytes = collected(toy.options({tokens(30, 1), tokens(20, 2)}));
    const auto read = parse_dat(std::as_bytes(std::span(bytes)), "done.dat");
    ASSERT_TRUE(read.ok());
    for (const char* part : {"gate", "up", "down"}) {
        const std::string name = strf("blk.2.ffn_{}_exps.weight", part);
        const int64_t n_col = std::string(part) == "down" ? 32 : 64;
        EXPECT_TRUE(read.value().measured(name, n_col, 4, 0)) << name;
        EXPECT_FALSE(read.value().measured(name, n_col, 4, 3)) << name;
        EXPECT_EQ(read.value().importance(name, n_col, 4, 3).value(),
                  std::vector<float>(static_cast<size_t>(n_col), 1.0f));
        const auto plain = test::read_plainly(bytes).mean.at(name);
        EXPECT_EQ(std::vector<float>(plain.end() - n_col, plain.end()),
                  std::vector<float>(static_cast<size_t>(n_col), 1.0f));
    }
}

TEST(Collector, ValuesThatAreNotFiniteEndTheRun) {
    ToyModel model;
    model.tensor("blk.1.ffn_down_exps.weight").put(5, std::numeric_limits<float>::quiet_NaN());
    const Toy toy(model);
    const auto c = started(toy.options({tokens(40, 1)}));
    const Status status = c->step();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::numeric);
}

TEST(Collector, AMergeOfTwoHalvesIsTheWhole) {
    const Toy toy{ToyModel{}};
    const std::vector<Sequence> a = {tokens(30, 1), tokens(20, 2)}, b = {tokens(25, 3)}, both = {a[0], a[1], b[0]};
    const auto collect = [&](const std::vector<Sequence>& text) {
        const std::string bytes = collected(toy.options(text));
        return parse_dat(std::as_bytes(std::span(bytes)), "x.dat").value();
    };
    Matrix merged = collect(a);
    const Matrix whole = collect(both);
    ASSERT_TRUE(merge(merged, collect(b)).ok());
    ASSERT_EQ(merged.entries.size(), whole.entries.size());
    EXPECT_EQ(merged.n_chunk, 3);
    for (const auto& [name, e] : whole.entries) {
        const Entry& f = merged.entries.at(name);
        EXPECT_EQ(f.n_row, e.n_row) << name;
        for (size_t i = 0; i < e.value.size(); ++i)
            ASSERT_NEAR(f.mean(i), e.mean(i), 1e-6f * std::max(e.mean(i), 1.0f)) << name << " " << i;
    }
}

}  // namespace
}  // namespace vesta::imatrix
