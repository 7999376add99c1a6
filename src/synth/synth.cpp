#include "synth/synth.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "base/thread_pool.h"
#include "convert/names.h"
#include "convert/vocabulary.h"
#include "synth/blocks.h"
#include "synth/vocabulary.h"

namespace vesta::synth {
namespace {

using convert::ExpectedTensor;
using convert::Packing;
using quant::Type;

// A task fills about this much: random bits and the scales written over them stay in a core's L2.
constexpr uint64_t kTaskBytes = 256 << 10;
constexpr uint64_t kSliceBytes = 64 << 20;  // between two writes to the file

Type exact_type(const ExpectedTensor& t) {
    if (t.packing == Packing::ids) return Type::i32;
    if (t.shape.size() == 1) return Type::f32;
    if (t.packing == Packing::fp4) return Type::mxfp4;
    // Official checkpoints: hyper-connection matrices and position biases F32; FP8 and BF16 matrices fit BF16.
    const bool f32 = t.gguf_name.ends_with("_ape.weight") || t.gguf_name.ends_with("_fn.weight");
    return f32 ? Type::f32 : Type::bf16;
}

// What a tensor's values look like: a mean and a deviation. Matrices keep the size of what they multiply.
struct Values {
    double mean, deviation;
};
Values values_of(const PlannedTensor& t) {
    const auto has = [&](const char* part) { return t.name.find(part) != std::string::npos; };
    if (has("norm.weight")) return {1, 0.1};
    if (has("_scale.weight")) return {0.5, 0.1};  // hyper-connections: how far inputs move the mixing
    if (has("_base.weight")) return {0, 0.5};
    if (has("attn_sinks")) return {0, 1};
    if (has("exp_probs_b")) return {0, 0.1};  // small beside router scores of about 1
    if (has("_ape.weight")) return {0, 0.5};
    if (t.name == "token_embd.weight") return {0, 1};
    return {0, 1 / std::sqrt(static_cast<double>(t.dims[0]))};
}

// Few values (norms, biases, scales): mean + deviation, one f32 each, in the tensor's plain format.
void fill_few(const PlannedTensor& t, Stream s, Values v, std::byte* dst) {
    const quant::Format& f = quant::format(t.type);
    const uint64_t n = t.bytes / static_cast<uint64_t>(f.block_bytes);
    for (uint64_t i = 0; i < n; ++i) {
        const auto x = static_cast<float>(v.mean + v.deviation * std::sqrt(3.0) * (2 * s.uniform(i) - 1));
        f.encode(&x, dst + i * static_cast<uint64_t>(f.block_bytes), 1);
    }
}

// Row by row the experts of a token: different ones, at a random start and stride.
void fill_hash_rows(const PlannedTensor& t, Stream s, uint32_t n_expert, uint64_t first_row, uint64_t n_row,
                    std::byte* dst) {
    const auto n_used = static_cast<uint32_t>(t.dims[0]);
    // (n_used - 1) · stride < n_expert: never the same expert twice.
    const uint32_t max_stride = n_used > 1 ? (n_expert - 1) / (n_used - 1) : 1;
    for (uint64_t row = first_row; row < first_row + n_row; ++row) {
        const uint64_t r = s.word(row);
        const auto start = static_cast<uint32_t>((r >> 32) % n_expert);
        const uint32_t stride = 1 + static_cast<uint32_t>(r & 0xffffffffu) % max_stride;
        for (uint32_t k = 0; k < n_used; ++k, dst += 4) {
            const auto id = static_cast<int32_t>((start + k * stride) % n_expert);
            std::memcpy(dst, &id, 4);
        }
    }
}

// How a tensor may be cut: pieces of `step` bytes, a multiple of kBlockStep blocks (or whole rows of ids).
uint64_t step_bytes(const PlannedTensor& t) {
    const auto unit =
        t.type == Type::i32 ? t.dims[0] * 4 : static_cast<uint64_t>(quant::format(t.type).block_bytes * kBlockStep);
    return std::max<uint64_t>(1, kTaskBytes / unit) * unit;
}

// Bytes [offset, offset + n) of a tensor; offset is a multiple of step_bytes.
void fill(const Plan& plan, const PlannedTensor& t, uint64_t offset, uint64_t n, std::byte* dst) {
    const Stream s = stream(plan.options.seed, t.name);
    if (t.type == Type::i32) {
        const uint64_t row = t.dims[0] * 4;
        return fill_hash_rows(t, s, plan.config.n_expert, offset / row, n / row, dst);
    }
    const Values v = values_of(t);
    if (t.dims.size() == 1) return fill_few(t, s, v, dst);
    const auto block = static_cast<uint64_t>(quant::format(t.type).block_bytes);
    fill_blocks(t.type, s, static_cast<int64_t>(offset / block), static_cast<int64_t>(n / block), v.deviation, dst);
}

void fill_parallel(const Plan& plan, const PlannedTensor& t, uint64_t offset, uint64_t n, std::byte* dst,
                   ThreadPool& pool) {
    const uint64_t step = t.dims.size() == 1 ? std::max<uint64_t>(n, 1) : step_bytes(t);
    pool.run(static_cast<int64_t>((n + step - 1) / step), [&](int64_t task) {
        const uint64_t first = static_cast<uint64_t>(task) * step;
        fill(plan, t, offset + first, std::min(step, n - first), dst + first);
    });
}

void describe(const Plan& p, gguf::Writer& w) {
    convert::write_config(
        p.config,
        strf("synthetic {}, {} layers, {} experts", p.options.shape.like, p.config.n_layer, p.config.n_expert), w);
    convert::write_vocabulary(vocabulary(p.config.n_vocab), p.config.bos_token, p.config.eos_token, w);
    w.add_string("vesta.chat.dialect", "dsv4");
    w.add_string("vesta.synth.recipe", p.options.recipe.name);
    w.add_u64("vesta.synth.seed", p.options.seed);
    for (const PlannedTensor& t : p.tensors) w.add_tensor(t.name, t.type, t.dims);
}

}  // namespace

uint64_t Plan::data_bytes() const {
    uint64_t n = 0;
    for (const PlannedTensor& t : tensors) n += t.bytes;
    return n;
}

uint64_t Plan::n_parameter() const {
    uint64_t n = 0;
    for (const PlannedTensor& t : tensors) {
        uint64_t product = t.type == Type::i32 ? 0 : 1;
        for (const uint64_t d : t.dims) product *= d;
        n += product;
    }
    return n;
}

Result<Plan> plan(const Options& options) {
    Plan p{options, {}, {}};
    VESTA_TRY(p.config, shape(options.shape));
    for (const ExpectedTensor& e : convert::expected_tensors(p.config)) {
        PlannedTensor t{e.gguf_name, exact_type(e), {e.shape.rbegin(), e.shape.rend()}, 0};
        if (e.stacked) t.dims.push_back(e.sources.size());
        if (t.type != Type::i32 && t.dims.size() > 1) {
            t.type = options.recipe.type_for(t.name).value_or(t.type);
            if (t.dims[0] % static_cast<uint64_t>(quant::format(t.type).block_elems) != 0) t.type = Type::f16;
            if (!can_fill(t.type))
                return Error{Code::unsupported,
                             strf("recipe '{}' wants {} for {}; synthetic weights are made in f32, f16, bf16, "
                                  "q8_0, q2_k to q6_k, iq2_xxs and mxfp4",
                                  options.recipe.name, quant::format(t.type).name, t.name)};
        }
        uint64_t n_elem = 1;
        for (const uint64_t d : t.dims)
            if (__builtin_mul_overflow(n_elem, d, &n_elem) || n_elem > (uint64_t{1} << 56))
                return Error{Code::invalid_argument, strf("{}: its size overflows", t.name)};
        t.bytes = static_cast<uint64_t>(quant::row_bytes(t.type, static_cast<int64_t>(n_elem)));
        p.tensors.push_back(std::move(t));
    }
    return p;
}

Status write(const Plan& plan, const std::string& path, bool overwrite, int n_thread, const ProgressFn& progress) {
    gguf::Writer writer;
    describe(plan, writer);
    VESTA_TRY_STATUS(writer.begin(path, overwrite));
    ThreadPool pool(n_thread);
    const uint64_t total = plan.data_bytes();
    std::vector<std::byte> buffer;
    uint64_t done = 0;
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
        const PlannedTensor& t = plan.tensors[i];
        const uint64_t step = t.dims.size() == 1 ? t.bytes : step_bytes(t);
        const uint64_t slice = std::max<uint64_t>(1, kSliceBytes / step) * step;
        for (uint64_t offset = 0; offset < t.bytes; offset += slice) {
            if (progress && !progress({"synth", t.name, done, total, "bytes"}))
                return Error{Code::cancelled, "stopped"};
            const uint64_t n = std::min(slice, t.bytes - offset);
            buffer.resize(n);
            fill_parallel(plan, t, offset, n, buffer.data(), pool);
            VESTA_TRY_STATUS(writer.write_tensor(i, offset, buffer));
            done += n;
        }
    }
    return writer.finish();
}

Image::Image(Image&& o) noexcept : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
Image& Image::operator=(Image&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
}
Image::~Image() {
    if (data_ != nullptr) ::munmap(data_, size_);
}

Result<Image> build(const Plan& plan, int n_thread, const ProgressFn& progress) {
    gguf::Writer writer;
    describe(plan, writer);
    const std::vector<std::byte> header = writer.header();
    Image image;
    const size_t size = header.size() + writer.data_bytes();
    void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return Error{Code::no_memory,
                     strf("a model of {} bytes: refused by the system: {}", size, std::strerror(errno))};
    image.data_ = static_cast<std::byte*>(p);
    image.size_ = size;
    ::madvise(p, size, MADV_HUGEPAGE);  // advice: a kernel without huge pages ignores it
    std::memcpy(image.data_, header.data(), header.size());
    ThreadPool pool(n_thread);
    const uint64_t total = plan.data_bytes();
    uint64_t done = 0;
    std::byte* at = image.data_ + header.size();
    constexpr uint64_t kAlign = 32;  // of the writer
    for (const PlannedTensor& t : plan.tensors) {
        if (progress && !progress({"synth", t.name, done, total, "bytes"})) return Error{Code::cancelled, "stopped"};
        fill_parallel(plan, t, 0, t.bytes, at, pool);
        done += t.bytes;
        at += (t.bytes + kAlign - 1) / kAlign * kAlign;
    }
    ::mprotect(image.data_, size, PROT_READ);
    return image;
}

}  // namespace vesta::synth
