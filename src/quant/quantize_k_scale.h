// The search of q3_k and q6_k: a scale of either sign per sub-block, no minimum. A part of quantize_k_search.h, which
// says how it goes and includes it.
#pragma once

namespace vesta::quant {
namespace {

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
            for (int l = 0; l < 8; ++l) out.d[l] = __builtin_inff();
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

    // Steps from amax/(kHalf + kFirst) down. Half the spacing changes E by less than 0.1 %.
    static constexpr int kTrials = kHalf == 4 ? 15 : 11;
    static constexpr float kFirst = kHalf == 4 ? -0.9f : -0.75f;
    static constexpr float kStep = kHalf == 4 ? 0.12f : 0.15f;
    static constexpr int kGrid = kHalf == 4 ? 9 : 7;
    static constexpr float grid(int k) {
        const float step = kFactorHalf == 32 ? 1.0f : 2.0f;
        return step * static_cast<float>(k % 2 == 0 ? -(k / 2) : k / 2 + 1);
    }
    static constexpr int kReach = kHalf == 4 ? 2 : 10;  // neighbours tried on each side; q6_k, 3: 4 % more E
    static constexpr int kRounds = 3;

    const SearchInput& in_;
    const float unit_, per_unit_;
    ScaleFit fit_[kGroups];
    F8 sc_[kGroups];
    float d_ = 0, total_ = 0;
};

}  // namespace
}  // namespace vesta::quant
