#include "tokenizer/fixture.h"

#include <zstd.h>

#include <fstream>
#include <iterator>

#include "base/utf8.h"

namespace vesta::tokenizer {
namespace {

// Unwraps or stops with the error's message: without the fixture no test here means anything.
template <class T>
T require(Result<T> r) {
    if (!r.ok()) check_failed(__FILE__, __LINE__, "test fixture", r.error().message);
    return std::move(r).value();
}

const std::vector<std::byte>& v3_bytes() {
    static const std::vector<std::byte> bytes = [] {
        std::ifstream in(VESTA_TEST_DATA "/tokenizer_dsv3.gguf.zst", std::ios::binary);
        const std::string packed{std::istreambuf_iterator<char>(in), {}};
        const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
        VESTA_CHECK(size < (1u << 25));
        std::vector<std::byte> out(size);
        VESTA_CHECK(ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size()) == size);
        return out;
    }();
    return bytes;
}

}  // namespace

const gguf::File& v3_file() {
    static const gguf::File file = require(gguf::File::parse(v3_bytes(), "tokenizer_dsv3.gguf"));
    return file;
}

const Tokenizer& v3() {
    static const Tokenizer tokenizer = require(Tokenizer::from_gguf(v3_file()));
    return tokenizer;
}

Vocab small_vocab(const std::vector<std::string>& merges, const std::vector<Extra>& extra) {
    Vocab v;
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
        const bool printable_byte = (b >= 33 && b <= 126) || (b >= 161 && b <= 255 && b != 173);
        v.tokens.push_back(utf8({printable_byte ? b : next++}));
    }
    for (const std::string& m : merges) {
        const size_t space = m.find(' ');
        v.tokens.push_back(m.substr(0, space) + m.substr(space + 1));
    }
    v.merges = merges;
    v.token_types.assign(v.tokens.size(), 1);
    for (const Extra& e : extra) {
        v.tokens.push_back(e.text);
        v.token_types.push_back(e.type);
    }
    return v;
}

std::vector<int32_t> encode(const Tokenizer& t, std::string_view text, SpecialMode mode) {
    std::vector<int32_t> ids;
    t.encode(text, mode, ids);
    return ids;
}

std::string decode(const Tokenizer& t, const std::vector<int32_t>& ids) { return require(t.decode(ids)); }

std::string utf8(const std::vector<uint32_t>& code_points) {
    std::string out;
    for (const uint32_t c : code_points) append_utf8(out, c);
    return out;
}

std::string mixed_script_text(size_t n_bytes, uint32_t seed) {
    // Blocks, each as first and last code point; a word stays within one.
    constexpr uint32_t kBlocks[][2] = {
        {'a', 'z'},         {'A', 'Z'},         {'0', '9'},         {0x21, 0x2F},       {0x3A, 0x40},
        {0xC0, 0x17F},      {0x300, 0x36F},     {0x391, 0x3C9},     {0x410, 0x44F},     {0x5D0, 0x5EA},
        {0x621, 0x64A},     {0x660, 0x669},     {0x905, 0x94D},     {0xE01, 0xE4E},     {0x1E00, 0x1EFF},
        {0x2010, 0x205E},   {0x20A0, 0x20BF},   {0x2190, 0x22FF},   {0x2581, 0x2581},   {0x3041, 0x30FF},
        {0x4E00, 0x9FFF},   {0xAC00, 0xD7A3},   {0xE000, 0xE0FF},   {0xFF00, 0xFF5E},   {0x10330, 0x1034A},
        {0x1D400, 0x1D7FF}, {0x1F300, 0x1F64F}, {0x20000, 0x2A6DF}, {0xE0100, 0xE01EF}, {0x10FFF0, 0x10FFFF},
    };
    constexpr std::string_view kBetween[] = {" ",      " ", " ",  "  ",     "\n",     "\r\n",
                                             "\n\n\t", "",  "\t", "\u00A0", "\u3000", ", "};
    Random random(seed);
    std::string out;
    while (out.size() < n_bytes) {
        const auto& block = kBlocks[random.below(std::size(kBlocks))];
        for (uint32_t i = 1 + random.below(9); i != 0; --i)
            append_utf8(out, block[0] + random.below(block[1] - block[0] + 1));
        out += kBetween[random.below(std::size(kBetween))];
    }
    return out;
}

}  // namespace vesta::tokenizer
