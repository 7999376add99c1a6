// The subcommands of `vesta`: one file cmd_<name>.cpp and one row in commands.cpp each.
#pragma once

#include <span>

namespace vesta::app {

// Exit codes, the same for every subcommand (documented in README.md and `vesta --help`).
enum Exit : int {
    kExitOk = 0,
    kExitFailure = 1,      // the work failed: unreadable file, numeric error, disk full
    kExitUsage = 2,        // the command line makes no sense
    kExitBadFile = 3,      // a model, checkpoint or data file is damaged or not what it claims
    kExitUnsupported = 4,  // well-formed, but this build cannot do it
    kExitInterrupted = 130,
};

struct Command {
    const char* name;
    const char* summary;
    int (*main)(int argc, char** argv);  // argv[0] is the subcommand's name; returns an Exit
};

std::span<const Command> commands();

int cmd_run(int argc, char** argv);
int cmd_convert(int argc, char** argv);
int cmd_quantize(int argc, char** argv);
int cmd_splice(int argc, char** argv);
int cmd_bench(int argc, char** argv);
int cmd_synth(int argc, char** argv);
int cmd_inspect(int argc, char** argv);
int cmd_score(int argc, char** argv);
int cmd_tokenize(int argc, char** argv);
int cmd_imatrix(int argc, char** argv);
int cmd_kv(int argc, char** argv);

}  // namespace vesta::app
