#include "gguf/writer.h"

#include <cmath>
#include <cstring>

#include "base/utf8.h"
#include "gguf/layout.h"

namespace vesta::gguf {
namespace {

void append(std::vector<std::byte>& out, const void* bytes, size_t n) {
    if (n == 0) return;
    const size_t at = out.size();
    out.resize(at + n);
    std::memcpy(out.data() + at, bytes, n);
}

template <class T>
void put(std::vector<std::byte>& out, T value) {
    append(out, &value, sizeof value);
}

void put_string(std::vector<std::byte>& out, std::string_view text) {
    put(out, static_cast<uint64_t>(text.size()));
    append(out, text.data(), text.size());
}

uint64_t align_up(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

// What is wrong with a key or tensor name; empty when nothing is.
std::string name_problem(std::string_view name) {
    if (name.empty()) return "the name is empty";
    if (name.size() > kMaxNameBytes)
        return strf("the name has {} bytes, at most {} are allowed", name.size(), kMaxNameBytes);
    return is_valid_utf8(name) ? "" : "the name is not UTF-8";
}

}  // namespace

void Writer::note_problem(std::string text) {
    if (problem_.empty()) problem_ = std::move(text);
}

void Writer::add_key(std::string_view key, ValueType type) {
    VESTA_CHECK(tensors_.empty() && file_.empty());      // metadata comes before the directory
    VESTA_CHECK(keys_.insert(std::string(key)).second);  // no key twice
    if (const std::string what = name_problem(key); !what.empty())
        note_problem(strf("metadata '{}': {}", printable(key), what));
    if (key == kAlignmentKey && type != ValueType::u32)
        note_problem(strf("metadata '{}': expected a u32, found {}", key, value_type_name(type)));
    put_string(metadata_, key);
    put(metadata_, static_cast<uint32_t>(type));
    ++n_metadata_;
}

template <class T>
void Writer::add_scalar(std::string_view key, ValueType type, T value) {
    add_key(key, type);
    if constexpr (std::is_floating_point_v<T>)
        if (!std::isfinite(value)) note_problem(strf("metadata '{}': {} is not finite", printable(key), value));
    put(metadata_, value);
}

template <class T>
void Writer::add_array(std::string_view key, ValueType element, std::span<const T> values) {
    add_key(key, ValueType::array);
    put(metadata_, static_cast<uint32_t>(element));
    put(metadata_, static_cast<uint64_t>(values.size()));
    for (const T& value : values) {
        if constexpr (std::is_floating_point_v<T>)
            if (!std::isfinite(value)) note_problem(strf("metadata '{}': {} is not finite", printable(key), value));
        put(metadata_, value);
    }
}

void Writer::add_u32(std::string_view key, uint32_t value) {
    add_scalar(key, ValueType::u32, value);
    if (key != kAlignmentKey) return;
    if (valid_alignment(value))
        alignment_ = value;
    else
        note_problem(
            strf("metadata '{}': {}, expected a power of two from {} to {}", key, value, kMinAlignment, kMaxAlignment));
}
void Writer::add_i32(std::string_view key, int32_t value) { add_scalar(key, ValueType::i32, value); }
void Writer::add_u64(std::string_view key, uint64_t value) { add_scalar(key, ValueType::u64, value); }
void Writer::add_f32(std::string_view key, float value) { add_scalar(key, ValueType::f32, value); }
void Writer::add_bool(std::string_view key, bool value) {
    add_scalar(key, ValueType::boolean, static_cast<uint8_t>(value ? 1 : 0));
}

void Writer::add_string(std::string_view key, std::string_view value) {
    add_key(key, ValueType::string);
    put_string(metadata_, value);
}

void Writer::add_strings(std::string_view key, std::span<const std::string> values) {
    add_key(key, ValueType::array);
    put(metadata_, static_cast<uint32_t>(ValueType::string));
    put(metadata_, static_cast<uint64_t>(values.size()));
    for (const std::string& value : values) put_string(metadata_, value);
}

void Writer::add_u32_array(std::string_view key, std::span<const uint32_t> v) { add_array(key, ValueType::u32, v); }
void Writer::add_i32_array(std::string_view key, std::span<const int32_t> v) { add_array(key, ValueType::i32, v); }
void Writer::add_f32_array(std::string_view key, std::span<const float> v) { add_array(key, ValueType::f32, v); }

void Writer::add_value(std::string_view key, const Value& value) {
    if (key == kAlignmentKey && value.type == ValueType::u32)
        return add_u32(key, static_cast<uint32_t>(as_unsigned(value)));
    add_key(key, value.type);
    if (value.type == ValueType::string) put(metadata_, static_cast<uint64_t>(value.payload.size()));
    if (value.type == ValueType::array) {
        put(metadata_, static_cast<uint32_t>(value.element_type));
        put(metadata_, value.count);
    }
    append(metadata_, value.payload.data(), value.payload.size());
}

void Writer::add_tensor(std::string_view name, quant::Type type, std::span<const uint64_t> dims) {
    VESTA_CHECK(file_.empty());                            // the directory comes before begin()
    VESTA_CHECK(names_.insert(std::string(name)).second);  // no name twice
    VESTA_CHECK(dims.size() >= 1 && dims.size() <= 4);
    if (const std::string what = name_problem(name); !what.empty())
        note_problem(strf("tensor '{}': {}", printable(name), what));
    const quant::Format& format = quant::format(type);
    uint64_t n_elem = 1;
    for (const uint64_t dim : dims) VESTA_CHECK(dim >= 1 && !__builtin_mul_overflow(n_elem, dim, &n_elem));
    VESTA_CHECK(n_elem <= INT64_MAX / static_cast<uint64_t>(format.block_bytes));
    VESTA_CHECK(dims[0] % static_cast<uint64_t>(format.block_elems) == 0);
    const auto n_byte = static_cast<uint64_t>(quant::row_bytes(format, static_cast<int64_t>(n_elem)));
    tensors_.push_back({std::string(name), type, {dims.begin(), dims.end()}, data_bytes(), n_byte, {}});
}

uint64_t Writer::data_bytes() const {
    return tensors_.empty() ? 0 : align_up(tensors_.back().offset + tensors_.back().bytes, alignment_);
}

std::vector<std::byte> Writer::header() const {
    std::vector<std::byte> out;
    append(out, kMagic, sizeof kMagic);
    put(out, kVersion);
    put(out, static_cast<uint64_t>(tensors_.size()));
    put(out, n_metadata_);
    append(out, metadata_.data(), metadata_.size());
    for (const Tensor& t : tensors_) {
        put_string(out, t.name);
        put(out, static_cast<uint32_t>(t.dims.size()));
        for (const uint64_t dim : t.dims) put(out, dim);
        put(out, static_cast<uint32_t>(t.type));
        put(out, t.offset);
    }
    out.resize(static_cast<size_t>(align_up(out.size(), alignment_)));
    return out;
}

Status Writer::begin(const std::string& path, bool overwrite) {
    VESTA_CHECK(file_.empty());
    if (!problem_.empty()) return Error{Code::invalid_argument, strf("{}: cannot be written: {}", path, problem_)};
    VESTA_TRY(AtomicFile file, AtomicFile::create(path, overwrite));
    file_.push_back(std::move(file));
    return write_header();
}

// Everything but the magic, in whose place zeros stand until finish().
Status Writer::write_header() {
    const std::vector<std::byte> head = header();
    data_start_ = head.size();
    constexpr std::byte kNotYet[sizeof kMagic] = {};
    VESTA_TRY_STATUS(file_[0].write_at(0, kNotYet));
    return file_[0].write_at(sizeof kMagic, std::span(head).subspan(sizeof kMagic));
}

Result<bool> Writer::begin_resumable(const std::string& path, bool overwrite, bool restart) {
    VESTA_CHECK(file_.empty());
    if (!problem_.empty()) return Error{Code::invalid_argument, strf("{}: cannot be written: {}", path, problem_)};
    VESTA_TRY(AtomicFile file, AtomicFile::resume(path, overwrite));
    file.keep(true);
    const std::vector<std::byte> head = header();
    std::vector<std::byte> found(head.size());
    VESTA_TRY(const size_t n_found, file.read_at(0, found));
    const bool same = n_found == head.size() && std::memcmp(head.data() + sizeof kMagic, found.data() + sizeof kMagic,
                                                            head.size() - sizeof kMagic) == 0;
    file_.push_back(std::move(file));
    const bool fresh = restart || !same;
    if (fresh) VESTA_TRY_STATUS(file_[0].truncate(0));
    VESTA_TRY_STATUS(write_header());
    return fresh;
}

Status Writer::read_back(size_t index, uint64_t offset, std::span<std::byte> bytes) const {
    VESTA_CHECK(!file_.empty() && index < tensors_.size());
    const Tensor& t = tensors_[index];
    VESTA_CHECK(offset <= t.bytes && bytes.size() <= t.bytes - offset);
    VESTA_TRY(const size_t n, file_[0].read_at(data_start_ + t.offset + offset, bytes));
    if (n != bytes.size()) return Error{Code::not_found, strf("{}: ends inside tensor '{}'", file_[0].path(), t.name)};
    return {};
}

void Writer::mark_complete(size_t index) {
    VESTA_CHECK(!file_.empty() && index < tensors_.size() && tensors_[index].written.empty());
    tensors_[index].written.emplace(0, tensors_[index].bytes);
}

void Writer::keep_unfinished(bool keep) {
    if (!file_.empty()) file_[0].keep(keep);
}

Status Writer::write_tensor(size_t index, uint64_t offset, std::span<const std::byte> bytes) {
    VESTA_CHECK(!file_.empty() && index < tensors_.size());
    Tensor& t = tensors_[index];
    if (offset > t.bytes || bytes.size() > t.bytes - offset)
        return Error{Code::invalid_argument, strf("{}: tensor '{}' has {} bytes; {} at {} do not fit", file_[0].path(),
                                                  t.name, t.bytes, bytes.size(), offset)};
    if (bytes.empty()) return {};
    const uint64_t end = offset + bytes.size();
    auto next = t.written.upper_bound(offset);  // the first range that begins after `offset`
    const bool has_before = next != t.written.begin();
    if ((next != t.written.end() && next->first < end) || (has_before && std::prev(next)->second > offset))
        return Error{Code::invalid_argument,
                     strf("{}: tensor '{}': bytes {} to {} are written twice", file_[0].path(), t.name, offset, end)};
    VESTA_TRY_STATUS(file_[0].write_at(data_start_ + t.offset + offset, bytes));

    uint64_t merged_end = end;
    if (next != t.written.end() && next->first == end) {
        merged_end = next->second;
        next = t.written.erase(next);
    }
    if (has_before && std::prev(next)->second == offset)
        std::prev(next)->second = merged_end;
    else
        t.written.emplace(offset, merged_end);
    return {};
}

Status Writer::finish() {
    VESTA_CHECK(!file_.empty());
    for (const Tensor& t : tensors_) {
        uint64_t n_byte = 0;
        for (const auto& [from, to] : t.written) n_byte += to - from;
        if (n_byte != t.bytes)
            return Error{Code::invalid_argument, strf("{}: internal error: tensor '{}' has {} of its {} bytes",
                                                      file_[0].path(), t.name, n_byte, t.bytes)};
    }
    // Padding between tensors is what pwrite leaves in a hole, zeros; after the last one it has to be written.
    if (!tensors_.empty()) {
        const uint64_t end = tensors_.back().offset + tensors_.back().bytes;
        const std::vector<std::byte> padding(static_cast<size_t>(data_bytes() - end));
        VESTA_TRY_STATUS(file_[0].write_at(data_start_ + end, padding));
    }
    VESTA_TRY_STATUS(file_[0].flush());
    VESTA_TRY_STATUS(file_[0].write_at(0, std::as_bytes(std::span(kMagic))));
    VESTA_TRY_STATUS(file_[0].commit());
    file_.clear();
    return {};
}

}  // namespace vesta::gguf
