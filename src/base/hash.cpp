#include "base/hash.h"

#include <xxhash.h>

#include <new>

#include "base/result.h"

namespace vesta {
namespace {

XXH3_state_t* as_state(void* p) { return static_cast<XXH3_state_t*>(p); }

}  // namespace

void Hash64::Free::operator()(void* state) const { XXH3_freeState(as_state(state)); }

Hash64::Hash64() : state_(XXH3_createState()) {
    if (state_ == nullptr) throw std::bad_alloc();
    VESTA_CHECK(XXH3_64bits_reset(as_state(state_.get())) == XXH_OK);
}

void Hash64::add(std::span<const std::byte> bytes) {
    VESTA_CHECK(XXH3_64bits_update(as_state(state_.get()), bytes.data(), bytes.size()) == XXH_OK);
}

void Hash64::add(std::string_view text) {
    add(uint64_t{text.size()});
    add(std::as_bytes(std::span(text)));
}

void Hash64::add(uint64_t number) { add(std::as_bytes(std::span(&number, 1))); }

uint64_t Hash64::digest() const { return XXH3_64bits_digest(as_state(state_.get())); }

}  // namespace vesta
