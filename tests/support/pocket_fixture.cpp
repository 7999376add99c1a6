#include "support/pocket_fixture.h"

#include <fcntl.h>
#include <sys/file.h>
#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "convert/convert.h"
#include "gguf/file.h"
#include "quant/fp8.h"
#include "quant/half.h"
#include "safetensors/file.h"
#include "safetensors/strict_json.h"
#include "support/weight_difference.h"

namespace vesta::test {
namespace {

namespace fs = std::filesystem;
using convert::ExpectedTensor;
using nlohmann::json;
using safetensors::DType;

constexpr uint64_t kMaxFixtureBytes = 256 << 20;
const char* const kTextFiles[] = {"config.json", "tokenizer.json"};
// One byte. 1 (no such tensor): Key::bits, experts MXFP4. 2: Key::rank, experts of any format.
const char* const kFormatName = "format";
constexpr uint8_t kFormat = 2;

// FNV-1a, 64 bit, over type, shape and bytes: enough to notice any accident, and no library.
std::string hash_of(DType dtype, const std::vector<uint64_t>& shape, std::span<const std::byte> bytes) {
    uint64_t h = 0xcbf29ce484222325;
    const auto add = [&](std::span<const std::byte> part) {
        for (const std::byte b : part) h = (h ^ static_cast<uint64_t>(b)) * 0x100000001b3;
    };
    const std::string head = strf("{} {} ", safetensors::dtype_name(dtype), safetensors::shape_text(shape));
    add(std::as_bytes(std::span(head)));
    add(bytes);
    return strf("{:016x}", h);
}

// ---- prediction

Result<std::vector<float>> model_values(const gguf::TensorInfo& t) {
    const quant::Format& format = quant::format(t.type);
    if (format.decode == nullptr) return Error{Code::unsupported, strf("{}: cannot decode {}", t.name, format.name)};
    std::vector<float> values(t.n_elem());
    format.decode(t.bytes.data(), values.data(), static_cast<int64_t>(values.size()));
    return values;
}

// The checkpoint's bytes of a dense tensor, as far as the model file knows them. `scale`: of an FP8 weight.
Result<Bytes> predict(const gguf::TensorInfo& t, DType dtype, const std::vector<uint64_t>& shape,
                      std::span<const std::byte> scale) {
    Bytes out(t.n_elem() * safetensors::dtype_bytes(dtype));
    const auto put = [&](size_t i, auto v) { std::memcpy(out.data() + i * sizeof v, &v, sizeof v); };
    if (dtype == DType::i64) {
        for (size_t i = 0; i < t.n_elem(); ++i) {
            int32_t id;
            std::memcpy(&id, t.bytes.data() + 4 * i, 4);
            put(i, int64_t{id});
        }
        return out;
    }
    VESTA_TRY(const std::vector<float> values, model_values(t));
    const uint64_t n_col = shape.empty() ? 1 : shape.back(), scale_cols = (n_col + 127) / 128;
    for (size_t i = 0; i < values.size(); ++i) {
        if (dtype == DType::f32) {
            put(i, values[i]);
        } else if (dtype == DType::bf16) {
            put(i, quant::f32_to_bf16(values[i]));
        } else if (dtype == DType::f8_e4m3) {
            const size_t block = i / n_col / 128 * scale_cols + i % n_col / 128;
            if (block >= scale.size()) return Error{Code::bad_file, strf("{}: scale too small", t.name)};
            const float s = quant::e8m0_to_f32(static_cast<uint8_t>(scale[block]));
            put(i, quant::f32_to_e4m3(values[i] / s));  // a power of two: the division is exact
        } else {
            return Error{Code::unsupported, strf("{}: cannot predict {}", t.name, safetensors::dtype_name(dtype))};
        }
    }
    return out;
}

// MXFP4 blocks back to the checkpoint's codes and scales.
Fp4 unpack_mxfp4(std::span<const std::byte> blocks) {
    const size_t n_block = blocks.size() / 17;
    Fp4 out{Bytes(n_block * 16), Bytes(n_block)};
    for (size_t b = 0; b < n_block; ++b) {
        out.scales[b] = blocks[17 * b];
        const std::byte* q = &blocks[17 * b + 1];
        const auto code = [&](size_t i) { return i < 16 ? q[i] & std::byte{15} : q[i - 16] >> 4; };
        for (size_t k = 0; k < 16; ++k) out.codes[16 * b + k] = code(2 * k) | code(2 * k + 1) << 4;
    }
    return out;
}

// Where the fixture keeps what a stacked expert tensor does not say.
std::string codes_name(const ExpectedTensor& e) { return e.gguf_name + ":codes"; }
std::string scales_name(const ExpectedTensor& e) { return e.gguf_name + ":scales"; }

uint64_t expert_elems(const ExpectedTensor& e) { return e.shape[0] * e.shape[1]; }

// MXFP4 holds an FP4 checkpoint's experts exactly; everything else needs differences.
bool is_exact(const gguf::TensorInfo& t) { return t.type == quant::Type::mxfp4; }

// ---- a checkpoint in memory

struct Tensor {
    DType dtype;
    std::vector<uint64_t> shape;
    Bytes bytes;
};
struct MemoryCheckpoint {
    std::map<std::string, std::string> text_files;
    std::map<std::string, Tensor> tensors;
};

Result<std::vector<ExpectedTensor>> expected_of(const std::string& config_text) {
    VESTA_TRY(const json config, safetensors::parse_strict_json(config_text, "config.json"));
    VESTA_TRY(const convert::ModelConfig c, convert::read_config(config, "config.json"));
    return convert::expected_tensors(c);
}

Result<std::string> decompress(const std::string& compressed, const std::string& name) {
    const unsigned long long n = ZSTD_getFrameContentSize(compressed.data(), compressed.size());
    if (n == ZSTD_CONTENTSIZE_ERROR || n == ZSTD_CONTENTSIZE_UNKNOWN || n > kMaxFixtureBytes)
        return Error{Code::bad_file, strf("{}: not a zstd file of a known, sensible size", name)};
    std::string out(n, '\0');
    const size_t got = ZSTD_decompress(out.data(), out.size(), compressed.data(), compressed.size());
    if (ZSTD_isError(got) || got != n) return Error{Code::bad_file, strf("{}: damaged zstd data", name)};
    return out;
}

// Codes and scales of all experts of one tensor, one after the other.
Result<Fp4> rebuild_experts(const ExpectedTensor& e, const gguf::TensorInfo& t, const safetensors::File& stored,
                            const std::string& fixture) {
    const uint64_t n = e.sources.size() * expert_elems(e);
    if (e.shape[1] % 32 != 0 || t.n_elem() != n)
        return Error{Code::bad_file, strf("{}: {} values, expected {} in rows of 32", t.name, t.n_elem(), n)};
    if (is_exact(t)) return unpack_mxfp4(t.bytes);
    const safetensors::TensorInfo *codes = stored.find(codes_name(e)), *scales = stored.find(scales_name(e));
    if (codes == nullptr || scales == nullptr || codes->bytes.size() != n / 2 || scales->bytes.size() != n / 32)
        return Error{Code::bad_file, strf("{}: no differences of {}'s {} values, which the model file holds as {}",
                                          fixture, t.name, n, quant::format(t.type).name)};
    VESTA_TRY(const std::vector<float> values, model_values(t));
    return restore(
        Fp4{Bytes(codes->bytes.begin(), codes->bytes.end()), Bytes(scales->bytes.begin(), scales->bytes.end())},
        values);
}

Result<Fp4> expert_differences(const ExpectedTensor& e, const gguf::TensorInfo& t,
                               const safetensors::Checkpoint& checkpoint) {
    Fp4 all;
    for (const std::string& name : e.sources) {
        const safetensors::TensorInfo *weight = checkpoint.find(name),
                                      *scale = checkpoint.find(convert::scale_name(name));
        if (weight == nullptr || scale == nullptr || weight->dtype != DType::i8 || scale->dtype != DType::f8_e8m0 ||
            weight->bytes.size() != expert_elems(e) / 2 || scale->bytes.size() != expert_elems(e) / 32)
            return Error{Code::unsupported, strf("{}: expected an FP4 weight {} with F8_E8M0 scales in blocks of 32",
                                                 name, safetensors::shape_text(e.shape))};
        all.codes.insert(all.codes.end(), weight->bytes.begin(), weight->bytes.end());
        all.scales.insert(all.scales.end(), scale->bytes.begin(), scale->bytes.end());
    }
    if (t.n_elem() != 2 * all.codes.size() || t.n_elem() != 32 * all.scales.size())
        return Error{Code::bad_file, strf("{}: {} values, expected {}", t.name, t.n_elem(), 2 * all.codes.size())};
    VESTA_TRY(const std::vector<float> values, model_values(t));
    return difference(all, values);
}

Result<MemoryCheckpoint> rebuild(const PocketFiles& files) {
    VESTA_TRY(const gguf::File model, gguf::File::open(files.model));
    VESTA_TRY(const std::string compressed, read_text_file(files.fixture, kMaxFixtureBytes));
    VESTA_TRY(const std::string plain, decompress(compressed, files.fixture));
    VESTA_TRY(const safetensors::File stored, safetensors::File::parse(std::as_bytes(std::span(plain)), files.fixture));
    uint8_t format = 1;
    if (const safetensors::TensorInfo* t = stored.find(kFormatName); t != nullptr)
        format = t->bytes.empty() ? 0 : static_cast<uint8_t>(t->bytes[0]);
    if (format < 1 || format > kFormat)
        return Error{Code::unsupported, strf("{}: format {}, expected 1 to {}", files.fixture, format, kFormat)};
    const Key key = format == 1 ? Key::bits : Key::rank;
    MemoryCheckpoint out;
    for (const char* name : kTextFiles) {
        const safetensors::TensorInfo* t = stored.find(std::string("file:") + name);
        if (t == nullptr) return Error{Code::bad_file, strf("{}: {} is missing", files.fixture, name)};
        out.text_files[name] = std::string(reinterpret_cast<const char*>(t->bytes.data()), t->bytes.size());
    }
    VESTA_TRY(const std::vector<ExpectedTensor> expected, expected_of(out.text_files["config.json"]));
    for (const ExpectedTensor& e : expected) {
        const gguf::TensorInfo* t = model.find_tensor(e.gguf_name);
        if (t == nullptr) return Error{Code::bad_file, strf("{}: {} is missing", files.model, e.gguf_name)};
        if (e.stacked) {
            VESTA_TRY(const Fp4 all, rebuild_experts(e, *t, stored, files.fixture));
            const size_t n_code = expert_elems(e) / 2, n_scale = expert_elems(e) / 32;
            for (size_t i = 0; i < e.sources.size(); ++i) {
                const auto part = [&](const Bytes& bytes, size_t n) {
                    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(i * n);
                    return Bytes(first, first + static_cast<std::ptrdiff_t>(n));
                };
                out.tensors[e.sources[i]] = {DType::i8, {e.shape[0], e.shape[1] / 2}, part(all.codes, n_code)};
                out.tensors[convert::scale_name(e.sources[i])] = {
                    DType::f8_e8m0, {e.shape[0], e.shape[1] / 32}, part(all.scales, n_scale)};
            }
            continue;
        }
        const std::string& name = e.sources[0];
        const safetensors::TensorInfo* d = stored.find(name);
        if (d == nullptr) return Error{Code::bad_file, strf("{}: {} is missing", files.fixture, name)};
        std::span<const std::byte> scale_bytes;
        if (d->dtype == DType::f8_e4m3) {
            const safetensors::TensorInfo* scale = stored.find(convert::scale_name(name));
            if (scale == nullptr) return Error{Code::bad_file, strf("{}: scale of {} is missing", files.fixture, name)};
            scale_bytes = scale->bytes;
            out.tensors[scale->name] = {scale->dtype, scale->shape, Bytes(scale->bytes.begin(), scale->bytes.end())};
        }
        VESTA_TRY(const Bytes predicted, predict(*t, d->dtype, d->shape, scale_bytes));
        if (predicted.size() != d->bytes.size())
            return Error{Code::bad_file, strf("{}: {} and {} have different sizes", files.fixture, name, e.gguf_name)};
        out.tensors[name] = {d->dtype, d->shape, restore(d->dtype, d->bytes, predicted, key)};
    }
    return out;
}

Status check_hashes(const MemoryCheckpoint& c, const std::string& path) {
    VESTA_TRY(const std::string text, read_text_file(path, 16 << 20));
    VESTA_TRY(const json hashes, safetensors::parse_strict_json(text, path));
    const auto tensors = hashes.find("tensors");
    if (tensors == hashes.end() || !tensors->is_object() || tensors->size() != c.tensors.size())
        return Error{Code::bad_file, strf("{}: expected hashes of {} tensors", path, c.tensors.size())};
    for (const auto& [name, t] : c.tensors) {
        const auto it = tensors->find(name);
        const std::string hash = hash_of(t.dtype, t.shape, t.bytes);
        if (it == tensors->end() || *it != hash)
            return Error{Code::bad_file,
                         strf("{}: {} hashes to {}, which is not the original; model file and fixture do "
                              "not belong together (tools/make_pocket.sh makes both)",
                              path, name, hash)};
    }
    return {};
}

Status write_text(const fs::path& path, const std::string& text) {
    VESTA_TRY(AtomicFile file, AtomicFile::create(path, true));
    VESTA_TRY_STATUS(file.write(std::as_bytes(std::span(text))));
    return file.commit();
}

// Size and time of the inputs: what has to change before anything is made again.
std::string stamp_of(const PocketFiles& files) {
    std::string stamp;
    for (const std::string& path : {files.model, files.fixture, files.hashes}) {
        std::error_code error;
        const auto size = fs::file_size(path, error);
        const auto time = fs::last_write_time(path, error).time_since_epoch().count();
        stamp += strf("{} {} {}\n", path, size, time);
    }
    return stamp;
}

bool is_current(const fs::path& folder, const std::string& stamp) {
    const auto text = read_text_file(folder / "stamp", 1 << 16);
    return text.ok() && text.value() == stamp;
}

}  // namespace

PocketFiles PocketFiles::in_source_tree() { return in_tree(VESTA_SOURCE_DIR); }

PocketFiles PocketFiles::in_tree(const std::string& root) {
    return {root + "/models/pocket.gguf", root + "/tests/data/pocket-v0/dense.safetensors.zst",
            root + "/tests/data/pocket-v0/checkpoint.json"};
}

Status make_pocket_fixture(const std::string& checkpoint_folder, const PocketFiles& files, int level) {
    VESTA_TRY(const safetensors::Checkpoint checkpoint, safetensors::Checkpoint::open(checkpoint_folder));
    VESTA_TRY(const gguf::File model, gguf::File::open(files.model));
    std::vector<safetensors::OutTensor> out;
    std::vector<std::string> texts;
    texts.reserve(std::size(kTextFiles));
    for (const char* name : kTextFiles) {
        VESTA_TRY(std::string text, read_text_file(checkpoint_folder + "/" + name, 64 << 20));
        texts.push_back(std::move(text));
        out.push_back(
            {std::string("file:") + name, DType::u8, {texts.back().size()}, std::as_bytes(std::span(texts.back()))});
    }
    VESTA_TRY(const std::vector<ExpectedTensor> expected, expected_of(texts[0]));
    const std::byte format{kFormat};
    out.push_back({kFormatName, DType::u8, {1}, std::span(&format, 1)});
    std::vector<Bytes> planes;
    planes.reserve(2 * expected.size());  // spans in `out` point into it
    for (const ExpectedTensor& e : expected) {
        const safetensors::TensorInfo* t = checkpoint.find(e.sources[0]);
        const gguf::TensorInfo* g = model.find_tensor(e.gguf_name);
        if (t == nullptr || g == nullptr)
            return Error{Code::not_found, strf("{}: {} is not in both files", e.gguf_name, e.sources[0])};
        if (e.stacked) {
            if (is_exact(*g)) continue;
            VESTA_TRY(Fp4 d, expert_differences(e, *g, checkpoint));
            planes.push_back(std::move(d.codes));
            out.push_back({codes_name(e), DType::u8, {planes.back().size()}, planes.back()});
            planes.push_back(std::move(d.scales));
            out.push_back({scales_name(e), DType::u8, {planes.back().size()}, planes.back()});
            continue;
        }
        std::span<const std::byte> scale_bytes;
        if (t->dtype == DType::f8_e4m3) {
            const safetensors::TensorInfo* scale = checkpoint.find(convert::scale_name(t->name));
            if (scale == nullptr || scale->dtype != DType::f8_e8m0)
                return Error{Code::unsupported, strf("{}: no F8_E8M0 scale", t->name)};
            scale_bytes = scale->bytes;
            out.push_back({scale->name, scale->dtype, scale->shape, scale->bytes});
        }
        VESTA_TRY(const Bytes predicted, predict(*g, t->dtype, t->shape, scale_bytes));
        if (predicted.size() != t->bytes.size())
            return Error{Code::bad_file, strf("{}: sizes differ", checkpoint.describe(*t))};
        planes.push_back(difference(t->dtype, t->bytes, predicted, Key::rank));
        out.push_back({t->name, t->dtype, t->shape, planes.back()});
    }
    const std::string plain_path = files.fixture + ".plain.tmp";
    VESTA_TRY_STATUS(safetensors::write_safetensors(plain_path, out));
    auto plain = read_text_file(plain_path, kMaxFixtureBytes);
    fs::remove(plain_path);
    if (!plain.ok()) return std::move(plain).error();
    std::string compressed(ZSTD_compressBound(plain.value().size()), '\0');
    const size_t n =
        ZSTD_compress(compressed.data(), compressed.size(), plain.value().data(), plain.value().size(), level);
    if (ZSTD_isError(n)) return Error{Code::io, strf("zstd: {}", ZSTD_getErrorName(n))};
    compressed.resize(n);
    VESTA_TRY_STATUS(write_text(files.fixture, compressed));

    json hashes;
    hashes["what"] = "FNV-1a 64 of '<dtype> <shape> ' and the bytes of every tensor of the original checkpoint";
    for (const safetensors::TensorInfo* t : checkpoint.tensors())
        hashes["tensors"][t->name] = hash_of(t->dtype, t->shape, t->bytes);
    VESTA_TRY_STATUS(write_text(files.hashes, hashes.dump(0) + "\n"));
    VESTA_TRY(const MemoryCheckpoint again, rebuild(files));
    return check_hashes(again, files.hashes);
}

Status rebuild_pocket_checkpoint(const PocketFiles& files, const std::string& folder) {
    VESTA_TRY(const MemoryCheckpoint c, rebuild(files));
    VESTA_TRY_STATUS(check_hashes(c, files.hashes));
    std::error_code error;
    fs::remove_all(folder, error);
    fs::create_directories(folder, error);
    if (error) return Error{Code::io, strf("{}: {}", folder, error.message())};
    for (const auto& [name, text] : c.text_files) VESTA_TRY_STATUS(write_text(fs::path(folder) / name, text));
    std::vector<safetensors::OutTensor> out;
    for (const auto& [name, t] : c.tensors) out.push_back({name, t.dtype, t.shape, t.bytes});
    return safetensors::write_safetensors(folder + "/model.safetensors", out);
}

Result<std::string> pocket_checkpoint(const std::string& build_folder) {
    const PocketFiles files = PocketFiles::in_source_tree();
    const std::string stamp = stamp_of(files);
    const fs::path folder = fs::path(build_folder) / "pocket-v0";
    // One process makes it, the others wait; the lock ends with the descriptor.
    const std::string lock_path = folder.string() + ".lock";
    const UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (lock.get() < 0 || ::flock(lock.get(), LOCK_EX) != 0) return Error{Code::io, strf("{}: cannot lock", lock_path)};
    if (is_current(folder, stamp)) return folder.string();
    VESTA_TRY_STATUS(rebuild_pocket_checkpoint(files, folder));
    VESTA_TRY(const convert::Plan plan,
              convert::plan({.from = folder, .recipe = convert::find_recipe("native").value(), .version = "test"}));
    const auto summary = convert::execute(plan, folder / "native.gguf", /*overwrite=*/true, /*n_thread=*/1, {});
    if (!summary.ok()) return summary.error();
    VESTA_TRY_STATUS(write_text(folder / "stamp", stamp));
    return folder.string();
}

Result<std::string> pocket_native_model(const std::string& build_folder) {
    VESTA_TRY(const std::string folder, pocket_checkpoint(build_folder));
    return folder + "/native.gguf";
}

}  // namespace vesta::test
