// `vesta <command> [options]`: finds the command, runs it, and turns its result into an exit code.
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "commands.h"

namespace {

void print_usage(std::FILE* out) {
    fmt::print(out,
               "vesta {} - runs Mixture-of-Experts language models on your own machine\n\n"
               "usage: vesta <command> [options]      vesta <command> --help\n\ncommands:\n",
               VESTA_VERSION);
    for (const vesta::app::Command& c : vesta::app::commands()) fmt::print(out, "  {:<10} {}\n", c.name, c.summary);
    fmt::print(out,
               "\nexamples:\n"
               "  vesta run                               chat with the built-in pocket model\n"
               "  vesta run -p \"Where is Rome?\"           one answer on stdout\n"
               "  vesta convert --from DIR --out M.gguf   make a model file from a checkpoint\n"
               "  vesta inspect M.gguf                    what is this file?\n"
               "\nexit codes: 0 done, 1 failed, 2 usage, 3 damaged file, 4 not supported, 130 interrupted\n");
}

}  // namespace

int main(int argc, char** argv) {
    using namespace vesta::app;
    if (argc < 2) {
        print_usage(stderr);
        return kExitUsage;
    }
    const std::string_view name = argv[1];
    if (name == "--help" || name == "-h" || name == "help") {
        print_usage(stdout);
        return kExitOk;
    }
    if (name == "--version" || name == "version") {
        fmt::print("vesta {}\n", VESTA_VERSION);
        return kExitOk;
    }
    for (const Command& c : commands())
        if (name == c.name) return c.main(argc - 1, argv + 1);
    fmt::print(stderr, "vesta: no command '{}'; `vesta --help` lists them\n", name);
    return kExitUsage;
}
