// The searches of quantize_k.h, written once in eight lanes (one sub-block each) and compiled twice.
//
// A K format decodes to   y = (d·sc)·q − (dmin·mn)   with codes q, small integers sc and mn per sub-block, and f16 d
// and dmin per super-block (q3_k and q6_k: no minimum). All four kinds of unknown depend on each other; the search goes
//
//   1. per sub-block, as if its scale s = d·sc and minimum m = dmin·mn were free: for a row of trial steps, round to
//   codes and
//      solve the weighted least squares for (s, m) given the codes; the best one then iterates codes <-> (s, m);
//   2. per super-block, with the codes of 1 and therefore a quadratic error: a grid of (d, dmin), each with the best
//      sc and mn it allows;
//   3. alternate, with codes rounded by the scales the file will hold: neighbours of every (sc, mn); then the least
//      squares for (d, dmin) given codes, sc and mn. What is kept is always the best E seen.
//
// Ties keep the earlier trial, and trials come in a fixed order, the obvious one first.
//
// The including file defines the lanes first, in the unnamed namespace of vesta::quant: F8 (eight f32), M8 (eight
// truths), all, read, write, + - * / <, smaller, larger, pick, to_f16. Each is the IEEE operation of every lane, so
// both compilations give the same bits. Everything here is in that unnamed namespace too: two files compiled for
// different processors must not share a function.
#pragma once

#include "quant/quantize_k.h"

namespace vesta::quant {
namespace {

// To the nearest integer, ties to even, for |a| < 2^22: adding 1.5·2^23 leaves no bits below 1.
inline F8 nearest(const F8& a) { return (a + all(12582912.0f)) - all(12582912.0f); }
inline F8 clamp(const F8& a, const F8& low, const F8& high) { return smaller(larger(a, low), high); }
inline F8 magnitude(const F8& a) { return larger(a, all(0.0f) - a); }

// Across lanes, in this order, for the few sums over a whole super-block.
inline float sum(const F8& a) {
    alignas(32) float t[8];
    write(t, a);
    return ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
}
inline float largest(const F8& a) {
    alignas(32) float t[8];
    write(t, a);
    float m = t[0];
    for (int l = 1; l < 8; ++l) m = t[l] > m ? t[l] : m;
    return m;
}

constexpr float kHuge = 3e38f;
constexpr float kLargestF16 = 65504.0f;
constexpr float kSmallestF16 = 0x1p-24f;

// The f16 the file will hold for a factor `a` > 0. Never zero: one step of f16 times a small integer may still be what
// a tiny block needs.
float stored(float a) {
    alignas(32) float t[8];
    write(t, to_f16(all(a)));
    return a > 0.0f && t[0] < kSmallestF16 ? kSmallestF16 : t[0];
}

// --- scale and minimum: q2_k, q4_k, q5_k --------------------

// What the error of one sub-block is, as a function of (s, m), once its codes are fixed; sums over its elements.
struct Moments {
    F8 w, x, q, qq, qx;  // sum of w, w·x, w·q, w·q², w·q·x
};

// E(s, m) − sum of w·x², for y = s·q − m.
F8 error_of(const Moments& t, const F8& s, const F8& m) {
    return s * (s * t.qq - (t.qx + t.qx)) + m * (m * t.w + (t.x + t.x) - (s + s) * t.q);
}

struct Fit {
    F8 s, m, error;
    Moments at;
};

template <int N, int kGroups, int kCodes, int kFactors>
class ScaleMinSearch {
 public:
    explicit ScaleMinSearch(const SearchInput& in) : in_(in), unit_(in.unit[0]), per_unit_(1.0f / in.unit[0]) {}

    void run(SearchResult& out) {
        for (int g = 0; g < kGroups; ++g) fit_sub_blocks(g);
        if (!choose_factors()) {
            for (int l = 0; l < 8; ++l) out.d[l] = kHuge * 10.0f;
            return;
        }
        refine();
        finish(out);
    }

 private:
    static constexpr float kTop = static_cast<float>(kCodes - 1);
    static constexpr float kMost = static_cast<float>(kFactors - 1);

    F8 x(int g, int i) const { return read(in_.x + 8 * (N * g + i)); }
    F8 w(int g, int i) const { return read(in_.w + 8 * (N * g + i)); }

    // Codes of step 1/inverse from `low` up, and the best (s, m >= 0) for them.
    void attempt(int g, const F8& inverse, const F8& low, Fit& best) {
        Moments t{best.at.w, best.at.x, all(0.0f), all(0.0f), all(0.0f)};
        for (int i = 0; i < N; ++i) {
            const F8 xi = x(g, i);
            const F8 q = nearest(clamp((xi - low) * inverse, all(0.0f), all(kTop)));
            const F8 wq = w(g, i) * q;
            t.q = t.q + wq;
            t.qq = t.qq + wq * q;
            t.qx = t.qx + wq * xi;
        }
        const F8 zero = all(0.0f);
        const F8 det = t.w * t.qq - t.q * t.q;
        F8 s = (t.w * t.qx - t.x * t.q) / det;
        F8 m = (t.q * t.qx - t.x * t.qq) / det;
        // Where (almost) all weight is on one code, det is rounding noise: then m stays where the codes began.
        const M8 known = det < t.w * t.qq * all(kIllConditioned);
        const F8 start = larger(zero - low, zero);
        m = pick(known, start, m);
        s = pick(known, (t.qx + start * t.q) / t.qq, s);
        // With the minimum at its bound: one unknown is left.
        const M8 bound = m < zero;
        m = pick(bound, zero, m);
        s = pick(bound, larger(t.qx / t.qq, zero), s);
        const F8 error = error_of(t, s, m);  // NaN when all codes are 0: not better than anything
        const M8 better = error < best.error;
        best.s = pick(better, s, best.s);
        best.m = pick(better, m, best.m);
        best.error = pick(better, error, best.error);
        best.at.q = pick(better, t.q, best.at.q);
        best.at.qq = pick(better, t.qq, best.at.qq);
        best.at.qx = pick(better, t.qx, best.at.qx);
    }

    void fit_sub_blocks(int g) {
        F8 low = all(0.0f), high = all(-kHuge), sum_w = all(0.0f), sum_x = all(0.0f);
        for (int i = 0; i < N; ++i) {
            low = smaller(low, x(g, i));
            high = larger(high, x(g, i));
            sum_w = sum_w + w(g, i);
            sum_x = sum_x + w(g, i) * x(g, i);
        }
        // One level (all codes 0) needs no step: m is the mean, if that is negative.
        Fit best{};
        best.at = {sum_w, sum_x, all(0.0f), all(0.0f), all(0.0f)};
        best.s = all(0.0f);
        best.m = larger(all(0.0f) - sum_x / sum_w, all(0.0f));
        best.error = error_of(best.at, best.s, best.m);
        const F8 range = high - low;
        const F8 per_range = pick(all(0.0f) < range, all(1.0f) / range, all(0.0f));
        for (int k = 0; k < kTrials; ++k)
            attempt(g, (all(kTop + kFirst + kStep * static_cast<float>(k))) * per_range, low, best);
        for (int k = 0; k < 2; ++k) {
            const F8 inverse = pick(all(0.0f) < best.s, all(1.0f) / best.s, all(0.0f));
            attempt(g, inverse, all(0.0f) - best.m, best);
        }
        fit_[g] = best;
    }

    // Step 2. False: d or dmin is beyond f16.
    bool choose_factors() {
        F8 top_s = fit_[0].s, top_m = fit_[0].m;
        for (int g = 1; g < kGroups; ++g) top_s = larger(top_s, fit_[g].s), top_m = larger(top_m, fit_[g].m);
        const float s_max = largest(top_s), m_max = largest(top_m);
        if (s_max / kMost * unit_ > kLargestF16 || m_max / kMost * unit_ > kLargestF16) return false;
        total_ = kHuge;
        for (int a = 0; a < kGrid; ++a) {
            const float d = stored(s_max / (kMost + grid(a)) * unit_) * per_unit_;
            for (int b = 0; b < kGrid; ++b) {
                const float dmin = stored(m_max / (kMost + grid(b)) * unit_) * per_unit_;
                try_factors(d, dmin);
                if (m_max == 0.0f) break;
            }
            if (s_max == 0.0f) break;
        }
        return true;
    }

    void try_factors(float d, float dmin) {
        if (d * unit_ > kLargestF16 || dmin * unit_ > kLargestF16) return;
        const F8 zero = all(0.0f), most = all(kMost), one = all(1.0f), vd = all(d), vm = all(dmin);
        const F8 per_d = all(d > 0.0f ? 1.0f / d : 0.0f), per_m = all(dmin > 0.0f ? 1.0f / dmin : 0.0f);
        F8 total = zero, sc[kGroups], mn[kGroups];
        for (int g = 0; g < kGroups; ++g) {
            const Moments& t = fit_[g].at;
            const F8 exact = fit_[g].s * per_d, per_w = one / t.w;
            sc[g] = smaller(nearest(exact), most);
            const F8 other = clamp(pick(sc[g] < exact, sc[g] + one, sc[g] - one), zero, most);
            F8 s = sc[g] * vd;
            mn[g] = nearest(clamp((s * t.q - t.x) * per_w * per_m, zero, most));
            F8 error = error_of(t, s, mn[g] * vm);
            s = other * vd;
            const F8 other_mn = nearest(clamp((s * t.q - t.x) * per_w * per_m, zero, most));
            const F8 other_error = error_of(t, s, other_mn * vm);
            const M8 better = other_error < error;
            sc[g] = pick(better, other, sc[g]);
            mn[g] = pick(better, other_mn, mn[g]);
            total = total + pick(better, other_error, error);
        }
        const float e = sum(total);
        if (!(e < total_)) return;
        total_ = e;
        d_ = d;
        dmin_ = dmin;
        for (int g = 0; g < kGroups; ++g) sc_[g] = sc[g], mn_[g] = mn[g];
    }

    // E of a sub-block with codes rounded by these scales.
    F8 error_at(int g, const F8& s, const F8& m) const {
        const F8 inverse = pick(all(0.0f) < s, all(1.0f) / s, all(0.0f));
        F8 error = all(0.0f);
        for (int i = 0; i < N; ++i) {
            const F8 xm = x(g, i) + m;
            const F8 q = nearest(clamp(xm * inverse, all(0.0f), all(kTop)));
            const F8 r = xm - s * q;
            error = error + w(g, i) * (r * r);
        }
        return error;
    }

    float total_at(float d, float dmin, F8* error) const {
        F8 total = all(0.0f);
        for (int g = 0; g < kGroups; ++g) {
            error[g] = error_at(g, sc_[g] * all(d), mn_[g] * all(dmin));
            total = total + error[g];
        }
        return sum(total);
    }

    // Step 3.
    void refine() {
        F8 error[kGroups];
        total_ = total_at(d_, dmin_, error);
        for (int round = 0; round < kRounds; ++round) {
            F8 total = all(0.0f);
            for (int g = 0; g < kGroups; ++g) {
                const F8 sc = sc_[g], mn = mn_[g];
                for (int ds = -1; ds <= 1; ++ds)
                    for (int dm = -1; dm <= 1; ++dm) {
                        if (ds == 0 && dm == 0) continue;
                        const F8 s = clamp(sc + all(static_cast<float>(ds)), all(0.0f), all(kMost));
                        const F8 m = clamp(mn + all(static_cast<float>(dm)), all(0.0f), all(kMost));
                        const F8 e = error_at(g, s * all(d_), m * all(dmin_));
                        const M8 better = e < error[g];
                        error[g] = pick(better, e, error[g]);
                        sc_[g] = pick(better, s, sc_[g]);
                        mn_[g] = pick(better, m, mn_[g]);
                    }
                total = total + error[g];
            }
            total_ = sum(total);
            float d = 0, dmin = 0;
            if (!solve(d, dmin)) break;
            F8 new_error[kGroups];
            const float e = total_at(d, dmin, new_error);
            if (!(e < total_)) break;
            total_ = e, d_ = d, dmin_ = dmin;
            for (int g = 0; g < kGroups; ++g) error[g] = new_error[g];
        }
    }

    // The least squares for (d, dmin) with codes, sc and mn fixed, as the file will hold them. With
    // A = sum sc²·qq, B = sum sc·mn·q, C = sum mn²·w, P = sum sc·qx, Q = sum mn·x:  A·d − B·dmin = P,  B·d − C·dmin =
    // Q.
    bool solve(float& d, float& dmin) const {
        F8 a = all(0.0f), b = a, c = a, p = a, q0 = a;
        for (int g = 0; g < kGroups; ++g) {
            const F8 s = sc_[g] * all(d_), m = mn_[g] * all(dmin_);
            const F8 inverse = pick(all(0.0f) < s, all(1.0f) / s, all(0.0f));
            F8 tq = all(0.0f), tqq = all(0.0f), tqx = all(0.0f);
            for (int i = 0; i < N; ++i) {
                const F8 q = nearest(clamp((x(g, i) + m) * inverse, all(0.0f), all(kTop)));
                const F8 wq = w(g, i) * q;
                tq = tq + wq;
                tqq = tqq + wq * q;
                tqx = tqx + wq * x(g, i);
            }
            a = a + sc_[g] * sc_[g] * tqq;
            b = b + sc_[g] * mn_[g] * tq;
            c = c + mn_[g] * mn_[g] * fit_[g].at.w;
            p = p + sc_[g] * tqx;
            q0 = q0 + mn_[g] * fit_[g].at.x;
        }
        const double A = sum(a), B = sum(b), C = sum(c), P = sum(p), Q = sum(q0);
        const double det = A * C - B * B;
        double best_d = d_, best_m = dmin_;
        if (det > 1e-9 * (A * C)) {
            best_d = (C * P - B * Q) / det;
            best_m = (B * P - A * Q) / det;
        } else if (A > 0) {
            best_d = P / A;
            best_m = dmin_;
        } else if (C > 0) {
            best_m = -Q / C;
        }
        if (!(best_d >= 0) || !(best_m >= 0)) return false;
        d = stored(static_cast<float>(best_d) * unit_) * per_unit_;
        dmin = stored(static_cast<float>(best_m) * unit_) * per_unit_;
        return d * unit_ <= kLargestF16 && dmin * unit_ <= kLargestF16;
    }

    void finish(SearchResult& out) const {
        for (int g = 0; g < kGroups; ++g) {
            const F8 s = sc_[g] * all(d_), m = mn_[g] * all(dmin_);
            const F8 inverse = pick(all(0.0f) < s, all(1.0f) / s, all(0.0f));
            for (int i = 0; i < N; ++i)
                write(out.code + 8 * (N * g + i), nearest(clamp((x(g, i) + m) * inverse, all(0.0f), all(kTop))));
            write(out.scale + 8 * g, sc_[g]);
            write(out.min + 8 * g, mn_[g]);
        }
        out.d[0] = d_ * unit_;
        out.dmin = dmin_ * unit_;
    }

    static constexpr int kTrials = kCodes == 4 ? 16 : 22;
    static constexpr float kFirst = kCodes == 4 ? -0.6f : -1.1f;
    static constexpr float kStep = 0.1f;
    static constexpr int kGrid = kFactors == 16 ? 7 : 3;
    // 0, then outwards in both directions: the obvious factor first, so that ties keep it.
    static constexpr float grid(int k) {
        const float step = kFactors == 16 ? 1.0f : 3.0f;
        return step * static_cast<float>(k % 2 == 0 ? -(k / 2) : k / 2 + 1);
    }
    static constexpr int kRounds = 3;
    static constexpr float kIllConditioned = 0x1p-12f;  // 2^8 times the rounding of a sum of 32

    const SearchInput& in_;
    const float unit_, per_unit_;
    Fit fit_[kGroups];
    F8 sc_[kGroups], mn_[kGroups];
    float d_ = 0, dmin_ = 0, total_ = 0;
};

// --- scale only: q3_k, q6_k --------------------

struct ScaleFit {
    F8 s, qq, qx, gain;
};

// Codes −kHalf .. kHalf−1, factors −kFactorHalf .. kFactorHalf−1; 16 sub-blocks of 16.
template <int kHalf, int kFactorHalf>
class ScaleSearch {
 public:
    explicit ScaleSearch(const SearchInput& in) : in_(in), unit_(in.unit[0]), per_unit_(1.0f / in.unit[0]) {}

    void run(SearchResult& out) {
        for (int g = 0; g < kGroups; ++g) fit_sub_blocks(g);
        if (!choose_factor()) {
            for (int l = 0; l < 8; ++l) out.d[l] = kHuge * 10.0f;
            return;
        }
        refine();
        finish(out);
    }

 private:
    static constexpr int N = 16, kGroups = 2;
    static constexpr float kLow = static_cast<float>(-kHalf), kHigh = static_cast<float>(kHalf - 1);
    static constexpr float kLeast = static_cast<float>(-kFactorHalf), kMost = static_cast<float>(kFactorHalf - 1);

    F8 x(int g, int i) const { return read(in_.x + 8 * (N * g + i)); }
    F8 w(int g, int i) const { return read(in_.w + 8 * (N * g + i)); }
    static F8 inverse_of(const F8& s) {
        const F8 zero = all(0.0f);
        return pick(zero < magnitude(s), all(1.0f) / s, zero);
    }

    // With s = qx/qq the error is sum w·x² − qx²/qq: the largest gain wins.
    void attempt(int g, const F8& inverse, ScaleFit& best) {
        F8 qq = all(0.0f), qx = all(0.0f);
        for (int i = 0; i < N; ++i) {
            const F8 q = nearest(clamp(x(g, i) * inverse, all(kLow), all(kHigh)));
            const F8 wq = w(g, i) * q;
            qq = qq + wq * q;
            qx = qx + wq * x(g, i);
        }
        const F8 s = qx / qq, gain = s * qx;
        const M8 better = best.gain < gain;
        best.s = pick(better, s, best.s);
        best.qq = pick(better, qq, best.qq);
        best.qx = pick(better, qx, best.qx);
        best.gain = pick(better, gain, best.gain);
    }

    void fit_sub_blocks(int g) {
        const F8 zero = all(0.0f);
        F8 top = zero;  // the signed element of largest magnitude
        for (int i = 0; i < N; ++i) top = pick(magnitude(top) < magnitude(x(g, i)), x(g, i), top);
        const F8 per_top = inverse_of(top);
        ScaleFit best{zero, zero, zero, zero};
        for (int k = 0; k < kTrials; ++k)
            attempt(g, all(kLow - kFirst - kStep * static_cast<float>(k)) * per_top, best);
        // The other sign: the largest element gets the highest code, which is one smaller.
        for (int k = 0; k < kTrials; ++k)
            attempt(g, all(kHigh + kFirst + kStep * static_cast<float>(k)) * per_top, best);
        for (int k = 0; k < 2; ++k) attempt(g, inverse_of(best.s), best);
        fit_[g] = best;
    }

    bool choose_factor() {
        F8 top = fit_[0].s;
        for (int g = 1; g < kGroups; ++g) top = pick(magnitude(top) < magnitude(fit_[g].s), fit_[g].s, top);
        alignas(32) float t[8];
        write(t, top);
        float s_max = t[0];
        for (int l = 1; l < 8; ++l) s_max = (t[l] < 0 ? -t[l] : t[l]) > (s_max < 0 ? -s_max : s_max) ? t[l] : s_max;
        const float size = s_max < 0 ? -s_max : s_max;
        if (size / static_cast<float>(kFactorHalf) * unit_ > kLargestF16) return false;
        total_ = kHuge;
        for (int a = 0; a < kGrid; ++a) {
            // The largest scale takes the lowest factor, −kFactorHalf; the sign of d follows.
            const float d = stored(size / (static_cast<float>(kFactorHalf) + grid(a)) * unit_) * per_unit_;
            try_factor(s_max > 0 ? -d : d);
            if (size == 0.0f) break;
        }
        for (int a = 0; a < kGrid; ++a) {
            const float d = stored(size / (kMost + grid(a)) * unit_) * per_unit_;
            try_factor(s_max > 0 ? d : -d);
            if (size == 0.0f) break;
        }
        return true;
    }

    void try_factor(float d) {
        if ((d < 0 ? -d : d) * unit_ > kLargestF16) return;
        const F8 vd = all(d), per_d = all(d < 0.0f || d > 0.0f ? 1.0f / d : 0.0f);
        F8 total = all(0.0f), sc[kGroups];
        for (int g = 0; g < kGroups; ++g) {
            sc[g] = nearest(clamp(fit_[g].s * per_d, all(kLeast), all(kMost)));
            const F8 s = sc[g] * vd;
            total = total + s * (s * fit_[g].qq - (fit_[g].qx + fit_[g].qx));
        }
        const float e = sum(total);
        if (!(e < total_)) return;
        total_ = e;
        d_ = d;
        for (int g = 0; g < kGroups; ++g) sc_[g] = sc[g];
    }

    F8 error_at(int g, const F8& s) const {
        const F8 inverse = inverse_of(s);
        F8 error = all(0.0f);
        for (int i = 0; i < N; ++i) {
            const F8 q = nearest(clamp(x(g, i) * inverse, all(kLow), all(kHigh)));
            const F8 r = x(g, i) - s * q;
            error = error + w(g, i) * (r * r);
        }
        return error;
    }

    float total_at(float d, F8* error) const {
        F8 total = all(0.0f);
        for (int g = 0; g < kGroups; ++g) {
            error[g] = error_at(g, sc_[g] * all(d));
            total = total + error[g];
        }
        return sum(total);
    }

    void refine() {
        F8 error[kGroups];
        total_ = total_at(d_, error);
        for (int round = 0; round < kRounds; ++round) {
            F8 total = all(0.0f);
            for (int g = 0; g < kGroups; ++g) {
                const F8 sc = sc_[g];
                for (int ds = -kReach; ds <= kReach; ++ds) {
                    if (ds == 0) continue;
                    const F8 s = clamp(sc + all(static_cast<float>(ds)), all(kLeast), all(kMost));
                    const F8 e = error_at(g, s * all(d_));
                    const M8 better = e < error[g];
                    error[g] = pick(better, e, error[g]);
                    sc_[g] = pick(better, s, sc_[g]);
                }
                total = total + error[g];
            }
            total_ = sum(total);
            // d = sum sc·qx / sum sc²·qq
            F8 top = all(0.0f), bottom = all(0.0f);
            for (int g = 0; g < kGroups; ++g) {
                const F8 inverse = inverse_of(sc_[g] * all(d_));
                F8 qq = all(0.0f), qx = all(0.0f);
                for (int i = 0; i < N; ++i) {
                    const F8 q = nearest(clamp(x(g, i) * inverse, all(kLow), all(kHigh)));
                    const F8 wq = w(g, i) * q;
                    qq = qq + wq * q;
                    qx = qx + wq * x(g, i);
                }
                top = top + sc_[g] * qx;
                bottom = bottom + sc_[g] * sc_[g] * qq;
            }
            const float best = sum(top) / sum(bottom);
            if (!(best < 0.0f) && !(best > 0.0f)) break;
            const float size = stored((best < 0 ? -best : best) * unit_) * per_unit_;
            if (!(size * unit_ <= kLargestF16)) break;
            const float d = best < 0 ? -size : size;
            F8 new_error[kGroups];
            const float e = total_at(d, new_error);
            if (!(e < total_)) break;
            total_ = e, d_ = d;
            for (int g = 0; g < kGroups; ++g) error[g] = new_error[g];
        }
    }

    void finish(SearchResult& out) const {
        for (int g = 0; g < kGroups; ++g) {
            const F8 inverse = inverse_of(sc_[g] * all(d_));
            for (int i = 0; i < N; ++i)
                write(out.code + 8 * (N * g + i), nearest(clamp(x(g, i) * inverse, all(kLow), all(kHigh))));
            write(out.scale + 8 * g, sc_[g]);
        }
        out.d[0] = d_ * unit_;
    }

    static constexpr int kTrials = kHalf == 4 ? 15 : 11;
    static constexpr float kFirst = kHalf == 4 ? -0.9f : -0.75f;
    static constexpr float kStep = kHalf == 4 ? 0.12f : 0.15f;
    static constexpr int kGrid = kHalf == 4 ? 9 : 3;
    static constexpr int kReach = kHalf == 4 ? 1 : 3;
    static constexpr int kRounds = 3;
    static constexpr float grid(int k) {
        const float step = kFactorHalf == 32 ? 1.0f : 2.0f;
        return step * static_cast<float>(k % 2 == 0 ? -(k / 2) : k / 2 + 1);
    }

    const SearchInput& in_;
    const float unit_, per_unit_;
    ScaleFit fit_[kGroups];
    F8 sc_[kGroups];
    float d_ = 0, total_ = 0;
};

// --- blocks of 32, one per lane --------------------

// d = amax / (127 + t) for a row of t: smaller steps round finer and may clip the largest, larger ones may happen to fit
// better. f16 has steps of about 1/8 of a code here.
constexpr int kQ80Trials = 48;
constexpr float kQ80First = 1.5f, kQ80Step = -0.25f;

F8 q8_0_error(const SearchInput& in, const F8& d) {
    const F8 zero = all(0.0f), inverse = pick(zero < d, all(1.0f) / d, zero);
    F8 error = zero;
    for (int i = 0; i < 32; ++i) {
        const F8 x = read(in.x + 8 * i);
        const F8 r = x - d * nearest(clamp(x * inverse, all(-127.0f), all(127.0f)));
        error = error + read(in.w + 8 * i) * (r * r);
    }
    return error;
}

void search_q8_0(const SearchInput& in, SearchResult& out) {
    const F8 zero = all(0.0f), unit = read(in.unit), per_unit = all(1.0f) / unit;
    F8 amax = zero;
    for (int i = 0; i < 32; ++i) amax = larger(amax, magnitude(read(in.x + 8 * i)));
    const F8 obvious = to_f16(amax * all(1.0f / 127.0f) * unit);
    F8 best_d = obvious * per_unit, best = q8_0_error(in, best_d);
    for (int k = -1; k < kQ80Trials; ++k) {
        // Among f16's subnormals a factor does not reach the next number.
        const F8 trial = k < 0 ? obvious + all(kSmallestF16)
                               : amax * unit * all(1.0f / (127.0f + kQ80First + kQ80Step * static_cast<float>(k)));
        const F8 d = to_f16(trial) * per_unit, error = q8_0_error(in, d);
        const M8 better = error < best;
        best = pick(better, error, best);
        best_d = pick(better, d, best_d);
    }
    const F8 inverse = pick(zero < best_d, all(1.0f) / best_d, zero);
    for (int i = 0; i < 32; ++i)
        write(out.code + 8 * i, nearest(clamp(read(in.x + 8 * i) * inverse, all(-127.0f), all(127.0f))));
    write(out.d, best_d * unit);
}

// Scales 1, 1/2 and 1/4 of the smallest one that clips nothing. A larger one has no level that this one lacks below
// amax.
void search_mxfp4(const SearchInput& in, SearchResult& out) {
    const F8 zero = all(0.0f), one = all(1.0f), two = all(2.0f), half = all(0.5f);
    F8 best_scale = read(in.obvious), best = all(kHuge), scale = best_scale;
    for (int k = 0; k < 3; ++k) {
        const F8 inverse = one / scale;
        F8 error = zero;
        for (int i = 0; i < 32; ++i) {
            const F8 x = magnitude(read(in.x + 8 * i));
            const F8 a = smaller(x * inverse, all(6.0f));
            // The levels are 1/2 apart below 2, 1 below 4, 2 above.
            const F8 fine = pick(a < two, two, pick(a < all(4.0f), one, half));
            const F8 step = pick(a < two, half, pick(a < all(4.0f), one, two));
            const F8 r = x - scale * (nearest(a * fine) * step);
            error = error + read(in.w + 8 * i) * (r * r);
        }
        const M8 better = error < best;
        best = pick(better, error, best);
        best_scale = pick(better, scale, best_scale);
        scale = scale * half;
    }
    write(out.d, best_scale);
}

constexpr SearchKernels search_kernels(const char* name) {
    return {.name = name,
            .q2_k = [](const SearchInput& in, SearchResult& out) { ScaleMinSearch<16, 2, 4, 16>(in).run(out); },
            .q3_k = [](const SearchInput& in, SearchResult& out) { ScaleSearch<4, 32>(in).run(out); },
            .q4_k = [](const SearchInput& in, SearchResult& out) { ScaleMinSearch<32, 1, 16, 64>(in).run(out); },
            .q5_k = [](const SearchInput& in, SearchResult& out) { ScaleMinSearch<32, 1, 32, 64>(in).run(out); },
            .q6_k = [](const SearchInput& in, SearchResult& out) { ScaleSearch<32, 128>(in).run(out); },
            .q8_0 = search_q8_0,
            .mxfp4 = search_mxfp4};
}

}  // namespace
}  // namespace vesta::quant
