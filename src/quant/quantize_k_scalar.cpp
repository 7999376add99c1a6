// The searches as the definition: plain f32, every processor.
#include "quant/quantize_k_search.h"

namespace vesta::quant {

const SearchKernels& scalar_search() {
    static constexpr SearchKernels kKernels = search_kernels("scalar");
    return kKernels;
}

}  // namespace vesta::quant
