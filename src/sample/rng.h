// The sampler's random numbers, and the one transcendental function it needs, written out so that a seed gives the same
// text on every machine: std:: distributions are left to each library's taste, and libm's exp differs in the last bit
// between CPUs of one vendor (glibc picks an fma variant at start-up).
#pragma once

#include <cstdint>

namespace vesta::sample {

// SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"): a Weyl sequence through a
// 64-bit mixer. Chosen over larger generators because its whole state is one integer, which a snapshot can store.
class Rng {
 public:
    explicit Rng(uint64_t seed = 0) : state_(seed) {}

    uint64_t next() {
        state_ += 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio, odd: visits every state once
        uint64_t z = state_;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return z ^ z >> 31;
    }

    // Uniform in [0, 1): the top 53 bits, so that every value is exact and 1 is never returned.
    double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

    uint64_t state() const { return state_; }

 private:
    uint64_t state_;
};

// e^x for x <= 0, relative error below 1e-15; 0 where the result would be subnormal. Only + and * in a fixed order, so
// the bits are the same wherever double is IEEE binary64. Requires: x <= 0 (minus infinity is allowed).
double exp_nonpositive(double x);

}  // namespace vesta::sample
