#include "sample/rng.h"

#include <array>
#include <bit>
#include <cstddef>

namespace vesta::sample {
namespace {

constexpr std::array<double, 14> kInverseFactorial = [] {
    std::array<double, 14> c{};
    double factorial = 1;  // exact up to 18!
    for (std::size_t n = 0; n < c.size(); ++n) {
        if (n > 0) factorial *= static_cast<double>(n);
        c[n] = 1 / factorial;
    }
    return c;
}();

}  // namespace

double exp_nonpositive(double x) {
    if (!(x > -708.0)) return 0;  // e^-708 = 3.3e-308 is the last normal double
    // x = k ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the first short enough for k * kLn2High to be exact.
    constexpr double kLog2e = 0x1.71547652b82fep+0;
    constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
    const int k = static_cast<int>(x * kLog2e - 0.5);  // x <= 0, so truncation rounds to nearest
    const double r = (x - k * kLn2High) - k * kLn2Low;
    // Taylor by Horner's rule; the first term left out is below 0.3466^14 / 14! = 5e-18.
    double sum = kInverseFactorial[13];
    for (std::size_t n = 13; n-- > 0;) sum = kInverseFactorial[n] + r * sum;
    return sum * std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52);  // times 2^k
}

}  // namespace vesta::sample
