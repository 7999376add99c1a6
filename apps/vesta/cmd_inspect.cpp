// `vesta inspect FILE`: what is this model file, what does it hold, can this build run it? Reads the directory only, so
// it answers at once for a file of any size, and while another process runs the model.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/utf8.h"
#include "commands.h"
#include "gguf/file.h"
#include "model/model.h"
#include "quant/format.h"
#include "terminal.h"

namespace vesta::app {
namespace {

using Json = nlohmann::ordered_json;
using gguf::Value;
using gguf::ValueType;

constexpr uint64_t kShownElements = 8;   // of a long array, unless --full
constexpr size_t kShownValueBytes = 72;  // of a value in the text listing: key, type and value fit a wide terminal

// The model's own checks on everything but the matrices' values, for a backend that reads every format we can decode.
Status can_run(const gguf::File& file) {
    return model::check(file, [](quant::Type type) { return quant::format(type).decode != nullptr; });
}

// ---- what the file is -------------------------------------------------------------------------------------------

struct TypeTotal {
    uint64_t n_tensor = 0, n_elem = 0, n_byte = 0;
};

struct Summary {
    const char* kind;         // stable word for scripts
    std::string description;  // the same for people
    std::optional<std::string> architecture, model_name;
    bool has_mtp = false;
    uint64_t n_param = 0, n_param_mtp = 0, param_bytes = 0, tensor_bytes = 0;
    std::optional<uint64_t> n_param_active;
    std::map<quant::Type, TypeTotal> types;
    std::optional<std::string> refusal;  // why this build cannot run it
};

// Integer tensors are tables (the hash layers' token to expert table), not weights.
bool is_weight(quant::Type type) {
    switch (type) {
        case quant::Type::i8:
        case quant::Type::i16:
        case quant::Type::i32:
        case quant::Type::i64:
            return false;
        default:
            return true;
    }
}

// The MTP block is named either mtp.0.* or, in files of llama.cpp's converter, blk.<last>.* with some *.nextn.* among
// them. Returns the prefix that all its tensors share; empty when there is none.
std::string_view mtp_prefix(const gguf::File& file) {
    for (const gguf::TensorInfo& t : file.tensors()) {
        if (t.name.starts_with("mtp.")) return t.name.substr(0, 4);
        if (const size_t at = t.name.find(".nextn."); at != t.name.npos) return t.name.substr(0, at + 1);
    }
    return {};
}

std::optional<uint64_t> number(const gguf::File& file, const char* key) {
    const auto n = file.u64(key);
    return n.ok() ? std::optional(n.value()) : std::nullopt;
}

template <class Predicate>
bool every_tensor(const gguf::File& file, Predicate holds) {
    return !file.tensors().empty() && std::all_of(file.tensors().begin(), file.tensors().end(),
                                                  [&](const gguf::TensorInfo& t) { return holds(t.name); });
}

void describe_deepseek4(const gguf::File& file, Summary& s) {
    s.kind = "model";
    s.description = "deepseek4 model";
    if (const auto n = number(file, "deepseek4.block_count")) s.description += strf(", {} layers", *n);
    if (const auto n = number(file, "deepseek4.embedding_length")) s.description += strf(", width {}", *n);
    const auto n_used = number(file, "deepseek4.expert_used_count"), n_expert = number(file, "deepseek4.expert_count");
    if (n_used && n_expert) s.description += strf(", {} of {} experts per token", *n_used, *n_expert);
    if (const auto n = number(file, "deepseek4.vocab_size")) s.description += strf(", vocabulary {}", *n);
    s.description += s.has_mtp ? ", MTP block included" : ", no MTP block";
    for (const char* name : {"token_embd.weight", "output.weight"})
        if (file.find_tensor(name) == nullptr) {
            s.kind = "part";
            s.description = strf("part of a {} (no {})", s.description, name);
            break;
        }
}

void describe(const gguf::File& file, Summary& s) {
    const auto type = file.string("general.type");
    const auto is_sum = [](std::string_view n) { return n.ends_with(".in_sum2") || n.ends_with(".counts"); };
    const auto is_side = [](std::string_view n) { return n.starts_with("mtp."); };
    const auto is_markov = [](const gguf::TensorInfo& t) { return t.name.find(".markov_head.") != t.name.npos; };
    s.kind = "other";
    if ((type.ok() && type.value() == "imatrix") || every_tensor(file, is_sum)) {
        s.kind = "imatrix";
        s.description = "importance matrix (statistics for quantizing, no model)";
    } else if (every_tensor(file, is_side) && std::any_of(file.tensors().begin(), file.tensors().end(), is_markov)) {
        s.kind = "dspark";
        s.description = "DSpark drafter for a deepseek4 model (side file)";
    } else if (every_tensor(file, is_side)) {
        s.kind = "mtp";
        s.description = "MTP block of a deepseek4 model (side file: it accompanies the model's own file)";
    } else if (file.tensors().empty() && file.has("tokenizer.ggml.tokens")) {
        s.kind = "vocabulary";
        s.description = "vocabulary without a model";
    } else if (file.tensors().empty()) {
        s.description = "metadata only, no tensors";
    } else if (s.architecture == "deepseek4") {
        describe_deepseek4(file, s);
    } else if (s.architecture) {
        s.kind = "model";
        s.description = strf("model of architecture '{}'", printable(*s.architecture));
    } else {
        s.description = "tensors of unknown purpose (no general.architecture)";
    }
}

// "tensor x is missing" instead of "path: tensor x is missing": the report begins with the path.
std::string without_file_name(const std::string& message, const std::string& name) {
    const std::string prefix = name + ": ";
    return printable(message.starts_with(prefix) ? message.substr(prefix.size()) : message);
}

Summary summarise(const gguf::File& file) {
    Summary s{};
    if (const auto text = file.string("general.architecture"); text.ok()) s.architecture = text.value();
    if (const auto text = file.string("general.name"); text.ok()) s.model_name = text.value();

    // Weights one token uses: everything outside MTP but the embedding table, and of the routed experts the chosen
    // ones.
    double n_active = 0;
    const auto n_used = number(file, "deepseek4.expert_used_count"), n_expert = number(file, "deepseek4.expert_count");
    const double chosen = n_used && n_expert && *n_expert > 0 && *n_used <= *n_expert
                              ? static_cast<double>(*n_used) / static_cast<double>(*n_expert)
                              : 0;
    const std::string_view mtp = mtp_prefix(file);
    s.has_mtp = !mtp.empty();
    for (const gguf::TensorInfo& t : file.tensors()) {
        TypeTotal& total = s.types[t.type];
        ++total.n_tensor;
        total.n_elem += t.n_elem();
        total.n_byte += t.bytes.size();
        s.tensor_bytes += t.bytes.size();
        if (!is_weight(t.type)) continue;
        s.n_param += t.n_elem();
        s.param_bytes += t.bytes.size();
        if (s.has_mtp && t.name.starts_with(mtp))
            s.n_param_mtp += t.n_elem();
        else if (t.name != "token_embd.weight")
            n_active += static_cast<double>(t.n_elem()) * (t.name.find("_exps.") != t.name.npos ? chosen : 1);
    }
    describe(file, s);
    if (s.kind == std::string_view("model") && chosen > 0) s.n_param_active = static_cast<uint64_t>(n_active + 0.5);

    if (s.kind == std::string_view("mtp") || s.kind == std::string_view("dspark"))
        s.refusal = "a side file does not run alone";
    else if (s.kind == std::string_view("part"))
        s.refusal = "only a part of a model";
    else if (s.kind != std::string_view("model"))
        s.refusal = "not a model";
    else if (const Status status = can_run(file); !status.ok())
        s.refusal = without_file_name(status.error().message, file.name());
    return s;
}

double bits_per_weight(const Summary& s) {
    return s.n_param == 0 ? 0 : 8 * static_cast<double>(s.param_bytes) / static_cast<double>(s.n_param);
}

double share(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

// The shortest decimal that reads back as this f32, so that 1e-6 does not become 9.999999974752427e-07.
double shortest(float f) { return std::strtod(strf("{}", f).c_str(), nullptr); }

Json to_json(const Value& v, bool full) {
    switch (v.type) {
        case ValueType::boolean:
            return gguf::as_unsigned(v) != 0;
        case ValueType::u8:
        case ValueType::u16:
        case ValueType::u32:
        case ValueType::u64:
            return gguf::as_unsigned(v);
        case ValueType::i8:
        case ValueType::i16:
        case ValueType::i32:
        case ValueType::i64:
            return gguf::as_signed(v);
        case ValueType::f32:
            return shortest(static_cast<float>(gguf::as_double(v)));
        case ValueType::f64:
            return gguf::as_double(v);
        case ValueType::string:
            return replace_invalid_utf8(gguf::as_string(v));
        case ValueType::array:
            break;
    }
    Json list = Json::array();
    for (gguf::ArrayWalk walk(v); (full || list.size() < kShownElements) && walk.next();)
        list.push_back(to_json(walk.element(), full));
    return list;
}

Json optional_text(const std::optional<std::string>& text) {
    return text ? Json(replace_invalid_utf8(*text)) : Json(nullptr);
}

std::string json_report(const gguf::File& file, const Summary& s, bool full) {
    Json j;
    j["file"] = {{"path", replace_invalid_utf8(file.name())},
                 {"bytes", file.file_bytes()},
                 {"gguf_version", 3},
                 {"alignment", file.alignment()},
                 {"data_start", file.data_start()},
                 {"tensor_bytes", s.tensor_bytes}};
    j["kind"] = s.kind;
    j["description"] = s.description;
    j["architecture"] = optional_text(s.architecture);
    j["name"] = optional_text(s.model_name);
    j["parameters"] = s.n_param;
    j["active_parameters"] = s.n_param_active ? Json(*s.n_param_active) : Json(nullptr);
    j["mtp_parameters"] = s.n_param_mtp;
    j["mtp"] = s.has_mtp;
    j["bits_per_weight"] = bits_per_weight(s);
    j["runnable"] = !s.refusal.has_value();
    j["reason"] = optional_text(s.refusal);

    Json types = Json::array();
    for (const auto& [type, total] : s.types)
        types.push_back({{"type", quant::format(type).name},
                         {"tensors", total.n_tensor},
                         {"elements", total.n_elem},
                         {"bytes", total.n_byte},
                         {"share", share(total.n_byte, s.tensor_bytes)}});
    j["types"] = std::move(types);

    // Appended directly: operator[] of an ordered object looks through all keys, and a file may have a million.
    Json::object_t metadata;
    for (const auto& [key, value] : file.metadata()) {
        Json entry = {{"type", gguf::value_type_name(value.type)}};
        if (value.type == ValueType::array) {
            entry["element_type"] = gguf::value_type_name(value.element_type);
            entry["count"] = value.count;
        }
        entry["value"] = to_json(value, full);
        metadata.emplace_back(std::string(key), std::move(entry));
    }
    j["metadata"] = std::move(metadata);

    Json tensors = Json::array();
    for (const gguf::TensorInfo& t : file.tensors())
        tensors.push_back({{"name", std::string(t.name)},
                           {"type", quant::format(t.type).name},
                           {"dims", std::vector<uint64_t>(t.dims, t.dims + t.n_dim)},
                           {"bytes", t.bytes.size()},
                           {"offset", file.data_start() + t.offset}});
    j["tensors"] = std::move(tensors);
    return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// ---- text ---------------------------------------------------------------------------------------------------------

std::string value_text(const Value& v, bool full) {
    switch (v.type) {
        case ValueType::string:
            return printable(gguf::as_string(v));
        case ValueType::f32:
            return strf("{}", static_cast<float>(gguf::as_double(v)));
        case ValueType::array:
            break;
        default:
            return to_json(v, full).dump();
    }
    std::string text = "[";
    uint64_t n = 0;
    for (gguf::ArrayWalk walk(v); (full || n < kShownElements) && walk.next(); ++n) {
        const std::string element = value_text(walk.element(), full);
        text += (n > 0 ? ", " : "") + (walk.element().type == ValueType::string ? "\"" + element + "\"" : element);
        if (!full && text.size() > kShownValueBytes) return text;  // will be cut anyway
    }
    return text + (n < v.count ? ", ..." : "]");
}

std::string cut(std::string text, bool full) {
    if (full || text.size() <= kShownValueBytes) return text;
    text.resize(complete_utf8_prefix(std::string_view(text).substr(0, kShownValueBytes)));
    return text + "...";
}

std::string type_text(const Value& v) {
    if (v.type != ValueType::array) return gguf::value_type_name(v.type);
    return strf("{}[{}]", gguf::value_type_name(v.element_type), v.count);
}

std::string count_text(uint64_t n) {
    const double x = static_cast<double>(n);
    if (n < 10000) return strf("{}", n);
    if (n < 1000000) return strf("{:.1f} thousand", x / 1e3);
    return n < 1000000000 ? strf("{:.1f} million", x / 1e6) : strf("{:.2f} billion", x / 1e9);
}

std::string dims_text(const gguf::TensorInfo& t) {
    std::string text = strf("{}", t.dims[0]);
    for (uint32_t d = 1; d < t.n_dim; ++d) text += strf(" x {}", t.dims[d]);
    return text;
}

std::string text_report(const gguf::File& file, const Summary& s, bool with_tensors, bool full) {
    const bool colour = stdout_has_colour();
    const auto paint = [&](const char* code, const std::string& text) {
        return colour ? strf("\x1b[{}m{}\x1b[0m", code, text) : text;
    };
    std::string out = paint("1", printable(file.name())) + "\n";
    const auto line = [&](const char* label, const std::string& text) { out += strf("  {:<12} {}\n", label, text); };
    line("file", strf("{} ({} bytes), GGUF v3, alignment {}", format_bytes(file.file_bytes()), file.file_bytes(),
                      file.alignment()));
    line("what", s.description);
    if (s.model_name) line("name", cut(printable(*s.model_name), full));
    std::string parameters = strf("{} in {} tensors", count_text(s.n_param), file.tensors().size());
    if (s.n_param_active) parameters += strf("; {} used per token", count_text(*s.n_param_active));
    if (s.n_param_mtp > 0) parameters += strf("; {} are MTP", count_text(s.n_param_mtp));
    line("parameters", parameters);
    if (s.n_param > 0) line("bits/weight", strf("{:.2f}", bits_per_weight(s)));
    line("runs here", s.refusal ? paint("31", "no") + ": " + *s.refusal : paint("32", "yes"));

    if (!s.types.empty()) {
        out += "\n" + paint("1", "formats") + "\n";
        std::vector<std::pair<quant::Type, TypeTotal>> types(s.types.begin(), s.types.end());
        std::stable_sort(types.begin(), types.end(),
                         [](const auto& a, const auto& b) { return a.second.n_byte > b.second.n_byte; });
        for (const auto& [type, total] : types)
            out += strf("  {:<8} {:>6} tensor{} {:>10} {:>5.1f} %\n", quant::format(type).name, total.n_tensor,
                        total.n_tensor == 1 ? " " : "s", format_bytes(total.n_byte),
                        100 * share(total.n_byte, s.tensor_bytes));
    }

    out += "\n" + paint("1", strf("metadata ({})", file.metadata().size())) + "\n";
    size_t key_width = 0, type_width = 0;
    for (const auto& [key, value] : file.metadata()) {
        key_width = std::max(key_width, printable(key).size());
        type_width = std::max(type_width, type_text(value).size());
    }
    for (const auto& [key, value] : file.metadata())
        out += strf("  {:<{}}  {:<{}}  {}\n", printable(key), key_width, type_text(value), type_width,
                    cut(value_text(value, full), full));

    if (with_tensors) {
        out += "\n" +
               paint("1", strf("tensors ({}): name, format, dimensions (contiguous first), bytes, file offset",
                               file.tensors().size())) +
               "\n";
        size_t name_width = 0;
        for (const gguf::TensorInfo& t : file.tensors()) name_width = std::max(name_width, printable(t.name).size());
        for (const gguf::TensorInfo& t : file.tensors())
            out += strf("  {:<{}}  {:<8} {:<22} {:>12} {:>14}\n", printable(t.name), name_width,
                        quant::format(t.type).name, dims_text(t), t.bytes.size(), file.data_start() + t.offset);
    }
    return out;
}

constexpr const char* kFooter =
    "Everything in the file is checked but the values inside the large matrices; a damaged one is refused with exit\n"
    "code 3. A file that is fine but cannot run here is no failure: exit code 0, 'runs here: no' and the reason.\n\n"
    "JSON fields (stable; new ones may be added):\n"
    "  file               path, bytes, gguf_version, alignment, data_start, tensor_bytes\n"
    "  kind               model, part, mtp, dspark, imatrix, vocabulary or other\n"
    "  description        the same in words\n"
    "  architecture,name  text or null\n"
    "  parameters         weights in all; mtp_parameters: of these in the MTP block\n"
    "  active_parameters  weights one token uses (without embedding table and MTP), or null\n"
    "  mtp                whether an MTP block is in the file\n"
    "  bits_per_weight    of all weights together\n"
    "  runnable, reason   whether this build can run it; why not, or null\n"
    "  types              list of type, tensors, elements, bytes, share (0 to 1)\n"
    "  metadata           key -> type, value; arrays also element_type, count and, without --full, their first 8\n"
    "                     elements only. Bytes that are not UTF-8 become U+FFFD.\n"
    "  tensors            list of name, type, dims (contiguous first), bytes, offset in the file\n\n"
    "examples:\n"
    "  vesta inspect model.gguf\n"
    "  vesta inspect model.gguf --tensors | less\n"
    "  vesta inspect model.gguf --json | jq '.metadata[\"general.name\"].value'";

}  // namespace

int cmd_inspect(int argc, char** argv) {
    CLI::App options{"Shows what a model file (GGUF) holds and whether this build can run it.", "vesta inspect"};
    std::string path;
    bool json = false, with_tensors = false, full = false;
    options.add_option("FILE", path, "the model file")->required();
    options.add_flag("--tensors", with_tensors, "list every tensor (JSON always does)");
    options.add_flag("--full", full, "arrays and strings in full, not their beginning");
    options.add_flag("--json", json, "one JSON object on stdout, see below");
    options.footer(kFooter);
    try {
        options.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return options.exit(e) == 0 ? kExitOk : kExitUsage;
    }

    const Result<gguf::File> file = gguf::File::open(path);
    if (!file.ok()) return report("inspect", file.error());
    const Summary summary = summarise(file.value());
    const std::string text =
        json ? json_report(file.value(), summary, full) : text_report(file.value(), summary, with_tensors, full);
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
        return report("inspect", Error{Code::io, "cannot write to the standard output"});
    return kExitOk;
}

}  // namespace vesta::app
