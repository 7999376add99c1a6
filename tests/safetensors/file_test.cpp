// What the reader promises on honest files and folders.
#include "safetensors/file.h"

#include <gtest/gtest.h>

#include "raw_file.h"

namespace vesta::safetensors {
namespace {

TEST(SafetensorsFile, EveryDTypeReadsBackWithItsShapeAndBytes) {
    const auto folder = fresh_folder("st_dtypes");
    const std::pair<DType, uint64_t> sizes[] = {
        {DType::f64, 8}, {DType::f32, 4},     {DType::f16, 2},     {DType::bf16, 2},
        {DType::i64, 8}, {DType::i32, 4},     {DType::i16, 2},     {DType::i8, 1},
        {DType::u8, 1},  {DType::boolean, 1}, {DType::f8_e4m3, 1}, {DType::f8_e8m0, 1},
    };
    std::vector<std::string> contents;
    for (const auto& [type, size] : sizes) contents.emplace_back(size * 6, static_cast<char>('a' + contents.size()));
    std::vector<OutTensor> tensors;
    for (size_t i = 0; i < std::size(sizes); ++i)
        tensors.push_back(
            {std::string("t.") + dtype_name(sizes[i].first), sizes[i].first, {2, 3}, as_bytes(contents[i])});
    const std::string path = folder / "a.safetensors";
    ASSERT_TRUE(write_safetensors(path, tensors).ok());

    const auto file = File::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file.value().tensors().size(), std::size(sizes));
    for (size_t i = 0; i < std::size(sizes); ++i) {
        const TensorInfo* t = file.value().find(tensors[i].name);
        ASSERT_NE(t, nullptr);
        EXPECT_EQ(t->dtype, sizes[i].first);
        EXPECT_EQ(t->shape, (std::vector<uint64_t>{2, 3}));
        EXPECT_EQ(t->n_elem(), 6u);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(t->bytes.data()), t->bytes.size()), contents[i]);
        EXPECT_EQ(find_dtype(dtype_name(sizes[i].first)), sizes[i].first);
    }
    EXPECT_EQ(file.value().find("nothing"), nullptr);
}

TEST(SafetensorsFile, ScalarsEmptyTensorsMetadataAndAnyOrderAreFine) {
    const std::string header =
        R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"__metadata__":{"format":"pt"},)"
        R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}})";
    const std::string bytes = raw_file(header, "abcdef");
    const auto file = File::parse(as_bytes(bytes), "x");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file.value().metadata().at("format"), "pt");
    EXPECT_EQ(file.value().find("s")->n_elem(), 1u);
    EXPECT_EQ(file.value().find("e")->n_elem(), 0u);
    EXPECT_EQ(file.value().tensors().back().name, "b");
}

TEST(SafetensorsFile, HeaderOfPaddedFileStartsTheDataAtAMultipleOfEight) {
    const auto folder = fresh_folder("st_padding");
    const std::string data(5, 'x');
    const std::vector<OutTensor> tensors = {{"odd", DType::u8, {5}, as_bytes(data)}};
    ASSERT_TRUE(write_safetensors(folder / "p.safetensors", tensors).ok());
    EXPECT_EQ((std::filesystem::file_size(folder / "p.safetensors") - 5) % 8, 0u);
}

TEST(SafetensorsFile, WriterRefusesToOverwriteWhenAsked) {
    const auto folder = fresh_folder("st_overwrite");
    const std::string path = folder / "a.safetensors";
    ASSERT_TRUE(write_safetensors(path, {}, false).ok());
    const Status again = write_safetensors(path, {}, false);
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, Code::already_exists);
}

class ShardedCheckpoint : public ::testing::Test {
 protected:
    void SetUp() override {
        folder = fresh_folder(std::string("st_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
        write_shard("one.safetensors", {"a", "b"});
        write_shard("two.safetensors", {"c"});
        write_index(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors")");
    }
    void write_shard(const std::string& file, const std::vector<std::string>& names) {
        const std::string data = "1234";
        std::vector<OutTensor> tensors;
        for (const std::string& name : names) tensors.push_back({name, DType::f32, {1}, as_bytes(data)});
        ASSERT_TRUE(write_safetensors(folder / file, tensors).ok());
    }
    void write_index(const std::string& map) {
        write_text(folder / "model.safetensors.index.json",
                   R"({"metadata":{"total_size":12},"weight_map":{)" + map + "}}");
    }
    // Opening fails, and the message has all the words.
    void expect_refused(Code code, std::initializer_list<const char*> words) {
        const auto c = Checkpoint::open(folder);
        ASSERT_FALSE(c.ok());
        EXPECT_EQ(c.error().code, code) << c.error().message;
        for (const char* word : words)
            EXPECT_NE(c.error().message.find(word), std::string::npos) << "'" << word << "' in: " << c.error().message;
    }
    std::filesystem::path folder;
};

TEST_F(ShardedCheckpoint, FindsTensorsInAllShards) {
    const auto c = Checkpoint::open(folder);
    ASSERT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(c.value().n_tensor(), 3u);
    ASSERT_NE(c.value().find("c"), nullptr);
    EXPECT_NE(c.value().describe(*c.value().find("c")).find("two.safetensors: tensor c"), std::string::npos);
    EXPECT_EQ(c.value().tensors().size(), 3u);
}

TEST_F(ShardedCheckpoint, SingleFileFolderAndSingleFileOpenToo) {
    std::filesystem::remove(folder / "model.safetensors.index.json");
    expect_refused(Code::not_found, {"model.safetensors"});
    std::filesystem::rename(folder / "two.safetensors", folder / "model.safetensors");
    EXPECT_EQ(Checkpoint::open(folder).value().n_tensor(), 1u);
    EXPECT_EQ(Checkpoint::open(folder / "one.safetensors").value().n_tensor(), 2u);
}

TEST_F(ShardedCheckpoint, MissingShardIsNamed) {
    std::filesystem::remove(folder / "two.safetensors");
    expect_refused(Code::not_found, {"two.safetensors", "1 tensors"});
}

TEST_F(ShardedCheckpoint, TruncatedShardNamesFileAndTensor) {
    std::filesystem::resize_file(folder / "one.safetensors",
                                 std::filesystem::file_size(folder / "one.safetensors") - 1);
    expect_refused(Code::bad_file, {"one.safetensors", "tensor b", "truncated"});
}

TEST_F(ShardedCheckpoint, IndexThatLeavesTheFolderIsRefused) {
    for (const char* shard : {"../one.safetensors", "/etc/passwd", "x/one.safetensors", "..", ".", "", "x\\\\y"}) {
        write_index(std::string(R"("a":")") + shard + R"(","b":"one.safetensors","c":"two.safetensors")");
        expect_refused(Code::bad_file, {"tensor a", "index.json", "not the name of a file"});
    }
    write_index(R"("a":7)");
    expect_refused(Code::bad_file, {"tensor a"});
}

TEST_F(ShardedCheckpoint, IndexAndShardsMustAgree) {
    write_index(R"("a":"two.safetensors","b":"one.safetensors","c":"two.safetensors")");
    expect_refused(Code::bad_file, {"tensor a", "two.safetensors"});
    write_index(R"("a":"one.safetensors","c":"two.safetensors")");
    expect_refused(Code::bad_file, {"tensor b", "weight_map"});
    write_index(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors","d":"two.safetensors")");
    expect_refused(Code::bad_file, {"tensor d", "missing"});
    write_shard("two.safetensors", {"c", "a"});
    write_index(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors")");
    expect_refused(Code::bad_file, {"tensor a", "also in"});
}

TEST_F(ShardedCheckpoint, BrokenIndexIsRefused) {
    for (const char* text : {"", "{", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                             R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})"}) {
        write_text(folder / "model.safetensors.index.json", text);
        expect_refused(Code::bad_file, {"model.safetensors.index.json"});
    }
}

TEST_F(ShardedCheckpoint, MissingFolderSaysSo) {
    const auto c = Checkpoint::open(folder / "nowhere");
    ASSERT_FALSE(c.ok());
    EXPECT_EQ(c.error().code, Code::not_found);
}

}  // namespace
}  // namespace vesta::safetensors
