// Any bytes: the .dat reader refuses them, or what it read can be asked for everything, merges with itself, and is the
// same after being written and read again. The seeds in corpus/imatrix are written by the test DatSeeds
// (tests/imatrix/dat_test.cpp).
#include <cmath>
#include <cstdint>
#include <span>

#include "imatrix/dat.h"

namespace {

using namespace vesta;
using namespace vesta::imatrix;

// Of floats, because NaN is read and written like any other value.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    const auto x = std::as_bytes(std::span(a)), y = std::as_bytes(std::span(b));
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

void ask_everything(const Matrix& m) {
    for (const auto& [name, e] : m.entries) {
        const auto n = static_cast<int64_t>(e.value.size());
        for (const int64_t n_expert : {int64_t{1}, int64_t{2}, static_cast<int64_t>(e.n_row.size())}) {
            if (n_expert < 1) continue;
            const int64_t n_col = std::max<int64_t>(n / n_expert, 1), expert = n_expert - 1;
            const auto mean = m.importance(name, n_col, n_expert, expert);
            if (mean.ok()) {
                VESTA_CHECK(static_cast<int64_t>(mean.value().size()) == n_col);
                for (const float v : mean.value()) VESTA_CHECK(v >= 0 && std::isfinite(v));
            }
            VESTA_CHECK(mean.ok() || !m.measured(name, n_col, n_expert, expert));
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto result = parse_dat(std::as_bytes(std::span(data, size)), "fuzz.dat");
    if (!result.ok()) {
        VESTA_CHECK(result.error().message.rfind("fuzz.dat: ", 0) == 0);
        return 0;
    }
    const Matrix& m = result.value();
    ask_everything(m);

    const auto bytes = format_dat(m);
    VESTA_CHECK(bytes.ok());
    const auto again = parse_dat(bytes.value(), "again.dat");
    VESTA_CHECK(again.ok());
    const Matrix& n = again.value();
    VESTA_CHECK(n.entries.size() == m.entries.size() && n.n_chunk == m.n_chunk && n.dataset == m.dataset &&
                n.run == m.run);
    for (const auto& [name, e] : m.entries) {
        const Entry& f = n.entries.at(name);
        VESTA_CHECK(f.n_call == e.n_call && f.n_row == e.n_row && f.sum == e.sum && same_bits(f.value, e.value));
    }

    Matrix twice = m;
    if (merge(twice, m).ok()) {
        ask_everything(twice);
        VESTA_CHECK(twice.entries.size() == m.entries.size() && format_dat(twice).ok());
    }
    return 0;
}
