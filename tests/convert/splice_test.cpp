// Splicing: which bytes come from where, and which pairs of files are refused.
#include "convert/splice.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>

#include "convert/convert.h"
#include "model/model.h"

namespace vesta::convert {
namespace {

namespace fs = std::filesystem;

class SpliceFiles : public ::testing::Test {
 protected:
    static void SetUpTestSuite() {
        folder = fs::path(VESTA_TEST_TMP) / strf("splice_{}", ::getpid());
        fs::remove_all(folder);
        fs::create_directories(folder);
        for (const char* recipe : {"q2", "q4"}) {
            const auto p = plan({.from = VESTA_TEST_DATA "/tiny-flash", .recipe = find_recipe(recipe).value()});
            VESTA_CHECK(p.ok() && execute(p.value(), (folder / recipe).string(), true, 2, {}).ok());
        }
        const auto pro = plan({.from = VESTA_TEST_DATA "/tiny-pro", .recipe = find_recipe("q8").value()});
        VESTA_CHECK(pro.ok() && execute(pro.value(), (folder / "pro").string(), true, 2, {}).ok());
    }
    static void TearDownTestSuite() { fs::remove_all(folder); }
    static gguf::File open(const std::string& name) { return gguf::File::open((folder / name).string()).value(); }

    // A copy of file q4 with something changed on the way: metadata entries and tensors may be dropped or replaced.
    struct Change {
        std::function<bool(gguf::Writer&, const gguf::File::Entry&)> metadata = {};  // true: handled
        std::function<bool(gguf::Writer&, const gguf::TensorInfo&)> tensor =
            {};  // true: left out or declared otherwise
    };
    static gguf::File changed(const std::string& name, const Change& change) {
        const gguf::File file = open("q4");
        gguf::Writer w;
        for (const auto& e : file.metadata())
            if (!change.metadata || !change.metadata(w, e)) w.add_value(e.key, e.value);
        for (const gguf::TensorInfo& t : file.tensors())
            if (!change.tensor || !change.tensor(w, t)) w.add_tensor(t.name, t.type, std::span(t.dims, t.n_dim));
        VESTA_CHECK(w.begin((folder / name).string(), true).ok());
        for (size_t i = 0; i < w.n_tensor(); ++i) {
            const std::vector<std::byte> zeros(w.tensor_bytes(i));
            VESTA_CHECK(w.write_tensor(i, 0, zeros).ok());
        }
        VESTA_CHECK(w.finish().ok());
        return open(name);
    }
    static void expect_refused(const gguf::File& donor, const char* word) {
        const gguf::File base = open("q2");
        const auto s = plan_splice(base, donor, "1:2", "experts");
        ASSERT_FALSE(s.ok());
        EXPECT_NE(s.error().message.find(word), std::string::npos) << s.error().message;
        EXPECT_NE(s.error().message.find("not the same model"), std::string::npos) << s.error().message;
    }
    static fs::path folder;
};
fs::path SpliceFiles::folder;

TEST_F(SpliceFiles, ChosenTensorsAreTheDonorsAndAllOthersTheBases) {
    const gguf::File base = open("q2"), donor = open("q4");
    for (const char* which : {"experts", "all"}) {
        const auto s = plan_splice(base, donor, "1,3:4", which);
        ASSERT_TRUE(s.ok()) << s.error().message;
        const std::string out = (folder / "spliced").string();
        ASSERT_TRUE(write_splice(s.value(), out, true, {}).ok());
        const gguf::File result = open("spliced");
        EXPECT_EQ(result.file_bytes(), s.value().file_bytes);
        ASSERT_EQ(result.tensors().size(), base.tensors().size());
        size_t n_donor = 0;
        for (size_t i = 0; i < result.tensors().size(); ++i) {
            const gguf::TensorInfo& t = result.tensors()[i];
            EXPECT_EQ(t.name, base.tensors()[i].name);
            const bool layer =
                t.name.starts_with("blk.1.") || t.name.starts_with("blk.3.") || t.name.starts_with("blk.4.");
            const bool from_donor = layer && (which == std::string("all") || t.name.find("_exps.") != t.name.npos);
            const gguf::TensorInfo* origin = (from_donor ? donor : base).find_tensor(t.name);
            EXPECT_EQ(t.type, origin->type) << t.name;
            EXPECT_TRUE(std::equal(t.bytes.begin(), t.bytes.end(), origin->bytes.begin(), origin->bytes.end()))
                << t.name;
            n_donor += from_donor;
        }
        EXPECT_EQ(n_donor, s.value().n_from_donor);
        EXPECT_EQ(s.value().n_type_changed, 9u);  // three expert tensors of three layers
        EXPECT_EQ(result.string("vesta.splice.layers").value(), "1,3:4");
        const auto status = model::check(result, [](quant::Type) { return true; });
        EXPECT_TRUE(status.ok()) << status.error().message;
    }
}

TEST_F(SpliceFiles, DifferentModelsAreRefusedByTheirFirstDifference) {
    const gguf::File pro = open("pro");
    expect_refused(pro, "deepseek4.");
    expect_refused(changed("c1", {.metadata =
                                      [](gguf::Writer& w, const auto& e) {
                                          if (e.key != "deepseek4.rope.freq_base") return false;
                                          w.add_f32(e.key, 9999.0f);
                                          return true;
                                      }}),
                   "deepseek4.rope.freq_base");
    expect_refused(changed("c2", {.metadata = [](gguf::Writer&,
                                                 const auto& e) { return e.key == "deepseek4.expert_weights_scale"; }}),
                   "deepseek4.expert_weights_scale");
    expect_refused(changed("c3", {.metadata =
                                      [](gguf::Writer& w, const auto& e) {
                                          if (e.key == "general.name") w.add_string("tokenizer.ggml.model", "gpt2");
                                          return false;
                                      }}),
                   "tokenizer.ggml.model");
    expect_refused(changed("c4", {.metadata =
                                      [](gguf::Writer& w, const auto& e) {
                                          if (e.key != "general.architecture") return false;
                                          w.add_string(e.key, "glm5");
                                          return true;
                                      }}),
                   "glm5");
    expect_refused(changed("c5", {.tensor = [](gguf::Writer&, const auto& t) { return t.name == "output.weight"; }}),
                   "output.weight");
    expect_refused(changed("c6", {.tensor =
                                      [](gguf::Writer& w, const auto& t) {
                                          if (t.name != "blk.2.ffn_up_exps.weight") return false;
                                          const uint64_t dims[] = {t.dims[0], t.dims[1] * 2, t.dims[2]};
                                          w.add_tensor(t.name, t.type, dims);
                                          return true;
                                      }}),
                   "(256,256,6) and (256,512,6)");
    // Names and provenance may differ.
    const gguf::File base = open("q2"), renamed = changed("c7", {.metadata = [](gguf::Writer&w, const auto&e) {
                                                              if (e.key != "general.name") return false;
                                                              w.add_string(e.key, "another name");
                                                              return true;
                                                          }});
    EXPECT_TRUE(plan_splice(base, renamed, "1:2", "experts").ok());
}

TEST_F(SpliceFiles, LayersAreInclusiveRangesInsideTheModel) {
    const gguf::File base = open("q2"), donor = open("q4");
    for (const char* bad : {"", ",", "1,", "2:1", "1:", ":1", "a", "1:2:3", "-1", "1 ", "9999999", "6", "0:6"})
        EXPECT_FALSE(plan_splice(base, donor, bad, "experts").ok()) << bad;
    EXPECT_FALSE(plan_splice(base, donor, "1", "attention").ok());
    EXPECT_EQ(plan_splice(base, donor, "0:5", "experts").value().n_from_donor, 18u);
    EXPECT_EQ(plan_splice(base, donor, "5", "experts").value().n_from_donor, 3u);
}

TEST_F(SpliceFiles, SourcesAndExistingFilesAreKept) {
    const gguf::File base = open("q2"), donor = open("q4");
    const Splice s = plan_splice(base, donor, "1", "experts").value();
    EXPECT_FALSE(write_splice(s, (folder / "q2").string(), true, {}).ok());
    EXPECT_FALSE(write_splice(s, (folder / "q4").string(), true, {}).ok());
    EXPECT_FALSE(write_splice(s, (folder / "pro").string(), false, {}).ok());
    const auto stopped =
        write_splice(s, (folder / "stopped").string(), false, [](const Progress& p) { return p.done < 1000000; });
    EXPECT_EQ(stopped.error().code, Code::cancelled);
    EXPECT_FALSE(fs::exists(folder / "stopped"));
}

}  // namespace
}  // namespace vesta::convert
