// Counts every `new` of this test program, to show that the token loop adds none.
#pragma once

#include <cstddef>

size_t n_allocation();
