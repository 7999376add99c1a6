// What every subcommand shares at the terminal: error printing, exit codes, a progress bar.
#pragma once

#include <chrono>
#include <string>

#include "base/progress.h"
#include "base/result.h"

namespace vesta::app {

// Prints "vesta <command>: message" on stderr and returns the exit code for it.
int report(const char* command, const Error& error);

bool stderr_is_tty();
// Colours and bars: only on a tty, and not when NO_COLOR is set or TERM=dumb.
bool stderr_has_colour();
bool stdout_has_colour();

std::string format_bytes(uint64_t bytes);  // "55.9 MB" (powers of ten, as disks are sold)

// Draws one line on stderr and redraws it in place, at most ten times a second; nothing when stderr is no tty. The line
// is erased by finish() and by the destructor.
class ProgressBar {
 public:
    explicit ProgressBar(bool enabled = stderr_is_tty()) : enabled_(enabled) {}
    ~ProgressBar() { finish(); }
    bool update(const Progress& p);  // returns true, so that it can serve as a ProgressFn
    void finish();

 private:
    bool enabled_, drawn_ = false;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now(), last_{};
};

}  // namespace vesta::app
