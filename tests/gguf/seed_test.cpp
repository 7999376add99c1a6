// The seeds of the fuzzer: small valid files that between them hold every value type and several tensor formats. They
// are committed; this test keeps them equal to what the Writer makes today, or writes them again when the environment
// variable VESTA_WRITE_SEEDS is set.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gguf/file.h"
#include "toy.h"

namespace vesta::gguf {
namespace {

Bytes only_header(void (*fill)(Writer&)) {
    Writer w;
    fill(w);
    Bytes bytes = w.header();
    bytes.resize(bytes.size() + w.data_bytes());
    return bytes;
}

struct Seed {
    const char* name;
    Bytes bytes;
};

std::vector<Seed> seeds() {
    return {
        {"toy", make_toy().bytes},
        {"empty", only_header([](Writer&) {})},
        {"one_string", only_header([](Writer& w) { w.add_string("k", "v"); })},
        {"scalars", only_header([](Writer& w) {
             const uint64_t zero = 0;
             for (const uint32_t type : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 10u, 11u, 12u}) {
                 const auto t = static_cast<ValueType>(type);
                 const size_t n_byte = type < 2 || type == 7 ? 1 : type < 4 ? 2 : type < 7 ? 4 : 8;
                 w.add_value(value_type_name(t), {t, t, 1, std::as_bytes(std::span(&zero, 1)).first(n_byte)});
             }
         })},
        {"nested", only_header([](Writer& w) {
             Bytes storage;
             w.add_value("deep", nested_array(storage, 8));
             w.add_value("flat", nested_array(storage, 2));
         })},
        {"blocks", only_header([](Writer& w) {
             w.add_u32("general.alignment", 8);
             w.add_tensor("q", quant::Type::q8_0, std::vector<uint64_t>{32, 2});
             w.add_tensor("k", quant::Type::q2_k, std::vector<uint64_t>{256});
             w.add_tensor("m", quant::Type::mxfp4, std::vector<uint64_t>{32, 1, 1, 2});
         })},
    };
}

TEST(GgufSeeds, AreValidAndEqualToTheCommittedOnes) {
    const std::filesystem::path folder = VESTA_SOURCE_DIR "/tests/fuzz/corpus/gguf";
    for (const Seed& seed : seeds()) {
        SCOPED_TRACE(seed.name);
        const Result<File> file = File::parse(seed.bytes, seed.name);
        EXPECT_TRUE(file.ok()) << file.error().message;
        const std::filesystem::path path = folder / (std::string(seed.name) + ".gguf");
        const std::string expected(reinterpret_cast<const char*>(seed.bytes.data()), seed.bytes.size());
        if (std::getenv("VESTA_WRITE_SEEDS") != nullptr) std::ofstream(path, std::ios::binary) << expected;
        std::ifstream in(path, std::ios::binary);
        const std::string found((std::istreambuf_iterator<char>(in)), {});
        EXPECT_TRUE(found == expected) << path << " differs; run this test once with VESTA_WRITE_SEEDS=1";
    }
}

}  // namespace
}  // namespace vesta::gguf
