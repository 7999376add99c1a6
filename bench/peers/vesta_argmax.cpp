// The most likely next token at every position, as llama_peer prints it, for agree.sh.
//
//   vesta_argmax MODEL TOKENS [cpu|reference] [fp8|f16|f32]
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "vesta/engine.h"

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: vesta_argmax MODEL TOKENS [cpu|reference] [fp8|f16|f32]\n");
        return 2;
    }
    const std::string backend = argc > 3 ? argv[3] : "cpu", rows = argc > 4 ? argv[4] : "f32";
    vesta::EngineOptions engine_options;
    engine_options.backend = backend;
    auto engine = vesta::Engine::open(argv[1], engine_options);
    if (!engine) {
        std::fprintf(stderr, "vesta_argmax: %s\n", engine.error().message.c_str());
        return 1;
    }
    const auto n_vocab = static_cast<size_t>(engine.value()->info().n_vocab);
    std::ifstream in(argv[2]);
    int prompt = 0;
    for (std::string line; std::getline(in, line); ++prompt) {
        std::stringstream s(line);
        std::vector<int32_t> tokens;
        for (int32_t id; s >> id;) tokens.push_back(id);
        vesta::SessionOptions options;
        options.cache_format = rows == "f32"   ? vesta::CacheFormat::f32
                               : rows == "f16" ? vesta::CacheFormat::f16
                                               : vesta::CacheFormat::fp8;
        auto session = engine.value()->new_session(options);
        std::vector<float> logits(tokens.size() * n_vocab);
        if (!session) {
            std::fprintf(stderr, "vesta_argmax: %s\n", session.error().message.c_str());
            return 1;
        }
        if (const auto status = session.value()->evaluate(tokens, logits); !status) {
            std::fprintf(stderr, "vesta_argmax: %s\n", status.error().message.c_str());
            return 1;
        }
        for (size_t i = 0; i < tokens.size(); ++i) {
            float* row = logits.data() + i * n_vocab;
            const auto best = std::max_element(row, row + n_vocab) - row;
            const float top = row[best];
            row[best] = -1e30f;
            std::printf("%d %zu %d %.5f\n", prompt, i, static_cast<int>(best),
                        static_cast<double>(top - *std::max_element(row, row + n_vocab)));
        }
    }
    return 0;
}
