// A GGUF v3 model file, mapped read-only: metadata and a tensor directory. Every rule of the format is checked at open
// (docs/gguf.md lists them); after that, views are plain pointers into the mapping. Nothing large is copied: a
// vocabulary of 129k strings stays where it is on disk. Knows nothing of model families.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "quant/format.h"

namespace vesta::gguf {

enum class ValueType : uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
};
const char* value_type_name(ValueType type);

// One metadata value, still in its file bytes. Valid while its File lives.
struct Value {
    ValueType type;
    ValueType element_type;              // of an array
    uint64_t count = 1;                  // of an array
    std::span<const std::byte> payload;  // scalars: the value; strings: the characters; arrays: the elements as stored
};

// Walks an array of strings without copying it. Valid while its File lives.
class StringArray {
 public:
    class Iterator {
     public:
        explicit Iterator(const std::byte* p) : p_(p) {}
        std::string_view operator*() const;
        Iterator& operator++();
        bool operator!=(const Iterator& o) const { return p_ != o.p_; }

     private:
        const std::byte* p_;
    };
    explicit StringArray(const Value& v) : count_(v.count), bytes_(v.payload) {}
    uint64_t size() const { return count_; }
    Iterator begin() const { return Iterator(bytes_.data()); }
    Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }

 private:
    uint64_t count_;
    std::span<const std::byte> bytes_;
};

// Walks the elements of any array, nested ones too, as Values. Valid while the File lives.
//   for (ArrayWalk walk(value); walk.next();) use(walk.element());
class ArrayWalk {
 public:
    explicit ArrayWalk(const Value& array);  // Requires: array.type == ValueType::array, out of a File
    bool next();                             // false after the last element
    const Value& element() const { return element_; }

 private:
    ValueType type_;
    uint64_t left_;
    const std::byte* p_;
    Value element_;
};

// One scalar as the widest number of its kind. Requires: a scalar of that kind (bool counts as unsigned).
uint64_t as_unsigned(const Value& value);
int64_t as_signed(const Value& value);
double as_double(const Value& value);
std::string_view as_string(const Value& value);  // Requires: a string

struct TensorInfo {
    std::string_view name;  // inside the mapping
    quant::Type type;
    uint32_t n_dim;    // 1..4
    uint64_t dims[4];  // dims[0] contiguous; unused ones are 1
    uint64_t offset;   // from the start of the data section
    std::span<const std::byte> bytes;
    uint64_t n_elem() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

class File {
 public:
    static Result<File> open(const std::string& path);
    // For tests and fuzzing: the same checks on bytes the caller keeps alive. `name` is used in messages.
    static Result<File> parse(std::span<const std::byte> bytes, std::string name);

    const std::string& name() const { return name_; }
    uint64_t file_bytes() const { return bytes_.size(); }
    std::span<const std::byte> bytes() const { return bytes_; }  // the whole file
    uint32_t alignment() const { return alignment_; }
    uint64_t data_start() const { return data_start_; }  // tensor offsets count from here

    // Metadata in file order.
    struct Entry {
        std::string_view key;
        Value value;
    };
    std::span<const Entry> metadata() const { return entries_; }
    const Value* find(std::string_view key) const;  // nullptr when absent
    bool has(std::string_view key) const { return find(key) != nullptr; }

    // Typed access; errors name the file, the key, the expected and the found type. Integers of any width and sign are
    // accepted where the value fits; f32() accepts f32, f64 and integers, and refuses what is not finite as an f32. A
    // key that is absent is Code::not_found, one of the wrong type or size Code::bad_file. Arrays of more than
    // max_count elements are refused before anything is copied.
    Result<uint32_t> u32(std::string_view key) const;
    Result<uint64_t> u64(std::string_view key) const;
    Result<float> f32(std::string_view key) const;
    Result<bool> boolean(std::string_view key) const;
    Result<std::string_view> string(std::string_view key) const;
    Result<StringArray> strings(std::string_view key) const;
    Result<std::vector<uint32_t>> u32_array(std::string_view key, uint64_t max_count) const;
    Result<std::vector<int32_t>> i32_array(std::string_view key, uint64_t max_count) const;
    Result<std::vector<float>> f32_array(std::string_view key, uint64_t max_count) const;

    std::span<const TensorInfo> tensors() const { return tensors_; }
    const TensorInfo* find_tensor(std::string_view name) const;  // nullptr when absent

 private:
    File() = default;
    MappedFile mapping_;  // empty after parse()
    std::span<const std::byte> bytes_;
    std::string name_;
    uint32_t alignment_ = 32;
    uint64_t data_start_ = 0;
    std::vector<Entry> entries_;
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string_view, size_t> key_index_, tensor_index_;
    friend class Parser;
};

}  // namespace vesta::gguf
