// The sizes of published models, whole or cut down: what `--like flash --layers 3` means.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/config.h"

namespace vesta::synth {

struct ShapeOptions {
    std::string like = "flash";         // "flash", "pro", "pocket"
    std::optional<uint32_t> n_layer{};  // fewer or more layers
    std::vector<uint32_t> ratios{};     // compression ratio of each layer; also says how many layers there are
    std::optional<uint32_t> n_hash_layer{};
    std::optional<uint32_t> n_expert{}, n_vocab{}, n_ctx{};
};

// Whole models have their published schedule. With another number of layers and no ratios: Flash and the pocket begin
// with one window-only layer, Pro with none, and 4 and 128 alternate after that, so that three layers of Flash are one
// of each kind. A cut model has one hash layer (if it has two layers or more), unless n_hash_layer says otherwise. No
// drafter. Errors: invalid_argument, naming the number.
Result<convert::ModelConfig> shape(const ShapeOptions& options);

}  // namespace vesta::synth
