// The searching encoders of the K formats, Q8_0 and MXFP4: rows into the layout of the searches (quantize_k.h), and
// what they found into the bytes of docs/formats.md.
#include "quant/quantize_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/result.h"
#include "quant/codecs.h"
#include "quant/fp8.h"
#include "quant/half.h"
#include "quant/quantize.h"

namespace vesta::quant {
namespace {

constexpr int kSuper = 256;
constexpr uint16_t kF16Nan = 0x7e00;

// A power of two u with amax / u in [1, 2), for 2^-100 <= amax. Below that u stays: no format's scales go there, and
// 1/u must remain a number.
float unit_of(float amax) {
    if (!(amax > 0.0f)) return 1.0f;
    const int exponent = static_cast<int>(std::bit_cast<uint32_t>(amax) >> 23) - 127;
    return std::bit_cast<float>(static_cast<uint32_t>(std::max(exponent, -100) + 127) << 23);
}

// The largest |x|, or NaN if any is not finite. As integers: they order like non-negative floats.
float finite_amax(const float* x, int n) {
    uint32_t top = 0;
    for (int i = 0; i < n; ++i) top = std::max(top, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
    return top < 0x7f800000u ? std::bit_cast<float>(top) : std::numeric_limits<float>::quiet_NaN();
}

// Where element i of a sub-block lies in SearchInput and SearchResult: place(sub, n) + 8·i.
int place(int sub, int n) { return sub / 8 * n * 8 + sub % 8; }

// Weights of a search: importance over a power of two near its largest, and a floor of 2^-20 of the sub-block's and
// 2^-40 of the super-block's largest. The floor keeps least squares solvable, and makes columns that do not matter take
// the nearest value anyway. All zero counts as all equal.
void fill_weights(const float* importance, int n_sub, int n, float* w) {
    float top = 0.0f;
    if (importance != nullptr)
        for (int i = 0; i < n_sub * n; ++i) top = std::max(top, importance[i]);
    const float per_unit = 1.0f / unit_of(top);
    for (int sub = 0; sub < n_sub; ++sub) {
        float* to = w + place(sub, n);
        if (!(top > 0.0f)) {
            for (int i = 0; i < n; ++i) to[8 * i] = 1.0f;
            continue;
        }
        const float* from = importance + sub * n;
        float highest = 0.0f;
        for (int i = 0; i < n; ++i) highest = std::max(highest, from[i] * per_unit);
        const float floor = highest * 0x1p-20f + 0x1p-40f;
        for (int i = 0; i < n; ++i) to[8 * i] = from[i] * per_unit + floor;
    }
}

void fill_values(const float* x, float per_unit, int n_sub, int n, float* to) {
    for (int sub = 0; sub < n_sub; ++sub) {
        const int at = place(sub, n);
        for (int i = 0; i < n; ++i) to[at + 8 * i] = x[sub * n + i] * per_unit;
    }
}

// What a search found, by element and sub-block, as integers.
struct Super {
    uint16_t d, dmin;
    int scale[16], min[16];
    int code[kSuper];
};

Super gather(const SearchResult& r, int n, bool minimum) {
    Super s;
    s.d = f32_to_f16(r.d[0]);
    s.dmin = minimum ? f32_to_f16(r.dmin) : uint16_t{0};
    const int n_sub = kSuper / n;
    for (int sub = 0; sub < n_sub; ++sub) {
        const int at = place(sub, n);
        s.scale[sub] = static_cast<int>(r.scale[sub]);
        if (minimum) s.min[sub] = static_cast<int>(r.min[sub]);
        for (int i = 0; i < n; ++i) s.code[sub * n + i] = static_cast<int>(r.code[at + 8 * i]);
    }
    return s;
}

template <class T>
std::byte byte(T v) {
    return static_cast<std::byte>(v);
}

// 2-bit fields: elements 128a + 32j + l of `code` into bits 2j.. of to[32a + l].
void pack_two_bits(const int* code, std::byte* to) {
    for (int a = 0; a < 2; ++a)
        for (int l = 0; l < 32; ++l) {
            const int* c = code + 128 * a + l;
            to[32 * a + l] = byte((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
        }
}

// 4-bit fields: elements 64c + l low, 64c + 32 + l high.
void pack_four_bits(const int* code, std::byte* to) {
    for (int c = 0; c < 4; ++c)
        for (int l = 0; l < 32; ++l) to[32 * c + l] = byte((code[64 * c + l] & 15) | (code[64 * c + 32 + l] & 15) << 4);
}

void pack_scale_min(const Super& s, std::byte* to) {
    for (int j = 0; j < 4; ++j) {
        to[j] = byte(s.scale[j] | (s.scale[j + 4] >> 4) << 6);
        to[j + 4] = byte(s.min[j] | (s.min[j + 4] >> 4) << 6);
        to[j + 8] = byte((s.scale[j + 4] & 15) | (s.min[j + 4] & 15) << 4);
    }
}

void write_q2_k(const Super& s, std::byte* dst) {
    for (int j = 0; j < 16; ++j) dst[j] = byte(s.scale[j] | s.min[j] << 4);
    pack_two_bits(s.code, dst + 16);
    store(dst + 80, s.d);
    store(dst + 82, s.dmin);
}

void write_q3_k(const Super& s, std::byte* dst) {
    std::memset(dst, 0, 32);
    for (int i = 0; i < kSuper; ++i)
        if (s.code[i] >= 0) dst[i % 32] |= byte(1 << (i / 32));
    pack_two_bits(s.code, dst + 32);  // code + 4 or code: the low two bits are the same
    std::memset(dst + 96, 0, 12);
    for (int j = 0; j < 16; ++j) {
        const int six = s.scale[j] + 32;
        dst[96 + j % 8] |= byte((six & 15) << (j < 8 ? 0 : 4));
        dst[104 + j % 4] |= byte((six >> 4) << (2 * (j / 4)));
    }
    store(dst + 108, s.d);
}

void write_q4_k(const Super& s, std::byte* dst) {
    store(dst, s.d);
    store(dst + 2, s.dmin);
    pack_scale_min(s, dst + 4);
    pack_four_bits(s.code, dst + 16);
}

void write_q5_k(const Super& s, std::byte* dst) {
    store(dst, s.d);
    store(dst + 2, s.dmin);
    pack_scale_min(s, dst + 4);
    for (int l = 0; l < 32; ++l) {
        int high = 0;
        for (int sub = 0; sub < 8; ++sub) high |= (s.code[32 * sub + l] >> 4) << sub;
        dst[16 + l] = byte(high);
    }
    pack_four_bits(s.code, dst + 48);
}

void write_q6_k(const Super& s, std::byte* dst) {
    for (int a = 0; a < 2; ++a)
        for (int l = 0; l < 32; ++l) {
            int six[4];
            for (int k = 0; k < 4; ++k) six[k] = s.code[128 * a + 32 * k + l] + 32;
            dst[64 * a + l] = byte((six[0] & 15) | (six[2] & 15) << 4);
            dst[64 * a + 32 + l] = byte((six[1] & 15) | (six[3] & 15) << 4);
            dst[128 + 32 * a + l] = byte((six[0] >> 4) | (six[1] >> 4) << 2 | (six[2] >> 4) << 4 | (six[3] >> 4) << 6);
        }
    for (int j = 0; j < 16; ++j) store(dst + 192 + j, static_cast<int8_t>(s.scale[j]));
    store(dst + 208, s.d);
}

struct KFormat {
    Type type;
    int n;  // elements of a sub-block
    bool minimum;
    SearchFn SearchKernels::*search;
    void (*write)(const Super& s, std::byte* dst);
};
constexpr KFormat kKFormats[] = {
    {Type::q2_k, 16, true, &SearchKernels::q2_k, write_q2_k},
    {Type::q3_k, 16, false, &SearchKernels::q3_k, write_q3_k},
    {Type::q4_k, 32, true, &SearchKernels::q4_k, write_q4_k},
    {Type::q5_k, 32, true, &SearchKernels::q5_k, write_q5_k},
    {Type::q6_k, 16, false, &SearchKernels::q6_k, write_q6_k},
};

const KFormat* find_k_format(Type type) {
    for (const KFormat& f : kKFormats)
        if (f.type == type) return &f;
    return nullptr;
}

void encode_super(const SearchKernels& kernels, const KFormat& f, const float* x, const float* importance,
                  std::byte* dst) {
    const float amax = finite_amax(x, kSuper);
    Super s{};
    s.d = kF16Nan;
    if (!std::isnan(amax)) {
        SearchInput in;
        SearchResult out;
        const float unit = unit_of(amax);
        in.unit[0] = unit;
        fill_values(x, 1.0f / unit, kSuper / f.n, f.n, in.x);
        fill_weights(importance, kSuper / f.n, f.n, in.w);
        (kernels.*f.search)(in, out);
        if (std::isfinite(out.d[0])) s = gather(out, f.n, f.minimum);
    }
    f.write(s, dst);
}

void write_q8_0(float d, const float* code, std::byte* dst) {
    store(dst, std::isfinite(d) ? f32_to_f16(d) : kF16Nan);
    for (int i = 0; i < 32; ++i) dst[2 + i] = byte(std::isfinite(d) ? static_cast<int>(code[8 * i]) : 0);
}

void write_mxfp4(int e, const float* x, std::byte* dst) {
    store(dst, static_cast<uint8_t>(e));
    const float inverse = e8m0_inverse(static_cast<uint8_t>(e));
    for (int i = 0; i < 16; ++i) dst[1 + i] = byte(f32_to_e2m1(x[i] * inverse) | f32_to_e2m1(x[i + 16] * inverse) << 4);
}

int exponent_of(float power_of_two) { return static_cast<int>(std::bit_cast<uint32_t>(power_of_two) >> 23); }

// Up to eight blocks of 32 side by side; lanes without one hold zeros.
void encode_blocks(const SearchKernels& kernels, Type type, const float* x, const float* importance, int n_block,
                   std::byte* dst) {
    SearchInput in{};
    SearchResult out;
    bool finite[8] = {};
    int e[8] = {};  // MXFP4: the exponent byte of the smallest scale that clips nothing
    for (int b = 0; b < 8; ++b) {
        const float amax = b < n_block ? finite_amax(x + 32 * b, 32) : 0.0f;
        finite[b] = !std::isnan(amax);
        in.unit[b] = finite[b] ? unit_of(amax) : 1.0f;
        e[b] = finite[b] && amax > 0.0f ? e8m0_for_e2m1(amax) : 127;
        in.obvious[b] = e8m0_to_f32(static_cast<uint8_t>(e[b])) / in.unit[b];
        if (b >= n_block || !finite[b]) continue;
        fill_values(x + 32 * b, 1.0f / in.unit[b], 1, 32, in.x + b);
        fill_weights(importance == nullptr ? nullptr : importance + 32 * b, 1, 32, in.w + b);
    }
    if (type == Type::q8_0) {
        kernels.q8_0(in, out);
        for (int b = 0; b < n_block; ++b, dst += 34)
            write_q8_0(finite[b] ? out.d[b] : std::numeric_limits<float>::infinity(), out.code + b, dst);
        return;
    }
    kernels.mxfp4(in, out);
    for (int b = 0; b < n_block; ++b, dst += 17) {
        const int found = e[b] + exponent_of(out.d[b]) - exponent_of(in.obvious[b]);
        if (finite[b]) {
            write_mxfp4(std::max(found, 0), x + 32 * b, dst);
        } else {
            std::memset(dst, 0, 17);
            store(dst, kE8m0Nan);
        }
    }
}

}  // namespace

void quantize_rows_searching(const SearchKernels& kernels, Type type, const float* src, int64_t n_row, int64_t n_col,
                             const float* importance, std::byte* dst) {
    const Format& format_of = format(type);
    const int64_t bytes = row_bytes(format_of, n_col);
    const KFormat* k = find_k_format(type);
    for (int64_t r = 0; r < n_row; ++r, src += n_col, dst += bytes) {
        for (int64_t c = 0; c < n_col; c += kSuper) {
            const float* w = importance == nullptr ? nullptr : importance + c;
            std::byte* to = dst + row_bytes(format_of, c);
            if (k != nullptr) {
                encode_super(kernels, *k, src + c, w, to);
            } else {
                const int n_block = static_cast<int>(std::min<int64_t>(8, (n_col - c) / 32));
                encode_blocks(kernels, type, src + c, w, n_block, to);
            }
        }
    }
}

}  // namespace vesta::quant
