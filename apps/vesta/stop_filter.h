// --stop: ends an answer where one of some strings appears, and never shows a part of such a string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vesta::app {

class StopFilter {
 public:
    // Empty strings are ignored.
    explicit StopFilter(const std::vector<std::string>& stops);

    // Appends to `out` what certainly comes before any stop string. True when one has appeared: `out` then ends right
    // before it, and the filter takes no more. Of several that appear, the one that begins first counts.
    bool feed(std::string_view text, std::string& out);
    // The text ended without a stop string: appends what was held back.
    void flush(std::string& out);
    bool stopped() const { return stopped_; }

 private:
    std::vector<std::string> stops_;
    std::string held_;  // shorter than the longest stop string
    bool stopped_ = false;
};

}  // namespace vesta::app
