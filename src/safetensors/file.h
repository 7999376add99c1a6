// Checkpoints in the safetensors format: one file, or a folder of shards with an index. The files are mapped; a tensor
// is a view. Everything a header says is checked against the file before anybody can use it (known ways to lie: shapes
// whose product overflows, ranges outside the file, ranges that overlap, an index that points elsewhere), and every
// refusal names the file and the tensor. Knows names, shapes and bytes; knows nothing of what the numbers mean.
//
//   file = u64 header length (little-endian) · JSON header · data
//   header = { "name": {"dtype": "BF16", "shape": [out, in], "data_offsets": [begin, end]}, ..., "__metadata__": {...}
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace vesta::safetensors {

enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean, f8_e4m3, f8_e8m0 };
const char* dtype_name(DType type);  // as the format writes it: "F8_E4M3"
uint64_t dtype_bytes(DType type);    // bytes of one element
std::optional<DType> find_dtype(std::string_view name);

struct TensorInfo {
    std::string name;
    DType dtype;
    std::vector<uint64_t> shape;       // row-major, last index contiguous; empty for a scalar
    std::span<const std::byte> bytes;  // inside the mapping
    uint64_t n_elem() const;           // cannot overflow: checked against the file at open
};

std::string shape_text(std::span<const uint64_t> shape);  // "[4096, 512]"

// The reference implementation caps headers at 100 MB too. A shard of the largest known checkpoint has 0.3 MB.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

class File {
 public:
    static Result<File> open(const std::string& path);
    // For tests and fuzzing: the same checks on bytes the caller keeps alive. `name` is used in messages.
    static Result<File> parse(std::span<const std::byte> bytes, std::string name);

    const std::string& name() const { return name_; }
    std::span<const TensorInfo> tensors() const { return tensors_; }  // in the order of their data
    const TensorInfo* find(std::string_view name) const;              // nullptr when absent
    const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
    MappedFile mapping_;  // empty after parse()
    std::string name_;
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string, size_t> index_;
    std::map<std::string, std::string> metadata_;
};

// All tensors of a model, whatever the number of files. Views are valid while the Checkpoint lives. Safe to read from
// any thread.
class Checkpoint {
 public:
    // `path`: a .safetensors file, or a folder with model.safetensors.index.json and its shards, or with one
    // model.safetensors.
    static Result<Checkpoint> open(const std::string& path);

    const std::string& path() const { return path_; }
    std::span<const File> files() const { return files_; }
    size_t n_tensor() const { return index_.size(); }
    const TensorInfo* find(std::string_view name) const;  // nullptr when absent
    std::vector<const TensorInfo*> tensors() const;       // file by file

    // "model-00002-of-00004.safetensors: tensor layers.1.attn_sink", for messages about a tensor of this checkpoint.
    std::string describe(const TensorInfo& tensor) const;

 private:
    struct Place {
        size_t file, tensor;
    };
    std::string path_;
    std::vector<File> files_;
    std::unordered_map<std::string, Place> index_;
};

// Writes one file; used by tests, fixtures and tools. Tensors are laid out in the given order, the data starts at a
// multiple of 8. Requires: bytes of each tensor match its shape and type, names differ.
struct OutTensor {
    std::string name;
    DType dtype;
    std::vector<uint64_t> shape;
    std::span<const std::byte> bytes;
};
Status write_safetensors(const std::string& path, std::span<const OutTensor> tensors, bool overwrite = true);

}  // namespace vesta::safetensors
