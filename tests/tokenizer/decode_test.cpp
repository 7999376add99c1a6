// Ids back to bytes: exact for every token, every text and every way to cut the stream.
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tokenizer/fixture.h"

namespace vesta::tokenizer {
namespace {

TEST(Decode, EveryVocabularyEntryRoundTrips) {
    for (int32_t id = 0; id < v3().n_vocab(); ++id) {
        const std::string bytes = decode(v3(), {id});
        ASSERT_FALSE(bytes.empty()) << id;
        if (v3().is_special(id)) {
            ASSERT_EQ(bytes, v3().spelling(id));
            ASSERT_EQ(encode(v3(), bytes, SpecialMode::recognise), std::vector<int32_t>{id});
        } else {
            // Not every token is what its own text encodes to, but the text must survive.
            ASSERT_EQ(decode(v3(), encode(v3(), bytes)), bytes) << id;
        }
    }
}

TEST(Decode, OneMegabyteOfMixedScriptsRoundTrips) {
    const std::string text = mixed_script_text(1 << 20, 4);
    ASSERT_TRUE(is_valid_utf8(text));
    EXPECT_EQ(decode(v3(), encode(v3(), text)), text);
    EXPECT_EQ(decode(v3(), encode(v3(), text, SpecialMode::recognise)), text);
}

TEST(Decode, AnyBytesRoundTrip) {
    Random random(5);
    for (int i = 0; i < 500; ++i) {
        std::string bytes;
        for (uint32_t n = random.below(200); n != 0; --n) bytes.push_back(static_cast<char>(random.below(256)));
        ASSERT_EQ(decode(v3(), encode(v3(), bytes)), bytes);
    }
    // Lone continuation, overlong slash, surrogate, beyond U+10FFFF, truncated four-byte character at the end.
    for (const std::string bytes : {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "ok \xF0\x9F\x98"}) {
        EXPECT_EQ(decode(v3(), encode(v3(), bytes)), bytes);
    }
}

TEST(Decode, IdsOutOfRangeAreNamed) {
    for (const int32_t id : {-1, 128815}) {
        const Result<std::string> r = v3().decode(std::vector<int32_t>{5, id});
        ASSERT_FALSE(r.ok());
        EXPECT_EQ(r.error().message,
                  strf("token id {} (number 2 of 2) is not in the vocabulary; ids are 0 to 128814", id));
    }
}

TEST(Decode, TokensOutsideTheByteAlphabetStandForThemselves) {
    const Tokenizer t = Tokenizer::from_vocab(small_vocab({}, {{"▁x y", 1}, {"Ġx", 1}})).value();
    EXPECT_EQ(decode(t, {256}), "▁x y");
    EXPECT_EQ(decode(t, {257}), " x");
}

// One byte per token (small vocabulary), so that every cut of the text is tried: pushes `text`, checks that each output
// ends on a character, returns the concatenation.
std::string stream_bytes(const std::string& text) {
    static const Tokenizer t = Tokenizer::from_vocab(small_vocab({})).value();
    const bool whole_valid = is_valid_utf8(text);
    StreamDecoder decoder(t);
    std::string all;
    for (const char c : text) {
        std::string piece;
        decoder.push(static_cast<unsigned char>(c), piece);
        EXPECT_LE(decoder.held().size(), 3u);
        EXPECT_TRUE(is_valid_utf8(piece) || !whole_valid) << text;
        all += piece;
    }
    EXPECT_TRUE(decoder.held().empty() || !whole_valid);
    decoder.flush(all);
    EXPECT_TRUE(decoder.held().empty());
    return all;
}

TEST(StreamDecoder, SplitAtEveryByteEmitsWholeCharactersOnly) {
    EXPECT_EQ(stream_bytes("aé▁😀｜</think>\n"), "aé▁😀｜</think>\n");
    const std::string text = mixed_script_text(20000, 6);
    EXPECT_EQ(stream_bytes(text), text);
}

TEST(StreamDecoder, BytesThatNeverBecomeACharacterPassThrough) {
    for (const std::string bytes : {"\x80z", "\xC0\xAFz", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                    "\xF0\x9F\x98", "\xF0\x9F\x98z", "\xE2\x96", "\xE2\xE2\x96\x81", "\xFF\xFE"}) {
        EXPECT_EQ(stream_bytes(bytes), bytes);
    }
    Random random(7);
    for (int i = 0; i < 2000; ++i) {
        std::string bytes;
        constexpr unsigned char kBytes[] = {'a',  0x80, 0x96, 0x9F, 0xA0, 0xBF, 0xC3,
                                            0xE2, 0xE0, 0xED, 0xF0, 0xF4, 0xFF};
        for (uint32_t n = random.below(12); n != 0; --n)
            bytes.push_back(static_cast<char>(kBytes[random.below(std::size(kBytes))]));
        ASSERT_EQ(stream_bytes(bytes), bytes);
    }
}

TEST(StreamDecoder, EqualsDecodeOnTheRealVocabulary) {
    const std::string text = mixed_script_text(200000, 8);
    const std::vector<int32_t> ids = encode(v3(), text);
    StreamDecoder decoder(v3());
    std::string all;
    for (const int32_t id : ids) {
        std::string piece;
        decoder.push(id, piece);
        ASSERT_TRUE(is_valid_utf8(piece));
        all += piece;
    }
    EXPECT_TRUE(decoder.held().empty());
    EXPECT_EQ(all, text);
}

TEST(StreamDecoder, SpecialsPrintOrHide) {
    const Tokenizer t = Tokenizer::from_vocab(small_vocab({}, {{"<think>", 4}, {"<｜User｜>", 3}})).value();
    const std::vector<int32_t> ids = {'a', 256, 'b', 257, 0xE2, 256, 0x96, 0x81};
    const auto run = [&](StreamDecoder::Specials specials) {
        StreamDecoder decoder(t, specials);
        std::string out;
        for (const int32_t id : ids) decoder.push(id, out);
        decoder.flush(out);
        return out;
    };
    EXPECT_EQ(run(StreamDecoder::Specials::print), "a<think>b<｜User｜>\xE2<think>\x96\x81");
    EXPECT_EQ(run(StreamDecoder::Specials::hide), "ab▁");
}

TEST(StreamDecoder, TwoStreamsDoNotShareState) {
    const Tokenizer t = Tokenizer::from_vocab(small_vocab({})).value();
    const std::string one = "▁▁", two = "😀é";
    StreamDecoder a(t), b(t);
    std::string out_a, out_b;
    for (size_t i = 0; i < 6; ++i) {
        a.push(static_cast<unsigned char>(one[i]), out_a);
        b.push(static_cast<unsigned char>(two[i]), out_b);
    }
    EXPECT_EQ(out_a, one);
    EXPECT_EQ(out_b, two);
}

}  // namespace
}  // namespace vesta::tokenizer
