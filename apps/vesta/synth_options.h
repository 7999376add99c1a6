// The flags that describe a synthetic model, for `vesta synth` and for `vesta bench --synth "..."`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "synth/synth.h"

namespace vesta::app {

struct SynthFlags {
    std::string like = "flash", recipe = "q4";
    std::vector<uint32_t> ratios;
    uint32_t n_layer = 0, n_hash_layer = 0, n_expert = 0, n_vocab = 0, n_ctx = 0;
    uint64_t seed = 1;
};

void declare_synth(CLI::App& app, SynthFlags& flags);

// Reads the recipe. Call after parsing; `app` knows which flags were given.
Result<synth::Options> synth_options(const CLI::App& app, const SynthFlags& flags);

// "flash --layers 3 --recipe q2" (the first word is --like).
Result<synth::Options> parse_synth(const std::string& text);

}  // namespace vesta::app
