// SIGINT and SIGTERM as a question the long commands ask between two slices of their work.
#pragma once

#include <signal.h>

namespace vesta::app {

// While it lives, both signals are only remembered. One at a time.
class StopOnSignal {
 public:
    StopOnSignal();
    ~StopOnSignal();
    StopOnSignal(const StopOnSignal&) = delete;
    StopOnSignal& operator=(const StopOnSignal&) = delete;
    static bool requested();

 private:
    struct sigaction old_int_ {
    }, old_term_{};
};

}  // namespace vesta::app
