// The exact pocket checkpoint comes back from the repository, and converts.
#include "support/pocket_fixture.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "convert/convert.h"
#include "gguf/file.h"
#include "numbers.h"

namespace vesta::test {
namespace {

namespace fs = std::filesystem;

// The shipped model file stays below what issue A allows.
TEST(Pocket, ModelFileHasAtMost56Megabytes) {
    EXPECT_LE(fs::file_size(PocketFiles::in_source_tree().model), 56'000'000u);
}

// rebuild compares every tensor's hash with the original's; here the result is used like any checkpoint.
TEST(Pocket, ExactCheckpointIsRebuiltAndItsModelFileHoldsEveryValue) {
    const auto folder = pocket_checkpoint(VESTA_TEST_TMP);
    ASSERT_TRUE(folder.ok()) << folder.error().message;
    const auto path = pocket_native_model(VESTA_TEST_TMP);
    ASSERT_TRUE(path.ok()) << path.error().message;
    const auto model = gguf::File::open(path.value());
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto checkpoint = safetensors::Checkpoint::open(folder.value());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(checkpoint.value().n_tensor(), 1186u);
    EXPECT_EQ(model.value().tensors().size(), 272u);
    EXPECT_EQ(model.value().strings("tokenizer.ggml.tokens").value().size(), 4096u);
    EXPECT_EQ(model.value().string("vesta.chat.dialect").value(), "dsv4");
    // One tensor of each packing; tests/convert/convert_test.cpp does all of the tiny models.
    for (const auto& [gguf, official] : {std::pair{"blk.3.attn_q_b.weight", "layers.3.attn.wq_b.weight"},
                                         {"token_embd.weight", "embed.weight"},
                                         {"blk.5.hc_ffn_fn.weight", "layers.5.hc_ffn_fn"},
                                         {"blk.1.ffn_gate_tid2eid.weight", "layers.1.ffn.gate.tid2eid"}}) {
        const gguf::TensorInfo* t = model.value().find_tensor(gguf);
        ASSERT_NE(t, nullptr);
        const std::string name = official;
        const safetensors::TensorInfo* scale =
            name.ends_with(".weight") ? checkpoint.value().find(convert::scale_name(name)) : nullptr;
        EXPECT_EQ(convert::gguf_numbers(t->type, t->bytes, t->n_elem()),
                  convert::checkpoint_numbers(*checkpoint.value().find(name), scale))
            << gguf;
    }
}

TEST(Pocket, ExpertsOfTheShippedFileAreThoseOfTheExactOne) {
    const auto path = pocket_native_model(VESTA_TEST_TMP);
    ASSERT_TRUE(path.ok()) << path.error().message;
    const auto exact = gguf::File::open(path.value());
    const auto shipped = gguf::File::open(PocketFiles::in_source_tree().model);
    ASSERT_TRUE(exact.ok() && shipped.ok());
    size_t n = 0;
    for (const gguf::TensorInfo& t : exact.value().tensors()) {
        if (t.type != quant::Type::mxfp4) continue;
        const gguf::TensorInfo* other = shipped.value().find_tensor(t.name);
        ASSERT_NE(other, nullptr);
        ASSERT_EQ(other->bytes.size(), t.bytes.size());
        EXPECT_EQ(std::memcmp(other->bytes.data(), t.bytes.data(), t.bytes.size()), 0) << t.name;
        ++n;
    }
    EXPECT_EQ(n, 9u * 3u);  // 8 layers and the MTP block
}

TEST(Pocket, FixtureOfAnotherModelFileIsNoticed) {
    PocketFiles files = PocketFiles::in_source_tree();
    const fs::path folder = fs::path(VESTA_TEST_TMP) / "pocket_changed";
    fs::remove_all(folder);
    fs::create_directories(folder);
    fs::copy_file(files.model, folder / "changed.gguf");
    const auto model = gguf::File::open(files.model);
    ASSERT_TRUE(model.ok());
    const gguf::TensorInfo* t = model.value().find_tensor("blk.4.attn_kv.weight");
    ASSERT_NE(t, nullptr);
    const auto end = static_cast<std::streamoff>(fs::file_size(files.model));
    // The data section ends with the file: count from the last byte of the tensor with the largest offset.
    uint64_t data_bytes = 0;
    for (const gguf::TensorInfo& other : model.value().tensors())
        data_bytes = std::max<uint64_t>(data_bytes, (other.offset + other.bytes.size() + 31) / 32 * 32);
    {
        std::fstream file(folder / "changed.gguf", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(end - static_cast<std::streamoff>(data_bytes) + static_cast<std::streamoff>(t->offset) + 2);
        file.put(static_cast<char>(~static_cast<unsigned char>(t->bytes[2])));
    }
    files.model = (folder / "changed.gguf").string();
    const Status status = rebuild_pocket_checkpoint(files, (folder / "out").string());
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("layers.4.attn.wkv.weight"), std::string::npos) << status.error().message;
    EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors"));
}

}  // namespace
}  // namespace vesta::test
