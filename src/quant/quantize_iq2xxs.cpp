#include "quant/quantize_iq2xxs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/codecs.h"
#include "quant/half.h"
#include "quant/quantize_iq2xxs_search.h"

namespace vesta::quant {
namespace iq2xxs {
namespace {

// --- the scalar kernels: the definition --------------------

float lesser(float a, float b) { return a < b ? a : b; }

void group_points(const Problem& problem, int group, const float s[kLanes], Points& out) {
    // Cost and cheapest flip of the three levels of each element, then of pairs and quads of elements.
    float cost[8][3], flip[8][3], pair_cost[4][9], pair_flip[4][9];
    float low_cost[Halves::kLow], low_flip[Halves::kLow];
    for (int b = 0; b < kLanes; ++b) {
        const float four_odd = problem.odd[group][b] * 4.0f, over_s = 1.0f / s[b];
        for (int i = 0; i < 8; ++i) {
            const float w = problem.w[8 * group + i][b], y = problem.x[8 * group + i][b] * over_s;
            const float h = (w * y) * four_odd;
            for (int k = 0; k < 3; ++k) {
                const float off = y - kLevel[k];
                cost[i][k] = (off * off) * w;
                flip[i][k] = h * kLevel[k];
            }
        }
        for (int i = 0; i < 4; ++i)
            for (int k = 0; k < 9; ++k) {
                pair_cost[i][k] = cost[2 * i][k % 3] + cost[2 * i + 1][k / 3];
                pair_flip[i][k] = lesser(flip[2 * i][k % 3], flip[2 * i + 1][k / 3]);
            }
        for (int q = 0; q < Halves::kLow; ++q) {
            const int k = kHalves.low_quad[q];
            low_cost[q] = pair_cost[0][k % 9] + pair_cost[1][k / 9];
            low_flip[q] = lesser(pair_flip[0][k % 9], pair_flip[1][k / 9]);
        }
        float least = std::numeric_limits<float>::max();
        int best = 0;
        for (int q = 0; q < Halves::kHigh; ++q) {
            const int k = kHalves.high_quad[q];
            const float high_cost = pair_cost[2][k % 9] + pair_cost[3][k / 9];
            const float high_flip = lesser(pair_flip[2][k % 9], pair_flip[3][k / 9]);
            for (int p = kHalves.high_start[q]; p < kHalves.high_start[q + 1]; ++p) {
                const int low = kHalves.low_of[p];
                const float c = (high_cost + low_cost[low]) + lesser(high_flip, low_flip[low]);
                if (c < least) {
                    least = c;
                    best = p;
                }
            }
        }
        out.point[group][b] = best;

        float p = 0, q = 0, cheapest = std::numeric_limits<float>::max();
        int at = 8;
        for (int i = 0; i < 8; ++i) {
            const float g = kLevel[(kHalves.levels[best] >> (2 * i)) & 3u];
            const float wg = problem.w[8 * group + i][b] * g, wxg = wg * problem.x[8 * group + i][b];
            p = p + wxg;
            q = q + wg * g;
            if (wxg < cheapest) {
                cheapest = wxg;
                at = i;
            }
        }
        out.p[b] = out.p[b] + (p - cheapest * (problem.odd[group][b] * 2.0f));
        out.q[b] = out.q[b] + q;
        out.flip[group][b] = problem.odd[group][b] != 0 ? at : 8;
    }
}

void best_points(const Problem& problem, const float s[kLanes], Points& out) {
    for (int b = 0; b < kLanes; ++b) out.p[b] = out.q[b] = 0;
    for (int group = 0; group < 4; ++group) group_points(problem, group, s, out);
}

void envelope(const Curves& curves, const float* d, int n_d, float* error) {
    for (int i = 0; i < n_d; ++i) {
        const float eighth = d[i] * 0.125f;
        float e[kLanes];
        for (int b = 0; b < kLanes; ++b) {
            // best_s = eighth·(2t+1), so t lies between the codes floor(t) and floor(t)+1.
            float t = (curves.best_s[b] / eighth - 1.0f) * 0.5f;
            t = t < 0.0f ? 0.0f : t < 14.0f ? t : 14.0f;
            const float below = static_cast<float>(static_cast<int>(t));
            const float s0 = eighth * (below + below + 1.0f), s1 = eighth * (below + below + 3.0f);
            float least = std::numeric_limits<float>::max();
            for (int k = 0; k < curves.n; ++k) {
                const float q = curves.q[k][b], twice_p = curves.p[k][b] + curves.p[k][b];
                least = lesser(lesser((s0 * q - twice_p) * s0, (s1 * q - twice_p) * s1), least);
            }
            e[b] = least * curves.share[b];
        }
        error[i] = ((e[0] + e[4]) + (e[2] + e[6])) + ((e[1] + e[5]) + (e[3] + e[7]));
    }
}

constexpr Kernels kScalar = {.best_points = best_points, .envelope = envelope};

// --- the search --------------------

// Scales tried for a block, as multiples of the root mean square of its values (that of a grid point is 8 to 43).
// Error above that of 24 tries, pocket weights: 10: 0.00015, 8: 0.0003, 6: 0.0009 of it.
constexpr int kTries = 10;
constexpr double kFirstTry = 1.0 / 32, kTryStep = 1.17;
// Super-block scales tried, as multiples of the one that gives the largest block the largest code. They are cheap: one
// costs a fiftieth of a search. More or wider gains 1e-5; searching the three best instead of the best one gains
// 0.00005 to 0.0002 of the error for 1.5 times the work.
constexpr int kScales = 64;
constexpr double kFirstScale = 0.70, kScaleStep = 1.015;
// Below 40 units of f16's smallest, 2^-24, rounding d matters more than where it was: then d = 1..kScales units.
constexpr double kUnit = 0x1p-24, kFewUnits = 40;
// How often a scale is fitted to its points and the points searched again; the second time gains 1e-6.
constexpr int kRefits = 1;
static_assert(kTries + kRefits <= kMaxCurves);

// d and codes with their points, and the error less that of d = 0.
struct Solution {
    double error = 0;
    float d = 0;
    int code[kLanes] = {};
    Points points;
};

struct Search {
    const Kernels& kernels;
    const Problem& problem;
    double unit;  // stored d = d here · unit
    Curves curves = {};
    Solution best = {};

    // d as the file will hold it, 0 when it would vanish, infinity when it would not fit.
    float storable(double d) const {
        return static_cast<float>(static_cast<double>(f16_to_f32(f32_to_f16(static_cast<float>(d * unit)))) / unit);
    }
    double block_error(const Points& t, int b, double s) const {
        return (s * static_cast<double>(t.q[b]) - 2.0 * static_cast<double>(t.p[b])) * s;
    }
    void find_curves(const double rms[kLanes]);
    float promising_d() const;
    void add_curve(const float s[kLanes], float least[kLanes]);
    void solve_at(float d);
    void keep_if_better(const Solution& s) {
        if (s.error < best.error) best = s;
    }
};

void Search::add_curve(const float s[kLanes], float least[kLanes]) {
    Points t;
    kernels.best_points(problem, s, t);
    for (int b = 0; b < kLanes; ++b) {
        curves.p[curves.n][b] = t.p[b];
        curves.q[curves.n][b] = t.q[b];
        const float lowest = t.q[b] > 0 ? -t.p[b] * (t.p[b] / t.q[b]) : 0;  // at s = p/q
        if (t.p[b] > 0 && lowest < least[b]) {
            least[b] = lowest;
            curves.best_s[b] = t.p[b] / t.q[b];
        }
    }
    ++curves.n;
}

void Search::find_curves(const double rms[kLanes]) {
    float s[kLanes], least[kLanes] = {};
    for (int b = 0; b < kLanes; ++b) curves.best_s[b] = 0;
    double factor = kFirstTry;
    for (int i = 0; i < kTries; ++i, factor *= kTryStep) {
        for (int b = 0; b < kLanes; ++b) s[b] = static_cast<float>(rms[b] * factor);
        add_curve(s, least);
    }
    for (int i = 0; i < kRefits; ++i) {
        for (int b = 0; b < kLanes; ++b) s[b] = curves.best_s[b] > 0 ? curves.best_s[b] : static_cast<float>(rms[b]);
        add_curve(s, least);
    }
}

// The storable d whose envelope is lowest: 0 when all are worse than zeros, infinity when it would not fit.
float Search::promising_d() const {
    double top = 0;
    for (int b = 0; b < kLanes; ++b)
        top = std::max(top, static_cast<double>(curves.best_s[b]) * static_cast<double>(curves.share[b]));
    top *= 8.0 / 31;
    float d[kScales], error[kScales];
    double factor = kFirstScale;
    for (int i = 0; i < kScales; ++i, factor *= kScaleStep) {
        const float exact = static_cast<float>(top * unit < kFewUnits * kUnit ? (i + 1) * kUnit / unit : top * factor);
        const float stored = storable(static_cast<double>(exact));
        d[i] = std::isfinite(stored) ? stored : exact;
    }
    kernels.envelope(curves, d, kScales, error);
    const float* least = std::min_element(error, error + kScales);
    return *least < 0 ? storable(static_cast<double>(d[least - error])) : 0;
}

// The best codes and points near curves.best_s for this d, then d fitted to them and the points searched again.
void Search::solve_at(float d) {
    Solution s;
    s.d = d;
    int centre[kLanes];
    double least[kLanes] = {};
    for (int b = 0; b < kLanes; ++b) {
        const double t = (static_cast<double>(curves.best_s[b]) / static_cast<double>(d) * 8 - 1) / 2;
        centre[b] = static_cast<int>(std::clamp(std::round(t), 0.0, 15.0));
    }
    for (const int step : {0, -1, 1}) {
        float scale[kLanes];
        int code[kLanes];
        for (int b = 0; b < kLanes; ++b) {
            code[b] = std::clamp(centre[b] + step, 0, 15);
            scale[b] = d * (0.125f * static_cast<float>(2 * code[b] + 1));
        }
        Points t;
        kernels.best_points(problem, scale, t);
        for (int b = 0; b < kLanes; ++b) {
            const double e = block_error(t, b, static_cast<double>(scale[b]));
            if (step != 0 && !(e < least[b])) continue;
            least[b] = e;
            s.code[b] = code[b];
            s.points.p[b] = t.p[b];
            s.points.q[b] = t.q[b];
            for (int g = 0; g < 4; ++g) {
                s.points.point[g][b] = t.point[g][b];
                s.points.flip[g][b] = t.flip[g][b];
            }
        }
    }
    for (int b = 0; b < kLanes; ++b) s.error += least[b] * static_cast<double>(curves.share[b]);
    keep_if_better(s);
    for (int round = 0; round < kRefits; ++round) {
        double up = 0, uuq = 0;
        for (int b = 0; b < kLanes; ++b) {
            const double u = 0.125 * (2 * s.code[b] + 1) * static_cast<double>(curves.share[b]);
            up += u * static_cast<double>(s.points.p[b]);
            uuq += u * u * static_cast<double>(s.points.q[b]);
        }
        Solution next = s;
        next.d = up > 0 ? storable(up / uuq) : 0;
        if (next.d == s.d || !(next.d > 0) || !std::isfinite(next.d)) return;
        float scale[kLanes];
        for (int b = 0; b < kLanes; ++b) scale[b] = next.d * (0.125f * static_cast<float>(2 * next.code[b] + 1));
        kernels.best_points(problem, scale, next.points);
        next.error = 0;
        for (int b = 0; b < kLanes; ++b)
            next.error +=
                block_error(next.points, b, static_cast<double>(scale[b])) * static_cast<double>(curves.share[b]);
        if (!(next.error < s.error)) return;
        s = next;
        keep_if_better(s);
    }
}

// --- one super-block in, 66 bytes out --------------------

// 2^-floor(log2(v)); 1 for 0.
double unit_scale(float v) { return v > 0 ? std::ldexp(1.0, -std::ilogb(v)) : 1.0; }

void write_nan(std::byte* dst) {
    std::fill(dst, dst + 66, std::byte{0});
    store<uint16_t>(dst, 0x7e00);
}

void encode_block(const Kernels& kernels, const float* x, const float* importance, std::byte* dst) {
    float largest = 0, heaviest = 0;
    bool finite = true;
    for (int i = 0; i < 256; ++i) {
        finite = finite && std::isfinite(x[i]);
        if (importance == nullptr || importance[i] > 0) largest = std::max(largest, std::fabs(x[i]));
        if (importance != nullptr) heaviest = std::max(heaviest, importance[i]);
    }
    if (!finite) return write_nan(dst);
    if (importance != nullptr && heaviest == 0) return encode_block(kernels, x, nullptr, dst);
    std::fill(dst, dst + 66, std::byte{0});
    if (largest == 0) return;

    const double x_scale = unit_scale(largest), w_scale = importance != nullptr ? unit_scale(heaviest) : 1.0;
    Problem problem;
    Search search{.kernels = kernels, .problem = problem, .unit = 1.0 / x_scale};
    double rms[kLanes];
    uint32_t negative[kLanes];
    for (int b = 0; b < kLanes; ++b) {
        double sum_w = 0;
        if (importance != nullptr)
            for (int e = 0; e < 32; ++e) sum_w += static_cast<double>(importance[32 * b + e]);
        const bool has_say = importance == nullptr || sum_w > 0;
        search.curves.share[b] = has_say ? 1.0f : 0.0f;
        double sum = 0, energy = 0;
        negative[b] = 0;
        for (int e = 0; e < 32; ++e) {
            const float v = x[32 * b + e];
            // A value that has no say may be far larger than those that have; 2^20 keeps it in range.
            const double magnitude = std::min(std::fabs(static_cast<double>(v)) * x_scale, 0x1p20);
            const double w = importance != nullptr && has_say
                                 ? std::fabs(static_cast<double>(importance[32 * b + e]) * w_scale)
                                 : 1.0;
            problem.w[e][b] = static_cast<float>(w);
            problem.x[e][b] = static_cast<float>(magnitude);
            sum += w;
            energy += w * magnitude * magnitude;
            negative[b] |= static_cast<uint32_t>(std::signbit(v)) << e;
        }
        for (int g = 0; g < 4; ++g)
            problem.odd[g][b] = static_cast<float>(std::popcount((negative[b] >> (8 * g)) & 255u) & 1);
        rms[b] = energy > 0 ? std::sqrt(energy / sum) : 1.0;
    }

    search.find_curves(rms);
    const float d = search.promising_d();
    if (!std::isfinite(d)) return write_nan(dst);
    if (d > 0) search.solve_at(d);

    const Solution& best = search.best;
    if (best.d == 0) return;
    store<uint16_t>(dst, f32_to_f16(static_cast<float>(static_cast<double>(best.d) * search.unit)));
    for (int b = 0; b < kLanes; ++b) {
        uint32_t word = static_cast<uint32_t>(best.code[b]) << 28;
        for (int g = 0; g < 4; ++g) {
            dst[2 + 8 * b + g] = static_cast<std::byte>(best.points.point[g][b]);
            const uint32_t signs = (negative[b] >> (8 * g)) & 255u;
            const uint32_t stored = signs ^ (best.points.flip[g][b] < 8 ? 1u << best.points.flip[g][b] : 0u);
            word |= (stored & 127u) << (7 * g);
        }
        store<uint32_t>(dst + 2 + 8 * b + 4, word);
    }
}

}  // namespace

const Kernels& scalar_kernels() { return kScalar; }

void quantize(const Kernels& kernels, const float* src, int64_t n_row, int64_t n_col, const float* importance,
              std::byte* dst) {
    if (importance != nullptr && std::all_of(importance, importance + n_col, [](float w) { return w == 0; }))
        importance = nullptr;
    for (int64_t r = 0; r < n_row; ++r)
        for (int64_t c = 0; c < n_col; c += 256, dst += 66)
            encode_block(kernels, src + r * n_col + c, importance != nullptr ? importance + c : nullptr, dst);
}

}  // namespace iq2xxs

void quantize_iq2_xxs(const float* src, int64_t n_row, int64_t n_col, const float* importance, std::byte* dst) {
    const iq2xxs::Kernels* fast = iq2xxs::avx2_kernels();
    iq2xxs::quantize(fast != nullptr ? *fast : iq2xxs::scalar_kernels(), src, n_row, n_col, importance, dst);
}

}  // namespace vesta::quant
