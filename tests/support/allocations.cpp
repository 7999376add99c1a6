// In a file of its own: where the compiler sees these and a test's `new` together, it takes the pair with free for a
// mistake.
#include "support/allocations.h"

#include <cstdlib>
#include <new>

namespace {

thread_local int64_t g_allocated = 0;

void* take(size_t n) {
    g_allocated += static_cast<int64_t>(n);
    if (void* p = std::malloc(n); p != nullptr) return p;
    throw std::bad_alloc();
}

}  // namespace

// The array forms too: a sanitizer brings its own, which do not call these.
void* operator new(size_t n) { return take(n); }
void* operator new[](size_t n) { return take(n); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace vesta::test {
int64_t allocated_bytes() { return g_allocated; }
}  // namespace vesta::test
