// Bad files. Each named mutation damages one thing in a valid toy file; the reader has to refuse it with a message that
// names the object. Then the blind ones: every cut, every interesting number at every place, random flips.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "support/allocations.h"
#include "gguf/file.h"
#include "toy.h"
#include "walk.h"

namespace vesta::gguf {
namespace {

// A copy of exactly the right size, so that AddressSanitizer sees the first byte beyond the file.
struct Exact {
    explicit Exact(std::span<const std::byte> from) : size(from.size()), data(new std::byte[from.size()]) {
        if (size > 0) std::memcpy(data.get(), from.data(), size);
    }
    std::span<const std::byte> span() const { return {data.get(), size}; }
    size_t size;
    std::unique_ptr<std::byte[]> data;
};

struct Mutation {
    const char* name;
    std::function<void(Toy&)> apply;
    std::vector<std::string> expected;  // each has to occur in the message
    Code code = Code::bad_file;

    friend void PrintTo(const Mutation& m, std::ostream* out) { *out << m.name; }
};

constexpr uint64_t kHuge = uint64_t{1} << 63;

std::vector<Mutation> mutations() {
    return {
        // The header.
        {"WrongMagic", [](Toy& t) { t.bytes[0] = std::byte{'X'}; }, {"header", "not a GGUF file", "XGUF"}},
        {"Version1", [](Toy& t) { t.set(4, 1u); }, {"version 1", "only version 3"}, Code::unsupported},
        {"Version2", [](Toy& t) { t.set(4, 2u); }, {"version 2", "only version 3"}, Code::unsupported},
        {"Version4", [](Toy& t) { t.set(4, 4u); }, {"version 4", "expected 3"}, Code::unsupported},
        {"BigEndian", [](Toy& t) { t.set(4, 0x03000000u); }, {"big-endian"}, Code::unsupported},
        {"TensorCountNear2To63", [](Toy& t) { t.set(8, kHuge - 1); }, {"header", "9223372036854775807 tensors"}},
        {"EntryCountNear2To63", [](Toy& t) { t.set(16, kHuge); }, {"header", "9223372036854775808 metadata entries"}},
        {"EntryCountAllOnes", [](Toy& t) { t.set(16, ~uint64_t{0}); }, {"header", "metadata entries"}},
        {"CountsFitAloneButNotTogether",
         [](Toy& t) {
             t.set(8, uint64_t{t.bytes.size() - 24} / 32);
             t.set(16, uint64_t{t.bytes.size() - 24} / 13);
         },
         {"header", "tensors and", "more than"}},
        {"EntryCountOneTooMany", [](Toy& t) { t.set(16, uint64_t{13}); }, {"tensor entry 0"}},

        // Keys.
        {"EmptyKey",
         [](Toy& t) { t.set(t.name_length("toy.block_count"), uint64_t{0}); },
         {"metadata entry 2", "key is empty"}},
        {"KeyOf129Bytes",
         [](Toy& t) {
             const size_t at = t.find("toy.flag\x07");  // with the type behind it: toy.flags begins alike
             t.set(at - 8, uint64_t{129});
             t.insert(at + 8, 121, 'x');
         },
         {"metadata entry 4", "129 bytes", "128"}},
        {"KeyLengthNear2To48",
         [](Toy& t) { t.set(t.name_length("toy.big"), uint64_t{1} << 48); },
         {"metadata entry 5", "281474976710656"}},
        {"KeyNotUtf8",
         [](Toy& t) { t.bytes[t.find("toy.big")] = std::byte{0xFF}; },
         {"metadata entry 5", "'\\xffoy.big' is not UTF-8"}},
        {"DuplicateKey",
         [](Toy& t) { std::memcpy(t.bytes.data() + t.find("toy.scores"), "toy.tokens", 10); },
         {"'toy.tokens'", "twice"}},

        // Values.
        {"UnknownValueType",
         [](Toy& t) { t.set(t.type("toy.block_count"), 13u); },
         {"'toy.block_count'", "value type 13"}},
        {"UnknownValueTypeAllOnes",
         [](Toy& t) { t.set(t.type("toy.block_count"), ~0u); },
         {"'toy.block_count'", "value type 4294967295"}},
        {"UnknownElementType",
         [](Toy& t) { t.set(t.element_type("toy.scores"), 99u); },
         {"'toy.scores'", "element type 99"}},
        {"BoolIs2", [](Toy& t) { t.set(t.value("toy.flag\x07") - 1, uint8_t{2}); }, {"'toy.flag'", "stored as 2"}},
        {"BoolInArrayIs255",
         [](Toy& t) { t.set(t.elements("toy.flags") + 2, uint8_t{255}); },
         {"'toy.flags'", "stored as 255"}},
        {"FloatIsNan", [](Toy& t) { t.set(t.value("toy.epsilon"), std::nanf("")); }, {"'toy.epsilon'", "not finite"}},
        {"DoubleIsInfinite", [](Toy& t) { t.set(t.value("toy.double"), -HUGE_VAL); }, {"'toy.double'", "not finite"}},
        {"FloatInArrayIsInfinite",
         [](Toy& t) { t.set(t.elements("toy.scores") + 12, HUGE_VALF); },
         {"'toy.scores'", "not finite"}},
        {"StringLengthNear2To48",
         [](Toy& t) { t.set(t.value("general.architecture"), uint64_t{1} << 48); },
         {"'general.architecture'", "281474976710656"}},
        {"StringLengthAllOnes",
         [](Toy& t) { t.set(t.value("general.architecture"), ~uint64_t{0}); },
         {"'general.architecture'", "18446744073709551615"}},
        {"StringLongerThanTheFile",
         [](Toy& t) { t.set(t.value("general.architecture"), uint64_t{t.bytes.size()}); },
         {"'general.architecture'", "looks truncated"}},
        {"TokenLengthNear2To63",
         [](Toy& t) { t.set(t.elements("toy.tokens"), kHuge - 8); },
         {"'toy.tokens'", "9223372036854775800"}},
        {"ArrayCountNear2To48",
         [](Toy& t) { t.set(t.count("toy.scores"), uint64_t{1} << 48); },
         {"'toy.scores'", "281474976710656 elements of type f32"}},
        {"ArrayCountTimes4Overflows",
         [](Toy& t) { t.set(t.count("toy.scores"), (uint64_t{1} << 62) + 1); },
         {"'toy.scores'", "4611686018427387905"}},
        {"StringArrayCountNear2To63",
         [](Toy& t) { t.set(t.count("toy.tokens"), kHuge); },
         {"'toy.tokens'", "9223372036854775808 elements of type string"}},
        {"NestedArrayCountAllOnes",
         [](Toy& t) { t.set(t.count("toy.nested"), ~uint64_t{0}); },
         {"'toy.nested'", "elements of type array"}},
        {"ArraysNested9Deep",
         [](Toy& t) {
             const size_t innermost = t.elements("toy.nested") + 6 * 12;  // u32 u8, u64 0
             VESTA_CHECK(t.get<uint32_t>(innermost) == 0 && t.get<uint64_t>(innermost + 4) == 0);
             t.set(innermost, static_cast<uint32_t>(ValueType::array));
             t.set(innermost + 4, uint64_t{1});
             t.insert(innermost + 12, 12, 0);
         },
         {"'toy.nested'", "more than 8 deep"}},

        // A narrower type than the one that was written moves everything behind it: something has to be refused.
        {"ScoresDeclaredAsU8", [](Toy& t) { t.set(t.element_type("toy.scores"), 0u); }, {"metadata entry 9"}},
        {"TypesDeclaredAsI64", [](Toy& t) { t.set(t.element_type("toy.types"), 11u); }, {"metadata"}},
        {"TokensDeclaredAsU8", [](Toy& t) { t.set(t.element_type("toy.tokens"), 0u); }, {"metadata entry 8"}},

        // Alignment.
        {"AlignmentIsNoPowerOfTwo",
         [](Toy& t) { t.set(t.value("general.alignment"), 48u); },
         {"'general.alignment'", "48", "power of two"}},
        {"AlignmentZero",
         [](Toy& t) { t.set(t.value("general.alignment"), 0u); },
         {"'general.alignment'", "power of two"}},
        {"Alignment4",
         [](Toy& t) { t.set(t.value("general.alignment"), 4u); },
         {"'general.alignment'", "power of two"}},
        {"Alignment128k",
         [](Toy& t) { t.set(t.value("general.alignment"), 131072u); },
         {"'general.alignment'", "131072", "65536"}},
        {"AlignmentIsSigned",
         [](Toy& t) { t.set(t.type("general.alignment"), 5u); },
         {"'general.alignment'", "expected a u32", "i32"}},
        {"OffsetsDoNotFitTheAlignment",
         [](Toy& t) { t.set(t.value("general.alignment"), 64u); },
         {"'blk.0.exps'", "multiple of the alignment 64"}},

        // The tensor directory.
        {"EmptyTensorName",
         [](Toy& t) { t.set(t.name_length("blk.0.proj"), uint64_t{0}); },
         {"tensor entry 1", "name is empty"}},
        {"TensorNameOf129Bytes",
         [](Toy& t) { t.set(t.name_length("blk.0.proj"), uint64_t{129}); },
         {"tensor entry 1", "129 bytes"}},
        {"TensorNameNotUtf8",
         [](Toy& t) { t.bytes[t.find("blk.0.proj")] = std::byte{0xC0}; },
         {"tensor entry 1", "not UTF-8"}},
        {"DuplicateTensorName",
         [](Toy& t) { std::memcpy(t.bytes.data() + t.find("blk.0.exps"), "blk.0.norm", 10); },
         {"'blk.0.norm'", "twice"}},
        {"NoDimensions", [](Toy& t) { t.set(t.n_dim("blk.0.proj"), 0u); }, {"'blk.0.proj'", "0 dimensions"}},
        {"FiveDimensions", [](Toy& t) { t.set(t.n_dim("blk.0.proj"), 5u); }, {"'blk.0.proj'", "5 dimensions"}},
        {"DimensionsAllOnes",
         [](Toy& t) { t.set(t.n_dim("blk.0.proj"), ~0u); },
         {"'blk.0.proj'", "4294967295 dimensions"}},
        {"DimensionZero",
         [](Toy& t) { t.set(t.dim("blk.0.exps", 2), uint64_t{0}); },
         {"'blk.0.exps'", "dimension 2 is 0"}},
        {"ProductOverflows64Bits",
         [](Toy& t) {
             t.set(t.dim("blk.0.norm", 0), uint64_t{1} << 32);
             t.set(t.dim("blk.0.norm", 1), uint64_t{1} << 32);
         },
         {"'blk.0.norm'", "(4294967296,4294967296)", "64 bits"}},
        {"ProductWrapsToASmallNumber",
         [](Toy& t) {
             t.set(t.dim("blk.0.exps", 0), uint64_t{1} << 32);
             t.set(t.dim("blk.0.exps", 1), (uint64_t{1} << 32) + 1);
         },
         {"'blk.0.exps'", "64 bits"}},
        {"BytesOverflow64Bits",
         [](Toy& t) { t.set(t.dim("output.ids", 0), (uint64_t{1} << 62) + 1); },
         {"'output.ids'", "more bytes than a file can have"}},
        {"DimensionNear2To63",
         [](Toy& t) { t.set(t.dim("output.ids", 0), kHuge - 1); },
         {"'output.ids'", "(9223372036854775807)"}},
        {"RowIsNoWholeNumberOfBlocks",
         [](Toy& t) { t.set(t.dim("blk.0.proj", 0), uint64_t{65}); },
         {"'blk.0.proj'", "65 elements", "q8_0", "blocks of 32"}},
        {"UnknownTensorType",
         [](Toy& t) { t.set(t.tensor_type("blk.0.proj"), 4u); },
         {"'blk.0.proj'", "type id 4"},
         Code::unsupported},
        {"UnknownTensorTypeAllOnes",
         [](Toy& t) { t.set(t.tensor_type("blk.0.proj"), ~0u); },
         {"'blk.0.proj'", "type id 4294967295"},
         Code::unsupported},
        {"WiderTensorType",
         [](Toy& t) { t.set(t.tensor_type("output.ids"), 28u); },
         {"'output.ids'", "looks truncated"}},
        {"OffsetNotAligned",
         [](Toy& t) { t.set(t.offset("blk.0.exps"), t.get<uint64_t>(t.offset("blk.0.exps")) + 8); },
         {"'blk.0.exps'", "not a multiple of the alignment 32"}},
        {"OffsetNear2To63",
         [](Toy& t) { t.set(t.offset("output.ids"), kHuge); },
         {"'output.ids'", "9223372036854775808", "outside any file"}},
        {"OffsetPlusSizeOverflows",
         [](Toy& t) { t.set(t.offset("output.ids"), ~uint64_t{0} - 31); },
         {"'output.ids'", "outside any file"}},
        {"OffsetBehindTheFile",
         [](Toy& t) { t.set(t.offset("output.ids"), uint64_t{1} << 20); },
         {"'output.ids'", "looks truncated", "has " + std::to_string(make_toy().bytes.size())}},
        {"SameOffsetTwice",
         [](Toy& t) { t.set(t.offset("blk.0.proj"), uint64_t{0}); },
         {"'blk.0.proj'", "inside tensor 'blk.0.norm'"}},
        {"TensorReachesIntoTheNext",
         [](Toy& t) { t.set(t.dim("blk.0.norm", 0), uint64_t{6}); },
         {"'blk.0.proj'", "inside tensor 'blk.0.norm'"}},
        {"LastKilobyteCut",
         [](Toy& t) {
             t.set(t.dim("output.ids", 0), uint64_t{33 + 512});  // 2048 bytes more
             t.bytes.resize(t.last_end + 1024);
         },
         {"'output.ids'", "looks truncated", "expected at least"}},
        {"OneMoreTensorThanThere", [](Toy& t) { t.set(8, uint64_t{5}); }, {"tensor entry 4"}},
    };
}

class GgufMutation : public testing::TestWithParam<Mutation> {};

TEST_P(GgufMutation, IsRefusedByName) {
    Toy toy = make_toy();
    GetParam().apply(toy);
    const Exact exact(toy.bytes);
    const Result<File> file = File::parse(exact.span(), "bad.gguf");
    ASSERT_FALSE(file.ok());
    const std::string& message = file.error().message;
    EXPECT_EQ(file.error().code, GetParam().code) << message;
    EXPECT_EQ(message.rfind("bad.gguf: ", 0), 0u) << message;
    EXPECT_NE(message.find("at byte "), std::string::npos) << message;
    for (const std::string& part : GetParam().expected)
        EXPECT_NE(message.find(part), std::string::npos) << "missing '" << part << "' in: " << message;
}

INSTANTIATE_TEST_SUITE_P(All, GgufMutation, testing::ValuesIn(mutations()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(GgufBadFiles, TheToyItselfIsFine) {
    const Toy toy = make_toy();
    const Exact exact(toy.bytes);
    const Result<File> file = File::parse(exact.span(), "toy.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    walk_all(file.value());
}

TEST(GgufBadFiles, ACutAtAnyByteIsRefusedExceptInTheLastPadding) {
    const Toy toy = make_toy();
    ASSERT_LT(toy.last_end, toy.bytes.size());
    for (size_t n = 0; n <= toy.bytes.size(); ++n) {
        const Exact cut(std::span<const std::byte>(toy.bytes).first(n));
        const Result<File> file = File::parse(cut.span(), "cut.gguf");
        if (n >= toy.last_end) {
            ASSERT_TRUE(file.ok()) << n << ": " << file.error().message;
            walk_all(file.value());
            continue;
        }
        ASSERT_FALSE(file.ok()) << n;
        EXPECT_EQ(file.error().code, Code::bad_file) << n;
        if (n == 0) continue;  // an empty file is called empty
        EXPECT_NE(file.error().message.find("truncated"), std::string::npos) << n << file.error().message;
    }
}

// E1: 37 bytes, one entry with a key of length zero.
TEST(GgufBadFiles, TheSmallestFileWithAnEmptyKeyIsRefusedWithItsOffset) {
    Bytes b;
    for (const char c : {'G', 'G', 'U', 'F'}) append_raw(b, c);
    append_raw(b, 3u);
    append_raw(b, uint64_t{0});
    append_raw(b, uint64_t{1});
    append_raw(b, uint64_t{0});
    append_raw(b, 0u);
    append_raw(b, uint8_t{0});
    ASSERT_EQ(b.size(), 37u);
    const Result<File> file = File::parse(b, "m.gguf");
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().message, "m.gguf: metadata entry 0 at byte 24: the key is empty");
}

// E2: a count is compared with the bytes that are left before anything is reserved.
TEST(GgufBadFiles, ACountNearTheLimitsAllocatesNothing) {
    const auto cost = [](const Bytes& b) {
        const size_t before = test::allocated_bytes();
        const Result<File> file = File::parse(b, "m.gguf");
        EXPECT_FALSE(file.ok());
        return test::allocated_bytes() - before;
    };
    const Toy good = make_toy();
    for (const uint64_t n : {uint64_t{1} << 32, uint64_t{1} << 48, kHuge - 1, kHuge, ~uint64_t{0}}) {
        Toy t = good;
        t.bytes.resize(40);
        t.set(8, n);
        EXPECT_LT(cost(t.bytes), 4096u) << "tensors " << n;
        t.set(8, uint64_t{0});
        t.set(16, n);
        EXPECT_LT(cost(t.bytes), 4096u) << "entries " << n;
        // The strings and arrays come after some valid entries, so allow for those.
        for (const size_t at : {good.value("general.architecture"), good.count("toy.tokens"), good.count("toy.scores"),
                                good.elements("toy.tokens"), good.count("toy.nested")}) {
            t = good;
            t.set(at, n);
            EXPECT_LT(cost(t.bytes), 16384u) << "at " << at << ": " << n;
        }
    }
}

// E4: a getter looks at the declared element type, whatever the key usually holds.
TEST(GgufBadFiles, AnArrayOfANarrowerTypeIsReadAsWhatItIs) {
    const uint8_t scores[] = {1, 2, 250};
    Writer w;
    w.add_value("scores", {ValueType::array, ValueType::u8, 3, std::as_bytes(std::span(scores))});
    const Bytes header = w.header();
    const Exact exact(std::span<const std::byte>(header).first(24 + 8 + 6 + 4 + 12 + 3));  // ends with the last element
    const Result<File> file = File::parse(exact.span(), "m.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file.value().f32_array("scores", 3).value(), (std::vector<float>{1, 2, 250}));
    EXPECT_EQ(file.value().i32_array("scores", 3).value(), (std::vector<int32_t>{1, 2, 250}));
    EXPECT_FALSE(file.value().strings("scores").ok());
    EXPECT_FALSE(file.value().string("scores").ok());
}

// E10: the sizes of two rare formats that a table in the field had wrong.
TEST(GgufBadFiles, RareFormatsAreSizedByTheirPublishedLayouts) {
    Writer w;
    w.add_tensor("iq1_s", quant::Type::iq1_s, std::vector<uint64_t>{256});
    w.add_tensor("iq4_nl", quant::Type::iq4_nl, std::vector<uint64_t>{32});
    EXPECT_EQ(w.tensor_bytes(0), 50u);
    EXPECT_EQ(w.tensor_bytes(1), 18u);
}

TEST(GgufBadFiles, ControlCharactersInNamesDoNotReachTheTerminal) {
    Toy toy = make_toy();
    std::memcpy(toy.bytes.data() + toy.find("blk.0.proj"), "\x1b[2J\x1b[31mx", 10);
    toy.set(toy.tensor_type(std::string_view("\x1b[2J\x1b[31mx", 10)), 77u);
    const Result<File> file = File::parse(toy.bytes, "m.gguf");
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().message.find('\x1b'), std::string::npos);
    EXPECT_NE(file.error().message.find("'\\x1b[2J"), std::string::npos) << file.error().message;
}

// Every interesting number at every place of header, metadata and directory.
TEST(GgufBadFiles, InterestingNumbersAtEveryPlaceNeverBreakTheReader) {
    const uint64_t numbers[] = {
        0,         1,          8,          255,   uint64_t{1} << 31, uint64_t{1} << 32, kHuge / 4,
        kHuge - 1, kHuge - 16, kHuge - 32, kHuge, ~uint64_t{0} - 31, ~uint64_t{0}};
    const Toy good = make_toy();
    size_t n_accepted = 0, n_refused = 0;
    for (size_t at = 0; at + 8 <= good.data_start; ++at) {
        for (const uint64_t number : numbers) {
            for (const size_t width : {size_t{4}, size_t{8}}) {
                Exact e(good.bytes);
                std::memcpy(e.data.get() + at, &number, width);
                const Result<File> file = File::parse(e.span(), "m.gguf");
                if (file.ok()) walk_all(file.value());
                ++(file.ok() ? n_accepted : n_refused);
            }
        }
    }
    EXPECT_GT(n_refused, n_accepted);
    EXPECT_GT(n_accepted, 0u);  // the numbers of data that may be anything, token texts for instance
}

TEST(GgufBadFiles, RandomFlipsNeverBreakTheReader) {
    const Toy good = make_toy();
    std::mt19937_64 random(20260101);
    size_t n_accepted = 0, n_refused = 0;
    for (int round = 0; round < 20000; ++round) {
        Exact e(good.bytes);
        const uint64_t n_flip = 1 + random() % 4;
        for (uint64_t i = 0; i < n_flip; ++i)
            e.data[random() % good.data_start] ^= static_cast<std::byte>(1u << (random() % 8));
        const Result<File> file = File::parse(e.span(), "m.gguf");
        if (file.ok()) walk_all(file.value());
        ++(file.ok() ? n_accepted : n_refused);
    }
    EXPECT_GT(n_accepted, 1000u);  // both kinds have to occur, or the test tries nothing
    EXPECT_GT(n_refused, 1000u);
}

TEST(GgufBadFiles, OpeningWhatIsNoFileSaysSo) {
    EXPECT_EQ(File::open(VESTA_TEST_TMP "/no-such.gguf").error().code, Code::not_found);
    EXPECT_EQ(File::open(VESTA_SOURCE_DIR).error().code, Code::invalid_argument);
    const Result<File> text = File::open(VESTA_SOURCE_DIR "/LICENSE");
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.error().message.find("not a GGUF file"), std::string::npos) << text.error().message;
}

}  // namespace
}  // namespace vesta::gguf
