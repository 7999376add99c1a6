// llama.cpp as a peer: the same file, the same tokens, its speed and its answers. Compiled outside the project against
// the headers and libraries that setup_llama.sh fetched; nothing of it is part of Vesta.
//
//   llama_peer argmax MODEL TOKENS [flags]   TOKENS: a text file of token ids, one prompt per line. For every position
//                                            prints "prompt position argmax margin" (margin over the runner-up).
//   llama_peer bench MODEL [flags]           JSON: load seconds, prefill and decode tokens/s, peak RSS
//
//   --threads N  --no-repack (weights straight from the mapping)  --f32 (f32 cache)
//   --prefill 512,2048  --depth 64,2048  --decode 32  --repeat 5
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "llama.h"

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

[[noreturn]] void die(const std::string& message) {
    std::fprintf(stderr, "llama_peer: %s\n", message.c_str());
    std::exit(1);
}

std::vector<int> numbers(const std::string& text) {
    std::vector<int> out;
    std::stringstream s(text);
    for (std::string part; std::getline(s, part, ',');) out.push_back(std::atoi(part.c_str()));
    return out;
}

struct Flags {
    int threads = 2, decode = 32, repeat = 5;
    bool repack = true, f32 = false;
    std::vector<int> prefill{512, 2048}, depth{64, 2048};
};

struct Peer {
    llama_model* model = nullptr;
    llama_context* context = nullptr;
    int n_vocab = 0;

    void open(const char* path, const Flags& flags, int n_ctx) {
        llama_model_params mp = llama_model_default_params();
        mp.n_gpu_layers = 0;
        mp.use_extra_bufts = flags.repack;
        model = llama_model_load_from_file(path, mp);
        if (model == nullptr) die("cannot load the model");
        n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
        llama_context_params cp = llama_context_default_params();
        cp.n_ctx = static_cast<uint32_t>(n_ctx);
        cp.n_batch = 2048;
        cp.n_ubatch = 512;
        cp.n_threads = cp.n_threads_batch = flags.threads;
        if (flags.f32) {
            cp.type_k = cp.type_v = GGML_TYPE_F32;
            cp.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        }
        context = llama_init_from_model(model, cp);
        if (context == nullptr) die("cannot make a context");
    }

    // Appends tokens at `position`; logits of all of them, or of the last.
    void feed(const std::vector<llama_token>& tokens, int position, bool all) {
        const int n = static_cast<int>(tokens.size());
        llama_batch batch = llama_batch_init(n, 0, 1);
        batch.n_tokens = n;
        for (int i = 0; i < n; ++i) {
            batch.token[i] = tokens[static_cast<size_t>(i)];
            batch.pos[i] = position + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = all || i + 1 == n;
        }
        if (llama_decode(context, batch) != 0) die("llama_decode failed");
        llama_synchronize(context);
        llama_batch_free(batch);
    }
    void clear() { llama_memory_clear(llama_get_memory(context), true); }
};

int argmax_main(const char* path, const char* token_file, const Flags& flags) {
    Peer peer;
    peer.open(path, flags, 4096);
    std::ifstream in(token_file);
    if (!in) die("cannot read the token file");
    int prompt = 0;
    for (std::string line; std::getline(in, line); ++prompt) {
        std::stringstream s(line);
        std::vector<llama_token> tokens;
        for (int id; s >> id;) tokens.push_back(id);
        if (tokens.empty() || tokens.size() > 2048) die("a prompt needs 1 to 2048 tokens");
        peer.clear();
        peer.feed(tokens, 0, true);
        for (size_t i = 0; i < tokens.size(); ++i) {
            const float* logits = llama_get_logits_ith(peer.context, static_cast<int>(i));
            int best = 0, second = -1;
            for (int v = 1; v < peer.n_vocab; ++v) {
                if (logits[v] > logits[best]) {
                    second = best, best = v;
                } else if (second < 0 || logits[v] > logits[second]) {
                    second = v;
                }
            }
            std::printf("%d %zu %d %.5f\n", prompt, i, best, logits[best] - logits[second]);
        }
    }
    return 0;
}

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

int bench_main(const char* path, const Flags& flags) {
    Peer peer;
    const int deepest = *std::max_element(flags.depth.begin(), flags.depth.end());
    const int longest = *std::max_element(flags.prefill.begin(), flags.prefill.end());
    const double t0 = now();
    peer.open(path, flags, std::max(longest, deepest + flags.decode) + 16);
    const auto token = [&](int i) { return static_cast<llama_token>(10 + (i * 7919) % (peer.n_vocab - 20)); };
    peer.feed({token(0)}, 0, false);
    const double first = now() - t0;
    peer.clear();

    std::printf("{\"engine\": \"llama.cpp\", \"threads\": %d, \"repack\": %s, \"first_token_s\": %.4f, \"prefill\": {",
                flags.threads, flags.repack ? "true" : "false", first);
    const auto fill = [&](int n) {
        for (int at = 0; at < n; at += 2048) {
            std::vector<llama_token> tokens;
            for (int i = at; i < std::min(n, at + 2048); ++i) tokens.push_back(token(i));
            peer.feed(tokens, at, false);
        }
    };
    for (size_t k = 0; k < flags.prefill.size(); ++k) {
        std::vector<double> rates;
        for (int r = 0; r < flags.repeat; ++r) {
            peer.clear();
            const double start = now();
            fill(flags.prefill[k]);
            rates.push_back(flags.prefill[k] / (now() - start));
        }
        std::printf("%s\"%d\": %.3f", k ? ", " : "", flags.prefill[k], median(rates));
    }
    std::printf("}, \"decode\": {");
    for (size_t k = 0; k < flags.depth.size(); ++k) {
        std::vector<double> rates;
        for (int r = 0; r < flags.repeat; ++r) {
            peer.clear();
            fill(flags.depth[k]);
            const double start = now();
            for (int i = 0; i < flags.decode; ++i) peer.feed({token(i)}, flags.depth[k] + i, false);
            rates.push_back(flags.decode / (now() - start));
        }
        std::printf("%s\"%d\": %.3f", k ? ", " : "", flags.depth[k], median(rates));
    }
    struct rusage usage {};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("}, \"peak_rss_bytes\": %ld}\n", usage.ru_maxrss * 1024L);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    const int n_positional = mode == "argmax" ? 4 : 3;
    if ((mode != "argmax" && mode != "bench") || argc < n_positional) die("usage: see the top of llama_peer.cpp");
    Flags flags;
    for (int i = n_positional; i < argc; ++i) {
        const std::string flag = argv[i];
        if (flag == "--no-repack") {
            flags.repack = false;
        } else if (flag == "--f32") {
            flags.f32 = true;
        } else if (i + 1 >= argc) {
            die("unknown flag or missing value: " + flag);
        } else if (flag == "--threads") {
            flags.threads = std::atoi(argv[++i]);
        } else if (flag == "--decode") {
            flags.decode = std::atoi(argv[++i]);
        } else if (flag == "--repeat") {
            flags.repeat = std::atoi(argv[++i]);
        } else if (flag == "--prefill") {
            flags.prefill = numbers(argv[++i]);
        } else if (flag == "--depth") {
            flags.depth = numbers(argv[++i]);
        } else {
            die("unknown flag: " + flag);
        }
    }
    llama_log_set([](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
    }, nullptr);
    ggml_backend_load_all_from_path(std::getenv("LLAMA_PEER_LIBRARIES"));
    llama_backend_init();
    return mode == "argmax" ? argmax_main(argv[2], argv[3], flags) : bench_main(argv[2], flags);
}
