// What the Writer puts into a file, the reader finds there: every value type, every way to write tensor data.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include "gguf/file.h"
#include "gguf/writer.h"

namespace vesta::gguf {
namespace {

std::string temporary(const char* name) {
    std::filesystem::create_directories(VESTA_TEST_TMP);
    return std::string(VESTA_TEST_TMP) + "/" + name;
}

std::span<const std::byte> bytes_of(const std::vector<float>& v) { return std::as_bytes(std::span(v)); }

template <class T>
Value scalar_value(ValueType type, const T& v) {
    return {type, type, 1, std::as_bytes(std::span(&v, 1))};
}

TEST(GgufRoundTrip, EveryValueTypeComesBackAsItWasWritten) {
    Writer w;
    w.add_u32("u32", 4000000000u);
    w.add_i32("i32", -7);
    w.add_u64("u64", uint64_t{1} << 63);
    w.add_f32("f32", 0.1f);
    w.add_bool("yes", true);
    w.add_bool("no", false);
    w.add_string("string", "héllo\n");
    w.add_string("empty", "");
    const std::vector<std::string> words = {"", "a", "bcd", std::string(300, 'x'), std::string("\xff\0z", 3)};
    w.add_strings("words", words);
    const std::vector<uint32_t> unsigned_values = {0, 1, 4294967295u};
    const std::vector<int32_t> signed_values = {-1, 0, 2147483647};
    const std::vector<float> floats = {1.5f, -0.0f, std::numeric_limits<float>::max()};
    w.add_u32_array("u32s", unsigned_values);
    w.add_i32_array("i32s", signed_values);
    w.add_f32_array("f32s", floats);
    w.add_f32_array("nothing", {});
    const uint8_t u8 = 200;
    const int8_t i8 = -100;
    const uint16_t u16 = 60000;
    const int16_t i16 = -30000;
    const int64_t i64 = std::numeric_limits<int64_t>::min();
    const double f64 = 1e-300;
    w.add_value("u8", scalar_value(ValueType::u8, u8));
    w.add_value("i8", scalar_value(ValueType::i8, i8));
    w.add_value("u16", scalar_value(ValueType::u16, u16));
    w.add_value("i16", scalar_value(ValueType::i16, i16));
    w.add_value("i64", scalar_value(ValueType::i64, i64));
    w.add_value("f64", scalar_value(ValueType::f64, f64));
    const std::vector<std::byte> bytes = w.header();

    Result<File> result = File::parse(bytes, "test");
    ASSERT_TRUE(result.ok()) << result.error().message;
    const File& f = result.value();
    EXPECT_EQ(f.metadata().size(), 19u);
    EXPECT_EQ(f.metadata()[1].key, "i32");
    EXPECT_EQ(f.u32("u32").value(), 4000000000u);
    EXPECT_EQ(as_signed(*f.find("i32")), -7);
    EXPECT_EQ(f.u64("u64").value(), uint64_t{1} << 63);
    EXPECT_EQ(f.f32("f32").value(), 0.1f);
    EXPECT_EQ(f.boolean("yes").value(), true);
    EXPECT_EQ(f.boolean("no").value(), false);
    EXPECT_EQ(f.string("string").value(), "héllo\n");
    EXPECT_EQ(f.string("empty").value(), "");
    const StringArray got = f.strings("words").value();
    EXPECT_EQ(got.size(), words.size());
    EXPECT_TRUE(std::equal(words.begin(), words.end(), [&] {
        static std::vector<std::string> copy;
        for (const std::string_view s : got) copy.emplace_back(s);
        return copy.begin();
    }()));
    EXPECT_EQ(f.u32_array("u32s", 3).value(), unsigned_values);
    EXPECT_EQ(f.i32_array("i32s", 3).value(), signed_values);
    EXPECT_EQ(f.f32_array("f32s", 3).value(), floats);
    EXPECT_TRUE(f.f32_array("nothing", 0).value().empty());
    EXPECT_EQ(as_unsigned(*f.find("u8")), 200u);
    EXPECT_EQ(as_signed(*f.find("i8")), -100);
    EXPECT_EQ(as_unsigned(*f.find("u16")), 60000u);
    EXPECT_EQ(as_signed(*f.find("i16")), -30000);
    EXPECT_EQ(as_signed(*f.find("i64")), i64);
    EXPECT_EQ(as_double(*f.find("f64")), 1e-300);
}

TEST(GgufRoundTrip, TensorsMayBeWrittenInPiecesAndInAnyOrder) {
    const std::string path = temporary("pieces.gguf");
    std::vector<float> a(5 * 3), b(7);
    std::iota(a.begin(), a.end(), 1.f);
    std::iota(b.begin(), b.end(), -3.f);
    Writer w;
    w.add_u32("general.alignment", 64);
    w.add_tensor("a", quant::Type::f32, std::vector<uint64_t>{5, 3});
    w.add_tensor("b", quant::Type::f32, std::vector<uint64_t>{7});
    EXPECT_EQ(w.n_tensor(), 2u);
    EXPECT_EQ(w.tensor_bytes(0), 60u);
    EXPECT_EQ(w.data_bytes(), 128u);
    ASSERT_TRUE(w.begin(path, true).ok());
    ASSERT_TRUE(w.write_tensor(1, 0, bytes_of(b)).ok());
    ASSERT_TRUE(w.write_tensor(0, 20, bytes_of(a).subspan(20, 20)).ok());
    ASSERT_TRUE(w.write_tensor(0, 40, bytes_of(a).subspan(40)).ok());
    EXPECT_FALSE(w.finish().ok());  // the first row is missing
    ASSERT_TRUE(w.write_tensor(0, 0, bytes_of(a).first(20)).ok());
    const Status twice = w.write_tensor(0, 16, bytes_of(a).first(4));
    ASSERT_FALSE(twice.ok());
    EXPECT_NE(twice.error().message.find("tensor 'a'"), std::string::npos);
    EXPECT_FALSE(w.write_tensor(1, 24, bytes_of(b).first(8)).ok());  // over the end
    EXPECT_FALSE(w.write_tensor(1, ~uint64_t{0}, bytes_of(b)).ok());
    ASSERT_TRUE(w.finish().ok());

    Result<File> result = File::open(path);
    ASSERT_TRUE(result.ok()) << result.error().message;
    const File moved = std::move(result).value();  // views survive a move of the File
    EXPECT_EQ(moved.alignment(), 64u);
    EXPECT_EQ(moved.file_bytes(), moved.data_start() + 128);
    ASSERT_EQ(moved.tensors().size(), 2u);
    const TensorInfo* t = moved.find_tensor("a");
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(t->n_dim, 2u);
    EXPECT_EQ(t->dims[0], 5u);
    EXPECT_EQ(t->dims[1], 3u);
    EXPECT_EQ(t->n_elem(), 15u);
    ASSERT_EQ(t->bytes.size(), 60u);
    EXPECT_EQ(std::memcmp(t->bytes.data(), a.data(), 60), 0);
    EXPECT_EQ(std::memcmp(moved.find_tensor("b")->bytes.data(), b.data(), 28), 0);
    EXPECT_EQ(moved.find_tensor("c"), nullptr);
}

TEST(GgufRoundTrip, BlockFormatsHaveTheSizesOfTheirBlocks) {
    Writer w;
    w.add_tensor("q8", quant::Type::q8_0, std::vector<uint64_t>{64, 3, 2});  // 2 blocks of 34 bytes, 6 rows
    w.add_tensor("k", quant::Type::q2_k, std::vector<uint64_t>{512, 2});     // 2 blocks of 84 bytes, 2 rows
    w.add_tensor("fp4", quant::Type::mxfp4, std::vector<uint64_t>{32, 1, 1, 5});
    EXPECT_EQ(w.tensor_bytes(0), 408u);
    EXPECT_EQ(w.tensor_bytes(1), 336u);
    EXPECT_EQ(w.tensor_bytes(2), 85u);
    EXPECT_EQ(w.data_bytes(), 416u + 352u + 96u);
}

TEST(GgufRoundTrip, AnUnfinishedFileDoesNotAppear) {
    const std::string path = temporary("unfinished.gguf");
    std::filesystem::remove(path);
    {
        Writer w;
        w.add_tensor("a", quant::Type::f32, std::vector<uint64_t>{4});
        ASSERT_TRUE(w.begin(path, false).ok());
    }
    EXPECT_FALSE(std::filesystem::exists(path));
}

// Every state of a file on its way: all bytes but the magic may be there, and still it is no GGUF.
TEST(GgufWriter, TheMagicIsWrittenLast) {
    const std::string path = temporary("magic.gguf"), part = path + ".part";
    std::filesystem::remove(path);
    std::filesystem::remove(part);
    const std::vector<float> values = {1, 2, 3, 4};
    const auto declare = [](Writer& w) {
        w.add_u32("number", 7);
        const uint64_t dims[] = {4};
        w.add_tensor("a", quant::Type::f32, dims);
        w.add_tensor("b", quant::Type::f32, dims);
    };
    {
        Writer w;
        declare(w);
        ASSERT_TRUE(w.begin_resumable(path, false, false).value());  // fresh
        EXPECT_FALSE(File::open(part).ok());
        for (const size_t i : {size_t{0}, size_t{1}}) ASSERT_TRUE(w.write_tensor(i, 0, bytes_of(values)).ok());
        const auto open = File::open(part);
        ASSERT_FALSE(open.ok());
        EXPECT_EQ(open.error().code, Code::bad_file);
    }
    EXPECT_FALSE(File::open(part).ok());
    EXPECT_FALSE(std::filesystem::exists(path));

    Writer w;
    declare(w);
    ASSERT_FALSE(w.begin_resumable(path, false, false).value());  // continued
    std::vector<float> back(4);
    ASSERT_TRUE(w.read_back(0, 0, std::as_writable_bytes(std::span(back))).ok());
    EXPECT_EQ(back, values);
    EXPECT_FALSE(w.finish().ok());  // nothing is taken over unasked
    w.mark_complete(0);
    EXPECT_FALSE(w.write_tensor(0, 0, bytes_of(values)).ok());  // complete already
    ASSERT_TRUE(w.write_tensor(1, 0, bytes_of(values)).ok());
    ASSERT_TRUE(w.finish().ok());
    ASSERT_TRUE(File::open(path).ok());
    EXPECT_FALSE(std::filesystem::exists(part));
}

TEST(GgufWriter, AnUnfinishedFileWithAnotherHeaderIsEmptied) {
    const std::string path = temporary("header.gguf"), part = path + ".part";
    std::filesystem::remove(path);
    std::filesystem::remove(part);
    const uint64_t dims[] = {4};
    for (const uint32_t number : {1u, 2u, 2u}) {
        Writer w;
        w.add_u32("number", number);
        w.add_tensor("a", quant::Type::f32, dims);
        static int round = 0;
        EXPECT_EQ(w.begin_resumable(path, false, false).value(), round < 2) << round;
        ++round;
    }
    Writer w;
    w.add_u32("number", 2);
    w.add_tensor("a", quant::Type::f32, dims);
    EXPECT_TRUE(w.begin_resumable(path, false, true).value());  // asked to
    w.keep_unfinished(false);
}

TEST(GgufWriter, RefusesWhatAReaderWouldRefuse) {
    const auto error = [](auto add) {
        Writer w;
        add(w);
        const Status s = w.begin(temporary("refused.gguf"), true);
        return s.ok() ? std::string() : s.error().message;
    };
    EXPECT_NE(error([](Writer& w) { w.add_f32("scale", INFINITY); }).find("'scale'"), std::string::npos);
    EXPECT_NE(error([](Writer& w) {
                  w.add_f32_array("s", std::vector<float>{1, NAN});
              }).find("'s'"),
              std::string::npos);
    EXPECT_NE(error([](Writer& w) { w.add_u32(std::string(129, 'k'), 1); }).find("129 bytes"), std::string::npos);
    EXPECT_NE(error([](Writer& w) { w.add_u32("general.alignment", 48); }).find("power of two"), std::string::npos);
    EXPECT_NE(error([](Writer& w) { w.add_string("\xff", ""); }).find("UTF-8"), std::string::npos);
}

TEST(GgufAccess, IntegersFitOrAreRefusedWithKeyAndValue) {
    Writer w;
    w.add_i32("negative", -1);
    w.add_u64("large", uint64_t{1} << 32);
    w.add_i32("small", 12);
    w.add_string("text", "1");
    w.add_i32_array("mixed", std::vector<int32_t>{1, -2});
    w.add_bool("flag", true);
    const std::vector<std::byte> bytes = w.header();
    const Result<File> file = File::parse(bytes, "m.gguf");
    ASSERT_TRUE(file.ok());
    const File& f = file.value();
    EXPECT_EQ(f.u32("small").value(), 12u);
    EXPECT_EQ(f.u64("small").value(), 12u);
    EXPECT_EQ(f.f32("small").value(), 12.f);
    EXPECT_EQ(f.u32("negative").error().message, "m.gguf: metadata 'negative': -1 is outside 0 to 4294967295");
    EXPECT_EQ(f.u32("large").error().message,
              "m.gguf: metadata 'large': 4294967296 is larger than the limit 4294967295");
    EXPECT_EQ(f.u32("text").error().message, "m.gguf: metadata 'text': expected an integer, found string");
    EXPECT_EQ(f.u32("flag").error().code, Code::bad_file);
    EXPECT_EQ(f.u32("absent").error().code, Code::not_found);
    EXPECT_EQ(f.u32_array("mixed", 2).error().message,
              "m.gguf: metadata 'mixed': element 1: -2 is outside 0 to 4294967295");
    EXPECT_EQ(f.i32_array("mixed", 1).error().message, "m.gguf: metadata 'mixed': 2 elements, expected at most 1");
    EXPECT_EQ(f.strings("mixed").error().message,
              "m.gguf: metadata 'mixed': expected an array of strings, found an array of 2 i32");
    EXPECT_EQ(f.string("mixed").error().code, Code::bad_file);
    EXPECT_EQ(f.boolean("small").error().message, "m.gguf: metadata 'small': expected a bool, found i32");
}

TEST(GgufAccess, ADoubleTooLargeForAFloatIsRefused) {
    const double large = 1e39;
    Writer w;
    w.add_value("x", scalar_value(ValueType::f64, large));
    const std::vector<std::byte> bytes = w.header();
    const Result<File> f = File::parse(bytes, "m.gguf");
    ASSERT_TRUE(f.ok());
    EXPECT_FALSE(f.value().f32("x").ok());
}

}  // namespace
}  // namespace vesta::gguf
