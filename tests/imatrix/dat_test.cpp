#include "imatrix/dat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <span>

#include "base/file.h"
#include "dat_bytes.h"

namespace vesta::imatrix {
namespace {

using test::DatBytes;
namespace fs = std::filesystem;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

fs::path tmp(const std::string& name) {
    const fs::path dir = fs::path(VESTA_TEST_TMP) / "imatrix_dat";
    fs::create_directories(dir);
    return dir / name;
}

Matrix parsed(const DatBytes& d) {
    auto m = parse_dat(d.bytes(), "t.dat");
    if (!m.ok()) ADD_FAILURE() << m.error().message;
    return m.ok() ? std::move(m).value() : Matrix{};
}

std::string formatted(const Matrix& m) {
    const auto bytes = format_dat(m);
    if (!bytes.ok()) ADD_FAILURE() << bytes.error().message;
    if (!bytes.ok()) return {};
    return std::string(reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size());
}

// One expert tensor of 3 experts × 2 columns as the collector makes it; expert 1 was never hit.
Entry collected() {
    Entry e;
    e.n_call = 4;
    e.n_row = {10, 0, 4};
    e.sum = {5.0, 20.0, 0.0, 0.0, 1.0, 8.0};
    e.set_values_from_sums();
    return e;
}

Matrix collected_matrix() {
    Matrix m;
    m.entries["blk.0.ffn_gate_exps.weight"] = collected();
    m.entries["output.weight"] = {.n_call = 4, .value = {4, 8, 12}, .n_row = {7}, .sum = {7, 14, 21}};
    m.n_chunk = 4;
    m.dataset = "chat.txt";
    m.run = RunState{.model = 11, .data = 12, .n_ctx = 512, .finished = false, .n_sequence = 4, .n_token = 99};
    return m;
}

void expect_equal(const Matrix& a, const Matrix& b) {
    EXPECT_EQ(a.n_chunk, b.n_chunk);
    EXPECT_EQ(a.dataset, b.dataset);
    EXPECT_EQ(a.run, b.run);
    ASSERT_EQ(a.entries.size(), b.entries.size());
    for (const auto& [name, e] : a.entries) {
        ASSERT_TRUE(b.entries.count(name)) << name;
        const Entry& f = b.entries.at(name);
        EXPECT_EQ(e.n_call, f.n_call) << name;
        EXPECT_EQ(e.value, f.value) << name;
        EXPECT_EQ(e.n_row, f.n_row) << name;
        EXPECT_EQ(e.sum, f.sum) << name;
    }
}

TEST(Dat, ReadsWhatOtherToolsWrite) {
    const Matrix m = parsed(DatBytes().i32(2).entry("a", 1, {1, 2}).entry("b", 0, {3}).end(17, "wiki.txt"));
    EXPECT_EQ(m.entries.at("a").value, (std::vector<float>{1, 2}));
    EXPECT_EQ(m.entries.at("a").n_call, 1);
    EXPECT_EQ(m.entries.at("b").n_call, 0);
    EXPECT_TRUE(m.entries.at("a").n_row.empty());
    EXPECT_EQ(m.n_chunk, 17);
    EXPECT_EQ(m.dataset, "wiki.txt");
    EXPECT_FALSE(m.run.has_value());
}

TEST(Dat, EndsAfterTheEntriesInOlderFiles) {
    const Matrix m = parsed(DatBytes().i32(1).entry("a", 2, {1, 2}));
    EXPECT_EQ(m.n_chunk, 0);
    EXPECT_EQ(m.dataset, "");
}

TEST(Dat, AFileWithoutRowCountsIsExactlyTheLegacyFormat) {
    Matrix m;
    m.entries["b"] = {.n_call = 3, .value = {1.5f, 2.5f}, .n_row = {}, .sum = {}};
    m.entries["a"] = {.n_call = 1, .value = {7}, .n_row = {}, .sum = {}};
    m.n_chunk = 5;
    m.dataset = "x";
    EXPECT_EQ(formatted(m), DatBytes().i32(2).entry("a", 1, {7}).entry("b", 3, {1.5f, 2.5f}).end(5, "x").s);
}

TEST(Dat, RoundTripKeepsEverything) {
    const Matrix m = collected_matrix();
    const std::string bytes = formatted(m);
    const auto again = parse_dat(std::as_bytes(std::span(bytes)), "t.dat");
    ASSERT_TRUE(again.ok()) << again.error().message;
    expect_equal(m, again.value());
}

TEST(Dat, FilesAppearWholeAndAreNotOverwrittenUnasked) {
    const fs::path path = tmp("whole.dat");
    fs::remove(path);
    Matrix m = collected_matrix();
    m.entries["big"] = {.n_call = 1, .value = std::vector<float>(100000, 0.25f), .n_row = {}, .sum = {}};
    ASSERT_TRUE(write_dat(m, path, false).ok());
    const Status second = write_dat(m, path, false);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::already_exists);
    ASSERT_TRUE(write_dat(m, path, true).ok());
    const auto again = read_dat(path);
    ASSERT_TRUE(again.ok()) << again.error().message;
    expect_equal(m, again.value());
    const auto text = read_text_file(path);
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(text.value(), formatted(m));
    for (const auto& entry : fs::directory_iterator(path.parent_path()))
        EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
    EXPECT_EQ(read_dat(tmp("missing.dat")).error().code, Code::not_found);
}

TEST(Dat, APlainReaderSeesMeansAndOnesForExpertsNeverHit) {
    const test::PlainDat plain = test::read_plainly(formatted(collected_matrix()));
    EXPECT_EQ(plain.mean.at("blk.0.ffn_gate_exps.weight"), (std::vector<float>{0.5f, 2, 1, 1, 0.25f, 2}));
    EXPECT_EQ(plain.mean.at("output.weight"), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(plain.n_call.at("output.weight"), 4);
    EXPECT_EQ(plain.n_chunk, 4);
    EXPECT_EQ(plain.dataset, "chat.txt");
    EXPECT_GT(plain.n_left, 0u);  // the section it does not know
}

TEST(Dat, RefusesWhatTheFormatDoesNotAllow) {
    const std::string good = formatted(collected_matrix());
    const std::string section = good.substr(good.find("VESTAIMX"));
    const std::string before = good.substr(0, good.find("VESTAIMX"));
    const auto flipped = [&](size_t at_in_section) {
        std::string s = section;
        s[at_in_section] = static_cast<char>(s[at_in_section] ^ 1);
        return before + s;
    };
    const int32_t huge = std::numeric_limits<int32_t>::max();
    const struct {
        const char* what;
        std::string bytes;
        const char* says;
    } cases[] = {
        {"empty", "", "number of entries"},
        {"three bytes", "abc", "number of entries"},
        {"no entries", DatBytes().i32(0).s, "0 entries"},
        {"negative entries", DatBytes().i32(-1).s, "-1 entries"},
        {"more entries than bytes", DatBytes().i32(huge).entry("a", 1, {1}).s, "2147483647 entries"},
        {"one entry too many", DatBytes().i32(2).entry("a", 1, {1, 2, 3, 4, 5, 6}).s, "entry 1 of 2"},
        {"gguf", "GGUF" + std::string(60, '\0'), "GGUF format"},
        {"text", "When in the course of human events", "not an importance matrix"},
        {"empty name", DatBytes().i32(1).i32(0).i32(1).i32(1).raw(1.0f).i32(0).i32(0).s, "name of 0 bytes"},
        {"negative name", DatBytes().i32(1).i32(-5).i32(1).i32(1).raw(1.0f).i32(0).i32(0).s, "name of -5 bytes"},
        {"long name", DatBytes().i32(1).i32(huge).text(std::string(30, 'a')).s, "name of 2147483647 bytes"},
        {"name past the end", DatBytes().i32(1).i32(40).text(std::string(30, 'a')).s, "needs 40 bytes, 30 are left"},
        {"negative calls", DatBytes().i32(1).entry("a", -1, {1}).s, "a: -1 calls"},
        {"no values", DatBytes().i32(1).entry("abcdefgh", 1, {}).s, "abcdefgh: 0 values"},
        {"negative values", DatBytes().i32(1).i32(5).text("abcde").i32(1).i32(-2).s, "abcde: -2 values"},
        {"values past the end", DatBytes().i32(1).i32(1).text("a").i32(1).i32(huge).raw(1.0f).s,
         "a: 2147483647 values"},
        {"duplicate", DatBytes().i32(2).entry("a", 1, {1}).entry("a", 1, {1}).s, "a: occurs twice"},
        {"half a chunk count", DatBytes().i32(1).entry("a", 1, {1}).text("ab").s, "number of chunks"},
        {"no dataset length", DatBytes().i32(1).entry("a", 1, {1}).i32(3).s, "dataset"},
        {"negative chunks", DatBytes().i32(1).entry("a", 1, {1}).end(-3, "x").s, "-3 chunks"},
        {"negative dataset", DatBytes().i32(1).entry("a", 1, {1}).i32(1).i32(-1).s, "-1 bytes"},
        {"dataset past the end", DatBytes().i32(1).entry("a", 1, {1}).i32(1).i32(9).text("x").s, "needs 9 bytes"},
        {"a trailing byte", DatBytes().i32(1).entry("a", 1, {1}).end(1, "x").text("!").s, "1 bytes after the end"},
        {"trailing bytes", DatBytes().i32(1).entry("a", 1, {1}).end(1, "x").text("123456789").s,
         "9 bytes after the end"},
        {"other version", flipped(8), "version 0"},
        {"section too long", flipped(12), "bytes follow"},
        {"damaged payload", flipped(20), "checksum"},
        {"damaged end", flipped(section.size() - 1), "checksum"},
        {"cut section", good.substr(0, good.size() - 1), "bytes follow"},
        {"bytes after the section", good + "z", "bytes follow"},
    };
    for (const auto& c : cases) {
        const auto m = parse_dat(std::as_bytes(std::span(c.bytes)), "t.dat");
        ASSERT_FALSE(m.ok()) << c.what;
        EXPECT_EQ(m.error().message.rfind("t.dat: ", 0), 0u) << c.what;
        EXPECT_NE(m.error().message.find(c.says), std::string::npos) << c.what << ": " << m.error().message;
    }
}

TEST(Dat, EveryTruncationIsRefused) {
    const std::string good = formatted(collected_matrix());
    const size_t after_entries = good.find("chat.txt") - 8;  // an old file may end there
    const size_t after_dataset = good.find("VESTAIMX");      // a foreign one there
    for (size_t n = 0; n < good.size(); ++n) {
        const auto m = parse_dat(std::as_bytes(std::span(good)).first(n), "t.dat");
        EXPECT_EQ(m.ok(), n == after_entries || n == after_dataset) << n;
    }
}

// The section again with a right checksum, so that what is inside has to be judged.
std::string with_section(const std::string& payload) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const char c : payload) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return DatBytes()
        .i32(1)
        .entry("a", 1, {1, 2})
        .end(1, "x")
        .text("VESTAIMX")
        .raw(uint32_t{1})
        .raw(uint64_t{payload.size()})
        .text(payload)
        .raw(h)
        .s;
}
DatBytes run_header(uint32_t finished, uint32_t n_entry) {
    return DatBytes()
        .raw(uint64_t{1})
        .raw(uint64_t{2})
        .raw(uint32_t{3})
        .raw(finished)
        .raw(uint64_t{4})
        .raw(uint64_t{5})
        .raw(n_entry);
}

TEST(Dat, RefusesRowCountsThatDoNotFit) {
    const auto name = [](DatBytes d, std::string_view n) { return d.i32(static_cast<int32_t>(n.size())).text(n); };
    const double inf = std::numeric_limits<double>::infinity();
    const struct {
        std::string payload;
        const char* says;  // nullptr: accepted
    } cases[] = {
        {run_header(0, 0).s, nullptr},
        {name(run_header(1, 1), "a").raw(uint32_t{2}).raw(uint64_t{3}).raw(uint64_t{0}).raw(uint32_t{0}).s, nullptr},
        {run_header(2, 0).s, "finished is 2"},
        {run_header(0, 2).s, "2 entries, there are 1"},
        {run_header(0, 1).s, "row counts 0 of 1"},
        {run_header(0, 0).raw(uint32_t{0}).s, "4 bytes between"},
        {name(run_header(0, 1), "b").raw(uint32_t{1}).raw(uint64_t{3}).raw(uint32_t{0}).s, "b, which has no entry"},
        {name(run_header(0, 1), "a").raw(uint32_t{0}).raw(uint32_t{0}).s, "into 0 vectors"},
        {name(run_header(0, 1), "a").raw(uint32_t{3}).raw(uint32_t{0}).s, "into 3 vectors"},
        {name(run_header(0, 1), "a").raw(uint32_t{1}).raw(~uint64_t{0}).raw(uint32_t{0}).s,
         "18446744073709551615 rows"},
        {name(run_header(0, 1), "a").raw(uint32_t{1}).raw(uint64_t{3}).raw(uint32_t{7}).s, "sums are 7"},
        {name(run_header(0, 1), "a").raw(uint32_t{1}).raw(uint64_t{3}).raw(uint32_t{1}).raw(1.0).raw(-1.0).s,
         "squares is -1"},
        {name(run_header(0, 1), "a").raw(uint32_t{1}).raw(uint64_t{3}).raw(uint32_t{1}).raw(inf).raw(1.0).s,
         "squares is inf"},
    };
    for (const auto& c : cases) {
        const std::string bytes = with_section(c.payload);
        const auto m = parse_dat(std::as_bytes(std::span(bytes)), "t.dat");
        if (c.says == nullptr) {
            EXPECT_TRUE(m.ok()) << m.error().message;
            continue;
        }
        ASSERT_FALSE(m.ok()) << c.says;
        EXPECT_NE(m.error().message.find(c.says), std::string::npos) << m.error().message;
    }
}

TEST(Dat, ImportanceIsTheMeanOfTheExpertsColumns) {
    const Matrix m = collected_matrix();
    const std::string name = "blk.0.ffn_gate_exps.weight";
    EXPECT_EQ(m.importance(name, 2, 3, 0).value(), (std::vector<float>{0.5f, 2}));
    EXPECT_EQ(m.importance(name, 2, 3, 1).value(), (std::vector<float>{1, 1}));
    EXPECT_EQ(m.importance(name, 2, 3, 2).value(), (std::vector<float>{0.25f, 2}));
    EXPECT_EQ(m.importance("output.weight", 3, 1, 0).value(), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(m.importance("output.weight", 3, 5, 4).value(), (std::vector<float>{1, 2, 3}));  // one vector for all
    EXPECT_EQ(m.importance("nothing", 3, 1, 0).error().code, Code::not_found);
    const auto wrong = m.importance(name, 4, 3, 0);
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().code, Code::bad_file);
    EXPECT_NE(wrong.error().message.find("6 importance values, expected 4 columns x 3 experts"), std::string::npos)
        << wrong.error().message;
}

TEST(Dat, ABadValueCostsItsVectorOnly) {
    for (const float bad : {kNan, kInf, -1.0f}) {
        const Matrix m = parsed(DatBytes().i32(2).entry("a", 1, {1, bad, 3, 4}).entry("b", 1, {1, 2}));
        const auto first = m.importance("a", 2, 2, 0);
        ASSERT_FALSE(first.ok());
        EXPECT_EQ(first.error().code, Code::bad_file);
        EXPECT_NE(first.error().message.find("a: importance value 1 is"), std::string::npos) << first.error().message;
        EXPECT_FALSE(m.measured("a", 2, 2, 0));
        EXPECT_TRUE(m.importance("a", 2, 2, 1).ok());
        EXPECT_TRUE(m.importance("b", 2, 1, 0).ok());
    }
}

TEST(Dat, MeasuredTellsExpertsNeverHit) {
    const Matrix m = collected_matrix();
    const std::string name = "blk.0.ffn_gate_exps.weight";
    EXPECT_TRUE(m.measured(name, 2, 3, 0));
    EXPECT_FALSE(m.measured(name, 2, 3, 1));
    EXPECT_TRUE(m.measured(name, 2, 3, 2));
    EXPECT_TRUE(m.measured("output.weight", 3, 1, 0));
    EXPECT_FALSE(m.measured("nothing", 3, 1, 0));
    // Without row counts: ones (DS4, llama.cpp) and zeros (older tools) say nothing.
    const Matrix foreign = parsed(DatBytes().i32(1).entry("e", 5, {5, 5, 0, 0, 1, 2}));
    EXPECT_FALSE(foreign.measured("e", 2, 3, 0));
    EXPECT_FALSE(foreign.measured("e", 2, 3, 1));
    EXPECT_TRUE(foreign.measured("e", 2, 3, 2));
}

TEST(Merge, AddsSumsRowsAndCallsAsOneRunWouldHave) {
    Matrix a = collected_matrix(), b = collected_matrix();
    Entry& other = b.entries["blk.0.ffn_gate_exps.weight"];
    other.n_call = 2;
    other.n_row = {30, 8, 0};
    other.sum = {3, 6, 4, 2, 0, 0};
    other.set_values_from_sums();
    ASSERT_TRUE(merge(a, b).ok());
    const Entry& e = a.entries["blk.0.ffn_gate_exps.weight"];
    EXPECT_EQ(e.n_call, 6);
    EXPECT_EQ(e.n_row, (std::vector<uint64_t>{40, 8, 4}));
    EXPECT_EQ(e.sum, (std::vector<double>{8, 26, 4, 2, 1, 8}));
    EXPECT_EQ(e.value, (std::vector<float>{8 * 6 / 40.0f, 26 * 6 / 40.0f, 4 * 6 / 8.0f, 2 * 6 / 8.0f, 1.5f, 12}));
    EXPECT_EQ(a.n_chunk, 8);
    EXPECT_EQ(a.dataset, "chat.txt");
    EXPECT_FALSE(a.run.has_value());
}

TEST(Merge, WithoutSumsTheMeansAreWeightedByRows) {
    Matrix a = collected_matrix(), b = collected_matrix();
    for (Matrix* m : {&a, &b})
        for (auto& [name, e] : m->entries) e.sum.clear();
    b.entries["blk.0.ffn_gate_exps.weight"].n_row = {30, 8, 0};
    b.entries["blk.0.ffn_gate_exps.weight"].value = {4, 4, 2, 2, 4, 4};  // means 1 1, .5 .5, ones
    b.dataset = "code.txt";
    ASSERT_TRUE(merge(a, b).ok());
    const Entry& e = a.entries["blk.0.ffn_gate_exps.weight"];
    EXPECT_TRUE(e.sum.empty());
    EXPECT_EQ(e.n_call, 8);
    EXPECT_EQ(e.n_row, (std::vector<uint64_t>{40, 8, 4}));
    // (10·.5 + 30·1)/40, (10·2 + 30·1)/40; b's alone; a's alone
    const float expected[] = {35 / 40.0f, 50 / 40.0f, 0.5f, 0.5f, 0.25f, 2};
    for (size_t i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(e.mean(i), expected[i]) << i;
    EXPECT_EQ(a.dataset, "chat.txt + code.txt");
}

TEST(Merge, AnExpertNobodyHitStaysAPlaceholder) {
    Matrix a = collected_matrix();
    ASSERT_TRUE(merge(a, collected_matrix()).ok());
    EXPECT_FALSE(a.measured("blk.0.ffn_gate_exps.weight", 2, 3, 1));
    EXPECT_EQ(a.importance("blk.0.ffn_gate_exps.weight", 2, 3, 1).value(), (std::vector<float>{1, 1}));
}

TEST(Merge, ForeignFilesAreWeightedByCallsAndPlaceholdersDoNotDilute) {
    // 2 experts × 32 columns without row counts; a never hit expert 0, b never hit expert 1.
    const auto ramp = [](float base) {
        std::vector<float> v;
        for (int i = 0; i < 32; ++i) v.push_back(base + static_cast<float>(i));
        return v;
    };
    const auto packed = [](std::vector<float> x, const std::vector<float>& y) {
        x.insert(x.end(), y.begin(), y.end());
        return x;
    };
    const std::vector<float> ones(32, 1.0f), threes(32, 3.0f);
    Matrix a = parsed(DatBytes().i32(2).entry("e", 1, packed(ones, ramp(10))).entry("d", 1, {1, 2}));
    const Matrix b = parsed(DatBytes().i32(2).entry("e", 3, packed(ramp(60), threes)).entry("d", 3, {18, 3}));
    ASSERT_TRUE(merge(a, b).ok());
    EXPECT_EQ(a.entries.at("e").n_call, 4);
    for (size_t i = 0; i < 32; ++i) {
        EXPECT_FLOAT_EQ(a.entries.at("e").mean(i), (60 + static_cast<float>(i)) / 3) << i;  // b's
        EXPECT_FLOAT_EQ(a.entries.at("e").mean(32 + i), 10 + static_cast<float>(i)) << i;   // a's
    }
    EXPECT_FLOAT_EQ(a.entries.at("d").mean(0), (1 * 1 + 3 * 6) / 4.0f);
    EXPECT_FLOAT_EQ(a.entries.at("d").mean(1), (1 * 2 + 3 * 1) / 4.0f);

    // Row counts on one side only: it still knows which of its own vectors are empty, and how many there are.
    Matrix ours;
    ours.entries["e"] = {.n_call = 2, .value = {}, .n_row = {0, 5}, .sum = std::vector<double>(64, 10.0)};
    ours.entries["e"].set_values_from_sums();
    const Matrix theirs = parsed(DatBytes().i32(1).entry("e", 3, packed(ramp(60), threes)));
    ASSERT_TRUE(merge(ours, theirs).ok());
    EXPECT_TRUE(ours.entries.at("e").n_row.empty());
    EXPECT_FLOAT_EQ(ours.entries.at("e").mean(5), 65 / 3.0f);
    EXPECT_FLOAT_EQ(ours.entries.at("e").mean(40), 2.0f);
}

TEST(Merge, EntriesOfOneSideAreTakenAsTheyAre) {
    Matrix a = parsed(DatBytes().i32(1).entry("a", 1, {1, 2}));
    ASSERT_TRUE(merge(a, collected_matrix()).ok());
    EXPECT_EQ(a.entries.size(), 3u);
    EXPECT_EQ(a.entries.at("output.weight").n_row, std::vector<uint64_t>{7});
}

TEST(Merge, RefusesOtherShapesAndBadValuesAndChangesNothing) {
    for (const auto& [values, says] : {std::pair<std::vector<float>, const char*>{{1, 2, 3}, "different models"},
                                       {{1, kNan}, "value 1 is nan"},
                                       {{-1, 2}, "value 0 is -1"},
                                       {{kInf, 2}, "value 0 is inf"}}) {
        Matrix a = parsed(DatBytes().i32(2).entry("a", 1, {1, 2}).entry("z", 1, {3, 4}));
        const Matrix before = a;
        const Matrix b = parsed(DatBytes().i32(2).entry("a", 1, {5, 6}).entry("z", 1, values));
        const Status merged = merge(a, b);
        ASSERT_FALSE(merged.ok()) << says;
        EXPECT_EQ(merged.error().code, Code::bad_file);
        EXPECT_NE(merged.error().message.find(says), std::string::npos) << merged.error().message;
        expect_equal(before, a);
    }
}

TEST(Dat, WritingRefusesWhatAReaderWould) {
    Matrix empty;
    EXPECT_EQ(format_dat(empty).error().code, Code::invalid_argument);
    Matrix nameless;
    nameless.entries[""] = {.n_call = 1, .value = {1}, .n_row = {}, .sum = {}};
    EXPECT_FALSE(format_dat(nameless).ok());
    Matrix uneven;
    uneven.entries["a"] = {.n_call = 1, .value = {1, 2, 3}, .n_row = {1, 2}, .sum = {}};
    EXPECT_FALSE(format_dat(uneven).ok());
    EXPECT_FALSE(write_dat(uneven, tmp("never.dat"), true).ok());
    EXPECT_FALSE(fs::exists(tmp("never.dat")));
}

// Writes the seeds of fuzz_imatrix when asked: VESTA_WRITE_SEEDS=1 test_imatrix --gtest_filter=DatSeeds.*
TEST(DatSeeds, AreValidFiles) {
    const fs::path dir = fs::path(VESTA_SOURCE_DIR) / "tests/fuzz/corpus/imatrix";
    const std::map<std::string, std::string> seeds = {
        {"legacy", DatBytes().i32(2).entry("a", 1, {1, 2}).entry("b", 3, {3, 4, 5, 6}).end(17, "wiki.txt").s},
        {"old", DatBytes().i32(1).entry("blk.0.ffn_down_exps.weight", 0, std::vector<float>(64, 1.0f)).s},
        {"collected", formatted(collected_matrix())},
        {"damaged_values", DatBytes().i32(1).entry("a", 1, {1, kNan, -2, kInf}).end(1, "").s},
    };
    for (const auto& [name, bytes] : seeds) {
        if (std::getenv("VESTA_WRITE_SEEDS") != nullptr) {
            fs::create_directories(dir);
            auto file = AtomicFile::create(dir / name, true);
            ASSERT_TRUE(file.ok() && file.value().write(std::as_bytes(std::span(bytes))).ok() &&
                        file.value().commit().ok());
        }
        const auto stored = read_text_file(dir / name);
        ASSERT_TRUE(stored.ok()) << stored.error().message;
        EXPECT_EQ(stored.value(), bytes) << name;
        EXPECT_TRUE(parse_dat(std::as_bytes(std::span(bytes)), name).ok());
    }
}

}  // namespace
}  // namespace vesta::imatrix
