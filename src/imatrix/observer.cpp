#include "imatrix/observer.h"

#include <algorithm>
#include <functional>

namespace vesta::imatrix {
namespace {

bool is_integer(quant::Type type) {
    return type == quant::Type::i8 || type == quant::Type::i16 || type == quant::Type::i32 || type == quant::Type::i64;
}
bool is_matrix(const gguf::TensorInfo& t) { return (t.n_dim == 2 || t.n_dim == 3) && !is_integer(t.type); }

// sum[i] += x[t,i]², row after row: the order, and so every bit of the result, is the same however rows are cut into
// passes. Four rows per sweep, because a sweep is bound by reading and writing the doubles.
void add_squares(const ops::Tensor& x, double* sum) {
    const auto square = [](float v) { return static_cast<double>(v) * static_cast<double>(v); };
    int64_t t = 0;
    for (; t + 4 <= x.n_row; t += 4) {
        const float *a = x.row(t), *b = x.row(t + 1), *c = x.row(t + 2), *d = x.row(t + 3);
        for (int64_t i = 0; i < x.n_col; ++i)
            sum[i] = (((sum[i] + square(a[i])) + square(b[i])) + square(c[i])) + square(d[i]);
    }
    for (; t < x.n_row; ++t) {
        const float* a = x.row(t);
        for (int64_t i = 0; i < x.n_col; ++i) sum[i] += square(a[i]);
    }
}

}  // namespace

Result<std::unique_ptr<Observer>> Observer::create(ops::Ops& inner, std::span<const gguf::File* const> files,
                                                   Matrix& matrix) {
    auto o = std::unique_ptr<Observer>(new Observer(inner, matrix));
    size_t n_known = 0;
    for (const gguf::File* file : files) {
        for (const gguf::TensorInfo& t : file->tensors()) {
            if (!is_matrix(t)) continue;
            Watched w{.begin = t.bytes.data(),
                      .end = t.bytes.data() + t.bytes.size(),
                      .name = t.name,
                      .n_in = static_cast<int64_t>(t.dims[0]),
                      .n_vector = static_cast<int64_t>(t.dims[2])};
            const auto found = matrix.entries.find(std::string(t.name));
            if (found != matrix.entries.end()) {
                Entry& e = found->second;
                const auto n_vector = static_cast<size_t>(w.n_vector);
                if (e.n_row.size() != n_vector || e.sum.size() != n_vector * static_cast<size_t>(w.n_in))
                    return Error{Code::bad_file, strf("{}: {} sums over {} vectors, this model has {} over {}", t.name,
                                                      e.sum.size(), e.n_row.size(), w.n_vector * w.n_in, n_vector)};
                w.entry = &e;
                ++n_known;
            }
            o->watched_.push_back(w);
        }
    }
    if (n_known != matrix.entries.size())
        return Error{Code::bad_file, strf("{} of {} entries belong to no tensor of this model",
                                          matrix.entries.size() - n_known, matrix.entries.size())};
    std::sort(o->watched_.begin(), o->watched_.end(),
              [](const Watched& a, const Watched& b) { return std::less<>()(a.begin, b.begin); });
    return o;
}

Observer::Watched* Observer::find(const std::byte* p) {
    auto after = std::upper_bound(watched_.begin(), watched_.end(), p,
                                  [](const std::byte* at, const Watched& w) { return std::less<>()(at, w.begin); });
    if (after == watched_.begin()) return nullptr;
    Watched& w = *--after;
    return std::less<>()(p, w.end) ? &w : nullptr;
}

void Observer::record(const ops::Weight& weight, const ops::Tensor& x) {
    Watched* w = find(weight.data);
    if (w == nullptr || w->n_in != weight.n_in) {
        ++n_unknown_;
        return;
    }
    if (w->entry == nullptr) {
        w->entry = &matrix_.entries[std::string(w->name)];
        w->entry->n_row.assign(static_cast<size_t>(w->n_vector), 0);
        w->entry->sum.assign(static_cast<size_t>(w->n_vector * w->n_in), 0.0);
    }
    Entry& e = *w->entry;
    if (w->last_sequence != sequence_) {
        w->last_sequence = sequence_;
        ++e.n_call;
    }
    // Slices of one matrix's outputs (grouped_out) share its only vector: each adds its rows.
    const auto vector = (weight.data - w->begin) / ((w->end - w->begin) / w->n_vector);
    e.n_row[static_cast<size_t>(vector)] += static_cast<uint64_t>(x.n_row);
    add_squares(x, e.sum.data() + vector * w->n_in);
}

std::vector<std::string> not_covered(std::span<const gguf::File* const> files, const Matrix& matrix) {
    std::vector<std::string> names;
    for (const gguf::File* file : files)
        for (const gguf::TensorInfo& t : file->tensors())
            if (is_matrix(t) && matrix.entries.count(std::string(t.name)) == 0) names.emplace_back(t.name);
    return names;
}

}  // namespace vesta::imatrix
