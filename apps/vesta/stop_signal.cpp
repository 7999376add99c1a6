#include "stop_signal.h"

#include <csignal>

namespace vesta::app {
namespace {

volatile std::sig_atomic_t g_stop = 0;

}  // namespace

StopOnSignal::StopOnSignal() {
    g_stop = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { g_stop = 1; };
    ::sigaction(SIGINT, &action, &old_int_);
    ::sigaction(SIGTERM, &action, &old_term_);
}

StopOnSignal::~StopOnSignal() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
}

bool StopOnSignal::requested() { return g_stop != 0; }

}  // namespace vesta::app
