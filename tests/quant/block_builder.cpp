#include "quant/block_builder.h"

#include <cmath>
#include <cstdlib>

namespace vesta::quant::test {
namespace {

class Builder {
 public:
    Builder(Type type, std::mt19937& rng)
        : block_{std::vector<std::byte>(static_cast<size_t>(format(type).block_bytes)),
                 std::vector<double>(static_cast<size_t>(format(type).block_elems))},
          rng_(rng) {}

    // A uniform integer of the given number of bits.
    int pick(int n_bits) { return static_cast<int>(rng_() >> (32 - n_bits)); }

    // ORs the low n_bits of v into byte `at`, starting at bit `shift`.
    void put(int at, int shift, int n_bits, int v) {
        block_.bytes[static_cast<size_t>(at)] |= static_cast<std::byte>((v & ((1 << n_bits) - 1)) << shift);
    }

    // A random f16 m · 2^-10, 1024 <= m < 2048 with a sign: returns its value.
    double put_f16(int at, bool can_be_negative = true) {
        const int m = pick(10), sign = can_be_negative ? pick(1) : 0;
        const int code = sign << 15 | 15 << 10 | m;
        put(at, 0, 8, code);
        put(at + 1, 0, 8, code >> 8);
        return (sign ? -1.0 : 1.0) * (1024 + m) / 1024.0;
    }

    void set(int element, double value) { block_.values[static_cast<size_t>(element)] = value; }
    Block take() { return std::move(block_); }

 private:
    Block block_;
    std::mt19937& rng_;
};

void q4_or_q5(Builder& b, bool five, bool with_min) {
    const double d = b.put_f16(0), m = with_min ? b.put_f16(2) : 0.0;
    const int fifth = with_min ? 4 : 2, codes = fifth + (five ? 4 : 0);
    for (int i = 0; i < 32; ++i) {
        const int q = b.pick(five ? 5 : 4);
        b.put(codes + i % 16, i < 16 ? 0 : 4, 4, q);
        if (five) b.put(fifth + i / 8, i % 8, 1, q >> 4);
        b.set(i, d * (with_min ? q : q - (five ? 16 : 8)) + m);
    }
}

void q8_0(Builder& b) {
    const double d = b.put_f16(0);
    for (int i = 0; i < 32; ++i) {
        const int q = b.pick(8) - 128;
        b.put(2 + i, 0, 8, q);
        b.set(i, d * q);
    }
}

void iq4_nl(Builder& b) {
    const double levels[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    const double d = b.put_f16(0);
    for (int i = 0; i < 32; ++i) {
        const int q = b.pick(4);
        b.put(2 + i % 16, 4 * (i / 16), 4, q);
        b.set(i, d * levels[q]);
    }
}

void mxfp4(Builder& b) {
    const double magnitude[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const int e = b.pick(8) % 250;  // 6 · 2^(249-127) is still an f32
    b.put(0, 0, 8, e);
    for (int i = 0; i < 32; ++i) {
        const int q = b.pick(4);
        b.put(1 + i % 16, 4 * (i / 16), 4, q);
        b.set(i, (q & 8 ? -1 : 1) * std::ldexp(magnitude[q & 7], e - 127));
    }
}

void q2_k(Builder& b) {
    const double d = b.put_f16(80), dmin = b.put_f16(82);
    int scale[16], min[16];
    for (int g = 0; g < 16; ++g) {
        b.put(g, 0, 4, scale[g] = b.pick(4));
        b.put(g, 4, 4, min[g] = b.pick(4));
    }
    for (int i = 0; i < 256; ++i) {
        const int q = b.pick(2);
        b.put(16 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2, q);
        b.set(i, d * scale[i / 16] * q - dmin * min[i / 16]);
    }
}

void q3_k(Builder& b) {
    const double d = b.put_f16(108);
    int scale[16];
    for (int k = 0; k < 16; ++k) {
        scale[k] = b.pick(6);
        b.put(96 + k % 8, k / 8 * 4, 4, scale[k]);
        b.put(104 + k % 4, k / 4 * 2, 2, scale[k] >> 4);
    }
    for (int i = 0; i < 256; ++i) {
        const int q = b.pick(3);  // 0..7 means -4..3: low two bits, and a third that is set when no 4 is subtracted
        b.put(32 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2, q);
        b.put(i % 32, i / 32, 1, q >> 2);
        b.set(i, d * (scale[i / 16] - 32) * (q - 4));
    }
}

void q4_k_or_q5_k(Builder& b, bool five) {
    const double d = b.put_f16(0), dmin = b.put_f16(2);
    int scale[8], min[8];
    for (int k = 0; k < 8; ++k) {
        scale[k] = b.pick(6);
        min[k] = b.pick(6);
        if (k < 4) {
            b.put(4 + k, 0, 6, scale[k]);
            b.put(8 + k, 0, 6, min[k]);
        } else {
            b.put(8 + k, 0, 4, scale[k]);
            b.put(8 + k, 4, 4, min[k]);
            b.put(k, 6, 2, scale[k] >> 4);
            b.put(4 + k, 6, 2, min[k] >> 4);
        }
    }
    const int codes = five ? 48 : 16;
    for (int i = 0; i < 256; ++i) {
        const int q = b.pick(five ? 5 : 4);
        b.put(codes + i / 64 * 32 + i % 32, i % 64 / 32 * 4, 4, q);
        if (five) b.put(16 + i % 32, i / 32, 1, q >> 4);
        b.set(i, d * scale[i / 32] * q - dmin * min[i / 32]);
    }
}

void q6_k(Builder& b) {
    const double d = b.put_f16(208);
    int scale[16];
    for (int g = 0; g < 16; ++g) b.put(192 + g, 0, 8, scale[g] = b.pick(8) - 128);
    for (int i = 0; i < 256; ++i) {
        const int q = b.pick(6);
        b.put(i / 128 * 64 + i % 64, i % 128 / 64 * 4, 4, q);
        b.put(128 + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2, q >> 4);
        b.set(i, d * scale[i / 16] * (q - 32));
    }
}

void q8_k(Builder& b) {
    // d = 1.5: f32 0x3fc00000
    b.put(2, 0, 8, 0xc0);
    b.put(3, 0, 8, 0x3f);
    for (int i = 0; i < 256; ++i) {
        const int q = b.pick(8) - 128;
        b.put(4 + i, 0, 8, q);
        b.set(i, 1.5 * q);
    }
}

}  // namespace

Block random_block(Type type, std::mt19937& rng) {
    Builder b(type, rng);
    switch (type) {
        case Type::q4_0:
            q4_or_q5(b, false, false);
            break;
        case Type::q4_1:
            q4_or_q5(b, false, true);
            break;
        case Type::q5_0:
            q4_or_q5(b, true, false);
            break;
        case Type::q5_1:
            q4_or_q5(b, true, true);
            break;
        case Type::q8_0:
            q8_0(b);
            break;
        case Type::iq4_nl:
            iq4_nl(b);
            break;
        case Type::mxfp4:
            mxfp4(b);
            break;
        case Type::q2_k:
            q2_k(b);
            break;
        case Type::q3_k:
            q3_k(b);
            break;
        case Type::q4_k:
            q4_k_or_q5_k(b, false);
            break;
        case Type::q5_k:
            q4_k_or_q5_k(b, true);
            break;
        case Type::q6_k:
            q6_k(b);
            break;
        case Type::q8_k:
            q8_k(b);
            break;
        default:
            std::abort();  // the caller asked for a type without a builder
    }
    return b.take();
}

}  // namespace vesta::quant::test
