#include "backend/registry.h"

#include "backend/cpu/cpu_ops.h"
#include "backend/reference/reference_ops.h"
#include "base/thread_pool.h"

namespace vesta::backend {

std::vector<Description> list() {
    return {{"cpu", "multi-threaded kernels for this processor"},
            {"reference", "the scalar definition in f32: slow, for tests and comparison"}};
}

Result<std::unique_ptr<ops::Ops>> create(const std::string& name, int n_thread) {
    constexpr int kMaxThreads = 1024;
    if (n_thread < 0 || n_thread > kMaxThreads)
        return Error{Code::invalid_argument, strf("{} threads: expected 1 to {}, or 0 for all cores", n_thread, kMaxThreads)};
    const int n = n_thread == 0 ? ThreadPool::available_cores() : n_thread;
    if (name == "cpu" || name == "auto") return std::unique_ptr<ops::Ops>(std::make_unique<CpuOps>(n));
    if (name == "reference") return std::unique_ptr<ops::Ops>(std::make_unique<ReferenceOps>(n));
    std::string known = "auto";
    for (const Description& d : list()) known += std::string(", ") + d.name;
    return Error{Code::invalid_argument, strf("backend '{}' is not in this build: {}", name, known)};
}

}  // namespace vesta::backend
