// A fast 64-bit hash of bytes (XXH3), for noticing change: is this the tensor that was written before the power went,
// is this the file the work was begun with? Not against somebody who wants two inputs to collide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace vesta {

class Hash64 {
 public:
    Hash64();
    void add(std::span<const std::byte> bytes);
    void add(std::string_view text);  // its length too, so that "ab","c" differs from "a","bc"
    void add(uint64_t number);
    uint64_t digest() const;  // of everything added so far

 private:
    struct Free {
        void operator()(void* state) const;
    };
    std::unique_ptr<void, Free> state_;
};

}  // namespace vesta
