#include "score/windows.h"

#include <algorithm>

namespace vesta::score {

Result<std::vector<Window>> cut_windows(int64_t n_token, int64_t ctx, int64_t stride) {
    if (ctx < 1 || stride < 1 || stride > ctx)
        return Error{Code::invalid_argument,
                     strf("windows of {} tokens that score {} each: expected 1 <= stride <= ctx", ctx, stride)};
    if (n_token < 2)
        return Error{Code::invalid_argument, strf("a text of {} tokens: scoring needs at least 2, since the first one "
                                                  "has nothing before it",
                                                  n_token)};
    std::vector<Window> windows;
    for (int64_t next = 1; next < n_token;) {  // the first target not yet scored
        const int64_t last = std::min(n_token - 1, windows.empty() ? ctx : next + stride - 1);
        // The last window may have fewer than `stride` targets; it still starts where a full one would, not further
        // back: every target then sees the same range of context lengths.
        const int64_t begin = windows.empty() ? 0 : next + stride - 1 - ctx;
        windows.push_back({.begin = begin, .end = last, .first_target = next});
        next = last + 1;
    }
    return windows;
}

}  // namespace vesta::score
