// Running a program as a user would.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "base/result.h"

namespace vesta::test {

struct Output {
    int exit;         // -1: killed by a signal
    std::string out;  // stdout, and stderr where the command line joins them
};

// `command` is a line for the shell.
inline Output shell(const std::string& command) {
    std::FILE* pipe = ::popen(command.c_str(), "r");
    VESTA_CHECK(pipe != nullptr);
    Output run{0, {}};
    char buffer[4096];
    for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) run.out.append(buffer, n);
    const int status = ::pclose(pipe);
    run.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return run;
}

}  // namespace vesta::test
