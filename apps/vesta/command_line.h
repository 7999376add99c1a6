// How every subcommand reads its flags.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "commands.h"

namespace vesta::app {

// Parses the command line, then calls check(), which throws a CLI::ParseError for what the declarations cannot say. The
// exit code when the command ends here: help was asked for, or the line makes no sense (CLI11 has said why).
template <class Check>
std::optional<int> parse_or_exit(CLI::App& app, int argc, char** argv, Check&& check) {
    try {
        app.parse(argc, argv);
        check();
    } catch (const CLI::CallForHelp& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        app.exit(e);
        return kExitUsage;
    }
    return std::nullopt;
}

}  // namespace vesta::app
