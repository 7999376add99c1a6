#include "convert/splice.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/utf8.h"
#include "gguf/writer.h"
#include "model/model.h"

namespace vesta::convert {
namespace {

constexpr uint64_t kCopyBytes = 8 << 20;

bool same_value(const gguf::Value& a, const gguf::Value& b) {
    return a.type == b.type && a.element_type == b.element_type && a.count == b.count &&
           std::equal(a.payload.begin(), a.payload.end(), b.payload.begin(), b.payload.end());
}

std::string shape(const gguf::TensorInfo& t) {
    std::string text = strf("({}", t.dims[0]);
    for (uint32_t d = 1; d < t.n_dim; ++d) text += strf(",{}", t.dims[d]);
    return text + ")";
}

Error different(const gguf::File& base, const gguf::File& donor, const std::string& what) {
    return Error{Code::invalid_argument, strf("{} and {} are not the same model: {}", base.name(), donor.name(), what)};
}

// Hyper-parameters and vocabulary must be equal, key by key in both directions; what else a file says about itself
// (name, formats, provenance) may differ.
Status compare_metadata(const gguf::File& base, const gguf::File& donor, std::string_view architecture) {
    const std::string prefix = std::string(architecture) + ".";
    for (const auto& [file, other] : {std::pair{&base, &donor}, std::pair{&donor, &base}})
        for (const gguf::File::Entry& e : file->metadata()) {
            if (!e.key.starts_with(prefix) && !e.key.starts_with("tokenizer.")) continue;
            const gguf::Value* v = other->find(e.key);
            if (v == nullptr)
                return different(base, donor, strf("metadata '{}' is only in {}", printable(e.key), file->name()));
            if (!same_value(e.value, *v))
                return different(base, donor, strf("metadata '{}' differs", printable(e.key)));
        }
    return {};
}

Status compare_tensors(const gguf::File& base, const gguf::File& donor) {
    for (const gguf::TensorInfo& t : donor.tensors())
        if (base.find_tensor(t.name) == nullptr)
            return different(base, donor, strf("tensor '{}' is only in {}", printable(t.name), donor.name()));
    for (const gguf::TensorInfo& t : base.tensors()) {
        const gguf::TensorInfo* d = donor.find_tensor(t.name);
        if (d == nullptr)
            return different(base, donor, strf("tensor '{}' is only in {}", printable(t.name), base.name()));
        if (t.n_dim != d->n_dim || !std::equal(t.dims, t.dims + t.n_dim, d->dims))
            return different(base, donor,
                             strf("tensor '{}' has shapes {} and {}", printable(t.name), shape(t), shape(*d)));
    }
    return {};
}

// "blk.12.ffn_up_exps.weight" -> 12
std::optional<uint32_t> layer_of(std::string_view name) {
    if (!name.starts_with("blk.")) return std::nullopt;
    name.remove_prefix(4);
    const size_t dot = name.find('.');
    if (dot == 0 || dot > 6 || dot == name.npos) return std::nullopt;
    uint32_t layer = 0;
    for (const char c : name.substr(0, dot)) {
        if (c < '0' || c > '9') return std::nullopt;
        layer = layer * 10 + static_cast<uint32_t>(c - '0');
    }
    return layer;
}

gguf::Writer new_writer(const Splice& s) {
    gguf::Writer w;
    for (const gguf::File::Entry& e : s.base->metadata())
        if (!e.key.starts_with("vesta.splice.")) w.add_value(e.key, e.value);
    w.add_string("vesta.splice.donor", std::filesystem::path(s.donor->name()).filename().string());
    w.add_string("vesta.splice.layers", s.layers);
    w.add_string("vesta.splice.tensors", s.tensors);
    for (const SplicedTensor& t : s.plan)
        w.add_tensor(t.tensor->name, t.tensor->type, std::span(t.tensor->dims, t.tensor->n_dim));
    return w;
}

}  // namespace

Result<std::vector<LayerRange>> parse_layers(std::string_view text) {
    std::vector<LayerRange> ranges;
    const auto fail = [&] {
        return Error{Code::invalid_argument,
                     strf("--layers '{}': expected layers and inclusive ranges, like 37:42 or 0,5:7", printable(text))};
    };
    const auto number = [](std::string_view s) -> std::optional<uint32_t> {
        if (s.empty() || s.size() > 6) return std::nullopt;
        uint32_t n = 0;
        for (const char c : s) {
            if (c < '0' || c > '9') return std::nullopt;
            n = n * 10 + static_cast<uint32_t>(c - '0');
        }
        return n;
    };
    for (std::string_view rest = text;;) {
        const size_t comma = rest.find(',');
        const std::string_view item = rest.substr(0, comma);
        const size_t colon = item.find(':');
        const auto first = number(item.substr(0, colon));
        const auto last = colon == item.npos ? first : number(item.substr(colon + 1));
        if (!first || !last || *first > *last || ranges.size() == 1000) return fail();
        ranges.push_back({*first, *last});
        if (comma == rest.npos) return ranges;
        rest.remove_prefix(comma + 1);
    }
}

Result<Splice> plan_splice(const gguf::File& base, const gguf::File& donor, const std::string& layers,
                           const std::string& tensors) {
    VESTA_TRY(const std::vector<LayerRange> ranges, parse_layers(layers));
    if (tensors != "experts" && tensors != "all")
        return Error{Code::invalid_argument, strf("--tensors '{}': expected experts or all", printable(tensors))};
    VESTA_TRY(const std::string_view architecture, base.string("general.architecture"));
    VESTA_TRY(const std::string_view donor_architecture, donor.string("general.architecture"));
    if (architecture != donor_architecture)
        return different(base, donor,
                         strf("architectures '{}' and '{}'", printable(architecture), printable(donor_architecture)));
    if (!model::known_architecture(architecture))
        return Error{Code::unsupported,
                     strf("{}: this build knows no architecture '{}'", base.name(), printable(architecture))};
    VESTA_TRY_STATUS(compare_metadata(base, donor, architecture));
    VESTA_TRY_STATUS(compare_tensors(base, donor));
    VESTA_TRY(const uint32_t n_layer, base.u32(strf("{}.block_count", architecture)));
    for (const LayerRange& r : ranges)
        if (r.last >= n_layer)
            return Error{Code::invalid_argument,
                         strf("--layers {}: {} has layers 0 to {}", layers, base.name(), n_layer - 1)};

    Splice s{&base, &donor, layers, tensors, {}};
    for (const gguf::TensorInfo& t : base.tensors()) {
        const auto layer = layer_of(t.name);
        const bool wanted = layer && (tensors == "all" || t.name.find("_exps.") != t.name.npos) &&
                            std::any_of(ranges.begin(), ranges.end(),
                                        [&](const LayerRange& r) { return *layer >= r.first && *layer <= r.last; });
        const gguf::TensorInfo* chosen = wanted ? donor.find_tensor(t.name) : &t;
        s.plan.push_back({chosen, wanted});
        s.n_from_donor += wanted ? 1 : 0;
        s.n_type_changed += chosen->type != t.type ? 1 : 0;
    }
    if (s.n_from_donor == 0)
        return Error{Code::invalid_argument,
                     strf("--layers {} --tensors {}: no tensor of {} is meant", layers, tensors, base.name())};
    const gguf::Writer writer = new_writer(s);
    s.file_bytes = writer.header().size() + writer.data_bytes();
    return s;
}

Status write_splice(const Splice& s, const std::string& path, bool overwrite, const ProgressFn& progress) {
    std::error_code none;
    for (const gguf::File* file : {s.base, s.donor})
        if (std::filesystem::equivalent(path, file->name(), none))
            return Error{Code::invalid_argument, strf("{}: is one of the sources; name another file", path)};
    gguf::Writer writer = new_writer(s);
    remove_stale_temporaries(path);
    VESTA_TRY_STATUS(writer.begin(path, overwrite));
    uint64_t done = 0;
    for (size_t i = 0; i < s.plan.size(); ++i) {
        const std::span<const std::byte> bytes = s.plan[i].tensor->bytes;
        for (uint64_t offset = 0; offset < bytes.size();) {
            const auto part = bytes.subspan(offset, std::min<uint64_t>(kCopyBytes, bytes.size() - offset));
            VESTA_TRY_STATUS(writer.write_tensor(i, offset, part));
            release_pages(part);
            offset += part.size(), done += part.size();
            if (progress && !progress({"splice", s.plan[i].tensor->name, done, writer.data_bytes(), "bytes"}))
                return Error{Code::cancelled, "stopped; nothing was written"};
        }
    }
    return writer.finish();
}

}  // namespace vesta::convert
