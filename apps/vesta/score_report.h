// What `vesta score` prints: tables for people, one JSON object for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "score/score.h"
#include "vesta/engine.h"

namespace vesta::app {

using OrderedJson = nlohmann::ordered_json;

// What the numbers of a text are numbers of.
struct TextFacts {
    std::string file;
    uint64_t n_byte = 0;        // of the text
    int64_t n_token = 0;        // its tokens, a BOS in front included
    uint64_t scored_bytes = 0;  // spelled by the scored tokens
    int64_t ctx = 0, stride = 0;
    bool specials = false, bos = false;
    std::string base_model;  // of --base, else empty
    std::string base_file;
    uint32_t base_k = 0;
    uint64_t base_fingerprint = 0;
};

OrderedJson model_json(const EngineInfo& info);
OrderedJson text_json(const TextFacts& facts, const score::TextResult& r);
OrderedJson cases_json(const score::CasesResult& r);
OrderedJson comparison_json(const std::string& name_a, const std::string& name_b, const score::Comparison& c);

void print_model(const EngineInfo& info);
void print_text(const TextFacts& facts, const score::TextResult& r);
void print_cases(const score::CasesResult& r);
void print_comparison(const std::string& name_a, const std::string& name_b, const score::Comparison& c);

}  // namespace vesta::app
