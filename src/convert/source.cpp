#include "convert/source.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "quant/fp8.h"
#include "quant/half.h"
#include "safetensors/strict_json.h"

namespace vesta::convert {
namespace {

using quant::Type;
using safetensors::DType;
using safetensors::shape_text;
using safetensors::TensorInfo;

constexpr uint64_t kFp4Block = 32;        // columns that share a scale
constexpr uint8_t kMaxFp4Exponent = 252;  // 6 · 2^(252-127) is the last that fits an f32; 255 is NaN

uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

template <class T>
T load(const std::byte* p) {
    T v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

uint8_t byte_at(const TensorInfo& t, uint64_t i) { return static_cast<uint8_t>(t.bytes[i]); }

Fault decode_fp8(const Source& s, uint64_t row, uint64_t n_row, float* out) {
    const uint64_t scale_cols = ceil_div(s.n_col, s.block_cols);
    const bool f32_scale = s.scale->dtype == DType::f32;
    Fault fault = Fault::none;
    for (uint64_t r = row; r < row + n_row; ++r) {
        const uint64_t scale_row = r / s.block_rows * scale_cols;
        for (uint64_t block = 0; block < scale_cols; ++block) {
            const uint64_t i = scale_row + block;
            if (!f32_scale && byte_at(*s.scale, i) == quant::kE8m0Nan) return Fault::bad_scale;
            const float scale =
                f32_scale ? load<float>(s.scale->bytes.data() + 4 * i) : quant::e8m0_to_f32(byte_at(*s.scale, i));
            const uint64_t end = std::min(s.n_col, (block + 1) * s.block_cols);
            for (uint64_t col = block * s.block_cols; col < end; ++col) {
                // 4 + 24 significant bits: exact in f64, so the comparison tells whether f32 lost something.
                const double exact = double{quant::kE4m3Value[byte_at(*s.weight, r * s.n_col + col)]} * double{scale};
                const auto value = static_cast<float>(exact);
                *out++ = value;
                if (!std::isfinite(value)) return Fault::not_finite;
                if (double{value} != exact) fault = Fault::not_exact;
            }
        }
    }
    return fault;
}

Fault decode_fp4(const Source& s, uint64_t row, uint64_t n_row, float* out) {
    const uint64_t n_block = s.n_col / kFp4Block;
    for (uint64_t r = row; r < row + n_row; ++r)
        for (uint64_t block = 0; block < n_block; ++block) {
            const uint8_t e = byte_at(*s.scale, r * n_block + block);
            if (e > kMaxFp4Exponent) return Fault::bad_scale;
            const float scale = quant::e8m0_to_f32(e);
            const uint64_t first = (r * s.n_col + block * kFp4Block) / 2;
            for (uint64_t k = 0; k < kFp4Block / 2; ++k) {  // byte k: element 2k in the low half, 2k+1 in the high half
                const uint8_t b = byte_at(*s.weight, first + k);
                *out++ = quant::e2m1_to_f32(b & 15) * scale;
                *out++ = quant::e2m1_to_f32(b >> 4) * scale;
            }
        }
    return Fault::none;
}

// The same codes and scales in the order of the GGUF block: scale first, then byte j holds element j in the low half
// and element j + 16 in the high half.
Fault repack_fp4(const Source& s, uint64_t row, uint64_t n_row, std::byte* out) {
    const uint64_t n_block = s.n_col / kFp4Block;
    for (uint64_t r = row; r < row + n_row; ++r)
        for (uint64_t block = 0; block < n_block; ++block) {
            const uint8_t e = byte_at(*s.scale, r * n_block + block);
            if (e > kMaxFp4Exponent) return Fault::bad_scale;
            *out++ = std::byte{e};
            const uint64_t first = (r * s.n_col + block * kFp4Block) / 2;
            const auto code = [&](uint64_t i) {
                const uint8_t b = byte_at(*s.weight, first + i / 2);
                return static_cast<uint8_t>(i % 2 == 0 ? b & 15 : b >> 4);
            };
            for (uint64_t j = 0; j < 16; ++j) *out++ = static_cast<std::byte>(code(j) | code(j + 16) << 4);
        }
    return Fault::none;
}

Fault encode_ids(const Source& s, uint64_t row, uint64_t n_row, uint32_t limit, std::byte* out) {
    for (uint64_t i = row * s.n_col; i < (row + n_row) * s.n_col; ++i, out += 4) {
        const int64_t id = s.weight->dtype == DType::i64 ? load<int64_t>(s.weight->bytes.data() + 8 * i)
                                                         : load<int32_t>(s.weight->bytes.data() + 4 * i);
        if (id < 0 || id >= int64_t{limit}) return Fault::id_range;
        const auto narrow = static_cast<int32_t>(id);
        std::memcpy(out, &narrow, 4);
    }
    return Fault::none;
}

Error wrong(const safetensors::Checkpoint& c, const TensorInfo& t, std::string_view what) {
    return Error{Code::bad_file, strf("{}: {}", c.describe(t), what)};
}

}  // namespace

const char* encoding_name(Encoding encoding) {
    switch (encoding) {
        case Encoding::f32:
            return "F32";
        case Encoding::f16:
            return "F16";
        case Encoding::bf16:
            return "BF16";
        case Encoding::fp8:
            return "FP8";
        case Encoding::fp4:
            return "FP4";
        case Encoding::ids:
            return "ids";
        case Encoding::blocks:
            return "blocks";
    }
    return "?";
}

Result<SourceIndex> SourceIndex::build(const safetensors::Checkpoint& checkpoint) {
    SourceIndex index(checkpoint);
    for (const TensorInfo* t : checkpoint.tensors()) {
        const auto [it, is_new] = index.entries_.emplace(official_name(t->name), Entry{t, false});
        if (!is_new)
            return wrong(checkpoint, *t, strf("stands for the same weight as tensor {}", it->second.tensor->name));
    }
    return index;
}

Result<Source> SourceIndex::find(const std::string& official, const ExpectedTensor& expected,
                                 const ModelConfig& config) {
    const auto it = entries_.find(official);
    if (it == entries_.end())
        return Error{Code::not_found,
                     strf("{}: tensor {} is missing (expected shape {}); the checkpoint is incomplete, or config.json "
                          "describes another model",
                          checkpoint_->path(), official, shape_text(expected.shape))};
    const TensorInfo& t = *it->second.tensor;
    it->second.used = true;
    const auto& shape = expected.shape;
    Source s{Encoding::f32,        &t, nullptr, shape.size() == 1 ? 1 : shape[0], shape.back(), config.fp8_block_rows,
             config.fp8_block_cols};
    const auto require_shape = [&](const TensorInfo& tensor, const std::vector<uint64_t>& want) -> Status {
        if (tensor.shape == want) return {};
        return wrong(
            *checkpoint_, tensor,
            strf("{} has shape {}, expected {}", dtype_name(tensor.dtype), shape_text(tensor.shape), shape_text(want)));
    };

    if (expected.packing == Packing::ids) {
        if (t.dtype != DType::i64 && t.dtype != DType::i32)
            return wrong(*checkpoint_, t, strf("has dtype {}, expected I64 or I32", dtype_name(t.dtype)));
        s.encoding = Encoding::ids;
        VESTA_TRY_STATUS(require_shape(t, shape));
        return s;
    }
    switch (t.dtype) {
        case DType::f32:
            s.encoding = Encoding::f32;
            break;
        case DType::f16:
            s.encoding = Encoding::f16;
            break;
        case DType::bf16:
            s.encoding = Encoding::bf16;
            break;
        case DType::f8_e4m3:
            s.encoding = Encoding::fp8;
            break;
        case DType::i8:
            s.encoding = Encoding::fp4;
            break;
        default:
            return wrong(*checkpoint_, t, strf("dtype {} is no weight format", dtype_name(t.dtype)));
    }
    if (s.encoding != Encoding::fp8 && s.encoding != Encoding::fp4) {
        VESTA_TRY_STATUS(require_shape(t, shape));
        return s;
    }

    if (shape.size() != 2 || !official.ends_with(".weight"))
        return wrong(*checkpoint_, t, strf("has dtype {}, which only matrices may have", dtype_name(t.dtype)));
    const bool fp4 = s.encoding == Encoding::fp4;
    if (fp4 && s.n_col % kFp4Block != 0)
        return wrong(*checkpoint_, t, strf("FP4 needs columns in groups of {}, it has {}", kFp4Block, s.n_col));
    VESTA_TRY_STATUS(require_shape(t, fp4 ? std::vector{s.n_row, s.n_col / 2} : shape));
    const auto scale = entries_.find(scale_name(official));
    if (scale == entries_.end())
        return Error{Code::not_found, strf("{}: has dtype {} but its scale {} is missing", checkpoint_->describe(t),
                                           dtype_name(t.dtype), scale_name(official))};
    s.scale = scale->second.tensor;
    scale->second.used = true;
    if (s.scale->dtype != DType::f8_e8m0 && (fp4 || s.scale->dtype != DType::f32))
        return wrong(*checkpoint_, *s.scale,
                     strf("has dtype {}, expected F8_E8M0{}", dtype_name(s.scale->dtype), fp4 ? "" : " or F32"));
    VESTA_TRY_STATUS(
        require_shape(*s.scale, fp4 ? std::vector{s.n_row, s.n_col / kFp4Block}
                                    : std::vector{ceil_div(s.n_row, s.block_rows), ceil_div(s.n_col, s.block_cols)}));
    return s;
}

bool SourceIndex::has_prefix(std::string_view prefix) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const auto& e) { return e.first.starts_with(prefix); });
}

std::vector<std::string> SourceIndex::unused() const {
    std::vector<std::string> names;
    for (const auto& [official, entry] : entries_)
        if (!entry.used) names.push_back(entry.tensor->name);
    std::sort(names.begin(), names.end());
    return names;
}

Fault decode_rows(const Source& s, uint64_t row, uint64_t n_row, float* out) {
    VESTA_CHECK(s.encoding != Encoding::ids && row + n_row <= s.n_row);
    if (s.encoding == Encoding::fp8) return decode_fp8(s, row, n_row, out);
    if (s.encoding == Encoding::fp4) return decode_fp4(s, row, n_row, out);
    if (s.encoding == Encoding::blocks) {
        const auto n = static_cast<int64_t>(n_row * s.n_col);
        const quant::Format& format = quant::format(s.stored);
        VESTA_CHECK(format.decode != nullptr);
        format.decode(stored_bytes(s, row, n_row).data(), out, n);
        return std::all_of(out, out + n, [](float v) { return std::isfinite(v); }) ? Fault::none : Fault::not_finite;
    }
    const std::byte* p = s.weight->bytes.data();
    for (uint64_t i = row * s.n_col; i < (row + n_row) * s.n_col; ++i, ++out) {
        *out = s.encoding == Encoding::f32   ? load<float>(p + 4 * i)
               : s.encoding == Encoding::f16 ? quant::f16_to_f32(load<uint16_t>(p + 2 * i))
                                             : quant::bf16_to_f32(load<uint16_t>(p + 2 * i));
        if (!std::isfinite(*out)) return Fault::not_finite;
    }
    return Fault::none;
}

// Whether the blocks read back as numbers: an encoder writes NaN scales where its format's range ends.
static bool reads_back_finite(const quant::Format& format, const std::byte* blocks, int64_t n,
                              std::vector<float>& back) {
    back.resize(static_cast<size_t>(n));
    format.decode(blocks, back.data(), n);
    return std::all_of(back.begin(), back.end(), [](float v) { return std::isfinite(v); });
}

Fault encode_rows(const Source& s, uint64_t row, uint64_t n_row, Type target, bool exact, uint32_t id_limit,
                  std::byte* out, const float* importance, quant::ErrorSum* error) {
    if (s.encoding == Encoding::ids) return encode_ids(s, row, n_row, id_limit, out);
    if (s.encoding == Encoding::fp4 && target == Type::mxfp4) return repack_fp4(s, row, n_row, out);

    const auto n = static_cast<int64_t>(n_row * s.n_col);
    std::vector<float> values(static_cast<size_t>(n));
    const Fault fault = decode_rows(s, row, n_row, values.data());
    if (fault != Fault::none && (fault != Fault::not_exact || exact)) return fault;
    if (target == Type::f32) {
        std::memcpy(out, values.data(), values.size() * sizeof(float));
        return Fault::none;
    }
    // Every format holds values up to F16's largest; beyond it depends on how a block's values lie.
    constexpr float kF16Max = 65504.0f;
    const bool large = std::any_of(values.begin(), values.end(), [](float v) { return std::fabs(v) > kF16Max; });
    if (target == Type::f16 && large) return Fault::does_not_fit;
    const quant::Format& format = quant::format(target);
    VESTA_CHECK(quant::can_quantize(target) && n % format.block_elems == 0);
    std::vector<float> back;
    if (exact) {
        VESTA_CHECK(format.encode != nullptr);
        format.encode(values.data(), out, n);
        if (large && !reads_back_finite(format, out, n, back)) return Fault::not_exact;
        back.resize(values.size());
        format.decode(out, back.data(), n);
        // Bits, so that -0 and 0 differ too.
        if (std::memcmp(values.data(), back.data(), values.size() * sizeof(float)) != 0) return Fault::not_exact;
        return Fault::none;
    }
    auto rows = static_cast<int64_t>(n_row), cols = static_cast<int64_t>(s.n_col);
    if (cols % format.block_elems != 0) rows = 1, cols = n, importance = nullptr;
    quant::quantize_rows(target, values.data(), rows, cols, importance, out);
    if (large && !reads_back_finite(format, out, n, back)) return Fault::does_not_fit;
    if (error != nullptr) quant::add_error(target, values.data(), out, rows, cols, importance, *error);
    return Fault::none;
}

Place find_not_finite(const Source& s) {
    std::vector<float> values(s.n_col);
    for (uint64_t row = 0; row < s.n_row; ++row) {
        std::fill(values.begin(), values.end(), 0.0f);
        if (decode_rows(s, row, 1, values.data()) != Fault::not_finite) continue;
        const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
        return {row, static_cast<uint64_t>(bad - values.begin())};
    }
    check_failed(__FILE__, __LINE__, "find_not_finite", "every value is finite");
}

std::span<const std::byte> stored_bytes(const Source& s, uint64_t row, uint64_t n_row) {
    const std::span<const std::byte> all = s.encoding == Encoding::blocks ? s.blocks : s.weight->bytes;
    const uint64_t row_bytes = all.size() / s.n_row;
    return all.subspan(row * row_bytes, n_row * row_bytes);
}

}  // namespace vesta::convert
