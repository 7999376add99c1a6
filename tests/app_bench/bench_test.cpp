// `vesta bench` and `vesta run --memory`: the forms of the report, what is measured, and what is refused. Speed is not
// tested.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "bench_report.h"
#include "bench_run.h"
#include "memory_view.h"
#include "model/traffic.h"
#include "support/command.h"
#include "synth/synth.h"
#include "vesta/engine.h"

namespace vesta::app {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

BenchReport example() {
    BenchReport b;
    b.model = "a \"quoted\", <model> & more";
    b.backend = "cpu", b.cache = "fp8", b.cpu = "some processor";
    b.n_thread = 2, b.chunk = 512, b.repeat = 3, b.n_decode = 32;
    b.peak = 10e9;
    b.rows.push_back({.kind = BenchKind::prefill, .context = 512, .n_token = 512, .rate = {400, 390, 420}});
    b.rows.push_back(
        {.kind = BenchKind::increment, .context = 64, .n_token = 64, .rate = {300, 300, 300}, .total_seconds = 0.2});
    b.rows.push_back({.kind = BenchKind::decode,
                      .context = 64,
                      .n_token = 32,
                      .rate = {100, 90, 110},
                      .weight_bytes = 40000000,
                      .window_bytes = 5000000,
                      .compressed_bytes = 3000000,
                      .index_bytes = 1500000,
                      .frontier_bytes = 500000});
    b.rows.push_back({.kind = BenchKind::decode,
                      .context = 65536,
                      .n_token = 32,
                      .rate = {50, 45, 60},
                      .weight_bytes = 40000000,
                      .window_bytes = 60000000,
                      .compressed_bytes = 0,
                      .index_bytes = 0,
                      .frontier_bytes = 0});
    return b;
}

TEST(BenchReport, MedianAndSpread) {
    EXPECT_EQ(spread_of({3, 1, 2}).median, 2);
    const Spread even = spread_of({4, 1, 2, 3});
    EXPECT_EQ(even.median, 2.5);
    EXPECT_EQ(even.min, 1);
    EXPECT_EQ(even.max, 4);
}

TEST(BenchReport, BandwidthIsBytesTimesRate) {
    const BenchReport b = example();
    EXPECT_DOUBLE_EQ(b.rows[2].bytes_per_second(), 50e6 * 100);  // 40 + 5 + 3 + 1.5 + 0.5 MB
    EXPECT_DOUBLE_EQ(b.of_peak(b.rows[2]), 0.5);
    const std::string table = bench_table(b, nullptr);
    EXPECT_NE(table.find("50 %"), std::string::npos) << table;
    EXPECT_NE(table.find("5.00"), std::string::npos);
}

TEST(BenchReport, CsvComesBackAndGivesRatios) {
    const BenchReport b = example();
    const auto back = parse_bench_csv(bench_csv(b), "x.csv");
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back.value().size(), 4u);
    EXPECT_EQ(back.value().at({"decode", 65536}), 50);
    Baseline half = back.value();
    for (auto& [key, rate] : half) rate /= 2;
    half.erase({"prefill", 512});
    const std::string table = bench_table(b, &half);
    EXPECT_NE(table.find("2.00x"), std::string::npos) << table;
    EXPECT_NE(table.find("       -\n"), std::string::npos) << "no such row before: " << table;
}

TEST(BenchReport, CsvThatIsNoneIsRefusedWithTheLine) {
    const auto message = [](const std::string& text) {
        const auto r = parse_bench_csv(text, "x.csv");
        return r.ok() ? std::string() : r.error().message;
    };
    EXPECT_NE(message("").find("is empty"), std::string::npos);
    EXPECT_NE(message("a,b\n1,2\n").find("no column 'kind'"), std::string::npos);
    EXPECT_NE(message("kind,context,tok_s_median\ndecode,64\n").find("line 2"), std::string::npos);
    EXPECT_NE(message("kind,context,tok_s_median\n\ndecode,64,1\ndecode,x,1\n").find("line 4"), std::string::npos);
    EXPECT_NE(message("kind,context,tok_s_median\ndecode,64,nan\n").find("line 2"), std::string::npos);
    EXPECT_EQ(message("tok_s_median,kind,context,new\r\n1,decode,64,\"a,\"\"b\"\r\n"), "");  // columns by name
}

TEST(BenchReport, JsonHasTheShapeOfThePeers) {
    const Json j = Json::parse(bench_json(example()));
    EXPECT_EQ(j["engine"], "vesta");
    EXPECT_EQ(j["prefill"]["512"], 400);
    EXPECT_EQ(j["decode"]["64"], 100);
    EXPECT_EQ(j["rows"].size(), 4u);
    EXPECT_EQ(j["rows"][2]["cache_bytes"]["window"], 5000000);
    EXPECT_EQ(j["rows"][2]["of_peak"], 0.5);
    EXPECT_EQ(j["rows"][1]["total_s"], 0.2);
    for (const char* key :
         {"threads", "chunk", "cache", "cpu", "peak_bytes_per_s", "first_token_s", "peak_rss_bytes", "load_s"})
        EXPECT_TRUE(j.contains(key)) << key;
}

// Well-formed enough for any reader: tags nest, attributes are quoted, text is escaped, numbers are numbers.
void expect_well_formed(const std::string& svg) {
    std::vector<std::string> open;
    for (size_t at = 0; at < svg.size();) {
        if (svg[at] != '<') {
            ASSERT_NE(svg[at], '>');
            if (svg[at] == '&') {
                const std::string entity = svg.substr(at, svg.find(';', at) - at + 1);
                ASSERT_TRUE(entity == "&lt;" || entity == "&gt;" || entity == "&amp;" || entity == "&quot;") << entity;
            }
            ++at;
            continue;
        }
        const size_t end = svg.find('>', at);
        ASSERT_NE(end, std::string::npos);
        const std::string tag = svg.substr(at + 1, end - at - 1);
        ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
        ASSERT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
        const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
        if (tag[0] == '/') {
            ASSERT_FALSE(open.empty());
            ASSERT_EQ(open.back(), tag.substr(1));
            open.pop_back();
        } else if (tag.back() != '/') {
            open.push_back(name);
        }
        at = end + 1;
    }
    EXPECT_TRUE(open.empty());
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(BenchSvg, IsWellFormed) {
    BenchReport b = example();
    const Baseline other = {{{"decode", 64}, 80.0}, {{"decode", 1000000}, 3.0}, {{"prefill", 512}, 0.0}};
    for (const Baseline* baseline : {static_cast<const Baseline*>(nullptr), &other}) {
        const std::string svg = bench_svg(b, baseline);
        expect_well_formed(svg);
        EXPECT_NE(svg.find("&lt;model&gt; &amp; more"), std::string::npos);
        EXPECT_NE(svg.find("64k"), std::string::npos);
    }
    b.rows.resize(1);  // one point has no line and no range
    expect_well_formed(bench_svg(b, nullptr));
    b.rows.clear();
    expect_well_formed(bench_svg(b, nullptr));
}

std::string pocket(const char* flags = "") {
    return strf("--synth 'pocket --layers 3 --vocab 512 --recipe q8 {}'", flags);
}

using test::Output;

Output vesta(const std::string& arguments) { return test::shell(strf("'{}' {} 2>&1", VESTA_PROGRAM, arguments)); }

TEST(BenchCommand, MeasuresEveryFrontierAskedFor) {
    const fs::path folder = fs::path(VESTA_TEST_TMP) / "bench_command";
    fs::remove_all(folder);
    fs::create_directories(folder);
    const std::string csv = (folder / "a.csv").string(), svg = (folder / "a.svg").string();
    const Output r =
        vesta(strf("bench {} --prefill 8 --depth 12,5 --decode 3 --repeat 2 --no-peak --threads 1 --json --csv '{}' "
                   "--plot '{}'",
                   pocket(), csv, svg));
    ASSERT_EQ(r.exit, 0) << r.out;
    const Json j = Json::parse(r.out);
    std::vector<std::pair<std::string, int64_t>> rows;
    for (const Json& row : j["rows"]) rows.emplace_back(row["kind"], row["context"]);
    const std::vector<std::pair<std::string, int64_t>> expected = {
        {"prefill", 8}, {"increment", 5}, {"decode", 5}, {"increment", 12}, {"decode", 12}};
    EXPECT_EQ(rows, expected);
    EXPECT_EQ(j["rows"][3]["tokens"], 7);
    EXPECT_TRUE(j["peak_bytes_per_s"].is_null());
    EXPECT_EQ(j["threads"], 1);
    EXPECT_GT(j["rows"][2]["weight_bytes"], 1000000);
    const auto svg_text = read_text_file(svg);
    ASSERT_TRUE(svg_text.ok());
    expect_well_formed(svg_text.value());
    const Output compared =
        vesta(strf("bench {} --prefill 0 --depth 5 --decode 1 --repeat 1 --no-peak --compare '{}'", pocket(), csv));
    EXPECT_EQ(compared.exit, 0);
    EXPECT_NE(compared.out.find("x\n"), std::string::npos) << compared.out;
}

TEST(BenchCommand, RefusesBeforeMeasuring) {
    EXPECT_EQ(vesta("bench --compare /no/such.csv " + pocket()).exit, 1);
    EXPECT_EQ(vesta("bench --repeat 0").exit, 2);
    EXPECT_EQ(vesta("bench -m x.gguf " + pocket()).exit, 2);
    EXPECT_EQ(vesta("bench --synth 'mistral'").exit, 2);
    EXPECT_EQ(vesta("bench -m /no/such.gguf --no-peak").exit, 1);
}

TEST(SynthCommand, WritesAFileThatRunsAndRefusesToReplaceIt) {
    const fs::path folder = fs::path(VESTA_TEST_TMP) / "synth_command";
    fs::remove_all(folder);
    fs::create_directories(folder);
    const std::string path = (folder / "m.gguf").string(), flags = "--like pocket --layers 3 --vocab 512 --recipe q8";
    const Output r = vesta(strf("synth '{}' {}", path, flags));
    ASSERT_EQ(r.exit, 0) << r.out;
    EXPECT_NE(r.out.find("3 layers, 16 experts"), std::string::npos) << r.out;
    EXPECT_EQ(vesta(strf("synth '{}' {}", path, flags)).exit, 2);
    EXPECT_EQ(vesta(strf("synth '{}' {} --force", path, flags)).exit, 0);
    EXPECT_EQ(vesta(strf("inspect '{}'", path)).exit, 0);
    EXPECT_EQ(vesta(strf("run -m '{}' --raw -p ab -n 2 --quiet", path)).exit, 0);
    const Output memory = vesta(strf("run -m '{}' --memory --warm", path));
    EXPECT_EQ(memory.exit, 0);
    for (const char* word : {"weights, mapped", "weights, locked", "cache", "scratch", "total", "available"})
        EXPECT_NE(memory.out.find(word), std::string::npos) << word << " in " << memory.out;
    EXPECT_EQ(vesta("synth --like flash --dry-run --recipe q2").exit, 0);
    EXPECT_EQ(vesta("synth").exit, 2);
    EXPECT_EQ(vesta(strf("synth '{}/x.gguf' --ratios 0,7", folder.string())).exit, 2);
    EXPECT_FALSE(fs::exists(folder / "x.gguf"));
}

struct SmallModel {
    synth::Image image;
    std::unique_ptr<Engine> engine;
};
SmallModel small_model() {
    SmallModel m;
    auto plan = synth::plan({.shape = {.like = "pocket", .ratios = {0, 4, 128}, .n_vocab = 512},
                             .recipe = convert::find_recipe("q8").value()});
    m.image = std::move(synth::build(plan.value(), 1, {}).value());
    m.engine = std::move(Engine::open_bytes(m.image.bytes(), "small", {.n_thread = 1}).value());
    return m;
}

TEST(Bench, DecodesTheLikeliestTokenThatDoesNotEndTheAnswer) {
    const std::vector<float> logits = {1, 9, 3, 7, 7};
    EXPECT_EQ(likeliest_except(logits, {}), 1);
    EXPECT_EQ(likeliest_except(logits, 1), 3) << "a tie goes to the lower id";
    EXPECT_EQ(likeliest_except(logits, 4), 1);
    EXPECT_EQ(likeliest_except(std::vector<float>{5, 1}, 0), 1);
}

TEST(Bench, TokensAreThoseOfThePeerAndAvoidBothEnds) {
    EXPECT_EQ(bench_token(0, 4096), 10);
    EXPECT_EQ(bench_token(1, 4096), 10 + 7919 % 4076);
    for (int64_t i = 0; i < 1000; ++i) {
        EXPECT_GE(bench_token(i, 512), 10);
        EXPECT_LT(bench_token(i, 512), 502);
    }
}

TEST(CheckMemory, SaysWhatWouldFit) {
    const SmallModel m = small_model();
    const SessionOptions big{.n_ctx = 1 << 20, .chunk = 512, .cache_format = CacheFormat::f32};
    const int64_t need = m.engine->memory(big).session_bytes();
    EXPECT_TRUE(check_memory(*m.engine, big, {.total_bytes = need, .available_bytes = need}).ok());
    EXPECT_TRUE(check_memory(*m.engine, big, {}).ok()) << "an unknown limit refuses nothing";
    const MemoryLimit half{.total_bytes = need, .available_bytes = need / 2, .by_cgroup = true};
    const Status refused = check_memory(*m.engine, big, half);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::no_memory);
    const std::string& text = refused.error().message;
    for (const char* word : {"context of 1048576 tokens", "in this container", "--ctx", "--chunk 64", "--kv fp8"})
        EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
    // The context it names does fit, and not much more would.
    const int64_t n_ctx = std::stoll(text.substr(text.find("--ctx ") + 6));
    SessionOptions smaller = big;
    smaller.n_ctx = n_ctx;
    EXPECT_LE(m.engine->memory(smaller).session_bytes(), half.available_bytes);
    smaller.n_ctx = n_ctx + 2048;
    EXPECT_GT(m.engine->memory(smaller).session_bytes(), half.available_bytes);
}

// Per decoded token of tiny-flash in the q8 recipe, counted from the file's own directory in another way than the
// library does: everything, less what is not read.
TEST(Traffic, OfASyntheticModelByHand) {
    const SmallModel m = small_model();
    const auto file = gguf::File::parse(m.image.bytes(), "small");
    ASSERT_TRUE(file.ok());
    double expected = 0;
    for (const gguf::TensorInfo& t : file.value().tensors()) {
        double share = 1;
        if (t.n_dim == 3) share = 4.0 / 16;                    // experts used of all
        if (t.name == "token_embd.weight") share = 1.0 / 512;  // one row
        if (t.type == quant::Type::i32) share = 1.0 / 512;
        expected += share * static_cast<double>(t.bytes.size());
    }
    EXPECT_DOUBLE_EQ(static_cast<double>(m.engine->traffic(CacheFormat::fp8, 10).weight_bytes()), expected);
}

}  // namespace
}  // namespace vesta::app
