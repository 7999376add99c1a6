#include "interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace vesta::app {
namespace {

std::atomic<int> g_n_interrupt{0};

void install(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: a blocking read of the prompt must return
}

void on_interrupt(int) {
    if (g_n_interrupt.fetch_add(1) == 0) return;
    // SIGTERM has the handler that gives the terminal back, when there is a terminal to give back (line_editor.cpp).
    struct sigaction term {};
    ::sigaction(SIGTERM, nullptr, &term);
    if (term.sa_handler != SIG_DFL && term.sa_handler != SIG_IGN) term.sa_handler(SIGINT);
    ::signal(SIGINT, SIG_DFL);
    ::raise(SIGINT);
}

}  // namespace

InterruptGuard::InterruptGuard() {
    clear();
    install(on_interrupt);
}

InterruptGuard::~InterruptGuard() { install(SIG_DFL); }

bool InterruptGuard::requested() { return g_n_interrupt.load() > 0; }
void InterruptGuard::clear() { g_n_interrupt = 0; }

}  // namespace vesta::app
