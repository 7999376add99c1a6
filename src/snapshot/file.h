// Snapshot files: a session's state on disk. Knows the layout (docs/kv-format.md), its checksums and its refusals; what
// the rows of a layer mean is the engine's business. Written with ordinary write(2) to a temporary file that is flushed
// and renamed, so a file with its real name is whole. The choice not taken is a mapping: a read error would be a
// signal, and somebody truncating the file would kill the process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace vesta::snapshot {

// Why a file was written; the disk store values what a person asked for higher than what it saved by itself.
enum class Reason : uint32_t { manual = 0, cold = 1, continued = 2, evict = 3, shutdown = 4 };
const char* reason_name(Reason reason);

// Everything a file says of itself before its sections: enough to list, to look up and to refuse it.
struct Header {
    uint64_t model = 0;        // fingerprint of the model file it was computed with (Engine::fingerprint())
    uint32_t row_format = 0;   // quant::RowFormat, as a number of its own (docs/kv-format.md)
    uint32_t weight_bits = 0;  // bits per weight of the routed experts times 100; for people
    Reason reason = Reason::manual;
    uint32_t n_layer = 0;  // row sections
    uint64_t n_token = 0;
    uint64_t n_vocab = 0;    // logits, when there are any
    uint64_t text_hash = 0;  // XXH3 of the rendered text; 0 when the file has none
    uint64_t text_bytes = 0;
    int64_t created = 0;  // seconds since 1970
};

// Kept outside the header's checksum in two alternating slots, so that counting a hit never endangers a file.
struct Usage {
    uint64_t hits = 0;
    int64_t last_used = 0;  // seconds since 1970
};

// What is written, in pieces that stay where they are.
struct View {
    Header header;  // n_token, n_vocab, n_layer, text_hash and text_bytes are set from the pieces below
    std::span<const int32_t> tokens;
    std::span<const float> logits;                  // empty: none
    std::vector<std::span<const std::byte>> layer;  // rows and frontiers of each layer
    std::string_view text;                          // the rendered bytes these tokens came from; may be empty
    std::string_view tool_calls;                    // the server's replay map, JSON; may be empty
};

// A vector whose resize() leaves new bytes as they are: rows can be gigabytes, and writing zeros into memory that the
// file is about to fill would be a second pass over all of it.
template <class T>
struct Unfilled : std::allocator<T> {
    template <class U>
    struct rebind {
        using other = Unfilled<U>;
    };
    template <class U>
    void construct(U* p) {
        ::new (static_cast<void*>(p)) U;
    }
    template <class U, class... Args>
    void construct(U* p, Args&&... args) {
        ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
    }
};
using RowBytes = std::vector<std::byte, Unfilled<std::byte>>;

struct Contents {
    Header header;
    Usage usage;
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    RowBytes rows;  // all layers, one after the other
    std::string text, tool_calls;
};

// What a file must be to be of use: checked against its header before anything is allocated.
struct Expected {
    uint64_t model = 0;
    uint32_t row_format = 0;
    uint64_t n_vocab = 0, max_tokens = 0;
    std::function<std::vector<uint64_t>(uint64_t n_token)> layer_bytes;  // exact bytes of every layer's section
};

// XXH3 of a rendered text: Header::text_hash of a file that was made from it. 0 for the empty text.
uint64_t text_hash(std::string_view text);

struct WriteOptions {
    bool compress = false;  // zstd, level 1, section by section
    bool overwrite = true;
};

// Creates `path` with mode 0600. Errors: io with the path and the system's reason; nothing is left behind.
Status write(const std::string& path, const View& view, const WriteOptions& options);

// The header and usage alone: a few KB are read. Errors name the file, the field, what was expected and what was found.
struct Summary {
    Header header;
    Usage usage;
    uint64_t file_bytes = 0;
    bool compressed = false;
    int64_t last_used() const { return std::max(header.created, usage.last_used); }  // creation where nobody used it
};
Result<Summary> read_summary(const std::string& path);

// The text a file was made from, checked; for lookup by bytes.
Result<std::string> read_text(const std::string& path);

// Everything, checked section by section. Errors: bad_file (a checksum or a length), unsupported (version, model,
// format), no_memory.
Result<Contents> read(const std::string& path, const Expected& expected);

// Checks every checksum and length without keeping anything; needs no model.
Status verify(const std::string& path);

// Counts a hit. Errors are the caller's to ignore: the file stays valid.
Status record_use(const std::string& path, int64_t now);

}  // namespace vesta::snapshot
