// Snapshots: a session's state as bytes of its own, in memory and in files (room snapshot).
#include <algorithm>
#include <new>

#include "base/clock.h"
#include "base/hash.h"
#include "engine/engine_impl.h"

namespace vesta {

int64_t Snapshot::n_token() const { return static_cast<int64_t>(state_->tokens.size()); }
std::span<const int32_t> Snapshot::tokens() const { return state_->tokens; }
int64_t Snapshot::n_byte() const {
    return static_cast<int64_t>(state_->cache.size() + state_->tokens.size() * sizeof(int32_t) +
                                state_->logits.size() * sizeof(float));
}

namespace engine {

Result<Snapshot> SessionImpl::snapshot() {
    VESTA_TRY_STATUS(repair());
    try {
        auto state = std::make_shared<Snapshot::State>();
        state->model = engine_.fingerprint();
        state->format = cache_->options().format;
        state->tokens = tokens_;
        if (has_logits_) state->logits = logits_;
        state->cache.resize(static_cast<size_t>(cache_->used_bytes()));
        cache_->copy_used(state->cache.data());
        return Snapshot(std::move(state));
    } catch (const std::bad_alloc&) {
        return Error{Code::no_memory, strf("a snapshot of {} tokens takes {} bytes, which the system refused",
                                           n_token(), cache_->used_bytes())};
    }
}

Status SessionImpl::restore(const Snapshot& snapshot) {
    const Snapshot::State& s = snapshot.state();
    if (s.model != engine_.fingerprint())
        return Error{Code::invalid_argument,
                     strf("the snapshot of {} tokens was computed with another model; its rows mean nothing to this one "
                          "({})",
                          snapshot.n_token(), engine_.info_.path)};
    if (s.format != cache_->options().format)
        return Error{Code::invalid_argument,
                     strf("the snapshot keeps its rows as {} and this session as {}; expected the "
                          "same cache format",
                          row_format_name(s.format), row_format_name(cache_->options().format))};
    if (snapshot.n_token() > n_ctx())
        return Error{Code::invalid_argument,
                     strf("the snapshot has {} tokens, but this session holds {}", snapshot.n_token(), n_ctx())};
    try {
        tokens_.reserve(s.tokens.size());  // the only step that can fail
    } catch (const std::bad_alloc&) {
        return Error{Code::no_memory, strf("no memory for {} tokens", snapshot.n_token())};
    }
    tokens_ = s.tokens;
    has_logits_ = !s.logits.empty();
    if (has_logits_) std::copy(s.logits.begin(), s.logits.end(), logits_.begin());
    cache_->restore_used(s.cache.data(), snapshot.n_token());
    checkpoints_.clear();
    spacing_ = 0;
    return {};
}

// Formats have numbers of their own in files, so that the enum may change.
namespace {

constexpr std::pair<quant::RowFormat, uint32_t> kFileFormat[] = {{quant::RowFormat::f32, 1},
                                                                 {quant::RowFormat::f16, 2},
                                                                 {quant::RowFormat::fp8, 3},
                                                                 {quant::RowFormat::fp8_exact, 4}};
uint32_t file_format(quant::RowFormat f) {
    return std::ranges::find(kFileFormat, f, &std::pair<quant::RowFormat, uint32_t>::first)->second;
}
Result<quant::RowFormat> from_file_format(uint32_t n) {
    const auto* at = std::ranges::find(kFileFormat, n, &std::pair<quant::RowFormat, uint32_t>::second);
    if (at == std::end(kFileFormat)) return Error{Code::unsupported, strf("cache format number {} is not known", n)};
    return at->first;
}

// Everything the file says of its tensors, a piece of each tensor, and pieces all over the data: a few MB of a file of
// any size are read. Another training run of the same shape differs in every tensor.
void add_file(Hash64& hash, const gguf::File& file) {
    constexpr size_t kPiece = 256, kSpread = 64;
    const std::span<const std::byte> all = file.bytes();
    hash.add(all.first(std::min<size_t>(all.size(), file.data_start())));
    hash.add(static_cast<uint64_t>(all.size()));
    for (const gguf::TensorInfo& t : file.tensors()) {
        const size_t n = std::min(kPiece, t.bytes.size());
        hash.add(t.bytes.subspan((t.bytes.size() - n) / 2, n));
    }
    for (size_t i = 0; i < kSpread; ++i) {
        const size_t at = all.size() / kSpread * i;
        hash.add(all.subspan(at, std::min(kPiece, all.size() - at)));
    }
}

// Bits per weight of the routed experts, times 100: what people call the size of a quantization.
uint32_t expert_bits(const gguf::File& file) {
    uint64_t bits = 0, weights = 0;
    for (const gguf::TensorInfo& t : file.tensors()) {
        if (t.name.find("_exps") == std::string_view::npos) continue;
        bits += 8 * t.bytes.size();
        weights += t.n_elem();
    }
    return weights == 0 ? 0 : static_cast<uint32_t>(static_cast<double>(bits) * 100 / static_cast<double>(weights));
}

}  // namespace

uint64_t EngineImpl::fingerprint() const {
    std::call_once(fingerprint_once_, [this] {
        Hash64 hash;
        add_file(hash, file_);
        for (const gguf::File& d : drafter_) add_file(hash, d);
        fingerprint_ = hash.digest();
    });
    return fingerprint_;
}

uint32_t EngineImpl::row_format_number(CacheFormat format) const { return file_format(ops_->row_format(row_format(format))); }

Status EngineImpl::write_snapshot(const Snapshot& snapshot, const std::string& path, const SnapshotNotes& notes,
                                  const snapshot::WriteOptions& options) const {
    const Snapshot::State& s = snapshot.state();
    if (s.model != fingerprint())
        return Error{Code::invalid_argument, strf("{}: the snapshot was computed with another model than {}", path, info_.path)};
    snapshot::View view;
    view.header = {.model = s.model, .row_format = file_format(s.format), .weight_bits = expert_bits(file_),
                   .reason = notes.reason, .created = unix_seconds()};
    view.tokens = s.tokens;
    view.logits = s.logits;
    view.text = notes.text;
    view.tool_calls = notes.tool_calls;
    std::span<const std::byte> rest = s.cache;
    for (const int64_t bytes : kv::used_bytes_by_layer(model_->cache_shape(), s.format, snapshot.n_token())) {
        view.layer.push_back(rest.first(static_cast<size_t>(bytes)));
        rest = rest.subspan(static_cast<size_t>(bytes));
    }
    VESTA_CHECK(rest.empty());
    return snapshot::write(path, view, options);
}

Result<SavedSnapshot> EngineImpl::read_snapshot(const std::string& path) const {
    VESTA_TRY(const snapshot::Summary summary, snapshot::read_summary(path));
    VESTA_TRY(const quant::RowFormat format, from_file_format(summary.header.row_format));
    snapshot::Expected expected{.model = fingerprint(), .row_format = summary.header.row_format,
                                .n_vocab = static_cast<uint64_t>(info_.n_vocab),
                                .max_tokens = static_cast<uint64_t>(kv::kMaxContext), .layer_bytes = {}};
    expected.layer_bytes = [&](uint64_t n_token) {
        const std::vector<int64_t> n = kv::used_bytes_by_layer(model_->cache_shape(), format, static_cast<int64_t>(n_token));
        return std::vector<uint64_t>(n.begin(), n.end());
    };
    VESTA_TRY(snapshot::Contents c, snapshot::read(path, expected));
    auto state = std::make_shared<Snapshot::State>();
    state->model = c.header.model;
    state->format = format;
    state->tokens = std::move(c.tokens);
    state->logits = std::move(c.logits);
    state->cache = std::move(c.rows);
    return SavedSnapshot{Snapshot(std::move(state)), {c.header.reason, std::move(c.text), std::move(c.tool_calls)}};
}

}  // namespace engine
}  // namespace vesta
