#include "safetensors/file.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "safetensors/strict_json.h"

namespace vesta::safetensors {
namespace {

using nlohmann::json;

struct DTypeRow {
    DType type;
    const char* name;
    uint64_t bytes;
};
constexpr DTypeRow kDTypes[] = {
    {DType::f64, "F64", 8}, {DType::f32, "F32", 4},      {DType::f16, "F16", 2},         {DType::bf16, "BF16", 2},
    {DType::i64, "I64", 8}, {DType::i32, "I32", 4},      {DType::i16, "I16", 2},         {DType::i8, "I8", 1},
    {DType::u8, "U8", 1},   {DType::boolean, "BOOL", 1}, {DType::f8_e4m3, "F8_E4M3", 1}, {DType::f8_e8m0, "F8_E8M0", 1},
};

const DTypeRow& row(DType type) { return kDTypes[static_cast<size_t>(type)]; }

constexpr size_t kMaxDims = 8;         // real checkpoints have at most 4
constexpr size_t kMaxNameBytes = 512;  // the longest official name has 46
constexpr int kHeaderDepth = 3;        // header object, tensor object, shape or offsets array
constexpr uint64_t kMaxIndexBytes = 256'000'000;

// a * b, or nothing when it does not fit.
std::optional<uint64_t> checked_product(uint64_t a, uint64_t b) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
    return r;
}

Error bad(const std::string& file, std::string what) { return Error{Code::bad_file, strf("{}: {}", file, what)}; }

Error bad_tensor(const std::string& file, std::string_view tensor, std::string_view what) {
    return Error{Code::bad_file, strf("{}: tensor {}: {}", file, shown(tensor), what)};
}

// One entry of the header; `data` is everything after the header.
Result<TensorInfo> read_entry(const std::string& file, const std::string& name, const json& entry,
                              std::span<const std::byte> data) {
    if (name.empty() || name.size() > kMaxNameBytes)
        return bad_tensor(file, name, strf("the name has {} bytes, expected 1 to {}", name.size(), kMaxNameBytes));
    if (!entry.is_object()) return bad_tensor(file, name, "its header entry is not an object");
    const auto dtype = entry.find("dtype"), shape = entry.find("shape"), offsets = entry.find("data_offsets");
    if (dtype == entry.end() || shape == entry.end() || offsets == entry.end() || entry.size() != 3)
        return bad_tensor(file, name, "its header entry must have exactly dtype, shape and data_offsets");
    if (!dtype->is_string()) return bad_tensor(file, name, "dtype is not a string");

    TensorInfo t;
    t.name = name;
    const auto& type_text = dtype->get_ref<const std::string&>();
    const std::optional<DType> type = find_dtype(type_text);
    if (!type)
        return Error{Code::unsupported,
                     strf("{}: tensor {}: dtype \"{}\" is not known", file, shown(name), shown(type_text))};
    t.dtype = *type;

    if (!shape->is_array() || shape->size() > kMaxDims)
        return bad_tensor(file, name, strf("shape must be an array of at most {} sizes", kMaxDims));
    uint64_t n_byte = dtype_bytes(t.dtype);
    for (const json& size : *shape) {
        if (!size.is_number_unsigned()) return bad_tensor(file, name, "shape holds something that is not a size");
        t.shape.push_back(size.get<uint64_t>());
    }
    // Non-zero sizes first: [2^40, 2^40, 0] names a tensor of no bytes, but no reader needs such a thing, and every
    // later product of its sizes would overflow.
    for (const uint64_t size : t.shape) {
        const std::optional<uint64_t> product = checked_product(n_byte, std::max<uint64_t>(size, 1));
        if (!product) return bad_tensor(file, name, strf("shape {} is too large for any file", shape_text(t.shape)));
        n_byte = *product;
    }
    if (std::find(t.shape.begin(), t.shape.end(), 0u) != t.shape.end()) n_byte = 0;

    if (!offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
        !(*offsets)[1].is_number_unsigned())
        return bad_tensor(file, name, "data_offsets must be two byte positions [begin, end]");
    const auto begin = (*offsets)[0].get<uint64_t>(), end = (*offsets)[1].get<uint64_t>();
    if (begin > end) return bad_tensor(file, name, strf("data_offsets [{}, {}] run backwards", begin, end));
    if (end - begin != n_byte)
        return bad_tensor(file, name,
                          strf("{} {} needs {} bytes, data_offsets [{}, {}] give {}", type_text, shape_text(t.shape),
                               n_byte, begin, end, end - begin));
    if (end > data.size())
        return bad_tensor(file, name,
                          strf("its data ends at byte {} of a data section of {} bytes; the file is "
                               "truncated (incomplete download?) or its header is wrong",
                               end, data.size()));
    t.bytes = data.subspan(begin, n_byte);
    return t;
}

bool is_directory(const std::string& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

// A shard is a plain name in the index's own folder: an index must not make us read other places.
bool plain_file_name(const std::string& name) {
    return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

const char* dtype_name(DType type) { return row(type).name; }
uint64_t dtype_bytes(DType type) { return row(type).bytes; }

std::optional<DType> find_dtype(std::string_view name) {
    for (const DTypeRow& r : kDTypes)
        if (name == r.name) return r.type;
    return std::nullopt;
}

uint64_t TensorInfo::n_elem() const {
    return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

std::string shape_text(std::span<const uint64_t> shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + "]";
}

Result<File> File::parse(std::span<const std::byte> bytes, std::string name) {
    File file;
    file.name_ = std::move(name);
    const std::string& who = file.name_;
    if (bytes.size() < 8) return bad(who, strf("{} bytes are too few for a safetensors file", bytes.size()));
    uint64_t header_bytes;
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&header_bytes, bytes.data(), 8);
    if (header_bytes > kMaxHeaderBytes)
        return bad(who,
                   strf("a header of {} bytes is announced, more than the format allows ({}); not a safetensors file?",
                        header_bytes, kMaxHeaderBytes));
    if (header_bytes > bytes.size() - 8)
        return bad(who, strf("a header of {} bytes is announced, but only {} bytes follow; the file is truncated",
                             header_bytes, bytes.size() - 8));
    const auto data = bytes.subspan(8 + header_bytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
    VESTA_TRY(const json header, parse_strict_json(text, who + ": header", kHeaderDepth));
    if (!header.is_object()) return bad(who, "the header is not a JSON object");

    for (const auto& [key, entry] : header.items()) {
        if (key == "__metadata__") {
            if (!entry.is_object()) return bad(who, "__metadata__ is not an object");
            for (const auto& [k, v] : entry.items()) {
                if (!v.is_string()) return bad(who, strf("__metadata__ \"{}\" is not a string", shown(k)));
                file.metadata_[k] = v.get<std::string>();
            }
            continue;
        }
        VESTA_TRY(TensorInfo t, read_entry(who, key, entry, data));
        file.tensors_.push_back(std::move(t));
    }

    // In the order of the data, neighbours must touch: an overlap would let two names change one tensor, a hole is a
    // place where something was lost.
    std::sort(file.tensors_.begin(), file.tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
        return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
    });
    uint64_t position = 0;
    const TensorInfo* before = nullptr;
    for (const TensorInfo& t : file.tensors_) {
        const auto begin = static_cast<uint64_t>(t.bytes.data() - data.data());
        if (begin < position)
            return bad_tensor(
                who, t.name,
                strf("its data at byte {} overlaps tensor {}, which ends at {}", begin, shown(before->name), position));
        if (begin > position)
            return bad_tensor(who, t.name,
                              strf("{} bytes before its data at byte {} belong to no tensor", begin - position, begin));
        position = begin + t.bytes.size();
        before = &t;
    }
    if (position != data.size())
        return bad(who, strf("{} bytes after the last tensor ({}) belong to no tensor", data.size() - position,
                             before != nullptr ? shown(before->name) : "there is none"));
    for (size_t i = 0; i < file.tensors_.size(); ++i) file.index_.emplace(file.tensors_[i].name, i);
    return file;
}

Result<File> File::open(const std::string& path) {
    VESTA_TRY(MappedFile mapping, MappedFile::open(path));
    VESTA_TRY(File file, parse(mapping.bytes(), path));
    file.mapping_ = std::move(mapping);
    return file;
}

const TensorInfo* File::find(std::string_view name) const {
    const auto it = index_.find(std::string(name));
    return it == index_.end() ? nullptr : &tensors_[it->second];
}

Result<Checkpoint> Checkpoint::open(const std::string& path) {
    Checkpoint c;
    c.path_ = path;
    std::map<std::string, std::string> shard_of;  // tensor -> shard file name, from the index
    std::vector<std::string> shards;
    const std::string index_path = path + "/model.safetensors.index.json";
    if (!is_directory(path)) {
        VESTA_TRY(File file, File::open(path));
        c.files_.push_back(std::move(file));
    } else if (file_exists(index_path)) {
        VESTA_TRY(const std::string text, read_text_file(index_path, kMaxIndexBytes));
        VESTA_TRY(const json index, parse_strict_json(text, index_path));
        const auto map = index.is_object() ? index.find("weight_map") : index.end();
        if (!index.is_object() || map == index.end() || !map->is_object())
            return bad(index_path, "no object \"weight_map\"");
        for (const auto& [tensor, shard] : map->items()) {
            if (!shard.is_string() || !plain_file_name(shard.get_ref<const std::string&>()))
                return bad_tensor(
                    index_path, tensor,
                    strf("{} is not the name of a file in this folder", shown(shard.dump(-1, ' ', true))));
            shard_of[tensor] = shard.get<std::string>();
            shards.push_back(shard.get<std::string>());
        }
        std::sort(shards.begin(), shards.end());
        shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
        if (shards.empty()) return bad(index_path, "\"weight_map\" names no tensor");
        for (const std::string& shard : shards) {
            const std::string shard_path = path + "/" + shard;
            if (!file_exists(shard_path))
                return Error{Code::not_found, strf("{}: missing, but {} says it holds {} tensors; download the whole "
                                                   "checkpoint",
                                                   shard_path, index_path,
                                                   std::count_if(shard_of.begin(), shard_of.end(),
                                                                 [&](const auto& e) { return e.second == shard; }))};
            VESTA_TRY(File file, File::open(shard_path));
            c.files_.push_back(std::move(file));
        }
    } else {
        const std::string single = path + "/model.safetensors";
        if (!file_exists(single))
            return Error{Code::not_found,
                         strf("{}: neither model.safetensors.index.json nor model.safetensors is there", path)};
        VESTA_TRY(File file, File::open(single));
        c.files_.push_back(std::move(file));
    }

    for (size_t f = 0; f < c.files_.size(); ++f)
        for (size_t i = 0; i < c.files_[f].tensors().size(); ++i) {
            const TensorInfo& t = c.files_[f].tensors()[i];
            const auto [place, is_new] = c.index_.emplace(t.name, Place{f, i});
            if (!is_new)
                return bad_tensor(c.files_[f].name(), t.name,
                                  strf("is also in {}", c.files_[place->second.file].name()));
            if (shards.empty()) continue;
            const auto mapped = shard_of.find(t.name);
            if (mapped == shard_of.end())
                return bad_tensor(c.files_[f].name(), t.name, strf("is not in the weight_map of {}", index_path));
            if (mapped->second != shards[f])
                return bad_tensor(c.files_[f].name(), t.name, strf("{} says it is in {}", index_path, mapped->second));
        }
    for (const auto& [tensor, shard] : shard_of)
        if (c.find(tensor) == nullptr)
            return bad_tensor(path + "/" + shard, tensor, strf("is missing, but {} says it is here", index_path));
    return c;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
    const auto it = index_.find(std::string(name));
    return it == index_.end() ? nullptr : &files_[it->second.file].tensors()[it->second.tensor];
}

std::vector<const TensorInfo*> Checkpoint::tensors() const {
    std::vector<const TensorInfo*> all;
    all.reserve(index_.size());
    for (const File& f : files_)
        for (const TensorInfo& t : f.tensors()) all.push_back(&t);
    return all;
}

std::string Checkpoint::describe(const TensorInfo& tensor) const {
    const auto it = index_.find(tensor.name);
    const std::string& file = it == index_.end() ? path_ : files_[it->second.file].name();
    return strf("{}: tensor {}", file, shown(tensor.name));
}

Status write_safetensors(const std::string& path, std::span<const OutTensor> tensors, bool overwrite) {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    uint64_t position = 0;
    for (const OutTensor& t : tensors) {
        uint64_t n_byte = dtype_bytes(t.dtype);
        for (const uint64_t size : t.shape) n_byte *= size;
        VESTA_CHECK(n_byte == t.bytes.size() && !header.contains(t.name));
        header[t.name] = {{"dtype", dtype_name(t.dtype)},
                          {"shape", t.shape},
                          {"data_offsets", {position, position + t.bytes.size()}}};
        position += t.bytes.size();
    }
    std::string text = header.dump();
    while (text.size() % 8 != 0) text += ' ';
    const uint64_t n = text.size();
    VESTA_TRY(AtomicFile file, AtomicFile::create(path, overwrite));
    VESTA_TRY_STATUS(file.write(std::as_bytes(std::span(&n, 1))));
    VESTA_TRY_STATUS(file.write(std::as_bytes(std::span(text))));
    for (const OutTensor& t : tensors) VESTA_TRY_STATUS(file.write(t.bytes));
    return file.commit();
}

}  // namespace vesta::safetensors
