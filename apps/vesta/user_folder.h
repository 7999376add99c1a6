// Folders of the person who runs the program, as the XDG base directory specification has them.
#pragma once

#include <cstdlib>
#include <string>

namespace vesta::app {

// $variable/vesta, else $HOME/fallback/vesta; empty when neither is an absolute path (XDG: relative ones are invalid).
inline std::string user_folder(const char* variable, const char* fallback) {
    const char* set = std::getenv(variable);
    if (set != nullptr && *set == '/') return std::string(set) + "/vesta";
    const char* home = std::getenv("HOME");
    if (home != nullptr && *home == '/') return std::string(home) + "/" + fallback + "/vesta";
    return {};
}

}  // namespace vesta::app
