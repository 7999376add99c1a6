// Writes a GGUF v3 file. Metadata and the tensor directory are declared first; then each tensor's bytes are streamed in
// any order and in any pieces, so that a model larger than memory can be written. The file appears under its name only
// at finish(), and until then even the temporary file is no GGUF: its magic is zeros and is written last, after
// everything else is on the disk. So no kill and no power cut leaves a file that loads and is not whole. One thread at
// a time.
//
// What a reader would refuse is refused here too, so that no broken file is ever made: data that is not as it must be
// (a number that is not finite, a name that is too long) comes back from begin(), a call out of order stops at
// VESTA_CHECK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/file.h"
#include "gguf/file.h"
#include "quant/format.h"

namespace vesta::gguf {

class Writer {
 public:
    // 1. metadata, in the order it will have in the file. A repeated key is a caller's bug (VESTA_CHECK). The u32 key
    // general.alignment also sets the alignment of this file (32 without it).
    void add_u32(std::string_view key, uint32_t value);
    void add_i32(std::string_view key, int32_t value);
    void add_u64(std::string_view key, uint64_t value);
    void add_f32(std::string_view key, float value);
    void add_bool(std::string_view key, bool value);
    void add_string(std::string_view key, std::string_view value);
    void add_strings(std::string_view key, std::span<const std::string> values);
    void add_u32_array(std::string_view key, std::span<const uint32_t> values);
    void add_i32_array(std::string_view key, std::span<const int32_t> values);
    void add_f32_array(std::string_view key, std::span<const float> values);
    void add_value(std::string_view key, const Value& value);  // copies a value of another file as it is

    // 2. the directory. dims[0] contiguous. Requires: 1..4 dims, each >= 1, dims[0] a multiple of the block size, a new
    // name. Closes the metadata.
    void add_tensor(std::string_view name, quant::Type type, std::span<const uint64_t> dims);

    // 3. the file.
    Status begin(const std::string& path, bool overwrite);  // writes header, metadata and directory
    // The same in PATH.part (AtomicFile::resume). `fresh` is false when that file already begins with this very header:
    // then its tensors may hold what an earlier process wrote, to be looked at with read_back() and accepted with
    // mark_complete(). Otherwise, or with `restart`, it is emptied first.
    Result<bool> begin_resumable(const std::string& path, bool overwrite, bool restart);
    // Bytes of a tensor as they lie in the file; not_found when the file ends before.
    Status read_back(size_t index, uint64_t offset, std::span<std::byte> bytes) const;
    void mark_complete(size_t index);  // Requires: nothing of it was written yet
    // Whether PATH.part stays for a later begin_resumable() when finish() is not reached; after begin_resumable() it
    // does.
    void keep_unfinished(bool keep);
    // Bytes [offset, offset + size) of tensor `index` (order of add_tensor). Each byte is written once: a range that
    // overlaps an earlier one or the end of the tensor is an error (invalid_argument).
    Status write_tensor(size_t index, uint64_t offset, std::span<const std::byte> bytes);
    Status finish();  // refuses (internal error) unless every tensor is complete; then fsync, magic, fsync, rename

    size_t n_tensor() const { return tensors_.size(); }
    uint64_t tensor_bytes(size_t index) const { return tensors_[index].bytes; }
    uint64_t data_bytes() const;  // all tensors, padded
    // Header, metadata and directory as they will stand in the file, padded to the start of the data. For tests.
    std::vector<std::byte> header() const;

 private:
    struct Tensor {
        std::string name;
        quant::Type type;
        std::vector<uint64_t> dims;
        uint64_t offset, bytes;
        std::map<uint64_t, uint64_t> written;  // begin -> end; neighbours are merged, so one range once complete
    };
    template <class T>
    void add_scalar(std::string_view key, ValueType type, T value);
    template <class T>
    void add_array(std::string_view key, ValueType element, std::span<const T> values);
    void add_key(std::string_view key, ValueType type);
    void note_problem(std::string text);
    Status write_header();

    std::vector<std::byte> metadata_;
    uint64_t n_metadata_ = 0;
    uint32_t alignment_ = 32;
    std::unordered_set<std::string> keys_, names_;
    std::vector<Tensor> tensors_;
    std::string problem_;           // the first thing begin() has to refuse
    std::vector<AtomicFile> file_;  // 0 or 1: opened by begin()
    uint64_t data_start_ = 0;
};

}  // namespace vesta::gguf
