// Any bytes as a safetensors file: refused with a message, or a set of tensors that lie inside the bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "safetensors/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vesta::safetensors;
    const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
    const auto file = File::parse(bytes, "fuzz");
    if (!file.ok()) return file.error().message.empty() ? std::abort(), 0 : 0;
    unsigned sum = 0;
    for (const TensorInfo& t : file.value().tensors()) {
        if (t.n_elem() * dtype_bytes(t.dtype) != t.bytes.size() || file.value().find(t.name) != &t) std::abort();
        for (const std::byte b : t.bytes) sum += static_cast<unsigned>(b);  // ASan sees a span that leaves the input
    }
    return sum == 0xFFFFFFFFu ? -1 : 0;
}
