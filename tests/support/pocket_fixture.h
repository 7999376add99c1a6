// The pocket's exact checkpoint, rebuilt from what is in the repository. The goldens were recorded with the exact
// weights, the shipped models/pocket.gguf is quantized, and shipping both would double the checkout. So the repository
// has the model file and, per tensor, the difference between the checkpoint's bits and what the model file predicts for
// them: small numbers (weight_difference.h), and zstd over everything.
//
//   predicted = encode(decode(model file's tensor), the checkpoint's dtype and scale)      nearest value, ties to even
//
// The closer the model file, the smaller the fixture; any format will do. Experts that are MXFP4 in it are repacked and
// need no differences: MXFP4 keeps every code and scale of an FP4 checkpoint. tests/data/pocket-v0/checkpoint.json has
// a hash of every original tensor, so that a rebuilt checkpoint is known to be the original.
#pragma once

#include <string>

#include "base/result.h"

namespace vesta::test {

struct PocketFiles {
    std::string model;    // models/pocket.gguf
    std::string fixture;  // dense.safetensors.zst
    std::string hashes;   // checkpoint.json
    static PocketFiles in_source_tree();
    static PocketFiles in_tree(const std::string& root);  // of another copy of the repository
};

// Makes fixture and hashes from the original checkpoint folder and the model file converted from it, then proves them
// by rebuilding in memory. `level` is zstd's.
Status make_pocket_fixture(const std::string& checkpoint_folder, const PocketFiles& files, int level = 19);

// Writes config.json, tokenizer.json and model.safetensors into `folder` (created; replaced when it exists). Every
// tensor is compared with its recorded hash.
Status rebuild_pocket_checkpoint(const PocketFiles& files, const std::string& folder);

// The rebuilt checkpoint's folder, and the model file with exact weights (recipe native) made from it, under
// `build_folder`. Made on first use and again when an input changes; several test processes may ask at once.
Result<std::string> pocket_checkpoint(const std::string& build_folder);
Result<std::string> pocket_native_model(const std::string& build_folder);

}  // namespace vesta::test
