// The search of q2_k, q4_k and q5_k: a scale and a minimum per sub-block. A part of quantize_k_search.h, which says how
// it goes and includes it.
#pragma once

namespace vesta::quant {
namespace {

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
            for (int l = 0; l < 8; ++l) out.d[l] = __builtin_inff();
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
                const int reach = round == 0 ? kReach : 1;
                for (int ds = -reach; ds <= reach; ++ds)
                    for (int dm = -reach; dm <= reach; ++dm) {
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

    // The numbers below were chosen on the pocket model's tensors, with and without importance (bench/peers/quantizer).
    // Steps from range/(kTop + kFirst) down, in tenths of a code. Half the spacing: 0.1 % less E, a fifth slower.
    static constexpr int kTrials = kCodes == 4 ? 16 : 22;
    static constexpr float kFirst = kCodes == 4 ? -0.6f : -1.1f;
    static constexpr float kStep = 0.1f;
    // Trials of d and of dmin: the largest scale becomes factor kMost + grid(k), from 0 outwards so that ties keep the
    // obvious one. With 6-bit factors 3 trials leave 0.2 % (q4_k) to 0.5 % (q5_k) more E, with 4 bits 7 gain nothing.
    static constexpr int kGrid = 5;
    static constexpr float grid(int k) {
        const float step = kFactors == 16 ? 1.0f : 3.0f;
        return step * static_cast<float>(k % 2 == 0 ? -(k / 2) : k / 2 + 1);
    }
    // Neighbours of both factors tried on each side in the first round; later rounds: 1. With 1 from the start: 0.6 %
    // (q4_k), 1 % (q2_k), 4 % (q5_k) more E.
    static constexpr int kReach = kCodes == 32 ? 3 : 2;
    // More rounds gain nothing (6: 0.05 % less E), nor do restarts from d and dmin 6 % off (4 of them, q2_k: 0.6 % less
    // E in three times the time).
    static constexpr int kRounds = 3;
    static constexpr float kIllConditioned = 0x1p-12f;  // 2^8 times the rounding of a sum of 32

    const SearchInput& in_;
    const float unit_, per_unit_;
    Fit fit_[kGroups];
    F8 sc_[kGroups], mn_[kGroups];
    float d_ = 0, dmin_ = 0, total_ = 0;
};

}  // namespace
}  // namespace vesta::quant
