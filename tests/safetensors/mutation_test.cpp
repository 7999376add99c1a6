// Known failure E11: readers that trust a safetensors header. Each way to lie that we can think of must be refused with
// the name of what is wrong, and no damage whatsoever may crash the reader (run under ASan and UBSan by the asan
// preset).
#include <gtest/gtest.h>

#include <random>

#include "raw_file.h"
#include "safetensors/file.h"

namespace vesta::safetensors {
namespace {

const std::string kHeader = R"({"__metadata__":{"format":"pt"},)"
                            R"("layers.0.attn.wq_a.weight":{"dtype":"F8_E4M3","shape":[4,8],"data_offsets":[8,40]},)"
                            R"("layers.0.attn.wq_a.scale":{"dtype":"F8_E8M0","shape":[1,1],"data_offsets":[40,41]},)"
                            R"("norm.weight":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})";
const std::string kData(41, '\x11');

std::string replaced(std::string text, const std::string& what, const std::string& with) {
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), with);
}

// The bytes are refused, and the message names the file and `named`.
void expect_refused(const std::string& bytes, const std::string& named) {
    const auto file = File::parse(as_bytes(bytes), "shard-7");
    ASSERT_FALSE(file.ok()) << "accepted; should have complained about " << named;
    EXPECT_EQ(file.error().message.rfind("shard-7", 0), 0u) << file.error().message;
    EXPECT_NE(file.error().message.find(named), std::string::npos) << file.error().message;
}

TEST(SafetensorsMutation, TheUnchangedFileIsAccepted) {
    const std::string bytes = raw_file(kHeader, kData);
    const auto file = File::parse(as_bytes(bytes), "f");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file.value().tensors().size(), 3u);
}

TEST(SafetensorsMutation, TruncationAtEveryByteIsRefused) {
    const std::string bytes = raw_file(kHeader, kData);
    for (size_t n = 0; n < bytes.size(); ++n)
        expect_refused(bytes.substr(0, n), n >= 8 + kHeader.size() ? "tensor " : "");
}

TEST(SafetensorsMutation, TrailingBytesAreRefused) { expect_refused(raw_file(kHeader, kData + "x"), "after the last"); }

TEST(SafetensorsMutation, HeaderLengthsThatLieAreRefused) {
    const uint64_t n = kHeader.size();
    for (const uint64_t length : {uint64_t{0}, uint64_t{1}, n - 1, n + 1, n + kData.size(), n + kData.size() + 1,
                                  kMaxHeaderBytes, kMaxHeaderBytes + 1, uint64_t{1} << 32, (uint64_t{1} << 63) - 1,
                                  uint64_t{1} << 63, ~uint64_t{0} - 7, ~uint64_t{0}})
        expect_refused(raw_file(length, kHeader, kData), "header");
}

struct Lie {
    const char* what;
    const char* with;
    const char* named;
};

class LyingHeader : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingHeader, IsRefusedWithTheTensorsName) {
    const Lie& lie = GetParam();
    expect_refused(raw_file(replaced(kHeader, lie.what, lie.with), kData), lie.named);
}

constexpr const char* kWeight = "tensor layers.0.attn.wq_a.weight";
INSTANTIATE_TEST_SUITE_P(
    Known, LyingHeader,
    ::testing::Values(
        // shapes
        Lie{"[4,8]", "[4,9]", kWeight}, Lie{"[4,8]", "[4]", kWeight}, Lie{"[4,8]", "[]", kWeight},
        Lie{"[4,8]", "[0,8]", kWeight}, Lie{"[4,8]", "[-4,-8]", kWeight}, Lie{"[4,8]", "[4.0,8]", kWeight},
        Lie{"[4,8]", "[4,\"8\"]", kWeight}, Lie{"[4,8]", "32", kWeight}, Lie{"[4,8]", "null", kWeight},
        Lie{"[4,8]", "[4,8,1,1,1,1,1,1,1]", kWeight}, Lie{"[4,8]", "[4294967296,4294967296]", kWeight},
        Lie{"[4,8]", "[9223372036854775808,2]", kWeight},
        Lie{"[4,8]", "[18446744073709551615,18446744073709551615]", kWeight},
        Lie{"[4,8]", "[18446744073709551616,1]", kWeight}, Lie{"[4,8]", "[9223372036854775808,4,0]", kWeight},
        Lie{"[4,8]", "[1e3,8]", kWeight}, Lie{"[4,8]", "[2305843009213693952,8,2]", kWeight},
        // offsets
        Lie{"[8,40]", "[8,39]", kWeight}, Lie{"[8,40]", "[40,8]", kWeight}, Lie{"[8,40]", "[10,42]", kWeight},
        Lie{"[8,40]", "[-8,24]", kWeight}, Lie{"[8,40]", "[8]", kWeight}, Lie{"[8,40]", "[8,40,41]", kWeight},
        Lie{"[8,40]", "8", kWeight}, Lie{"[8,40]", "[9223372036854775776,9223372036854775808]", kWeight},
        Lie{"[8,40]", "[18446744073709551583,18446744073709551615]", kWeight},
        Lie{"[8,40]", "[18446744073709551615,31]", kWeight}, Lie{"[8,40]", "[0,32]", "tensor norm.weight"},
        Lie{"[8,40]", "[8.0,40]", kWeight}, Lie{"[8,40]", "[4,36]", "overlaps tensor norm.weight"},
        Lie{"[40,41]", "[39,40]", "overlaps"}, Lie{"[40,41]", "[8,9]", "overlaps"},
        // dtypes
        Lie{"\"F8_E4M3\"", "\"F9_E5M3\"", kWeight}, Lie{"\"F8_E4M3\"", "\"BF16\"", kWeight},
        Lie{"\"F8_E4M3\"", "8", kWeight}, Lie{"\"F8_E4M3\"", "null", kWeight}, Lie{"\"F8_E4M3\"", "\"\"", kWeight},
        Lie{"\"F8_E4M3\"", "\"f32\"", kWeight}, Lie{"\"F8_E4M3\"", "\"\\u001b[2J\"", kWeight},
        // structure
        Lie{"{\"dtype\":\"F8_E4M3\",\"shape\":[4,8],\"data_offsets\":[8,40]}", "[]", kWeight},
        Lie{"{\"dtype\":\"F8_E4M3\",\"shape\":[4,8],\"data_offsets\":[8,40]}", "{}", kWeight},
        Lie{"\"shape\":[4,8],", "", kWeight}, Lie{"\"shape\":[4,8]", "\"shape\":[4,8],\"extra\":1", kWeight},
        Lie{"\"shape\":[4,8]", "\"shape\":[4,8],\"shape\":[4,8]", "\"shape\" appears twice"},
        Lie{"\"norm.weight\"", "\"layers.0.attn.wq_a.scale\"", "\"layers.0.attn.wq_a.scale\" appears twice"},
        Lie{"\"norm.weight\"", "\"\"", "name"}, Lie{"{\"format\":\"pt\"}", "[]", "__metadata__"},
        Lie{"{\"format\":\"pt\"}", "{\"format\":1}", "__metadata__"}, Lie{"\"norm.weight\"", "\"\xff\xfe\"", "JSON"},
        Lie{"[4,8]", "[[[[4]]]]", "nested"}));

TEST(SafetensorsMutation, NotJsonIsRefused) {
    for (const char* header :
         {"", "{", "[", "null", "7", "\"x\"", "[]", "{]", "{\"a\":}", "{}x", "\xff", "{\"a\":NaN}"})
        expect_refused(raw_file(header, ""), "header");
}

TEST(SafetensorsMutation, DeepJsonIsRefusedWithoutRecursion) {
    for (const size_t depth : {size_t{5}, size_t{1000}, size_t{1'000'000}}) {
        expect_refused(raw_file("{\"a\":" + std::string(depth, '['), ""), "header");
        expect_refused(raw_file("{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}", ""), "nested");
        std::string objects;
        for (size_t i = 0; i < depth; ++i) objects += "{\"a\":";
        expect_refused(raw_file(objects, ""), "header");
    }
}

TEST(SafetensorsMutation, NamesInMessagesCannotDriveTheTerminal) {
    const std::string bytes = raw_file(
        replaced(kHeader, "\"norm.weight\":{\"dtype\":\"BF16\"", R"("\u001b[31mred\u0007":{"dtype":"F32")"), kData);
    const auto file = File::parse(as_bytes(bytes), "f");
    ASSERT_FALSE(file.ok());
    for (const char c : file.error().message) EXPECT_GE(static_cast<unsigned char>(c), 0x20u);
    const std::string long_name = raw_file(replaced(kHeader, "norm.weight", std::string(100'000, 'n')), kData);
    const auto refused = File::parse(as_bytes(long_name), "f");
    ASSERT_FALSE(refused.ok());
    EXPECT_LT(refused.error().message.size(), 400u);
}

TEST(SafetensorsMutation, RandomDamageNeverCrashesAndWhatIsAcceptedIsConsistent) {
    std::mt19937 random(20260801);
    const std::string original = raw_file(kHeader, kData);
    const std::string alphabet = "{}[]\",:0123456789.-eE_FBIU8 \\";
    int accepted = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string bytes = original;
        const int n_change = 1 + static_cast<int>(random() % 4);
        for (int i = 0; i < n_change; ++i) {
            const size_t at = random() % (8 + kHeader.size());
            switch (random() % 4) {
                case 0:
                    bytes[at] = static_cast<char>(random());
                    break;
                case 1:
                    bytes[at] = alphabet[random() % alphabet.size()];
                    break;
                case 2:
                    bytes.erase(at, 1 + random() % 3);
                    break;
                default:
                    bytes.insert(at, 1, alphabet[random() % alphabet.size()]);
                    break;
            }
        }
        const auto file = File::parse(as_bytes(bytes), "f");
        if (!file.ok()) continue;
        ++accepted;
        for (const TensorInfo& t : file.value().tensors()) {
            EXPECT_EQ(t.n_elem() * dtype_bytes(t.dtype), t.bytes.size());
            if (t.bytes.empty()) continue;
            EXPECT_GE(t.bytes.data(), as_bytes(bytes).data());
            EXPECT_LE(t.bytes.data() + t.bytes.size(), as_bytes(bytes).data() + bytes.size());
        }
    }
    EXPECT_GT(accepted, 0);  // a changed letter of a name is no damage
}

}  // namespace
}  // namespace vesta::safetensors
