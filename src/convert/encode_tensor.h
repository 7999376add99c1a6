// One tensor of a plan as the bytes of its target format: slice by slice, on all cores, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "convert/convert.h"

namespace vesta::convert {

class TensorEncoder {
 public:
    // Receives the tensor's bytes in ascending pieces without gaps; valid during the call.
    using Sink = std::function<Status(uint64_t offset, std::span<const std::byte> bytes)>;

    TensorEncoder(const Plan& plan, ThreadPool& pool, bool measure) : plan_(plan), pool_(pool), measure_(measure) {}

    // The first value that is not finite, the first that does not fit and so on comes back as an error that names the
    // tensor, and row and column where there are such.
    Status encode(const PlannedTensor& t, const Sink& sink);

    const quant::ErrorSum& error() const { return error_; }  // of the latest encode(), if `measure`
    bool used_energy() const { return used_energy_; }        // some IQ2_XXS so far took the weights' own energy

 private:
    Status encode_source(const PlannedTensor& t, size_t index, uint64_t offset, const Sink& sink);
    Status copy(const PlannedTensor& t, const Sink& sink);
    Status weight_energy(const PlannedTensor& t, const Source& s, std::vector<float>& importance);
    Error fault_error(const PlannedTensor& t, const Source& s, Fault fault) const;

    const Plan& plan_;
    ThreadPool& pool_;
    bool measure_, used_energy_ = false;
    quant::ErrorSum error_;
    std::vector<std::byte> buffer_;
};

}  // namespace vesta::convert
