#include "convert/convert.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "convert/encode_tensor.h"
#include "convert/journal.h"
#include "convert/target.h"
#include "gguf/writer.h"

namespace vesta::convert {
namespace {

using quant::Type;

// Grows whenever an encoder's output changes, so that an unfinished file of an older program is not continued.
constexpr uint64_t kEncoderRevision = 1;
constexpr size_t kReadBackBytes = 8 << 20;

// general.file_type: the number other programs show for the format most weights have. Nothing reads it to decide.
std::optional<uint32_t> file_type(const Plan& p) {
    static constexpr std::pair<Type, uint32_t> kNumbers[] = {
        {Type::f32, 0},   {Type::f16, 1},   {Type::q8_0, 7},  {Type::q2_k, 10},    {Type::q3_k, 12}, {Type::q4_k, 14},
        {Type::q5_k, 16}, {Type::q6_k, 18}, {Type::bf16, 32}, {Type::iq2_xxs, 19}, {Type::mxfp4, 38}};
    std::map<Type, uint64_t> weights;
    for (const PlannedTensor& t : p.tensors)
        if (!is_integer(t.type)) weights[t.type] += t.n_elem();
    const auto most = std::max_element(weights.begin(), weights.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    for (const auto& [type, number] : kNumbers)
        if (most != weights.end() && most->first == type) return number;
    return std::nullopt;
}

void write_quantize_keys(const Plan& p, gguf::Writer& w) {
    if (const auto number = file_type(p)) w.add_u32("general.file_type", *number);
    w.add_string("vesta.quantize.recipe", p.options.recipe.name);
    if (!p.options.overrides.empty()) {
        std::vector<std::string> texts;
        for (const Override& o : p.options.overrides) texts.push_back(o.text());
        w.add_strings("vesta.quantize.overrides", texts);
    }
    w.add_string("vesta.quantize.version", p.options.version);
    w.add_string("vesta.quantize.source", std::filesystem::path(p.options.from).filename().string());
    if (p.options.importance != nullptr) {
        w.add_string("vesta.quantize.imatrix.file", p.options.importance->file_name);
        w.add_u32("vesta.quantize.imatrix.chunks",
                  static_cast<uint32_t>(std::max(0, p.options.importance->matrix.n_chunk)));
    }
}

void write_metadata(const Plan& p, gguf::Writer& w) {
    if (p.file) {
        // One clamp per layer: older files of ours had one more, for the drafter, and other readers refuse that.
        constexpr std::string_view kClamps = "deepseek4.swiglu_clamp_exp";
        const auto n_layer = p.file->u32("deepseek4.block_count");
        const auto clamps = p.file->f32_array(kClamps, 4096);
        const bool too_long = n_layer.ok() && clamps.ok() && clamps.value().size() > n_layer.value();
        for (const gguf::File::Entry& e : p.file->metadata()) {
            const bool ours = e.key == "general.file_type" || e.key == "general.quantization_version" ||
                              e.key.starts_with("vesta.quantize.");
            if (too_long && e.key == kClamps)
                w.add_f32_array(e.key, std::span(clamps.value()).first(n_layer.value()));
            else if (!ours)
                w.add_value(e.key, e.value);
        }
        w.add_u32("general.quantization_version", 2);
    } else {
        write_config(p.config, p.options.model_name, w);
        if (p.has_vocabulary) {
            write_vocabulary(p.vocabulary, p.config.bos_token, p.config.eos_token, w);
            w.add_string("vesta.chat.dialect", p.options.dialect);
        }
        w.add_string("vesta.convert.recipe", p.options.recipe.name);
        w.add_string("vesta.convert.version", p.options.version);
        w.add_string("vesta.convert.source", p.options.model_name);
    }
    if (p.options.quantize) write_quantize_keys(p, w);
}

void add_file(Hash64& hash, const std::string& path) {
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) return hash.add("missing");
    hash.add(static_cast<uint64_t>(st.st_size));
    hash.add(static_cast<uint64_t>(st.st_mtim.tv_sec));
    hash.add(static_cast<uint64_t>(st.st_mtim.tv_nsec));
}

// Everything the bytes of the result depend on: two runs with one fingerprint may share tensors.
uint64_t fingerprint(const Plan& p, std::span<const std::byte> header) {
    Hash64 hash;
    hash.add(kEncoderRevision);
    hash.add(header);
    hash.add(p.options.recipe.text);
    for (const Override& o : p.options.overrides) hash.add(o.text());
    hash.add(p.options.importance != nullptr ? p.options.importance->hash : 0);
    if (p.file) add_file(hash, p.file->name());
    if (p.checkpoint)
        for (const safetensors::File& f : p.checkpoint->files()) add_file(hash, f.name());
    return hash.digest();
}

// Hash of a tensor as it lies in the unfinished file; nothing when it is not whole.
std::optional<uint64_t> hash_of(const gguf::Writer& writer, size_t index) {
    std::vector<std::byte> buffer;
    Hash64 hash;
    const uint64_t size = writer.tensor_bytes(index);
    for (uint64_t done = 0; done < size; done += buffer.size()) {
        buffer.resize(static_cast<size_t>(std::min<uint64_t>(kReadBackBytes, size - done)));
        if (!writer.read_back(index, done, buffer).ok()) return std::nullopt;
        hash.add(buffer);
    }
    return hash.digest();
}

// What an earlier process finished and what is still so in the file.
std::map<size_t, Finished> still_there(const Plan& p, const gguf::Writer& writer, const std::string& path,
                                       uint64_t print, const ProgressFn& progress) {
    std::map<size_t, Finished> good;
    uint64_t done = 0;
    for (const auto& [index, finished] : Journal::read(path, print)) {
        if (index >= p.tensors.size()) continue;
        if (hash_of(writer, index) == finished.hash) good.emplace(index, finished);
        done += p.tensors[index].bytes;
        if (progress)
            (void)progress({"check what is there", p.tensors[index].expected.gguf_name, done, p.data_bytes(), "bytes"});
    }
    return good;
}

class Execution {
 public:
    Execution(const Plan& p, const ExecuteOptions& o)
        : plan_(p),
          options_(o),
          writer_(new_writer(p)),
          pool_(o.n_thread),
          encoder_(p, pool_, o.measure || o.resumable),
          total_(p.data_bytes()) {}

    Result<Summary> run() {
        VESTA_TRY_STATUS(begin());
        for (size_t i = 0; i < plan_.tensors.size(); ++i) {
            const auto there = finished_.find(i);
            if (there == finished_.end()) VESTA_TRY_STATUS(write(i));
            const PlannedTensor& t = plan_.tensors[i];
            if (!t.copy && !t.exact) summary_.errors.push_back({i, finished_[i].error});
        }
        VESTA_TRY_STATUS(writer_.finish());
        if (options_.resumable) Journal::remove(options_.path);
        if (encoder_.used_energy() && plan_.options.importance != nullptr)
            summary_.notes.push_back(
                "some iq2_xxs tensors or experts have no importance; the weights' own energy per "
                "column took its place");
        summary_.n_tensor = plan_.tensors.size();
        summary_.file_bytes = writer_.header().size() + writer_.data_bytes();
        return std::move(summary_);
    }

    // After run() failed: whether what is done is worth keeping. A disk that was full or a Ctrl+C can be continued
    // from; a source that is refused will be refused again.
    void end_badly(const Error& error) {
        if (!begun_ || !options_.resumable || error.code == Code::cancelled || error.code == Code::io) return;
        writer_.keep_unfinished(false);
        Journal::remove(options_.path);
    }

 private:
    Status begin() {
        remove_stale_temporaries(options_.path);
        if (!options_.resumable) return writer_.begin(options_.path, options_.overwrite);
        const uint64_t print = fingerprint(plan_, writer_.header());
        VESTA_TRY(const bool fresh, writer_.begin_resumable(options_.path, options_.overwrite, options_.restart));
        begun_ = true;
        if (!fresh) finished_ = still_there(plan_, writer_, options_.path, print, options_.progress);
        for (const auto& [index, finished] : finished_) {
            writer_.mark_complete(index);
            done_ += plan_.tensors[index].bytes;
        }
        summary_.n_resumed = finished_.size();
        VESTA_TRY(Journal journal, Journal::create(options_.path, print, finished_));
        journal_.push_back(std::move(journal));
        return {};
    }

    Status write(size_t index) {
        const PlannedTensor& t = plan_.tensors[index];
        Hash64 hash;
        const auto sink = [&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
            VESTA_TRY_STATUS(writer_.write_tensor(index, offset, bytes));
            hash.add(bytes);
            done_ += bytes.size();
            if (options_.progress && !options_.progress({plan_.options.quantize ? "quantize" : "convert",
                                                         t.expected.gguf_name, done_, total_, "bytes"}))
                return Error{Code::cancelled, options_.resumable ? "stopped; the same command continues from here"
                                                                 : "stopped; nothing was written"};
            return {};
        };
        VESTA_TRY_STATUS(encoder_.encode(t, sink));
        const Finished finished{hash.digest(), encoder_.error()};
        finished_[index] = finished;
        return journal_.empty() ? Status{} : journal_[0].add(index, finished);
    }

    const Plan& plan_;
    const ExecuteOptions& options_;
    gguf::Writer writer_;
    ThreadPool pool_;
    TensorEncoder encoder_;
    std::vector<Journal> journal_;  // 0 or 1
    std::map<size_t, Finished> finished_;
    Summary summary_;
    uint64_t done_ = 0, total_;
    bool begun_ = false;
};

}  // namespace

gguf::Writer new_writer(const Plan& p) {
    gguf::Writer writer;
    write_metadata(p, writer);
    for (const PlannedTensor& t : p.tensors) writer.add_tensor(t.expected.gguf_name, t.type, t.dims);
    return writer;
}

Result<Summary> execute(const Plan& p, const ExecuteOptions& options) {
    std::error_code none;
    if (p.file && std::filesystem::equivalent(options.path, p.file->name(), none))
        return Error{Code::invalid_argument, strf("{}: is the source itself; name another file", options.path)};
    Execution execution(p, options);
    auto summary = execution.run();
    if (!summary.ok()) execution.end_badly(summary.error());
    return summary;
}

Result<Summary> execute(const Plan& p, const std::string& path, bool overwrite, int n_thread,
                        const ProgressFn& progress) {
    return execute(p, {.path = path, .overwrite = overwrite, .n_thread = n_thread, .progress = progress});
}

Result<Comparison> compare_tensor(const Plan& p, const std::string& name, const gguf::File& file, int n_thread,
                                  const ProgressFn& progress) {
    const auto planned = std::find_if(p.tensors.begin(), p.tensors.end(),
                                      [&](const PlannedTensor& t) { return t.expected.gguf_name == name; });
    if (planned == p.tensors.end()) return Error{Code::not_found, strf("{}: has no tensor '{}'", p.options.from, name)};
    const PlannedTensor& t = *planned;
    const gguf::TensorInfo* other = file.find_tensor(name);
    if (other == nullptr) return Error{Code::not_found, strf("{}: has no tensor '{}'", file.name(), name)};
    if (other->type != t.type || !std::equal(t.dims.begin(), t.dims.end(), other->dims, other->dims + other->n_dim))
        return Error{Code::invalid_argument,
                     strf("{}: tensor '{}' is {}, the recipe makes it {}", file.name(), name,
                          other->type == t.type ? "of another shape" : quant::format(other->type).name,
                          quant::format(t.type).name)};
    ThreadPool pool(n_thread);
    TensorEncoder encoder(p, pool, false);
    const auto block = static_cast<uint64_t>(quant::format(t.type).block_bytes);
    Comparison c{true, t.bytes / block, 0, 0, t.type};
    uint64_t last = UINT64_MAX;  // index of the latest block that differs
    VESTA_TRY_STATUS(encoder.encode(t, [&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
        const auto theirs = other->bytes.subspan(offset, bytes.size());
        if (std::memcmp(bytes.data(), theirs.data(), bytes.size()) != 0)
            for (uint64_t i = 0; i < bytes.size(); ++i) {
                if (bytes[i] == theirs[i]) continue;
                if (c.equal) c.first_difference = offset + i;
                c.equal = false;
                if ((offset + i) / block != last) ++c.n_block_differs, last = (offset + i) / block;
            }
        release_pages(theirs);
        if (progress && !progress({"compare", name, offset + bytes.size(), t.bytes, "bytes"}))
            return Error{Code::cancelled, "stopped"};
        return {};
    }));
    return c;
}

}  // namespace vesta::convert
