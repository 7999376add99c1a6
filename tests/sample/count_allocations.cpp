#include "sample/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

// A file of its own: were these replacements visible where they are used, g++ would inline one of a pair and warn.
namespace {
std::atomic<size_t> g_n_allocation{0};
}  // namespace

size_t n_allocation() { return g_n_allocation.load(); }

void* operator new(size_t n) {
    ++g_n_allocation;
    if (void* p = std::malloc(n)) return p;
    throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
