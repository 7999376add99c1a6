// Ctrl+C as a question the working loops ask, instead of a sudden end.
#pragma once

namespace vesta::app {

// While it lives, the first SIGINT is only remembered; a second one before clear() ends the program in the usual way,
// so that nobody is held by a step that takes long. One at a time.
class InterruptGuard {
 public:
    InterruptGuard();
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;

    static bool requested();
    static void clear();
};

}  // namespace vesta::app
