#include "terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "commands.h"

namespace vesta::app {
namespace {

bool colour_allowed() {
    const char* term = std::getenv("TERM");
    const char* no_colour = std::getenv("NO_COLOR");
    return (no_colour == nullptr || *no_colour == 0) && term != nullptr && std::strcmp(term, "dumb") != 0;
}

}  // namespace

int report(const char* command, const Error& error) {
    fmt::print(stderr, "vesta {}: {}\n", command, error.message);
    switch (error.code) {
        case Code::invalid_argument:
        case Code::already_exists: return kExitUsage;
        case Code::bad_file: return kExitBadFile;
        case Code::unsupported: return kExitUnsupported;
        case Code::cancelled: return kExitInterrupted;
        case Code::not_found:
        case Code::io:
        case Code::no_memory:
        case Code::numeric: return kExitFailure;
    }
    return kExitFailure;
}

bool stderr_is_tty() { return ::isatty(STDERR_FILENO) == 1; }
bool stderr_has_colour() { return stderr_is_tty() && colour_allowed(); }
bool stdout_has_colour() { return ::isatty(STDOUT_FILENO) == 1 && colour_allowed(); }

std::string format_bytes(uint64_t bytes) {
    const char* units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < std::size(units)) value /= 1000, ++unit;
    return unit == 0 ? strf("{} B", bytes) : strf("{:.1f} {}", value, units[unit]);
}

bool ProgressBar::update(const Progress& p) {
    if (!enabled_ || p.total == 0) return true;
    const auto now = std::chrono::steady_clock::now();
    if (drawn_ && p.done < p.total && now - last_ < std::chrono::milliseconds(100)) return true;
    // Work that ends within a quarter of a second needs no bar.
    if (!drawn_ && now - started_ < std::chrono::milliseconds(250)) return true;
    last_ = now;
    drawn_ = true;
    constexpr int kWidth = 24;
    const double share = std::min(1.0, static_cast<double>(p.done) / static_cast<double>(p.total));
    const int full = static_cast<int>(share * kWidth);
    const std::string amount = p.unit == "bytes" ? format_bytes(p.done) + " / " + format_bytes(p.total)
                                                 : strf("{} / {} {}", p.done, p.total, p.unit);
    const double seconds = std::chrono::duration<double>(now - started_).count();
    const std::string left = share > 0.02 && share < 1 ? strf("  {:.0f} s left", seconds * (1 - share) / share) : "";
    fmt::print(stderr, "\r\x1b[K{} [{}{}] {:3.0f} %  {}{}", p.stage, std::string(static_cast<size_t>(full), '='),
               std::string(static_cast<size_t>(kWidth - full), ' '), share * 100, amount, left);
    std::fflush(stderr);
    return true;
}

void ProgressBar::finish() {
    if (drawn_) {
        fmt::print(stderr, "\r\x1b[K");
        std::fflush(stderr);
    }
    drawn_ = false;
}

}  // namespace vesta::app
