// In a file of its own: inlined into callers, these make g++ 12 warn about new paired with free.
#include "allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace vesta::snapshot {
namespace {
std::atomic<size_t> total{0};
}

size_t allocated_bytes() { return total; }
static void count_allocation(size_t n) { total += n; }

}  // namespace vesta::snapshot

void* operator new(size_t n) {
    vesta::snapshot::count_allocation(n);
    if (void* p = std::malloc(n); p != nullptr) return p;
    throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
