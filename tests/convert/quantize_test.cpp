// Quantizing model files: formats, bytes, importance, resuming. Most tests use tiny-flash, whose native model file
// holds every value of its checkpoint.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "configs.h"
#include "convert/convert.h"
#include "convert/journal.h"
#include "convert/target.h"
#include "model/model.h"

namespace vesta::convert {
namespace {

namespace fs = std::filesystem;
using quant::Type;

const std::string kTinyFlash = VESTA_TEST_DATA "/tiny-flash";

fs::path fresh_folder(const std::string& name) {
    const fs::path folder = fs::path(VESTA_TEST_TMP) / ("quantize_" + name);
    fs::remove_all(folder);
    fs::create_directories(folder);
    return folder;
}

std::string bytes_of(const fs::path& path) { return read_text_file(path.string()).value(); }

Options options_for(const fs::path& from, const std::string& recipe) {
    Options o{.from = from.string(), .recipe = find_recipe(recipe).value(), .model_name = "tiny-flash"};
    o.version = "test";
    o.quantize = true;
    return o;
}

Result<Summary> quantize(const Options& o, const fs::path& out, int n_thread = 2, ProgressFn progress = {}) {
    VESTA_TRY(const Plan p, plan(o));
    return execute(p, {.path = out.string(),
                       .n_thread = n_thread,
                       .resumable = true,
                       .measure = true,
                       .progress = std::move(progress)});
}

// tiny-flash as a model file with every value exact; made once.
const fs::path& native() {
    static const fs::path path = [] {
        const fs::path out = fs::path(VESTA_TEST_TMP) / strf("quantize_native_{}.gguf", ::getpid());
        const auto p = plan({.from = kTinyFlash, .recipe = find_recipe("native").value(), .version = "test"});
        VESTA_CHECK(p.ok() && execute(p.value(), out.string(), true, 1, {}).ok());
        return out;
    }();
    return path;
}

class EveryRecipe : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Quantize, EveryRecipe, ::testing::ValuesIn([] {
                             std::vector<std::string> names;
                             for (const Recipe& r : recipes()) names.push_back(r.name);
                             return names;
                         }()),
                         [](const auto& recipe) {
                             std::string name = recipe.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST_P(EveryRecipe, DryRunNumbersAreThoseOfTheFileWritten) {
    const fs::path out = fresh_folder("dry_" + GetParam()) / "m.gguf";
    const auto p = plan(options_for(native(), GetParam()));
    ASSERT_TRUE(p.ok()) << p.error().message;
    const auto summary = execute(p.value(), {.path = out.string(), .n_thread = 2, .resumable = true});
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_EQ(p.value().file_bytes(), fs::file_size(out));
    EXPECT_EQ(summary.value().file_bytes, fs::file_size(out));
    const auto file = gguf::File::open(out.string());
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file.value().tensors().size(), p.value().tensors.size());
    uint64_t n_byte = 0, n_weight = 0;
    for (size_t i = 0; i < p.value().tensors.size(); ++i) {
        const gguf::TensorInfo& t = file.value().tensors()[i];
        EXPECT_EQ(t.name, p.value().tensors[i].expected.gguf_name);
        EXPECT_EQ(t.type, p.value().tensors[i].type);
        EXPECT_EQ(t.bytes.size(), p.value().tensors[i].bytes);
        if (t.type != Type::i32) n_byte += t.bytes.size(), n_weight += t.n_elem();
    }
    EXPECT_DOUBLE_EQ(p.value().bits_per_weight(), 8.0 * static_cast<double>(n_byte) / static_cast<double>(n_weight));
    EXPECT_EQ(p.value().traffic().total(), model::decode_traffic(file.value()).total());
    const auto status = model::check(file.value(), [](Type t) { return quant::format(t).decode != nullptr; });
    EXPECT_TRUE(status.ok()) << status.error().message;
    EXPECT_FALSE(fs::exists(out.string() + ".part") || fs::exists(Journal::path_of(out.string())));
    EXPECT_EQ(file.value().string("vesta.quantize.recipe").value(), GetParam());
    EXPECT_EQ(file.value().string("vesta.quantize.source").value(), native().filename().string());
}

TEST_P(EveryRecipe, ThreadsChangeNoByte) {
    const fs::path folder = fresh_folder("threads_" + GetParam());
    for (const int n : {1, 3}) ASSERT_TRUE(quantize(options_for(native(), GetParam()), folder / strf("{}", n), n).ok());
    EXPECT_TRUE(bytes_of(folder / "1") == bytes_of(folder / "3"));
}

// The native file holds every value of the checkpoint, so both sources give the same tensors.
TEST_P(EveryRecipe, ModelFileAndCheckpointGiveTheSameTensors) {
    const fs::path folder = fresh_folder("source_" + GetParam());
    ASSERT_TRUE(quantize(options_for(native(), GetParam()), folder / "a").ok());
    ASSERT_TRUE(quantize(options_for(kTinyFlash, GetParam()), folder / "b").ok());
    const auto a = gguf::File::open((folder / "a").string()), b = gguf::File::open((folder / "b").string());
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_EQ(a.value().tensors().size(), b.value().tensors().size());
    for (const gguf::TensorInfo& t : a.value().tensors()) {
        const gguf::TensorInfo* u = b.value().find_tensor(t.name);
        ASSERT_NE(u, nullptr);
        EXPECT_EQ(t.type, u->type) << t.name;
        EXPECT_TRUE(std::equal(t.bytes.begin(), t.bytes.end(), u->bytes.begin(), u->bytes.end())) << t.name;
    }
}

TEST(Quantize, TensorsThatKeepTheirFormatAreCopied) {
    const fs::path folder = fresh_folder("copy");
    ASSERT_TRUE(quantize(options_for(native(), "q4"), folder / "q4.gguf").ok());
    const auto p = plan(options_for(folder / "q4.gguf", "q4"));
    ASSERT_TRUE(p.ok()) << p.error().message;
    for (const PlannedTensor& t : p.value().tensors) EXPECT_TRUE(t.copy) << t.expected.gguf_name;
    for (const std::string& note : p.value().notes) EXPECT_EQ(note.find("warning"), std::string::npos) << note;
    ASSERT_TRUE(quantize(options_for(folder / "q4.gguf", "q4"), folder / "again.gguf").ok());
    const auto a = gguf::File::open((folder / "q4.gguf").string()),
               b = gguf::File::open((folder / "again.gguf").string());
    for (const gguf::TensorInfo& t : a.value().tensors()) {
        const auto other = b.value().find_tensor(t.name)->bytes;
        EXPECT_TRUE(std::equal(t.bytes.begin(), t.bytes.end(), other.begin(), other.end())) << t.name;
    }
}

TEST(Quantize, QuantizingTwiceIsWarnedAbout) {
    const fs::path folder = fresh_folder("twice");
    ASSERT_TRUE(quantize(options_for(native(), "q4"), folder / "q4.gguf").ok());
    const auto p = plan(options_for(folder / "q4.gguf", "q2"));
    ASSERT_TRUE(p.ok()) << p.error().message;
    bool warned = false;
    for (const std::string& note : p.value().notes)
        warned |= note.find("warning") != std::string::npos && note.find("q4_k") != std::string::npos;
    EXPECT_TRUE(warned);
}

TEST(Quantize, ReportedErrorIsTheErrorOfTheFile) {
    const fs::path out = fresh_folder("error") / "m.gguf";
    const Plan p = plan(options_for(native(), "q4")).value();
    const auto summary = execute(p, {.path = out.string(), .n_thread = 2, .measure = true});
    ASSERT_TRUE(summary.ok());
    const auto source = gguf::File::open(native().string()), result = gguf::File::open(out.string());
    size_t n_k = 0;
    for (const TensorError& e : summary.value().errors) {
        const gguf::TensorInfo& a = *source.value().find_tensor(p.tensors[e.tensor].expected.gguf_name);
        const gguf::TensorInfo& b = *result.value().find_tensor(a.name);
        std::vector<float> x(a.n_elem()), y(a.n_elem());
        quant::format(a.type).decode(a.bytes.data(), x.data(), static_cast<int64_t>(x.size()));
        quant::format(b.type).decode(b.bytes.data(), y.data(), static_cast<int64_t>(y.size()));
        double error = 0, energy = 0;
        for (size_t i = 0; i < x.size(); ++i) {
            error += std::pow(double{x[i]} - double{y[i]}, 2);
            energy += std::pow(double{x[i]}, 2);
        }
        // Sums of up to 10^6 terms in another order.
        EXPECT_NEAR(e.sum.error, error, 1e-9 * error) << a.name;
        EXPECT_NEAR(e.sum.energy, energy, 1e-9 * energy) << a.name;
        n_k += b.type == Type::q4_k;
    }
    EXPECT_EQ(n_k, 21u);  // three expert tensors in each of 6 layers and the MTP block
}

TEST(Quantize, OverridesWinAndMustMatch) {
    Options o = options_for(native(), "q4");
    o.overrides = {Override::parse("blk\\.[01]\\..*_exps=q6_k").value(),
                   Override::parse("blk\\.1\\.ffn_(gate|up)=q8_0").value()};
    const auto p = plan(o);
    ASSERT_TRUE(p.ok()) << p.error().message;
    const auto type_of = [&](const char* name) {
        for (const PlannedTensor& t : p.value().tensors)
            if (t.expected.gguf_name == name) return t.type;
        return Type::f64;
    };
    EXPECT_EQ(type_of("blk.0.ffn_up_exps.weight"), Type::q6_k);
    EXPECT_EQ(type_of("blk.1.ffn_down_exps.weight"), Type::q6_k);
    EXPECT_EQ(type_of("blk.1.ffn_up_exps.weight"), Type::q8_0);
    EXPECT_EQ(type_of("blk.2.ffn_up_exps.weight"), Type::q4_k);
    EXPECT_EQ(type_of("blk.0.attn_norm.weight"), Type::f32);
    // Gate and up of one layer go together.
    o.overrides = {Override::parse("blk\\.1\\.ffn_up_exps=q8_0").value()};
    const auto split = plan(o);
    ASSERT_FALSE(split.ok());
    EXPECT_NE(split.error().message.find("blk.1.ffn_up_exps.weight q8_0"), std::string::npos) << split.error().message;
    for (const char* nothing : {"no_such_tensor=q8_0", "attn_norm=q8_0"}) {  // a vector is no matrix
        o.overrides = {Override::parse(nothing).value()};
        const auto refused = plan(o);
        ASSERT_FALSE(refused.ok());
        EXPECT_NE(refused.error().message.find(nothing), std::string::npos);
    }
}

// The ladder of target.h, on row lengths that do not divide.
TEST(Quantize, FormatsFallBackByTheLadder) {
    const Recipe recipe{"r", "", {{"*", Type::iq2_xxs}}};
    const auto type = [&](uint64_t n_col, Type stored) {
        return choose_target({"w", n_col, false, stored}, recipe, {}).type;
    };
    EXPECT_EQ(type(512, Type::mxfp4), Type::iq2_xxs);
    EXPECT_EQ(type(96, Type::mxfp4), Type::mxfp4);
    EXPECT_EQ(type(96, Type::bf16), Type::q8_0);
    EXPECT_EQ(type(33, Type::bf16), Type::bf16);
    EXPECT_EQ(type(33, Type::f32), Type::f16);
    EXPECT_EQ(choose_target({"w", 33, true, Type::bf16}, recipe, {}).type, Type::f32);
    EXPECT_EQ(choose_target({"w", 33, false, Type::i32}, recipe, {}).type, Type::i32);
}

TEST(Quantize, FlashSizesAreThePublishedOnes) {
    const fs::path config = fresh_folder("flash") / "config.json";
    std::ofstream(config) << published_config(false).dump();
    // Spec 9.2, without the drafter; spec 9.3 for what a token reads, plus what that list leaves out: the last
    // hyper-connection with its vectors and the output norm (131072 + 20 + 16384), one row of the embeddings (8192) and
    // of the three hash tables (24 each).
    const std::tuple<const char*, uint64_t, uint64_t> cases[] = {{"q2", 86'714'775'900, 1'826'095'104},
                                                                 {"q4", 164'628'167'004, 3'652'190'208}};
    for (const auto& [recipe, bytes, routed] : cases) {
        const auto p = plan_shapes(config.string(), {.from = config.string(), .recipe = find_recipe(recipe).value()});
        ASSERT_TRUE(p.ok()) << p.error().message;
        uint64_t n = 0;
        for (const PlannedTensor& t : p.value().tensors)
            if (!t.expected.gguf_name.starts_with("mtp.")) n += t.bytes;
        EXPECT_EQ(n, bytes);
        const model::Traffic t = p.value().traffic();
        EXPECT_EQ(t.routed, routed);
        EXPECT_EQ(t.shared, 1'149'763'584u);
        EXPECT_EQ(t.attention, 4'886'495'232u);
        EXPECT_EQ(t.head, 562'626'560u);
        EXPECT_EQ(t.rest, 974'436'864u + 159'545'160 + 131'072 + 20 + 16'384 + 8'192 + 3 * 24);
    }
}

TEST(Quantize, CompareTensorFindsTheByteThatDiffers) {
    const fs::path out = fresh_folder("compare") / "m.gguf";
    ASSERT_TRUE(quantize(options_for(native(), "q2"), out).ok());
    const Plan p = plan(options_for(native(), "q2")).value();
    for (const PlannedTensor& t : p.tensors) {
        const auto c = compare_tensor(p, t.expected.gguf_name, gguf::File::open(out.string()).value(), 2, {});
        ASSERT_TRUE(c.ok()) << c.error().message;
        EXPECT_TRUE(c.value().equal) << t.expected.gguf_name;
    }
    const std::string name = "blk.3.ffn_gate_exps.weight";
    uint64_t at = 0;
    {
        const auto file = gguf::File::open(out.string());
        at = file.value().data_start() + file.value().find_tensor(name)->offset + 1000;
    }
    std::fstream f(out, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(at));
    const char old = static_cast<char>(f.get());
    f.seekp(static_cast<std::streamoff>(at));
    f.put(static_cast<char>(old ^ 1));
    f.close();
    const auto c = compare_tensor(p, name, gguf::File::open(out.string()).value(), 1, {});
    ASSERT_TRUE(c.ok());
    EXPECT_FALSE(c.value().equal);
    EXPECT_EQ(c.value().first_difference, 1000u);
    EXPECT_EQ(c.value().n_block_differs, 1u);
    EXPECT_EQ(compare_tensor(p, "nothing", gguf::File::open(out.string()).value(), 1, {}).error().code,
              Code::not_found);
    const Plan other = plan(options_for(native(), "q4")).value();
    EXPECT_FALSE(compare_tensor(other, name, gguf::File::open(out.string()).value(), 1, {}).ok());
}

// A copy of the native file (as F32) in which one weight is replaced.
fs::path with_weight(const fs::path& folder, const std::string& tensor, uint64_t index, float value) {
    const fs::path f32 = folder / "f32.gguf", out = folder / "changed.gguf";
    if (!fs::exists(f32)) VESTA_CHECK(quantize(options_for(native(), "f32"), f32).ok());
    fs::copy_file(f32, out, fs::copy_options::overwrite_existing);
    const auto file = gguf::File::open(f32.string());
    const gguf::TensorInfo* t = file.value().find_tensor(tensor);
    std::fstream f(out, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(static_cast<std::streamoff>(file.value().data_start() + t->offset + 4 * index));
    f.write(reinterpret_cast<const char*>(&value), 4);
    return out;
}

TEST(Quantize, ValuesThatAreNotFiniteAreNamedWithTheirPlace) {
    const fs::path folder = fresh_folder("nan");
    // blk.2.ffn_up_exps.weight: 6 experts of 256 rows of 256.
    const uint64_t index = (4 * 256 + 17) * 256 + 200;
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
        for (const char* recipe : {"q2", "q4", "q8", "f16"}) {
            const fs::path out = folder / "out.gguf";
            const auto r =
                quantize(options_for(with_weight(folder, "blk.2.ffn_up_exps.weight", index, bad), recipe), out);
            ASSERT_FALSE(r.ok()) << recipe;
            EXPECT_EQ(r.error().code, Code::bad_file);
            for (const char* word : {"blk.2.ffn_up_exps.weight", "expert 4", "row 17", "column 200"})
                EXPECT_NE(r.error().message.find(word), std::string::npos) << r.error().message;
            for (const auto& entry : fs::directory_iterator(folder))
                EXPECT_EQ(entry.path().filename().string().find("out.gguf"), std::string::npos) << entry.path();
        }
}

TEST(Quantize, ValuesTooLargeForTheFormatAreRefused) {
    const fs::path folder = fresh_folder("large");
    for (const char* recipe : {"q2", "q4", "q8", "f16"}) {
        const auto r = quantize(options_for(with_weight(folder, "blk.2.ffn_up_exps.weight", 5, 1e30f), recipe),
                                folder / "out.gguf");
        ASSERT_FALSE(r.ok()) << recipe;
        EXPECT_EQ(r.error().code, Code::unsupported);
        EXPECT_NE(r.error().message.find("too large"), std::string::npos) << r.error().message;
    }
}

// ---- importance ---------------------------------------------------------------------------------------------------

class ImatrixTrouble : public ::testing::Test {
 protected:
    void SetUp() override {
        const Plan p = plan(options_for(native(), "q2")).value();
        for (const PlannedTensor& t : p.tensors) {
            if (t.type != Type::iq2_xxs && t.type != Type::q2_k) continue;
            imatrix::Entry e;
            e.n_call = 1;
            for (uint64_t i = 0; i < t.dims[0] * t.dims[2]; ++i) e.value.push_back(1.0f + static_cast<float>(i % 7));
            matrix.entries[t.expected.gguf_name] = e;
        }
        matrix.n_chunk = 3;
        matrix.dataset = "test";
    }
    Options options(bool strict) {
        Options o = options_for(native(), "q2");
        auto i = std::make_shared<Importance>();
        i->matrix = matrix;
        i->file_name = "m.dat";
        i->hash = 1;
        o.importance = i;
        o.strict = strict;
        return o;
    }
    // Strict: an error with these words. Otherwise: a note with them, and a file.
    void expect_trouble(std::initializer_list<const char*> words, bool write = false) {
        const auto refused = plan(options(true));
        ASSERT_FALSE(refused.ok());
        for (const char* word : words)
            EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
        const auto p = plan(options(false));
        ASSERT_TRUE(p.ok()) << p.error().message;
        bool noted = false;
        for (const std::string& note : p.value().notes) {
            bool all = true;
            for (const char* word : words) all &= note.find(word) != std::string::npos;
            noted |= all;
        }
        EXPECT_TRUE(noted);
        if (!write) return;
        EXPECT_TRUE(execute(p.value(), {.path = (fresh_folder("trouble") / "m.gguf").string(), .n_thread = 2}).ok());
    }
    imatrix::Matrix matrix;
    const std::string name = "blk.2.ffn_up_exps.weight";
};

TEST_F(ImatrixTrouble, CompleteMatrixIsUsedAndNamedInTheFile) {
    const fs::path folder = fresh_folder("imatrix");
    const auto r = quantize(options(true), folder / "with.gguf");
    ASSERT_TRUE(r.ok()) << r.error().message;
    ASSERT_TRUE(quantize(options_for(native(), "q2"), folder / "without.gguf").ok());
    const auto a = gguf::File::open((folder / "with.gguf").string()),
               b = gguf::File::open((folder / "without.gguf").string());
    EXPECT_EQ(a.value().string("vesta.quantize.imatrix.file").value(), "m.dat");
    EXPECT_EQ(a.value().u32("vesta.quantize.imatrix.chunks").value(), 3u);
    EXPECT_FALSE(b.value().has("vesta.quantize.imatrix.file"));
    for (const char* tensor : {"blk.2.ffn_up_exps.weight", "blk.2.ffn_down_exps.weight"}) {
        const auto x = a.value().find_tensor(tensor)->bytes, y = b.value().find_tensor(tensor)->bytes;
        EXPECT_FALSE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << tensor;
    }
}

TEST_F(ImatrixTrouble, MissingEntry) {
    matrix.entries.erase(name);
    expect_trouble({"m.dat", "blk.2.ffn_up_exps.weight", "no entry"});
}
TEST_F(ImatrixTrouble, WrongLength) {
    matrix.entries[name].value.pop_back();
    expect_trouble({"m.dat", "blk.2.ffn_up_exps.weight"});
}
TEST_F(ImatrixTrouble, NotANumber) {
    matrix.entries[name].value[300] = std::numeric_limits<float>::quiet_NaN();
    expect_trouble({"m.dat", "blk.2.ffn_up_exps.weight"});
}
TEST_F(ImatrixTrouble, NegativeValue) {
    matrix.entries[name].value[3] = -1;
    expect_trouble({"m.dat", "blk.2.ffn_up_exps.weight"});
}
TEST_F(ImatrixTrouble, ExpertNeverHit) {
    std::fill_n(matrix.entries[name].value.begin() + 2 * 256, 256, 0.0f);
    expect_trouble({"m.dat", "blk.2.ffn_up_exps.weight", "1 of 6 experts"}, true);
}
TEST_F(ImatrixTrouble, DraftersMayBeMissing) {
    for (auto it = matrix.entries.begin(); it != matrix.entries.end();)
        it = it->first.starts_with("mtp.") ? matrix.entries.erase(it) : std::next(it);
    const auto p = plan(options(true));
    EXPECT_TRUE(p.ok()) << p.error().message;
}
TEST_F(ImatrixTrouble, StrictWithoutAMatrixIsRefused) {
    Options o = options_for(native(), "q2");
    o.strict = true;
    EXPECT_FALSE(plan(o).ok());
}

// ---- stopping and going on ----------------------------------------------------------------------------------------

TEST(Resume, StoppedWorkContinuesAndGivesTheSameBytes) {
    const fs::path folder = fresh_folder("stop");
    const fs::path out = folder / "m.gguf", whole = folder / "whole.gguf";
    ASSERT_TRUE(quantize(options_for(native(), "q4"), whole).ok());
    size_t resumed = 0;
    for (int stop_after : {3, 40, 90, 10'000}) {
        int n = 0;
        const auto r = quantize(options_for(native(), "q4"), out, 2,
                                [&](const Progress& p) { return p.stage != "quantize" || ++n <= stop_after; });
        if (!r.ok()) {
            EXPECT_EQ(r.error().code, Code::cancelled);
            EXPECT_FALSE(fs::exists(out));
            EXPECT_FALSE(gguf::File::open(out.string() + ".part").ok());
            continue;
        }
        resumed = r.value().n_resumed;
        EXPECT_EQ(r.value().errors.size(),
                  quantize(options_for(native(), "q4"), folder / "x.gguf").value().errors.size());
        break;
    }
    EXPECT_GT(resumed, 50u);
    EXPECT_TRUE(bytes_of(out) == bytes_of(whole));
}

TEST(Resume, DamageInTheUnfinishedFileIsNoticed) {
    const fs::path folder = fresh_folder("damage");
    const fs::path out = folder / "m.gguf", part = folder / "m.gguf.part", whole = folder / "whole.gguf";
    ASSERT_TRUE(quantize(options_for(native(), "q4"), whole).ok());
    const auto stop = [&] {
        int n = 0;
        ASSERT_FALSE(quantize(options_for(native(), "q4"), out, 2, [&](const Progress& p) {
                         return p.stage != "quantize" || ++n <= 100;
                     }).ok());
    };
    stop();
    // One byte inside the first tensor.
    uint64_t at = 0;
    {
        const auto file = gguf::File::open(whole.string());
        at = file.value().data_start() + 5;
    }
    {
        std::fstream f(part, std::ios::in | std::ios::out | std::ios::binary);
        f.seekp(static_cast<std::streamoff>(at));
        f.put(0x55);
    }
    ASSERT_TRUE(quantize(options_for(native(), "q4"), out).ok());
    EXPECT_TRUE(bytes_of(out) == bytes_of(whole));

    // The file ends early; the journal has a torn line.
    fs::remove(out);
    stop();
    fs::resize_file(part, fs::file_size(part) / 3);
    std::ofstream(Journal::path_of(out.string()), std::ios::app) << "77 00ab";
    ASSERT_TRUE(quantize(options_for(native(), "q4"), out).ok());
    EXPECT_TRUE(bytes_of(out) == bytes_of(whole));
}

TEST(Resume, OtherWorkStartsOver) {
    const fs::path folder = fresh_folder("other");
    const fs::path out = folder / "m.gguf";
    int n = 0;
    ASSERT_FALSE(quantize(options_for(native(), "q4"), out, 2, [&](const Progress&) { return ++n <= 100; }).ok());
    const auto r = quantize(options_for(native(), "q8"), out);
    ASSERT_TRUE(r.ok());
    EXPECT_EQ(r.value().n_resumed, 0u);
    ASSERT_TRUE(quantize(options_for(native(), "q8"), folder / "whole.gguf").ok());
    EXPECT_TRUE(bytes_of(out) == bytes_of(folder / "whole.gguf"));
}

TEST(Resume, AFileAnotherProcessIsWritingIsLeftAlone) {
    const fs::path out = fresh_folder("locked") / "m.gguf";
    const Plan p = plan(options_for(native(), "q4")).value();
    gguf::Writer writer = new_writer(p);
    ASSERT_TRUE(writer.begin_resumable(out.string(), false, false).ok());
    const auto r = quantize(options_for(native(), "q4"), out);
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.error().message.find("another process"), std::string::npos);
    EXPECT_TRUE(fs::exists(out.string() + ".part"));
}

TEST(Resume, LeftoversOfDeadProcessesAreRemovedAndLivingOnesKept) {
    const fs::path folder = fresh_folder("stale");
    const fs::path out = folder / "m.gguf";
    const pid_t dead = ::fork();
    if (dead == 0) ::_exit(0);
    ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
    const fs::path stale = folder / strf("m.gguf.tmp-{}-0", dead),
                   alive = folder / strf("m.gguf.tmp-{}-99", ::getpid());
    const fs::path other = folder / strf("n.gguf.tmp-{}-0", dead), odd = folder / strf("m.gguf.tmp-{}-0x", dead);
    for (const fs::path& f : {stale, alive, other, odd}) std::ofstream(f) << "x";
    const Plan p = plan(options_for(native(), "f32")).value();
    ASSERT_TRUE(execute(p, out.string(), false, 1, {}).ok());
    EXPECT_FALSE(fs::exists(stale));
    for (const fs::path& f : {alive, other, odd}) EXPECT_TRUE(fs::exists(f)) << f;
}

TEST(Quantize, TheSourceIsNotOverwritten) {
    const fs::path folder = fresh_folder("self");
    fs::copy_file(native(), folder / "m.gguf");
    const Plan p = plan(options_for(folder / "m.gguf", "q8")).value();
    const auto r = execute(p, {.path = (folder / "m.gguf").string(), .overwrite = true, .resumable = true});
    ASSERT_FALSE(r.ok());
    EXPECT_TRUE(bytes_of(folder / "m.gguf") == bytes_of(native()));
}

}  // namespace
}  // namespace vesta::convert
