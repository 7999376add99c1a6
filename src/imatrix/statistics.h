// What an importance matrix looks like: how large, how uneven, and which experts it says nothing about.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "imatrix/dat.h"

namespace vesta::imatrix {

struct Statistics {
    std::string name;
    int64_t n_call = 0;
    int64_t n_vector = 0;            // experts, 1 for a plain matrix; 0: a foreign file, and nobody said
    int64_t n_col = 0;               // per vector; of all when n_vector is 0
    int64_t n_row = -1;              // over all vectors; -1: the file does not say
    std::vector<int64_t> never_hit;  // vectors without data, ascending
    // Of the mean squares of vectors that have data; zero when none has.
    double min = 0, mean = 0, max = 0;
    // Share of a vector's sum in the largest 1 % of its columns (at least one), averaged over vectors: 0.01 when all
    // columns matter equally.
    double top_share = 0;
    int64_t n_bad = 0;  // values that are negative, NaN or infinite; they count for nothing above
};

// By name. `n_vector` says how many vectors a tensor has (from a model file), or 0 when it does not know; where the
// file has row counts, those decide.
std::vector<Statistics> describe(const Matrix& matrix, const std::function<int64_t(const std::string&)>& n_vector);

}  // namespace vesta::imatrix
