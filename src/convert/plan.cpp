// Deciding what a model file will hold, from the headers of a checkpoint or of another model file.
#include <algorithm>
#include <filesystem>
#include <map>

#include "base/hash.h"
#include "base/utf8.h"
#include "convert/convert.h"
#include "convert/target.h"
#include "model/model.h"
#include "safetensors/strict_json.h"

namespace vesta::convert {
namespace {

using nlohmann::json;
using quant::Type;

constexpr uint64_t kMaxConfigBytes = 16 << 20, kMaxTokenizerBytes = 256 << 20;
// Flash: 450 MB of importance. Pro is four times as large.
constexpr uint64_t kMaxImportanceBytes = uint64_t{8} << 30;

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
        case Encoding::blocks:
            break;
    }
    return Type::f32;
}

std::string file_part(const std::string& path) {
    auto p = std::filesystem::path(path).lexically_normal();
    if (!p.has_filename()) p = p.parent_path();
    return p.filename().string();
}

// Fills type, exact, copy and bytes. Requires dims and stored.
Status decide(PlannedTensor& t, const Options& options, std::vector<std::string>& notes) {
    const std::string& name = t.expected.gguf_name;
    const Target target =
        choose_target({name, t.dims[0], t.dims.size() == 1, t.stored}, options.recipe, options.overrides);
    t.type = target.type, t.exact = target.exact;
    if (!target.note.empty()) notes.push_back(target.note);
    const bool of_file = !t.sources.empty() && t.sources[0].encoding == Encoding::blocks;
    t.copy = of_file && t.type == t.stored;
    if (!t.copy && of_file && quant::format(t.stored).decode == nullptr)
        return Error{Code::unsupported, strf("tensor '{}': this build cannot read {}, so it can only be kept as it is",
                                             printable(name), quant::format(t.stored).name)};
    if (!t.copy && !is_integer(t.type) && !quant::can_quantize(t.type))
        return Error{Code::unsupported,
                     strf("tensor '{}': this build cannot write {}", printable(name), quant::format(t.type).name)};
    t.bytes = static_cast<uint64_t>(quant::row_bytes(t.type, static_cast<int64_t>(t.n_elem())));
    return {};
}

// The loader wants gate and up of one layer in one format, so that a backend can run them together: a recipe that
// says otherwise is refused here and not after hours of work.
Status check_gate_and_up(const Plan& p) {
    std::map<std::string_view, Type> types;
    for (const PlannedTensor& t : p.tensors) types.emplace(t.expected.gguf_name, t.type);
    for (const auto& [name, type] : types) {
        const size_t at = name.find(".ffn_gate_");
        if (at == name.npos || name.find("exp") == name.npos) continue;
        const std::string up = strf("{}.ffn_up_{}", name.substr(0, at), name.substr(at + 10));
        const auto other = types.find(up);
        if (other != types.end() && other->second != type)
            return Error{
                Code::invalid_argument,
                strf("recipe '{}': {} would be {} and {} {}; both must have one format", p.options.recipe.name,
                     printable(name), quant::format(type).name, printable(up), quant::format(other->second).name)};
    }
    return {};
}

Status check_overrides(const Plan& p) {
    for (const Override& o : p.options.overrides)
        if (std::none_of(p.tensors.begin(), p.tensors.end(), [&](const PlannedTensor& t) {
                return t.dims.size() > 1 && !is_integer(t.type) && o.applies_to(t.expected.gguf_name);
            }))
            return Error{Code::invalid_argument,
                         strf("--set '{}': matches no matrix of {}", printable(o.text()), p.options.from)};
    return {};
}

size_t n_part(const PlannedTensor& t) { return t.expected.stacked ? t.n_elem() / t.dims[0] / t.dims[1] : 1; }

bool measured(const Importance& importance, const PlannedTensor& t, size_t expert) {
    return importance.matrix.measured(t.expected.gguf_name, static_cast<int64_t>(t.dims[0]),
                                      static_cast<int64_t>(n_part(t)), static_cast<int64_t>(expert));
}

// What the importance matrix lacks for the formats chosen: an error if strict, a note otherwise. A drafter does not run
// while importance is collected, so for it a missing entry is never an error.
Status check_importance(Plan& p) {
    if (p.options.importance == nullptr) {
        if (p.options.strict)
            return Error{Code::invalid_argument,
                         "--strict asks for an importance matrix that covers every tensor; "
                         "name one with --imatrix"};
        return {};
    }
    std::vector<std::string> missing;
    for (const PlannedTensor& t : p.tensors) {
        if (t.copy || t.exact || !needs_importance(t.type) || t.dims.size() == 1) continue;
        // FP4 to MXFP4 moves codes and rounds nothing.
        if (t.type == Type::mxfp4 && t.stored == Type::mxfp4) continue;
        const std::string& name = t.expected.gguf_name;
        const size_t n_source = n_part(t);
        std::vector<size_t> never;
        std::string problem;
        for (size_t e = 0; e < n_source && problem.empty(); ++e) {
            const auto v = p.options.importance->matrix.importance(
                name, static_cast<int64_t>(t.dims[0]), static_cast<int64_t>(n_source), static_cast<int64_t>(e));
            if (!v.ok() && v.error().code == Code::not_found) {
                if (!p.options.strict || name.starts_with("mtp.")) {
                    missing.push_back(printable(name));
                    never.clear();
                    break;
                }
                problem = "has no entry";
            } else if (!v.ok()) {
                problem = v.error().message;
            } else if (!measured(*p.options.importance, t, e)) {
                never.push_back(e);
            }
        }
        if (problem.empty() && !never.empty())
            problem = t.expected.stacked
                          ? strf("{} of {} experts were never used, the first is {}", never.size(), n_source, never[0])
                          : "nothing was measured";
        if (problem.empty()) continue;
        const std::string what = strf("{}: tensor '{}': {}", p.options.importance->file_name, printable(name), problem);
        if (p.options.strict) return Error{Code::bad_file, what};
        p.notes.push_back(what + "; quantized without importance there");
    }
    if (!missing.empty())
        p.notes.push_back(
            strf("{}: {} quantized tensors have no entry, the first is '{}'; quantized without importance",
                 p.options.importance->file_name, missing.size(), missing[0]));
    return {};
}

void note_coarse_sources(Plan& p) {
    std::map<std::string, size_t> formats;
    size_t n = 0;
    for (const PlannedTensor& t : p.tensors) {
        if (t.copy || !is_coarse(t.stored) || t.type == Type::f32 || t.type == Type::f16 || t.type == Type::bf16)
            continue;
        ++formats[quant::format(t.stored).name], ++n;
    }
    if (n == 0) return;
    std::string names;
    for (const auto& [name, count] : formats) names += (names.empty() ? "" : ", ") + name;
    p.notes.push_back(
        strf("warning: {} tensors are already quantized ({}) and will be quantized again, so both errors "
             "add up; the official checkpoint or a file of recipe 'native' is a better source",
             n, names));
}

void place_drafter(Plan& p) {
    const auto of_drafter = [](const PlannedTensor& t) { return t.expected.gguf_name.starts_with("mtp."); };
    p.has_drafter = std::any_of(p.tensors.begin(), p.tensors.end(), of_drafter);
    if (p.options.drafter == Drafter::inside) return;
    const bool drop = p.options.drafter == Drafter::left_out;
    std::erase_if(p.tensors, [&](const PlannedTensor& t) { return of_drafter(t) == drop; });
}

Status finish_plan(Plan& p) {
    place_drafter(p);
    VESTA_TRY_STATUS(check_overrides(p));
    VESTA_TRY_STATUS(check_gate_and_up(p));
    VESTA_TRY_STATUS(check_importance(p));
    note_coarse_sources(p);
    const bool energy = std::any_of(p.tensors.begin(), p.tensors.end(),
                                    [](const PlannedTensor& t) { return t.type == Type::iq2_xxs && !t.copy; });
    if (energy && p.options.importance == nullptr)
        p.notes.push_back(
            "iq2_xxs without an importance matrix: the weights' own energy per column takes its place; "
            "--imatrix gives a better file");
    return {};
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

// One tensor of a model file as rows; experts, if stacked, one by one.
PlannedTensor planned(const gguf::TensorInfo& t) {
    PlannedTensor p{{std::string(t.name), {}, {}, Packing::plain, t.n_dim > 2}, {}, t.type, true, {}, t.bytes.size()};
    p.dims.assign(t.dims, t.dims + t.n_dim);
    p.stored = t.type;
    const uint64_t n_source = t.dims[2] * t.dims[3], source_bytes = t.bytes.size() / n_source;
    for (uint64_t i = 0; i < n_source; ++i) {
        Source s{Encoding::blocks, nullptr, nullptr, t.dims[1], t.dims[0], 0, 0};
        s.blocks = t.bytes.subspan(i * source_bytes, source_bytes);
        s.stored = t.type;
        p.sources.push_back(s);
    }
    return p;
}

Result<Plan> plan_from_file(const Options& options) {
    VESTA_TRY(gguf::File opened, gguf::File::open(options.from));
    Plan p;
    p.options = options;
    p.file = std::move(opened);
    const gguf::File& file = *p.file;
    VESTA_TRY(const std::string_view architecture, file.string("general.architecture"));
    if (!model::known_architecture(architecture))
        return Error{Code::unsupported,
                     strf("{}: this build knows no architecture '{}'", file.name(), printable(architecture))};
    if (const auto n = file.u64("split.count"); n.ok() && n.value() > 1)
        return Error{Code::unsupported, strf("{}: is one of {} parts; join them first", file.name(), n.value())};
    const auto n_expert = file.u32(strf("{}.expert_count", architecture));
    const auto n_used = file.u32(strf("{}.expert_used_count", architecture));
    if (n_expert.ok()) p.n_expert = n_expert.value();
    if (n_used.ok()) p.n_expert_used = n_used.value();
    if (const auto name = file.string("general.name"); name.ok()) p.options.model_name = name.value();
    for (const gguf::TensorInfo& info : file.tensors()) {
        PlannedTensor t = planned(info);
        VESTA_TRY_STATUS(decide(t, p.options, p.notes));
        p.tensors.push_back(std::move(t));
    }
    VESTA_TRY_STATUS(finish_plan(p));
    return p;
}

// dims, stored format and choice of a tensor of a checkpoint.
Status decide_expected(PlannedTensor& t, Encoding encoding, Plan& p) {
    t.stored = stored_type(encoding);
    t.dims.assign(t.expected.shape.rbegin(), t.expected.shape.rend());
    if (t.expected.stacked) t.dims.push_back(t.expected.sources.size());
    return decide(t, p.options, p.notes);
}

Result<Plan> plan_from_checkpoint(const Options& options) {
    VESTA_TRY(const json config_json, read_json(options.from + "/config.json", kMaxConfigBytes));
    Plan p;
    p.options = options;
    VESTA_TRY(p.config, read_config(config_json, options.from + "/config.json"));
    VESTA_TRY(p.checkpoint, safetensors::Checkpoint::open(options.from));
    VESTA_TRY(SourceIndex index, SourceIndex::build(*p.checkpoint));
    if (p.options.model_name.empty()) p.options.model_name = file_part(options.from);
    p.n_expert = p.config.n_expert, p.n_expert_used = p.config.n_expert_used;

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
                             strf("{}: is {}, but expert 0 of the same layer is {}", p.checkpoint->describe(*s.weight),
                                  encoding_name(s.encoding), encoding_name(t.sources[0].encoding))};
            t.sources.push_back(s);
        }
        VESTA_TRY_STATUS(decide_expected(t, t.sources[0].encoding, p));
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
    VESTA_TRY_STATUS(finish_plan(p));
    return p;
}

}  // namespace

Result<std::shared_ptr<const Importance>> read_importance(const std::string& path) {
    VESTA_TRY(const MappedFile file, MappedFile::open(path));
    if (file.bytes().size() > kMaxImportanceBytes)
        return Error{Code::invalid_argument,
                     strf("{}: {} bytes are more than any importance matrix has", path, file.bytes().size())};
    auto out = std::make_shared<Importance>();
    VESTA_TRY(out->matrix, imatrix::parse_dat(file.bytes(), path));
    out->file_name = file_part(path);
    Hash64 hash;
    hash.add(file.bytes());
    out->hash = hash.digest();
    return std::shared_ptr<const Importance>(std::move(out));
}

Result<Plan> plan(const Options& options) {
    std::error_code ignored;
    if (std::filesystem::is_directory(options.from, ignored)) return plan_from_checkpoint(options);
    if (options.from.ends_with(".gguf")) return plan_from_file(options);
    return plan_from_checkpoint(options);
}

Result<Plan> plan_shapes(const std::string& config_path, const Options& options) {
    VESTA_TRY(const json config_json, read_json(config_path, kMaxConfigBytes));
    Plan p;
    p.options = options;
    VESTA_TRY(p.config, read_config(config_json, config_path));
    if (p.options.model_name.empty()) p.options.model_name = file_part(config_path);
    p.n_expert = p.config.n_expert, p.n_expert_used = p.config.n_expert_used;
    p.notes.push_back(
        "from the configuration alone: file size without vocabulary, formats as official checkpoints have "
        "them");
    for (ExpectedTensor& expected : expected_tensors(p.config)) {
        PlannedTensor t{std::move(expected), {}, Type::f32, false, {}, 0};
        // Packing::plain is BF16 for matrices; hyper-connections, compressor biases and vectors are F32 (spec of the
        // published checkpoints), which matters for `exact` only.
        const std::string& name = t.expected.gguf_name;
        const bool f32 = t.expected.shape.size() == 1 || name.find("hc_") != name.npos || name.ends_with("_ape.weight");
        const Encoding encoding = t.expected.packing == Packing::fp8   ? Encoding::fp8
                                  : t.expected.packing == Packing::fp4 ? Encoding::fp4
                                  : t.expected.packing == Packing::ids ? Encoding::ids
                                  : f32                                ? Encoding::f32
                                                                       : Encoding::bf16;
        VESTA_TRY_STATUS(decide_expected(t, encoding, p));
        p.tensors.push_back(std::move(t));
    }
    VESTA_TRY_STATUS(finish_plan(p));
    return p;
}

uint64_t PlannedTensor::n_elem() const {
    uint64_t n = 1;
    for (const uint64_t d : dims) n *= d;
    return n;
}

const char* PlannedTensor::stored_name() const {
    return sources.empty() || sources[0].encoding == Encoding::blocks ? quant::format(stored).name
                                                                      : encoding_name(sources[0].encoding);
}

uint64_t Plan::data_bytes() const {
    uint64_t n = 0;
    for (const PlannedTensor& t : tensors) n += t.bytes;
    return n;
}

uint64_t Plan::file_bytes() const {
    const gguf::Writer writer = new_writer(*this);
    return writer.header().size() + writer.data_bytes();
}

double Plan::bits_per_weight() const {
    uint64_t n_byte = 0, n_weight = 0;
    for (const PlannedTensor& t : tensors)
        if (!is_integer(t.type)) n_byte += t.bytes, n_weight += t.n_elem();
    return n_weight == 0 ? 0 : 8 * static_cast<double>(n_byte) / static_cast<double>(n_weight);
}

model::Traffic Plan::traffic() const {
    std::vector<model::WeightSize> weights;
    for (const PlannedTensor& t : tensors)
        weights.push_back({t.expected.gguf_name, t.bytes, t.dims.size() > 1 ? t.dims[1] : 1});
    return model::decode_traffic(weights, n_expert, n_expert_used);
}

std::string Plan::describe(const PlannedTensor& t, const Source& s) const {
    if (s.weight != nullptr) return checkpoint->describe(*s.weight);
    const auto expert = static_cast<size_t>(&s - t.sources.data());
    return strf("{}: tensor '{}'{}", file->name(), printable(t.expected.gguf_name),
                t.expected.stacked ? strf(", expert {}", expert) : "");
}

std::vector<float> Plan::importance(const PlannedTensor& t, size_t index) const {
    if (options.importance == nullptr || !measured(*options.importance, t, index)) return {};
    auto v = options.importance->matrix.importance(t.expected.gguf_name, static_cast<int64_t>(t.dims[0]),
                                                   static_cast<int64_t>(t.sources.size()), static_cast<int64_t>(index));
    if (!v.ok()) return {};
    return std::move(v).value();
}

}  // namespace vesta::convert
