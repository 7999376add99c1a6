// Any bytes: the GGUF reader refuses them, or every view it hands out lies inside them and every getter answers. The
// seeds in corpus/gguf are written by the test GgufSeeds (tests/gguf/seed_test.cpp).
#include <memory>

#include "../gguf/walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto result = vesta::gguf::File::parse(std::as_bytes(std::span(data, size)), "fuzz.gguf");
    if (result.ok()) {
        volatile uint64_t sum = vesta::gguf::walk_all(result.value());
        (void)sum;
    } else {
        VESTA_CHECK(result.error().message.rfind("fuzz.gguf: ", 0) == 0);
    }
    return 0;
}
