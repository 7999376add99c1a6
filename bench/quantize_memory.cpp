// Peak memory and speed of `vesta quantize` on one expert tensor of Flash's shape: 256 experts of 2048 x 4096, 2.1
// billion weights. The tensor is generated and written slice by slice, so neither this program nor the one it measures
// ever has it in memory. Usage: quantize_memory VESTA FOLDER [source format] [target format] [threads]
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/thread_pool.h"
#include "gguf/writer.h"

namespace {

using namespace vesta;

constexpr uint64_t kCols = 4096, kRows = 2048, kExperts = 256;

uint64_t next(uint64_t& state) {  // splitmix64 (Vigna)
    uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

// One expert's values: nearly normal (the sum of four uniform bytes), with columns of different strength as trained
// weights have them.
void generate(uint64_t expert, std::vector<float>& out) {
    uint64_t state = expert;
    out.resize(kCols * kRows);
    for (size_t i = 0; i < out.size(); i += 2) {
        const uint64_t bits = next(state);
        for (size_t k = 0; k < 2; ++k) {
            const auto word = static_cast<uint32_t>(bits >> (32 * k));
            const int sum =
                static_cast<int>((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24)) - 510;
            const auto column = static_cast<float>((i + k) % kCols);
            out[i + k] = static_cast<float>(sum) * (0.5f + column / kCols) * 1e-4f;
        }
    }
}

Status write_model(const std::string& path, quant::Type type) {
    gguf::Writer w;
    w.add_string("general.architecture", "deepseek4");
    w.add_string("general.name", "one expert tensor of Flash's shape");
    w.add_u32("deepseek4.expert_count", kExperts);
    w.add_u32("deepseek4.expert_used_count", 6);
    const uint64_t dims[] = {kCols, kRows, kExperts};
    w.add_tensor("blk.0.ffn_gate_exps.weight", type, dims);
    VESTA_TRY_STATUS(w.begin(path, true));
    const quant::Format& format = quant::format(type);
    std::vector<float> values;
    std::vector<std::byte> bytes(static_cast<size_t>(quant::row_bytes(type, kCols * kRows)));
    for (uint64_t e = 0; e < kExperts; ++e) {
        generate(e, values);
        format.encode(values.data(), bytes.data(), kCols * kRows);
        VESTA_TRY_STATUS(w.write_tensor(0, e * bytes.size(), bytes));
    }
    return w.finish();
}

int fail(const std::string& what) {
    fmt::print(stderr, "quantize_memory: {}\n", what);
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return fail("usage: quantize_memory VESTA FOLDER [source format] [target format] [threads]");
    const std::string vesta = argv[1], folder = argv[2], source = argc > 3 ? argv[3] : "mxfp4",
                      target = argc > 4 ? argv[4] : "iq2_xxs",
                      threads = argc > 5 ? argv[5] : std::to_string(ThreadPool::available_cores());
    const std::string in = folder + "/flash-experts-" + source + ".gguf", out = folder + "/out.gguf",
                      recipe = folder + "/recipe";
    const quant::Format* format = quant::find_format(source.c_str());
    if (format == nullptr || format->encode == nullptr) return fail("cannot make a source of format " + source);
    if (!file_exists(in)) {
        const Status status = write_model(in, format->type);
        if (!status.ok()) return fail(status.error().message);
    }
    std::ofstream(recipe) << "# the whole tensor\n* = " << target << "\n";

    const auto started = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) {
        ::execl(vesta.c_str(), "vesta", "quantize", in.c_str(), out.c_str(), "--recipe", recipe.c_str(), "--force",
                "--restart", "--threads", threads.c_str(), "--verbose", nullptr);
        ::_exit(127);
    }
    int status = 0;
    struct rusage usage {};
    if (child < 0 || ::wait4(child, &status, 0, &usage) != child) return fail("cannot start " + vesta);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return fail(vesta + " failed");
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    const double cpu = static_cast<double>(usage.ru_utime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec) / 1e6;
    constexpr double kWeights = double{kCols} * kRows * kExperts;
    fmt::print(
        "{} -> {}, {} threads: peak RSS {:.1f} MiB; {:.1f} s, {:.1f} s of CPU; {:.2f} M weights/s, {:.2f} M per "
        "second of CPU\n",
        source, target, threads, static_cast<double>(usage.ru_maxrss) / 1024, wall, cpu, kWeights / wall / 1e6,
        kWeights / cpu / 1e6);
    ::unlink(out.c_str());
    return 0;
}
