#include "convert/encode_tensor.h"

#include <algorithm>

#include "base/file.h"
#include "convert/target.h"
#include "quant/quantize.h"

namespace vesta::convert {
namespace {

// Rows are converted in tasks of about this many values: the f32 copy (256 KB) stays in a core's L2.
constexpr uint64_t kTaskValues = 1 << 16;
// Tasks between two writes; bounds the output buffer (F32: 32 MB) and the source pages held, and sets how often
// progress is reported. An expert of Flash (2048 x 4096) is one such slice.
constexpr uint64_t kTasksPerSlice = 128;
constexpr uint64_t kCopyBytes = 8 << 20;

uint64_t rows_per_task(const Source& s) { return std::max<uint64_t>(1, kTaskValues / s.n_col); }

// A mapped source counts as our memory until its pages are given back; it will not be read again.
void release(const Source& s, uint64_t row, uint64_t n_row) { release_pages(stored_bytes(s, row, n_row)); }

}  // namespace

Error TensorEncoder::fault_error(const PlannedTensor& t, const Source& s, Fault fault) const {
    const std::string who = plan_.describe(t, s);
    const char* type = quant::format(t.type).name;
    const std::string& recipe = plan_.options.recipe.name;
    switch (fault) {
        case Fault::not_finite: {
            const Place place = find_not_finite(s);
            return {Code::bad_file,
                    strf("{}: holds NaN or infinity, the first in row {}, column {}", who, place.row, place.col)};
        }
        case Fault::not_exact:
            return {Code::unsupported, strf("{}: {} cannot hold its {} values exactly; use a recipe other than '{}'",
                                            who, type, t.stored_name(), recipe)};
        case Fault::does_not_fit:
            return {Code::unsupported,
                    strf("{}: holds values too large for {}; use a recipe other than '{}'", who, type, recipe)};
        case Fault::bad_scale:
            return {Code::bad_file, strf("{}: a scale in {} is NaN or too large for any weight", who, s.scale->name)};
        case Fault::id_range:
            return {Code::bad_file, strf("{}: an expert id is outside 0 to {}", who, plan_.config.n_expert - 1)};
        case Fault::none:
            break;
    }
    return {Code::bad_file, who};
}

Status TensorEncoder::encode(const PlannedTensor& t, const Sink& sink) {
    error_ = {};
    if (t.copy) return copy(t, sink);
    const uint64_t source_bytes = t.bytes / t.sources.size();
    for (size_t i = 0; i < t.sources.size(); ++i) VESTA_TRY_STATUS(encode_source(t, i, i * source_bytes, sink));
    return {};
}

Status TensorEncoder::copy(const PlannedTensor& t, const Sink& sink) {
    uint64_t offset = 0;
    for (const Source& s : t.sources)
        for (uint64_t done = 0; done < s.blocks.size();) {
            const auto part = s.blocks.subspan(done, std::min<uint64_t>(kCopyBytes, s.blocks.size() - done));
            VESTA_TRY_STATUS(sink(offset, part));
            release_pages(part);
            done += part.size(), offset += part.size();
        }
    return {};
}

// importance[c] = mean over rows of w[r,c]². Partial sums are per task and added in the order of the rows, so the
// result does not depend on the number of threads.
Status TensorEncoder::weight_energy(const PlannedTensor& t, const Source& s, std::vector<float>& importance) {
    const uint64_t step = rows_per_task(s);
    std::vector<double> total(s.n_col, 0.0), partial;
    for (uint64_t row = 0; row < s.n_row;) {
        const uint64_t n_row = std::min(s.n_row - row, step * kTasksPerSlice), n_task = (n_row + step - 1) / step;
        partial.assign(n_task * s.n_col, 0.0);
        std::vector<Fault> faults(n_task, Fault::none);
        pool_.run(static_cast<int64_t>(n_task), [&](int64_t task) {
            const uint64_t first = static_cast<uint64_t>(task) * step, n = std::min(step, n_row - first);
            std::vector<float> values(n * s.n_col);
            Fault& fault = faults[static_cast<size_t>(task)];
            fault = decode_rows(s, row + first, n, values.data());
            if (fault == Fault::not_exact) fault = Fault::none;
            if (fault == Fault::none)
                quant::column_energy(values.data(), static_cast<int64_t>(n), static_cast<int64_t>(s.n_col),
                                     partial.data() + static_cast<uint64_t>(task) * s.n_col);
        });
        for (uint64_t task = 0; task < n_task; ++task) {
            if (faults[task] != Fault::none) return fault_error(t, s, faults[task]);
            for (uint64_t c = 0; c < s.n_col; ++c) total[c] += partial[task * s.n_col + c];
        }
        // An expert stays in memory for the second pass; a larger matrix has to be read again.
        if (n_row < s.n_row) release(s, row, n_row);
        row += n_row;
    }
    importance.resize(s.n_col);
    for (uint64_t c = 0; c < s.n_col; ++c)
        importance[c] = static_cast<float>(std::min(total[c] / static_cast<double>(s.n_row), 1e30));
    return {};
}

Status TensorEncoder::encode_source(const PlannedTensor& t, size_t index, uint64_t offset, const Sink& sink) {
    const Source& s = t.sources[index];
    const uint64_t row_bytes = t.bytes / t.sources.size() / s.n_row, step = rows_per_task(s);
    std::vector<float> importance;
    if (uses_importance(t.type) && !t.exact) importance = plan_.importance(t, index);
    if (importance.empty() && t.type == quant::Type::iq2_xxs) {
        VESTA_TRY_STATUS(weight_energy(t, s, importance));
        used_energy_ = true;
    }
    const float* weights = importance.empty() ? nullptr : importance.data();
    const bool measure = measure_ && !t.exact;
    for (uint64_t row = 0; row < s.n_row;) {
        const uint64_t n_row = std::min(s.n_row - row, step * kTasksPerSlice), n_task = (n_row + step - 1) / step;
        buffer_.resize(n_row * row_bytes);
        std::vector<Fault> faults(n_task, Fault::none);
        std::vector<quant::ErrorSum> errors(n_task);
        pool_.run(static_cast<int64_t>(n_task), [&](int64_t task) {
            const auto i = static_cast<size_t>(task);
            const uint64_t first = i * step;
            faults[i] =
                encode_rows(s, row + first, std::min(step, n_row - first), t.type, t.exact, plan_.config.n_expert,
                            buffer_.data() + first * row_bytes, weights, measure ? &errors[i] : nullptr);
        });
        for (size_t i = 0; i < n_task; ++i) {
            if (faults[i] != Fault::none) return fault_error(t, s, faults[i]);
            error_.error += errors[i].error, error_.energy += errors[i].energy;
        }
        VESTA_TRY_STATUS(sink(offset + row * row_bytes, buffer_));
        release(s, row, n_row);
        row += n_row;
    }
    if (s.scale != nullptr) release_pages(s.scale->bytes);
    return {};
}

}  // namespace vesta::convert
