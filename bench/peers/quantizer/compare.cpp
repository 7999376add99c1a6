// Our searching quantizer beside llama.cpp's, tensor by tensor: the weighted error E of quant/quantize.h for both,
// their ratio, and weights per second of processor time. The peer is a shared library given by path and opened at run
// time; nothing of it is built, linked or kept here. README.md beside this file says how to get one.
//
//   compare_quantizer <libggml-base.so> <model.gguf | normal | heavy> [options]
//   normal, heavy: one tensor of 4096 columns, Gaussian or Student's t with 4 degrees of freedom, instead of a file
//     --types q4_k,q2_k,..   default: every type we can quantize to in blocks
//     --importance none|synthetic|both|energy
//                            synthetic: one positive weight per column, log-normal (sigma 1) and seeded by the
//                            tensor's name. energy: the column's own sum of squares (for iq2_xxs without an imatrix),
//                            to both. Default: both
//     --tensors text         only names that contain it
//     --rows n               at most the first n rows of a tensor (default 1024)
//     --quiet                only the line per type: ratio of the sums of E, geometric mean of the tensors' ratios,
//     worst
//
// The peer's own goal differs: it weights squares by magnitude for several types, with importance and without. This
// program compares by E alone, the goal we state.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "quant/format.h"
#include "quant/quantize.h"

namespace {

using vesta::quant::ErrorSum;
using vesta::quant::Type;

struct Peer {
    void (*init)(int type) = nullptr;
    size_t (*chunk)(int type, const float* src, void* dst, int64_t start, int64_t n_row, int64_t n_col,
                    const float* importance) = nullptr;
};

struct Options {
    std::string library, model, tensors, importance = "both";
    std::vector<Type> types;
    int64_t rows = 1024;
    bool quiet = false;
};

struct Total {
    ErrorSum ours, theirs;
    double our_seconds = 0, their_seconds = 0, worst = 0, log_ratio = 0;
    int64_t n_weight = 0, n_ratio = 0;
    std::string worst_name;
};

[[noreturn]] void fail(const std::string& message) {
    std::fprintf(stderr, "compare_quantizer: %s\n", message.c_str());
    std::exit(1);
}

Options parse(int argc, char** argv) {
    Options o;
    std::vector<std::string> plain;
    for (int i = 1; i < argc; ++i) {
        const std::string a = argv[i];
        const auto value = [&]() -> std::string {
            if (i + 1 >= argc) fail(a + " needs a value");
            return argv[++i];
        };
        if (a == "--types") {
            std::string list = value() + ",";
            for (size_t from = 0, comma; (comma = list.find(',', from)) != std::string::npos; from = comma + 1) {
                const std::string name = list.substr(from, comma - from);
                if (name.empty()) continue;
                const vesta::quant::Format* f = vesta::quant::find_format(name.c_str());
                if (f == nullptr) fail("no format is called " + name);
                o.types.push_back(f->type);
            }
        } else if (a == "--importance") {
            o.importance = value();
        } else if (a == "--tensors") {
            o.tensors = value();
        } else if (a == "--rows") {
            o.rows = std::atoll(value().c_str());
        } else if (a == "--quiet") {
            o.quiet = true;
        } else {
            plain.push_back(a);
        }
    }
    if (plain.size() != 2) fail("usage: compare_quantizer <libggml-base.so> <model.gguf> [options]; see the source");
    o.library = plain[0];
    o.model = plain[1];
    if (o.types.empty())
        for (const Type t :
             {Type::q8_0, Type::q6_k, Type::q5_k, Type::q4_k, Type::mxfp4, Type::q3_k, Type::q2_k, Type::iq2_xxs})
            if (vesta::quant::can_quantize(t)) o.types.push_back(t);
    return o;
}

Peer open_peer(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) fail(std::string("cannot open the peer's library: ") + dlerror());
    Peer p;
    p.init = reinterpret_cast<decltype(p.init)>(dlsym(library, "ggml_quantize_init"));
    p.chunk = reinterpret_cast<decltype(p.chunk)>(dlsym(library, "ggml_quantize_chunk"));
    if (p.init == nullptr || p.chunk == nullptr) fail(path + " exports no ggml_quantize_init or ggml_quantize_chunk");
    return p;
}

std::vector<float> synthetic_importance(std::string_view name, int64_t n_col) {
    uint32_t seed = 2166136261u;
    for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 16777619u;
    std::mt19937 rng(seed);
    std::lognormal_distribution<float> spread(0.0f, 1.0f);
    std::vector<float> w(static_cast<size_t>(n_col));
    for (float& v : w) v = spread(rng);
    return w;
}

std::vector<float> energy_importance(const std::vector<float>& x, int64_t n_row, int64_t n_col) {
    std::vector<double> sum(static_cast<size_t>(n_col));
    vesta::quant::column_energy(x.data(), n_row, n_col, sum.data());
    return {sum.begin(), sum.end()};
}

template <class F>
double seconds(F&& f) {
    const std::clock_t start = std::clock();  // of this process: other work on the machine does not count
    f();
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

void compare(const Peer& peer, Type type, const std::string& name, const std::vector<float>& x, int64_t n_row,
             int64_t n_col, const float* importance, bool quiet, Total& total) {
    const size_t bytes = static_cast<size_t>(vesta::quant::row_bytes(type, n_col) * n_row);
    std::vector<std::byte> ours(bytes), theirs(bytes);
    const double t0 =
        seconds([&] { vesta::quant::quantize_rows(type, x.data(), n_row, n_col, importance, ours.data()); });
    const double t1 = seconds([&] {
        const size_t n = peer.chunk(static_cast<int>(type), x.data(), theirs.data(), 0, n_row, n_col, importance);
        if (n != bytes) fail(name + ": the peer wrote another number of bytes than we do");
    });
    ErrorSum a, b;
    vesta::quant::add_error(type, x.data(), ours.data(), n_row, n_col, importance, a);
    vesta::quant::add_error(type, x.data(), theirs.data(), n_row, n_col, importance, b);
    const double ratio = b.error > 0 ? a.error / b.error : (a.error > 0 ? HUGE_VAL : 1.0);
    if (!quiet)
        std::printf("  %-42s %6lld x %-6lld  ours %.6f  theirs %.6f  ratio %.4f\n", name.c_str(),
                    static_cast<long long>(n_row), static_cast<long long>(n_col), std::sqrt(a.error / a.energy),
                    std::sqrt(b.error / b.energy), ratio);
    total.ours.error += a.error, total.ours.energy += a.energy;
    total.theirs.error += b.error, total.theirs.energy += b.energy;
    total.our_seconds += t0, total.their_seconds += t1;
    total.n_weight += n_row * n_col;
    if (a.error > 0 && b.error > 0) total.log_ratio += std::log(ratio), ++total.n_ratio;
    if (ratio > total.worst) total.worst = ratio, total.worst_name = name;
}

struct Tensor {
    std::string name;
    int64_t n_row = 0, n_col = 0;
    vesta::quant::DecodeFn decode = nullptr;  // of its bytes; nullptr: `x` is filled
    const std::byte* bytes = nullptr;
    std::vector<float> x;
};

Tensor random_tensor(const std::string& name, int64_t n_row, int64_t n_col) {
    Tensor t;
    t.name = name, t.n_row = n_row, t.n_col = n_col;
    std::mt19937 rng(1);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    std::student_t_distribution<float> heavy(4.0f);
    t.x.resize(static_cast<size_t>(n_row * n_col));
    for (float& v : t.x) v = name == "normal" ? normal(rng) : 0.02f * heavy(rng);
    return t;
}

std::vector<Tensor> tensors_of(const vesta::gguf::File& file, const Options& o) {
    std::vector<Tensor> tensors;
    for (const vesta::gguf::TensorInfo& t : file.tensors()) {
        Tensor one;
        one.name = std::string(t.name);
        one.n_col = static_cast<int64_t>(t.dims[0]);
        one.n_row = std::min(o.rows, static_cast<int64_t>(t.n_elem()) / one.n_col);
        one.decode = vesta::quant::format(t.type).decode;
        one.bytes = t.bytes.data();
        if (t.n_dim >= 2 && one.decode != nullptr && one.name.find(o.tensors) != std::string::npos)
            tensors.push_back(std::move(one));
    }
    return tensors;
}

void compare_type(const Peer& peer, const Options& o, Type type, const char* kind, const std::vector<Tensor>& tensors) {
    const vesta::quant::Format& f = vesta::quant::format(type);
    if (!o.quiet) std::printf("%s, importance %s  (relative rms error; ratio of E)\n", f.name, kind);
    Total total;
    for (const Tensor& t : tensors) {
        if (t.n_col % f.block_elems != 0) continue;
        std::vector<float> x = t.x;
        if (t.decode != nullptr) {
            x.resize(static_cast<size_t>(t.n_row * t.n_col));
            t.decode(t.bytes, x.data(), t.n_row * t.n_col);
        }
        std::vector<float> w;
        if (std::strcmp(kind, "synthetic") == 0) w = synthetic_importance(t.name, t.n_col);
        if (std::strcmp(kind, "energy") == 0) w = energy_importance(x, t.n_row, t.n_col);
        compare(peer, type, t.name, x, t.n_row, t.n_col, w.empty() ? nullptr : w.data(), o.quiet, total);
    }
    if (total.n_weight == 0) return;
    std::printf("%-8s %-10s ratio of sums %.4f  mean %.4f  worst %.4f (%s)  ours %.2f M weights/s, theirs %.2f\n",
                f.name, kind, total.ours.error / total.theirs.error,
                std::exp(total.log_ratio / static_cast<double>(std::max<int64_t>(1, total.n_ratio))), total.worst,
                total.worst_name.c_str(), 1e-6 * static_cast<double>(total.n_weight) / total.our_seconds,
                1e-6 * static_cast<double>(total.n_weight) / total.their_seconds);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const Options o = parse(argc, argv);
    const Peer peer = open_peer(o.library);
    std::vector<Tensor> tensors;
    std::optional<vesta::gguf::File> file;  // owns the bytes of `tensors`
    if (o.model == "normal" || o.model == "heavy") {
        tensors.push_back(random_tensor(o.model, std::min<int64_t>(o.rows, 1024), 4096));
    } else {
        auto opened = vesta::gguf::File::open(o.model);
        if (!opened) fail(opened.error().message);
        file.emplace(std::move(opened).value());
        tensors = tensors_of(*file, o);
    }
    for (const Type type : o.types) {
        peer.init(static_cast<int>(type));
        for (const char* kind : {"none", "synthetic", "energy"}) {
            if (o.importance != kind && (o.importance != "both" || std::strcmp(kind, "energy") == 0)) continue;
            if (type == Type::iq2_xxs && std::strcmp(kind, "none") == 0) continue;  // the peer refuses
            compare_type(peer, o, type, kind, tensors);
        }
    }
    return 0;
}
