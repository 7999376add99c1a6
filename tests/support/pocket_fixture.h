// The pocket's exact checkpoint, rebuilt from what is in the repository. The goldens were recorded with the exact
// weights, the shipped models/pocket.gguf holds the experts exactly and rounds the rest to Q8_0 and F16, and shipping
// both would double the checkout. So the repository has the model file and, per dense tensor, the difference between
// the checkpoint's bits and what the model file predicts for them; differences are small numbers and compress to a
// third.
//
//   predicted = encode(decode(model file's tensor), the checkpoint's dtype and scale)      nearest value, ties to even
//   stored    = zigzag(bits - predicted), little-endian bytes split into planes            then zstd over everything
//
// The experts are repacked from MXFP4, which keeps every code and scale. tests/data/pocket-v0/checkpoint.json has a
// hash of every original tensor, so that a rebuilt checkpoint is known to be the original.
#pragma once

#include <string>

#include "base/result.h"

namespace vesta::test {

struct PocketFiles {
    std::string model;    // models/pocket.gguf
    std::string fixture;  // dense.safetensors.zst
    std::string hashes;   // checkpoint.json
    static PocketFiles in_source_tree();
};

// Makes fixture and hashes from the original checkpoint folder and the model file converted from it, then proves them
// by rebuilding in memory.
Status make_pocket_fixture(const std::string& checkpoint_folder, const PocketFiles& files);

// Writes config.json, tokenizer.json and model.safetensors into `folder` (created; replaced when it exists). Every
// tensor is compared with its recorded hash.
Status rebuild_pocket_checkpoint(const PocketFiles& files, const std::string& folder);

// The rebuilt checkpoint's folder, and the model file with exact weights (recipe native) made from it, under
// `build_folder`. Made on first use and again when an input changes; several test processes may ask at once.
Result<std::string> pocket_checkpoint(const std::string& build_folder);
Result<std::string> pocket_native_model(const std::string& build_folder);

}  // namespace vesta::test
