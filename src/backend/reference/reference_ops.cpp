#include "backend/reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "quant/format.h"
#include "quant/kv_row.h"

namespace vesta::backend {

using ops::Tensor;

bool ReferenceOps::supports(quant::Type type) const { return quant::format(type).decode != nullptr; }

void ReferenceOps::embed(const ops::EmbedArgs& a) {
    const auto decode = quant::format(a.table.type).decode;
    const int64_t n_embd = a.table.n_in;
    for (int64_t t = 0; t < a.y.n_row; ++t) {
        float* y = a.y.row(t);
        decode(a.table.row(a.rows[static_cast<size_t>(t)].token), y, n_embd);
        for (int64_t i = 1; i < a.n_copy; ++i) std::copy(y, y + n_embd, y + i * n_embd);
    }
}

void ReferenceOps::rms_norm(const ops::RmsNormArgs& a) {
    pool_.run(a.x.n_row, [&](int64_t t) {
        const float* x = a.x.row(t);
        float* y = a.y.row(t);
        const int64_t n = a.x.n_col;
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        const auto r = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(a.eps)));
        for (int64_t i = 0; i < n; ++i) y[i] = a.w == nullptr ? x[i] * r : x[i] * r * a.w[i];
    });
}

namespace {

constexpr int64_t kTileRows = 8;      // rows of x side by side: two SSE or one AVX register
constexpr int64_t kTileOutputs = 16;  // outputs per task
constexpr int64_t kPartial = 64;      // elements per partial sum: keeps the rounding error of long rows small

// y[t, o] for 8 rows of x, given as xt [n_in][8], and one decoded row of W. Each lane adds in the order of i.
void dot_tile(const float* w, const float* xt, int64_t n_in, float* out) {
    float total[kTileRows] = {};
    for (int64_t i0 = 0; i0 < n_in; i0 += kPartial) {
        float part[kTileRows] = {};
        const int64_t i1 = std::min(n_in, i0 + kPartial);
        for (int64_t i = i0; i < i1; ++i)
            for (int64_t l = 0; l < kTileRows; ++l) part[l] += w[i] * xt[i * kTileRows + l];
        for (int64_t l = 0; l < kTileRows; ++l) total[l] += part[l];
    }
    for (int64_t l = 0; l < kTileRows; ++l) out[l] = total[l];
}

}  // namespace

void ReferenceOps::matmul(const ops::MatmulArgs& a) {
    const int64_t n_row = a.x.n_row, n_in = a.w.n_in, n_out = a.w.n_out;
    VESTA_CHECK(a.x.n_col == n_in && a.y.n_col == n_out && a.y.n_row == n_row);
    const int64_t n_tile = (n_row + kTileRows - 1) / kTileRows;
    std::vector<float> xt(static_cast<size_t>(n_tile * kTileRows * n_in), 0.0f);  // [tile][n_in][8], padded with zeros
    for (int64_t t = 0; t < n_row; ++t)
        for (int64_t i = 0; i < n_in; ++i)
            xt[static_cast<size_t>(((t / kTileRows) * n_in + i) * kTileRows + t % kTileRows)] = a.x.row(t)[i];
    const auto decode = quant::format(a.w.type).decode;
    pool_.run((n_out + kTileOutputs - 1) / kTileOutputs, [&](int64_t task) {
        std::vector<float> w(static_cast<size_t>(n_in));
        const int64_t last = std::min(n_out, (task + 1) * kTileOutputs);
        for (int64_t o = task * kTileOutputs; o < last; ++o) {
            decode(a.w.row(o), w.data(), n_in);
            for (int64_t tile = 0; tile < n_tile; ++tile) {
                float out[kTileRows];
                dot_tile(w.data(), xt.data() + tile * n_in * kTileRows, n_in, out);
                const int64_t first = tile * kTileRows, n = std::min(kTileRows, n_row - first);
                for (int64_t l = 0; l < n; ++l) a.y.row(first + l)[o] = out[l];
            }
        }
    });
}

Rotation rotation(int32_t position, float freq, bool inverse) {
    const auto angle = static_cast<double>(static_cast<float>(position) * freq);
    const auto s = static_cast<float>(std::sin(angle));
    return {static_cast<float>(std::cos(angle)), inverse ? -s : s};
}

namespace {

void rotate(float* x, int64_t head_dim, int64_t n_rot, const float* freq, int32_t position, bool inverse) {
    float* r = x + (head_dim - n_rot);
    for (int64_t i = 0; i < n_rot / 2; ++i) {
        const Rotation w = rotation(position, freq[i], inverse);
        const float p = r[2 * i], q = r[2 * i + 1];
        r[2 * i] = p * w.cos - q * w.sin;
        r[2 * i + 1] = p * w.sin + q * w.cos;
    }
}

}  // namespace

void ReferenceOps::rope(const ops::RopeArgs& a) {
    pool_.run(a.x.n_row, [&](int64_t t) {
        for (int64_t h = 0; h < a.n_head; ++h)
            rotate(a.x.row(t) + h * a.head_dim, a.head_dim, a.n_rot, a.freq, a.rows[static_cast<size_t>(t)].position,
                   a.inverse);
    });
}

void ReferenceOps::swiglu(const ops::SwigluArgs& a) {
    pool_.run(a.y.n_row, [&](int64_t t) {
        for (int64_t i = 0; i < a.y.n_col; ++i) {
            const float g = std::min(a.gate.row(t)[i], a.clamp);
            const float u = std::clamp(a.up.row(t)[i], -a.clamp, a.clamp);
            const float y = g / (1.0f + std::exp(-g)) * u;
            a.y.row(t)[i] = a.scale == nullptr ? y : y * a.scale[t];
        }
    });
}

namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace

void hc_split_row(const ops::HcSplitArgs& a, int64_t t) {
    const int64_t n = a.n_stream;
    const float* mix = a.mix.row(t);
    for (int64_t s = 0; s < n; ++s) {
        a.pre.row(t)[s] = sigmoid(mix[s] * a.scale[0] + a.base[s]) + a.eps;
        a.post.row(t)[s] = 2.0f * sigmoid(mix[n + s] * a.scale[1] + a.base[n + s]);
    }
    float* m = a.comb.row(t);  // [n][n]
    for (int64_t j = 0; j < n; ++j) {
        float top = -std::numeric_limits<float>::infinity(), sum = 0;
        for (int64_t k = 0; k < n; ++k) {
            m[j * n + k] = mix[2 * n + j * n + k] * a.scale[2] + a.base[2 * n + j * n + k];
            top = std::max(top, m[j * n + k]);
        }
        for (int64_t k = 0; k < n; ++k) sum += m[j * n + k] = std::exp(m[j * n + k] - top);
        for (int64_t k = 0; k < n; ++k) m[j * n + k] = m[j * n + k] / sum + a.eps;
    }
    // Sinkhorn: columns first, then (rows, columns) n_sinkhorn - 1 times.
    const auto normalise = [&](int64_t step, int64_t stride) {
        for (int64_t i = 0; i < n; ++i) {
            float sum = 0;
            for (int64_t k = 0; k < n; ++k) sum += m[i * stride + k * step];
            for (int64_t k = 0; k < n; ++k) m[i * stride + k * step] /= sum + a.eps;
        }
    };
    normalise(n, 1);
    for (int i = 1; i < a.n_sinkhorn; ++i) {
        normalise(1, n);
        normalise(n, 1);
    }
}

void ReferenceOps::hc_split(const ops::HcSplitArgs& a) {
    pool_.run(a.mix.n_row, [&](int64_t t) { hc_split_row(a, t); });
}

void ReferenceOps::hc_collapse(const ops::HcCollapseArgs& a) {
    const int64_t n_embd = a.y.n_col;
    pool_.run(a.y.n_row, [&](int64_t t) {
        for (int64_t d = 0; d < n_embd; ++d) {
            float sum = 0;
            for (int64_t s = 0; s < a.gate.n_col; ++s) sum += a.gate.row(t)[s] * a.streams.row(t)[s * n_embd + d];
            a.y.row(t)[d] = sum;
        }
    });
}

void ReferenceOps::hc_mix_out(const ops::HcMixOutArgs& a) {
    const int64_t n_embd = a.y.n_col, n = a.post.n_col;
    pool_.run(a.y.n_row, [&](int64_t t) {
        std::vector<float> column(static_cast<size_t>(n));
        for (int64_t d = 0; d < n_embd; ++d) {
            float* h = a.streams.row(t) + d;
            for (int64_t k = 0; k < n; ++k) {
                float sum = a.post.row(t)[k] * a.y.row(t)[d];
                for (int64_t j = 0; j < n; ++j) sum += a.comb.row(t)[j * n + k] * h[j * n_embd];
                column[static_cast<size_t>(k)] = sum;
            }
            for (int64_t k = 0; k < n; ++k) h[k * n_embd] = column[static_cast<size_t>(k)];
        }
    });
}

void ReferenceOps::hc_head_gate(const ops::HcHeadGateArgs& a) {
    for (int64_t t = 0; t < a.mix.n_row; ++t)
        for (int64_t s = 0; s < a.mix.n_col; ++s)
            a.gate.row(t)[s] = sigmoid(a.mix.row(t)[s] * a.scale + a.base[s]) + a.eps;
}

void ReferenceOps::append_window(const ops::AppendWindowArgs& a) {
    pool_.run(a.kv.n_row, [&](int64_t t) {
        const ops::Row& row = a.rows[static_cast<size_t>(t)];
        const ops::LayerCache& cache = *a.cache[static_cast<size_t>(row.slot)];
        quant::encode_attn_row(cache.format, a.kv.row(t), static_cast<int>(a.kv.n_col), static_cast<int>(a.n_rot), cache.window.row(row.position));
    });
}

void ReferenceOps::compress(const ops::CompressArgs& a) {
    const int64_t wide = a.n_lane * a.width;
    std::vector<float> pooled(static_cast<size_t>(a.width));
    // In order of position: a window is pooled as soon as its last row is in, so the ring may be as short as the window.
    for (int64_t t = 0; t < a.c.n_row; ++t) {
        const ops::Row& row = a.rows[static_cast<size_t>(t)];
        ops::LayerCache& cache = *a.cache[static_cast<size_t>(row.slot)];
        const ops::Frontier& f = a.to_index ? cache.index_frontier : cache.attn_frontier;
        const int64_t p = row.position, phase = p % a.ratio;
        for (int64_t j = 0; j < wide; ++j) {
            f.c_row(p)[j] = a.c.row(t)[j];
            f.z_row(p)[j] = a.z.row(t)[j] + a.ape[phase * wide + j];
        }
        if (phase != a.ratio - 1) continue;
        const int64_t w = p / a.ratio, first = w * a.ratio;
        // Members in order: with two lanes, the previous window's lane A, then this window's lane B.
        const int64_t begin = a.n_lane == 2 && w > 0 ? first - a.ratio : first;
        for (int64_t j = 0; j < a.width; ++j) {
            const auto channel = [&](int64_t q) { return a.n_lane == 2 && q >= first ? a.width + j : j; };
            float top = -std::numeric_limits<float>::infinity();
            for (int64_t q = begin; q <= p; ++q) top = std::max(top, f.z_row(q)[channel(q)]);
            float sum = 0, value = 0;
            for (int64_t q = begin; q <= p; ++q) {
                const float e = std::exp(f.z_row(q)[channel(q)] - top);
                sum += e;
                value += e * f.c_row(q)[channel(q)];
            }
            pooled[static_cast<size_t>(j)] = value / sum;
        }
        const Tensor x = Tensor::of(pooled.data(), 1, a.width);
        rms_norm({.y = x, .x = x, .w = a.norm, .eps = a.eps});
        rotate(pooled.data(), a.width, a.n_rot, a.freq, static_cast<int32_t>(first), false);
        if (a.to_index)
            quant::encode_index_row(cache.format, pooled.data(), static_cast<int>(a.width), cache.index.row(w));
        else
            quant::encode_attn_row(cache.format, pooled.data(), static_cast<int>(a.width), static_cast<int>(a.n_rot), cache.compressed.row(w));
    }
}

void top_k_ascending(const float* score, int32_t n, int32_t k, int32_t* ids, int32_t* scratch) {
    std::iota(scratch, scratch + n, 0);
    const auto key = [&](int32_t i) {
        return std::isnan(score[i]) ? -std::numeric_limits<float>::infinity() : score[i];
    };
    std::nth_element(scratch, scratch + k, scratch + n, [&](int32_t i, int32_t j) {
        const float a = key(i), b = key(j);
        return a > b || (a == b && i < j);
    });
    std::copy(scratch, scratch + k, ids);
    std::sort(ids, ids + k);
}

void ReferenceOps::index_select(const ops::IndexSelectArgs& a) {
    pool_.run(a.q.n_row, [&](int64_t t) {
        const ops::Row& row = a.rows[static_cast<size_t>(t)];
        const ops::LayerCache& cache = *a.cache[static_cast<size_t>(row.slot)];
        const auto visible = static_cast<int32_t>((row.position + 1) / a.ratio);
        const auto k = static_cast<int32_t>(std::min<int64_t>(a.top_k, visible));
        int32_t* ids = a.selected.ids + t * a.selected.stride;
        a.selected.count[t] = k;
        if (visible <= a.top_k) {
            std::iota(ids, ids + k, 0);
            return;
        }
        float* q = a.q.row(t);
        if (quant::is_fp8(cache.format))
            for (int64_t h = 0; h < a.n_head; ++h) quant::round_index_query(q + h * a.head_dim, static_cast<int>(a.head_dim));
        std::vector<float> key(static_cast<size_t>(a.head_dim)), score(static_cast<size_t>(visible));
        for (int32_t c = 0; c < visible; ++c) {
            quant::decode_index_row(cache.format, cache.index.row(c), static_cast<int>(a.head_dim), key.data());
            float total = 0;
            for (int64_t h = 0; h < a.n_head; ++h) {
                float dot = 0;
                for (int64_t i = 0; i < a.head_dim; ++i) dot += q[h * a.head_dim + i] * key[static_cast<size_t>(i)];
                total += a.weight.row(t)[h] * std::max(0.0f, dot);
            }
            score[static_cast<size_t>(c)] = total;
        }
        std::vector<int32_t> scratch(static_cast<size_t>(visible));
        top_k_ascending(score.data(), visible, k, ids, scratch.data());
    });
}

void ReferenceOps::attend(const ops::AttendArgs& a) {
    const int64_t n_dim = a.head_dim;
    const float scale = 1.0f / std::sqrt(static_cast<float>(n_dim));
    pool_.run(a.q.n_row, [&](int64_t t) {
        const ops::Row& row = a.rows[static_cast<size_t>(t)];
        const ops::LayerCache& cache = *a.cache[static_cast<size_t>(row.slot)];
        // All rows this query sees, decoded: the window in order of position, then the compressed rows.
        std::vector<const std::byte*> seen;
        for (int64_t p = std::max<int64_t>(0, row.position - a.window + 1); p <= row.position; ++p)
            seen.push_back(cache.window.row(p));
        if (a.ratio > 0 && a.selection == nullptr)
            for (int64_t w = 0; w < (row.position + 1) / a.ratio; ++w) seen.push_back(cache.compressed.row(w));
        if (a.ratio > 0 && a.selection != nullptr)
            for (int32_t i = 0; i < a.selection->count[t]; ++i)
                seen.push_back(cache.compressed.row(a.selection->ids[t * a.selection->stride + i]));
        const auto n = static_cast<int64_t>(seen.size());
        std::vector<float> kv(static_cast<size_t>(n * n_dim)), s(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i)
            quant::decode_attn_row(cache.format, seen[static_cast<size_t>(i)], static_cast<int>(n_dim), static_cast<int>(a.n_rot), &kv[static_cast<size_t>(i * n_dim)]);
        for (int64_t h = 0; h < a.n_head; ++h) {
            const float* q = a.q.row(t) + h * n_dim;
            float* out = a.out.row(t) + h * n_dim;
            float top = a.sink[h];
            for (int64_t i = 0; i < n; ++i) {
                float dot = 0;
                for (int64_t d = 0; d < n_dim; ++d) dot += q[d] * kv[static_cast<size_t>(i * n_dim + d)];
                s[static_cast<size_t>(i)] = dot * scale;
                top = std::max(top, dot * scale);
            }
            float sum = std::exp(a.sink[h] - top);
            for (float& v : s) sum += v = std::exp(v - top);
            std::fill(out, out + n_dim, 0.0f);
            for (int64_t i = 0; i < n; ++i) {
                const float p = s[static_cast<size_t>(i)] / sum;
                for (int64_t d = 0; d < n_dim; ++d) out[d] += p * kv[static_cast<size_t>(i * n_dim + d)];
            }
        }
    });
}

void route_row(const ops::RouteArgs& a, int64_t t) {
    const int64_t n_expert = a.logits.n_col;
    const float* logit = a.logits.row(t);
    int32_t* chosen = a.expert + t * a.n_used;
    // log1p keeps the score of a very negative logit: log(1 + e^z) in f32 is zero below about -17, and the pocket model
    // selects experts there. f64, so that the weights of such experts still have all their digits. Below -40 log1p(e^z)
    // is e^z to the last bit, and the root of it, e^(z/2), reaches twice as far before it underflows.
    const auto score = [&](int64_t e) {
        const auto z = static_cast<double>(logit[e]);
        return z < -40 ? std::exp(z / 2) : std::sqrt(z > 30 ? z + std::exp(-z) : std::log1p(std::exp(z)));
    };
    bool poisoned = false;
    if (a.hash != nullptr) {
        const int32_t* ids = a.hash + static_cast<int64_t>(a.rows[static_cast<size_t>(t)].token) * a.n_used;
        std::copy(ids, ids + a.n_used, chosen);
    } else {
        // Insertion into a short list sorted by (score, lower id first); n_used is at most a dozen.
        int64_t n = 0;
        float best[ops::kMaxExpertsUsed];
        VESTA_CHECK(a.n_used <= ops::kMaxExpertsUsed);
        for (int64_t e = 0; e < n_expert; ++e) {
            const float s = static_cast<float>(score(e)) + a.bias[e];
            poisoned = poisoned || std::isnan(s);
            int64_t at = n;
            while (at > 0 && s > best[at - 1]) --at;
            if (at >= a.n_used) continue;
            n = std::min(n + 1, a.n_used);
            for (int64_t i = n - 1; i > at; --i) best[i] = best[i - 1], chosen[i] = chosen[i - 1];
            best[at] = s;
            chosen[at] = static_cast<int32_t>(e);
        }
    }
    // A NaN compares false with everything: unless it is passed on here, the router would quietly choose among the others.
    double sum = poisoned ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    for (int64_t k = 0; k < a.n_used; ++k) sum += score(chosen[k]);
    for (int64_t k = 0; k < a.n_used; ++k) {
        // All scores zero: every logit is below -1490, and no expert is better than another.
        const double share = sum != 0 ? score(chosen[k]) / sum : 1.0 / static_cast<double>(a.n_used);
        a.weight[t * a.n_used + k] = static_cast<float>(share * static_cast<double>(a.scale));
    }
}

void ReferenceOps::route(const ops::RouteArgs& a) {
    pool_.run(a.logits.n_row, [&](int64_t t) { route_row(a, t); });
}

void ReferenceOps::combine(const ops::CombineArgs& a) {
    const int64_t n_used = a.parts.n_row / a.y.n_row;
    pool_.run(a.y.n_row, [&](int64_t t) {
        for (int64_t d = 0; d < a.y.n_col; ++d) {
            float sum = 0;
            for (int64_t k = 0; k < n_used; ++k) sum += a.parts.row(t * n_used + k)[d];
            a.y.row(t)[d] = sum + a.shared.row(t)[d];
        }
    });
}

void ReferenceOps::add(Tensor y, Tensor x) {
    for (int64_t t = 0; t < y.n_row; ++t)
        for (int64_t i = 0; i < y.n_col; ++i) y.row(t)[i] += x.row(t)[i];
}

void ReferenceOps::scale(Tensor x, float factor) {
    for (int64_t t = 0; t < x.n_row; ++t)
        for (int64_t i = 0; i < x.n_col; ++i) x.row(t)[i] *= factor;
}

void ReferenceOps::gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) {
    for (size_t i = 0; i < rows.size(); ++i)
        std::copy(x.row(rows[i]), x.row(rows[i]) + x.n_col, y.row(static_cast<int64_t>(i)));
}

void ReferenceOps::check_finite(const ops::CheckFiniteArgs& a) {
    if (!fault_.empty()) return;
    for (int64_t t = 0; t < a.x.n_row; ++t) {
        const float* x = a.x.row(t);
        // A sum is finite only if every term is; a sum of finite terms that overflows is looked at again below.
        float sum = 0;
        for (int64_t i = 0; i < a.x.n_col; ++i) sum += std::fabs(x[i]);
        if (std::isfinite(sum)) continue;
        for (int64_t i = 0; i < a.x.n_col; ++i) {
            if (std::isfinite(x[i])) continue;
            const ops::Row& row = a.rows[static_cast<size_t>(t)];
            fault_ = strf("{} are not finite ({}) in layer {} at position {}, token {}", a.what, x[i], a.layer,
                          row.position, row.token);
            return;
        }
    }
}

Status ReferenceOps::end_pass() {
    if (fault_.empty()) return {};
    Error error{Code::numeric, fault_};
    fault_.clear();
    return error;
}

}  // namespace vesta::backend
