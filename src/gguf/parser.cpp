// Reads a GGUF v3 file front to back, once, and refuses it at the first thing that is not as the format promises. No
// number from the file is used before it has been compared with the bytes that are left, and nothing is reserved on the
// word of a count: a 40-byte file that claims 2^63 entries costs 40 bytes. Code after the Parser may trust every view.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/utf8.h"
#include "gguf/file.h"
#include "gguf/layout.h"

namespace vesta::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place; a big-endian host needs byte swaps");

// A size above this is no truncated file, it is a damaged number: 2^48 bytes is 280 TB.
constexpr uint64_t kPlausibleFileBytes = uint64_t{1} << 48;

template <class T>
T load(const std::byte* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

bool multiply(uint64_t& product, uint64_t factor) { return !__builtin_mul_overflow(product, factor, &product); }

}  // namespace

class Parser {
 public:
    Parser(std::span<const std::byte> bytes, std::string name) {
        file_.bytes_ = bytes;
        file_.name_ = std::move(name);
    }

    Result<File> run() && {
        VESTA_TRY_STATUS(read_header());
        for (uint64_t i = 0; i < n_entry_; ++i) VESTA_TRY_STATUS(read_entry(i));
        VESTA_TRY_STATUS(read_alignment());
        for (uint64_t i = 0; i < n_tensor_; ++i) VESTA_TRY_STATUS(read_tensor(i));
        VESTA_TRY_STATUS(place_tensors());
        return std::move(file_);
    }

 private:
    uint64_t remaining() const { return file_.bytes_.size() - pos_; }
    const std::byte* here() const { return file_.bytes_.data() + pos_; }

    // "model.gguf: tensor 'output.weight' at byte 1234: <what>"
    Error fail(Code code, uint64_t at, const std::string& what) const {
        return Error{code, strf("{}: {} at byte {}: {}", file_.name_, object_, at, what)};
    }
    Error damaged(uint64_t at, const std::string& what) const { return fail(Code::bad_file, at, what); }

    // `what` wants `need` bytes from here on, and they are not there.
    Error out_of_bytes(std::string_view what, uint64_t need) const {
        const uint64_t size = file_.bytes_.size();
        const std::string found = strf("{} needs {} bytes, but only {} are left", what, need, remaining());
        if (need >= kPlausibleFileBytes) return damaged(pos_, found + "; the file is damaged");
        return damaged(
            pos_, strf("{}; the file looks truncated (expected at least {} bytes, has {})", found, pos_ + need, size));
    }
    // `what` claims more records than the rest of the file can hold.
    Error too_many(std::string_view what, uint64_t count, uint64_t at, uint64_t bytes_each) const {
        return damaged(at, strf("claims {} {}, but the {} bytes left hold at most {}; the file is truncated or damaged",
                                count, what, remaining(), remaining() / bytes_each));
    }

    template <class T>
    Result<T> read(const char* what) {
        if (remaining() < sizeof(T)) return out_of_bytes(what, sizeof(T));
        const T value = load<T>(here());
        pos_ += sizeof(T);
        return value;
    }

    Result<std::string_view> read_string(const char* what) {
        VESTA_TRY(const uint64_t length, read<uint64_t>(what));
        if (length > remaining()) return out_of_bytes(what, length);
        const std::string_view text(reinterpret_cast<const char*>(here()), static_cast<size_t>(length));
        pos_ += static_cast<size_t>(length);
        return text;
    }

    // A metadata key or a tensor name.
    Result<std::string_view> read_name(const char* what) {
        const uint64_t at = pos_;
        VESTA_TRY(const uint64_t length, read<uint64_t>(what));
        if (length == 0) return damaged(at, strf("the {} is empty", what));
        if (length > kMaxNameBytes)
            return damaged(at, strf("the {} is {} bytes long, at most {} are allowed", what, length, kMaxNameBytes));
        pos_ = static_cast<size_t>(at);
        VESTA_TRY(const std::string_view name, read_string(what));
        if (!is_valid_utf8(name)) return damaged(at, strf("the {} '{}' is not UTF-8", what, printable(name)));
        return name;
    }

    Status read_header() {
        object_ = "header";
        const uint64_t size = file_.bytes_.size();
        if (size == 0) return Error{Code::bad_file, strf("{}: the file is empty, expected a GGUF model", file_.name_)};
        const std::string_view magic(reinterpret_cast<const char*>(file_.bytes_.data()),
                                     std::min<size_t>(sizeof kMagic, static_cast<size_t>(size)));
        if (magic != std::string_view(kMagic, magic.size()))
            return damaged(0, strf("not a GGUF file: it starts with '{}', expected 'GGUF'", printable(magic)));
        if (size < kMinFileBytes)
            return damaged(0,
                           strf("the file looks truncated (expected at least {} bytes, has {})", kMinFileBytes, size));
        pos_ = sizeof kMagic;
        VESTA_TRY(const uint32_t version, read<uint32_t>("the version"));
        if (version == __builtin_bswap32(kVersion))
            return fail(Code::unsupported, 4, "this is a big-endian GGUF file; only little-endian ones can be read");
        if (version == 1 || version == 2)
            return fail(
                Code::unsupported, 4,
                strf("GGUF version {}, only version 3 can be read; convert the model again with a tool of 2023-10 "
                     "or later",
                     version));
        if (version != kVersion) return fail(Code::unsupported, 4, strf("GGUF version {}, expected 3", version));
        VESTA_TRY_STATUS(read_count("tensors", kMinTensorRecordBytes, n_tensor_));
        VESTA_TRY_STATUS(read_count("metadata entries", kMinEntryBytes, n_entry_));
        // Both lists must fit together. No overflow: each product is at most the file size.
        if (n_entry_ * kMinEntryBytes + n_tensor_ * kMinTensorRecordBytes > remaining())
            return damaged(8,
                           strf("claims {} tensors and {} metadata entries, more than the {} bytes left can hold; the "
                                "file is truncated or damaged",
                                n_tensor_, n_entry_, remaining()));
        return {};
    }

    Status read_count(const char* what, uint64_t bytes_each, uint64_t& count) {
        const uint64_t at = pos_;
        VESTA_TRY(count, read<uint64_t>(what));
        if (count > remaining() / bytes_each) return too_many(what, count, at, bytes_each);
        return {};
    }

    Status read_entry(uint64_t index) {
        object_ = strf("metadata entry {}", index);
        const uint64_t start = pos_;
        VESTA_TRY(const std::string_view key, read_name("key"));
        object_ = strf("metadata '{}'", printable(key));
        if (!file_.key_index_.emplace(key, file_.entries_.size()).second) return damaged(start, "the key occurs twice");
        const uint64_t at = pos_;
        VESTA_TRY(const uint32_t type, read<uint32_t>("the value type"));
        if (!known(type)) return damaged(at, strf("value type {} does not exist (0 to 12 do)", type));
        Value value{static_cast<ValueType>(type), static_cast<ValueType>(type), 1, {}};
        size_t begin = pos_;
        if (value.type == ValueType::array) {
            VESTA_TRY_STATUS(read_array_head(value.element_type, value.count));
            begin = pos_;
            VESTA_TRY_STATUS(skip_elements(value.element_type, value.count, 1));
        } else if (value.type == ValueType::string) {
            VESTA_TRY_STATUS(skip_elements(value.type, 1, 0));
            begin += sizeof(uint64_t);
        } else {
            VESTA_TRY_STATUS(skip_elements(value.type, 1, 0));
        }
        value.payload = file_.bytes_.subspan(begin, pos_ - begin);
        file_.entries_.push_back({key, value});
        return {};
    }

    static bool known(uint32_t type) { return type <= static_cast<uint32_t>(ValueType::f64); }

    Status read_array_head(ValueType& element, uint64_t& count) {
        const uint64_t at = pos_;
        VESTA_TRY(const uint32_t type, read<uint32_t>("the element type"));
        if (!known(type)) return damaged(at, strf("element type {} does not exist (0 to 12 do)", type));
        element = static_cast<ValueType>(type);
        const uint64_t count_at = pos_;
        VESTA_TRY(count, read<uint64_t>("the element count"));
        if (count > remaining() / min_value_bytes(element))
            return too_many(strf("elements of type {}", value_type_name(element)), count, count_at,
                            min_value_bytes(element));
        return {};
    }

    // Steps over `count` values, `depth` arrays deep, and looks at each one that can be wrong.
    Status skip_elements(ValueType type, uint64_t count, int depth) {
        if (depth > kMaxArrayDepth) return damaged(pos_, strf("arrays are nested more than {} deep", kMaxArrayDepth));
        if (type == ValueType::string) {
            for (uint64_t i = 0; i < count; ++i) VESTA_TRY_STATUS(skip_string());
            return {};
        }
        if (type == ValueType::array) {
            for (uint64_t i = 0; i < count; ++i) {
                ValueType element{};
                uint64_t n = 0;
                VESTA_TRY_STATUS(read_array_head(element, n));
                VESTA_TRY_STATUS(skip_elements(element, n, depth + 1));
            }
            return {};
        }
        const uint64_t bytes_each = min_value_bytes(type);
        if (count > remaining() / bytes_each) return out_of_bytes("the value", bytes_each);
        VESTA_TRY_STATUS(check_scalars(type, count));
        pos_ += static_cast<size_t>(count * bytes_each);
        return {};
    }

    Status skip_string() {
        auto text = read_string("the string");
        return text.ok() ? Status{} : Status(std::move(text).error());
    }

    // Requires: count values of the type are inside the file.
    Status check_scalars(ValueType type, uint64_t count) const {
        for (uint64_t i = 0; type == ValueType::boolean && i < count; ++i)
            if (const auto b = load<uint8_t>(here() + i); b > 1)
                return damaged(pos_ + i, strf("a bool is stored as {}, expected 0 or 1", b));
        for (uint64_t i = 0; type == ValueType::f32 && i < count; ++i)
            if (!std::isfinite(load<float>(here() + i * sizeof(float))))
                return damaged(pos_ + i * sizeof(float), "the number is not finite");
        for (uint64_t i = 0; type == ValueType::f64 && i < count; ++i)
            if (!std::isfinite(load<double>(here() + i * sizeof(double))))
                return damaged(pos_ + i * sizeof(double), "the number is not finite");
        return {};
    }

    Status read_alignment() {
        const Value* value = file_.find(kAlignmentKey);
        if (value == nullptr) return {};
        object_ = strf("metadata '{}'", kAlignmentKey);
        const auto at = static_cast<uint64_t>(value->payload.data() - file_.bytes_.data());
        if (value->type != ValueType::u32)
            return damaged(at, strf("expected a u32, found {}", value_type_name(value->type)));
        file_.alignment_ = load<uint32_t>(value->payload.data());
        if (!valid_alignment(file_.alignment_))
            return damaged(at, strf("alignment {}, expected a power of two from {} to {}", file_.alignment_,
                                    kMinAlignment, kMaxAlignment));
        return {};
    }

    Status read_tensor(uint64_t index) {
        object_ = strf("tensor entry {}", index);
        const uint64_t start = pos_;
        VESTA_TRY(const std::string_view name, read_name("name"));
        object_ = strf("tensor '{}'", printable(name));
        if (!file_.tensor_index_.emplace(name, file_.tensors_.size()).second)
            return damaged(start, "the name occurs twice");

        TensorInfo t{name, quant::Type::f32, 0, {1, 1, 1, 1}, 0, {}};
        uint64_t at = pos_;
        VESTA_TRY(t.n_dim, read<uint32_t>("the number of dimensions"));
        if (t.n_dim < 1 || t.n_dim > 4) return damaged(at, strf("{} dimensions, expected 1 to 4", t.n_dim));
        at = pos_;
        uint64_t n_elem = 1;
        for (uint32_t d = 0; d < t.n_dim; ++d) {
            VESTA_TRY(t.dims[d], read<uint64_t>("a dimension"));
            if (t.dims[d] == 0) return damaged(at + 8 * d, strf("dimension {} is 0, expected at least 1", d));
            if (!multiply(n_elem, t.dims[d]))
                return damaged(at, strf("the product of the dimensions {} does not fit in 64 bits", shape(t)));
        }
        const uint64_t type_at = pos_;
        VESTA_TRY(const uint32_t type, read<uint32_t>("the type"));
        const quant::Format* format = quant::find_format(type);
        if (format == nullptr)
            return fail(Code::unsupported, type_at, strf("type id {}: this build knows no such tensor format", type));
        t.type = format->type;
        const auto block_elems = static_cast<uint64_t>(format->block_elems);
        if (t.dims[0] % block_elems != 0)
            return damaged(at, strf("rows of {} elements do not divide into {} blocks of {}", t.dims[0], format->name,
                                    block_elems));
        uint64_t n_byte = n_elem / block_elems;
        // row_bytes() and friends count in int64_t, so its limit is ours.
        if (!multiply(n_byte, static_cast<uint64_t>(format->block_bytes)) || n_byte > INT64_MAX || n_elem > INT64_MAX)
            return damaged(at, strf("dimensions {} of {} are more bytes than a file can have", shape(t), format->name));

        at = pos_;
        VESTA_TRY(t.offset, read<uint64_t>("the offset"));
        if (t.offset % file_.alignment_ != 0)
            return damaged(at, strf("offset {} is not a multiple of the alignment {}", t.offset, file_.alignment_));
        file_.tensors_.push_back(t);
        sizes_.push_back({n_byte, start});
        return {};
    }

    static std::string shape(const TensorInfo& t) {
        std::string text = strf("({}", t.dims[0]);
        for (uint32_t d = 1; d < t.n_dim; ++d) text += strf(",{}", t.dims[d]);
        return text + ")";
    }

    // Gives every tensor its bytes. The directory has been read to its end, so the data section starts at pos_,
    // aligned.
    Status place_tensors() {
        const uint64_t file_size = file_.bytes_.size();
        const uint64_t mask = file_.alignment_ - 1;
        const uint64_t data_start = (pos_ + mask) & ~mask;  // pos_ <= SSIZE_MAX: no overflow
        file_.data_start_ = data_start;
        uint64_t last_end = 0;
        size_t last = 0;
        for (size_t i = 0; i < file_.tensors_.size(); ++i) {
            uint64_t end = 0;
            if (__builtin_add_overflow(data_start + sizes_[i].bytes, file_.tensors_[i].offset, &end) ||
                end > kPlausibleFileBytes) {
                name_tensor(i);
                return damaged(sizes_[i].record_at, strf("offset {} and size {} put it outside any file",
                                                         file_.tensors_[i].offset, sizes_[i].bytes));
            }
            if (end > last_end) last_end = end, last = i;
        }
        VESTA_TRY_STATUS(check_overlap());
        if (last_end > file_size) {
            name_tensor(last);
            return damaged(
                sizes_[last].record_at,
                strf("its data are bytes {} to {}; the file looks truncated (expected at least {} bytes, has "
                     "{}): copy or download it again",
                     last_end - sizes_[last].bytes, last_end, last_end, file_size));
        }
        for (size_t i = 0; i < file_.tensors_.size(); ++i) {
            TensorInfo& t = file_.tensors_[i];
            t.bytes =
                file_.bytes_.subspan(static_cast<size_t>(data_start + t.offset), static_cast<size_t>(sizes_[i].bytes));
        }
        return {};
    }

    void name_tensor(size_t i) { object_ = strf("tensor '{}'", printable(file_.tensors_[i].name)); }

    Status check_overlap() {
        std::vector<size_t> order(file_.tensors_.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            const uint64_t x = file_.tensors_[a].offset, y = file_.tensors_[b].offset;
            return x != y ? x < y : a < b;
        });
        for (size_t k = 1; k < order.size(); ++k) {
            const TensorInfo& before = file_.tensors_[order[k - 1]];
            const TensorInfo& t = file_.tensors_[order[k]];
            if (before.offset + sizes_[order[k - 1]].bytes <= t.offset) continue;
            name_tensor(order[k]);
            return damaged(sizes_[order[k]].record_at,
                           strf("its data begin at offset {}, inside tensor '{}' ({} bytes from offset {})", t.offset,
                                printable(before.name), sizes_[order[k - 1]].bytes, before.offset));
        }
        return {};
    }

    struct Size {
        uint64_t bytes;
        uint64_t record_at;  // where its directory entry begins, for messages
    };
    File file_;
    size_t pos_ = 0;
    uint64_t n_entry_ = 0, n_tensor_ = 0;
    std::vector<Size> sizes_;  // beside file_.tensors_
    std::string object_;       // what is being read, for messages
};

Result<File> File::parse(std::span<const std::byte> bytes, std::string name) {
    return Parser(bytes, std::move(name)).run();
}

Result<File> File::open(const std::string& path) {
    VESTA_TRY(MappedFile mapping, MappedFile::open(path));
    VESTA_TRY(File file, parse(mapping.bytes(), path));
    file.mapping_ = std::move(mapping);
    return file;
}

}  // namespace vesta::gguf
