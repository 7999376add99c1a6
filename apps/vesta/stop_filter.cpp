#include "stop_filter.h"

#include <algorithm>

namespace vesta::app {

StopFilter::StopFilter(const std::vector<std::string>& stops) : stops_(stops) {
    std::erase_if(stops_, [](const std::string& s) { return s.empty(); });
}

bool StopFilter::feed(std::string_view text, std::string& out) {
    if (stopped_) return true;
    held_.append(text);
    // The earliest place where a stop string stands whole, or where the end of the text could be the beginning of one.
    size_t whole = std::string::npos, partial = held_.size();
    for (const std::string& stop : stops_) {
        whole = std::min(whole, held_.find(stop));
        for (size_t n = std::min(stop.size() - 1, held_.size()); n > 0; --n) {
            if (std::string_view(held_).substr(held_.size() - n) != std::string_view(stop).substr(0, n)) continue;
            partial = std::min(partial, held_.size() - n);
            break;
        }
    }
    // One that has only begun, but before the whole one, could still turn out to be the first: wait for it.
    stopped_ = whole != std::string::npos && whole <= partial;
    const size_t n_out = stopped_ ? whole : partial;
    out.append(held_, 0, n_out);
    held_.erase(0, n_out);
    if (stopped_) held_.clear();
    return stopped_;
}

void StopFilter::flush(std::string& out) {
    if (stopped_) return;
    // A whole stop string may wait behind a longer one that began earlier and was never completed.
    size_t whole = std::string::npos;
    for (const std::string& stop : stops_) whole = std::min(whole, held_.find(stop));
    stopped_ = whole != std::string::npos;
    out.append(held_, 0, stopped_ ? whole : held_.size());
    held_.clear();
}

}  // namespace vesta::app
