#include "convert/convert.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>

#include "base/thread_pool.h"
#include "gguf/writer.h"
#include "safetensors/strict_json.h"

namespace vesta::convert {
namespace {

using nlohmann::json;
using quant::Type;

// Rows are converted in tasks of about this many values: the f32 copy (256 KB) stays in a core's L2.
constexpr uint64_t kTaskValues = 1 << 16;
// Tasks between two writes; bounds the output buffer (F32: 32 MB) and sets how often progress is reported.
constexpr uint64_t kTasksPerSlice = 128;
constexpr uint64_t kMaxConfigBytes = 16 << 20, kMaxTokenizerBytes = 256 << 20;

Result<json> read_json(const std::string& path, uint64_t max_bytes, int max_depth = 16) {
    VESTA_TRY(const std::string text, read_text_file(path, max_bytes));
    return safetensors::parse_strict_json(text, path, max_depth);
}

Type stored_type(Encoding encoding) {
    switch (encoding) {
        case Encoding::f32:
            return Type::f32;
        case Encoding::f16:
            return Type::f16;
        case Encoding::bf16:
            return Type::bf16;
        case Encoding::fp8:
            return Type::bf16;  // e4m3 has 4 significant bits, BF16 8, and a power of two costs none
        case Encoding::fp4:
            return Type::mxfp4;
        case Encoding::ids:
            return Type::i32;
    }
    return Type::f32;
}

// Decides the format of a tensor and whether it must be exact.
void choose_type(PlannedTensor& t, const Recipe& recipe, std::vector<std::string>& notes) {
    const Encoding encoding = t.sources[0].encoding;
    if (encoding == Encoding::ids) {
        t.type = Type::i32, t.exact = true;
        return;
    }
    // Norms, biases, sinks and scales: a few KB that every backend wants as f32.
    if (t.expected.shape.size() == 1) {
        t.type = Type::f32, t.exact = true;
        return;
    }
    const std::optional<Type> wanted = recipe.type_for(t.expected.gguf_name);
    t.type = wanted.value_or(stored_type(encoding));
    t.exact = !wanted.has_value();
    const int block = quant::format(t.type).block_elems;
    if (t.dims[0] % static_cast<uint64_t>(block) != 0) {
        // BF16 holds anything FP8 and BF16 can say; F16 has more bits but less range.
        const Type fallback = encoding == Encoding::bf16 || encoding == Encoding::fp8 ? Type::bf16 : Type::f16;
        notes.push_back(strf("{}: rows of {} values do not divide into {} blocks of {}; stored as {}",
                             t.expected.gguf_name, t.dims[0], quant::format(t.type).name, block,
                             quant::format(fallback).name));
        t.type = fallback;
    }
}

Error fault_error(const Plan& plan, const PlannedTensor& t, const Source& s, Fault fault) {
    const std::string who = plan.checkpoint.describe(*s.weight);
    const char* type = quant::format(t.type).name;
    switch (fault) {
        case Fault::not_finite:
            return {Code::bad_file, strf("{}: holds NaN or infinity", who)};
        case Fault::not_exact:
            return {Code::unsupported, strf("{}: {} cannot hold its {} values exactly; use a recipe other than '{}'",
                                            who, type, encoding_name(s.encoding), plan.options.recipe.name)};
        case Fault::does_not_fit:
            return {Code::unsupported, strf("{}: holds values too large for {}; use a recipe other than '{}'", who,
                                            type, plan.options.recipe.name)};
        case Fault::bad_scale:
            return {Code::bad_file, strf("{}: a scale in {} is NaN or too large for any weight", who, s.scale->name)};
        case Fault::id_range:
            return {Code::bad_file, strf("{}: an expert id is outside 0 to {}", who, plan.config.n_expert - 1)};
        case Fault::none:
            break;
    }
    return {Code::bad_file, who};
}

Status read_tokenizer(const std::string& folder, Plan& p) {
    const std::string path = folder + "/tokenizer.json", config_path = folder + "/tokenizer_config.json";
    if (!file_exists(path)) {
        p.notes.push_back("no tokenizer.json: the model file will have no vocabulary and can be fed token ids only");
        return {};
    }
    std::string pad_token;
    if (file_exists(config_path)) {
        VESTA_TRY(const json config, read_json(config_path, kMaxConfigBytes));
        const json* pad = nullptr;  // "pad_token": "<...>" or {"content": "<...>"}
        if (const auto it = config.find("pad_token"); config.is_object() && it != config.end()) pad = &*it;
        if (pad != nullptr && pad->is_object() && pad->contains("content")) pad = &(*pad)["content"];
        if (pad != nullptr && pad->is_string()) pad_token = pad->get<std::string>();
    }
    VESTA_TRY(const json tokenizer, read_json(path, kMaxTokenizerBytes));
    VESTA_TRY(p.vocabulary, read_vocabulary(tokenizer, p.config.n_vocab, p.config.eos_token, pad_token, path));
    if (p.vocabulary.n_placeholder > 0)
        p.notes.push_back(strf("{} of {} token ids have no text; filled with unused placeholders",
                               p.vocabulary.n_placeholder, p.config.n_vocab));
    p.has_vocabulary = true;
    return {};
}

void write_metadata(const Plan& p, gguf::Writer& w) {
    write_config(p.config, p.options.model_name, w);
    if (p.has_vocabulary) {
        write_vocabulary(p.vocabulary, p.config.bos_token, p.config.eos_token, w);
        w.add_string("vesta.chat.dialect", p.options.dialect);
    }
    w.add_string("vesta.convert.recipe", p.options.recipe.name);
    w.add_string("vesta.convert.version", p.options.version);
    w.add_string("vesta.convert.source", p.options.model_name);
}

// One source tensor, slice by slice: workers fill the buffer, this thread writes it.
class SourceWriter {
 public:
    SourceWriter(const Plan& plan, gguf::Writer& writer, ThreadPool& pool, const ProgressFn& progress)
        : plan_(plan), writer_(writer), pool_(pool), progress_(progress), total_(plan.data_bytes()) {}

    Status write(size_t index, const PlannedTensor& t, const Source& s, uint64_t offset) {
        const uint64_t row_bytes = t.bytes / t.sources.size() / s.n_row;
        const uint64_t rows_per_task = std::max<uint64_t>(1, kTaskValues / s.n_col);
        for (uint64_t row = 0; row < s.n_row;) {
            const uint64_t n_row = std::min(s.n_row - row, rows_per_task * kTasksPerSlice);
            buffer_.resize(n_row * row_bytes);
            std::atomic<Fault> fault{Fault::none};
            pool_.run(static_cast<int64_t>((n_row + rows_per_task - 1) / rows_per_task), [&](int64_t task) {
                const uint64_t first = static_cast<uint64_t>(task) * rows_per_task;
                const Fault f = encode_rows(s, row + first, std::min(rows_per_task, n_row - first), t.type, t.exact,
                                            plan_.config.n_expert, buffer_.data() + first * row_bytes);
                if (f != Fault::none) fault = f;
            });
            if (fault != Fault::none) return fault_error(plan_, t, s, fault);
            VESTA_TRY_STATUS(writer_.write_tensor(index, offset + row * row_bytes, buffer_));
            row += n_row;
            done_ += buffer_.size();
            if (progress_ && !progress_({"convert", t.expected.gguf_name, done_, total_, "bytes"}))
                return Error{Code::cancelled, "stopped; nothing was written"};
        }
        return {};
    }

 private:
    const Plan& plan_;
    gguf::Writer& writer_;
    ThreadPool& pool_;
    const ProgressFn& progress_;
    std::vector<std::byte> buffer_;
    uint64_t done_ = 0, total_;
};

}  // namespace

uint64_t PlannedTensor::n_elem() const {
    uint64_t n = 1;
    for (const uint64_t d : dims) n *= d;
    return n;
}

uint64_t Plan::data_bytes() const {
    uint64_t n = 0;
    for (const PlannedTensor& t : tensors) n += t.bytes;
    return n;
}

Result<Plan> plan(const Options& options) {
    VESTA_TRY(const json config_json, read_json(options.from + "/config.json", kMaxConfigBytes));
    VESTA_TRY(ModelConfig config, read_config(config_json, options.from + "/config.json"));
    VESTA_TRY(safetensors::Checkpoint checkpoint, safetensors::Checkpoint::open(options.from));
    Plan p{options, std::move(config), std::move(checkpoint), false, {}, {}, {}};
    VESTA_TRY(SourceIndex index, SourceIndex::build(p.checkpoint));
    if (p.options.model_name.empty()) {
        auto folder = std::filesystem::path(options.from).lexically_normal();
        if (!folder.has_filename()) folder = folder.parent_path();
        p.options.model_name = folder.filename().string();
    }

    if (p.config.n_mtp > 0 && !index.has_prefix("mtp.")) {
        // Checkpoints that passed through other tools often lost the drafter; the model itself is complete without it.
        p.notes.push_back(
            "config.json declares an MTP block, but the checkpoint has no mtp.* tensors; converted without");
        p.config.n_mtp = 0;
        p.config.compress_ratios.resize(p.config.n_layer);
    }
    for (ExpectedTensor& expected : expected_tensors(p.config)) {
        PlannedTensor t{std::move(expected), {}, Type::f32, false, {}, 0};
        for (const std::string& name : t.expected.sources) {
            VESTA_TRY(const Source s, index.find(name, t.expected, p.config));
            if (!t.sources.empty() && s.encoding != t.sources[0].encoding)
                return Error{Code::bad_file,
                             strf("{}: is {}, but expert 0 of the same layer is {}", p.checkpoint.describe(*s.weight),
                                  encoding_name(s.encoding), encoding_name(t.sources[0].encoding))};
            t.sources.push_back(s);
        }
        t.dims.assign(t.expected.shape.rbegin(), t.expected.shape.rend());
        if (t.expected.stacked) t.dims.push_back(t.sources.size());
        choose_type(t, p.options.recipe, p.notes);
        t.bytes = static_cast<uint64_t>(quant::row_bytes(t.type, static_cast<int64_t>(t.n_elem())));
        p.tensors.push_back(std::move(t));
    }
    if (const std::vector<std::string> unused = index.unused(); !unused.empty()) {
        const std::string what = strf("{} tensors have no place in this model, the first is {}", unused.size(),
                                      safetensors::shown(unused[0]));
        if (!options.ignore_unknown)
            return Error{Code::unsupported, strf("{}: {}; config.json may belong to another model (--ignore-unknown "
                                                 "leaves them out)",
                                                 options.from, what)};
        p.notes.push_back(what + "; left out");
    }
    VESTA_TRY_STATUS(read_tokenizer(options.from, p));
    return p;
}

Result<Summary> execute(const Plan& p, const std::string& path, bool overwrite, int n_thread,
                        const ProgressFn& progress) {
    gguf::Writer writer;
    write_metadata(p, writer);
    for (const PlannedTensor& t : p.tensors) writer.add_tensor(t.expected.gguf_name, t.type, t.dims);
    VESTA_TRY_STATUS(writer.begin(path, overwrite));
    ThreadPool pool(n_thread);
    SourceWriter source_writer(p, writer, pool, progress);
    for (size_t i = 0; i < p.tensors.size(); ++i) {
        const PlannedTensor& t = p.tensors[i];
        const uint64_t source_bytes = t.bytes / t.sources.size();
        for (size_t e = 0; e < t.sources.size(); ++e)
            VESTA_TRY_STATUS(source_writer.write(i, t, t.sources[e], e * source_bytes));
    }
    VESTA_TRY_STATUS(writer.finish());
    return Summary{p.tensors.size(), writer.header().size() + writer.data_bytes()};
}

}  // namespace vesta::convert
