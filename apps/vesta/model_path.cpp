#include "model_path.h"

#include <unistd.h>

#include <cstdlib>

#include "base/file.h"

namespace vesta::app {
namespace {

// The folder this program lies in, links resolved; empty when the system does not tell.
std::string program_folder() {
    char path[4096];
    const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
    if (n <= 0 || n == static_cast<ssize_t>(sizeof path)) return {};
    const std::string whole(path, static_cast<size_t>(n));
    return whole.substr(0, whole.rfind('/'));
}

}  // namespace

std::vector<std::string> default_model_paths() {
    std::vector<std::string> paths;
    if (const std::string folder = program_folder(); !folder.empty()) {
        paths.push_back(folder + "/models/pocket.gguf");
        paths.push_back(folder + "/../models/pocket.gguf");
        paths.push_back(folder + "/../share/vesta/pocket.gguf");  // an installation that was moved
    }
    paths.push_back(VESTA_SOURCE_DIR "/models/pocket.gguf");
    paths.push_back(VESTA_SHARE_DIR "/pocket.gguf");
    return paths;
}

Result<std::string> find_model(const std::string& flag) {
    if (!flag.empty()) return flag;
    if (const char* variable = std::getenv("VESTA_MODEL"); variable != nullptr && *variable != 0)
        return std::string(variable);
    const std::vector<std::string> paths = default_model_paths();
    for (const std::string& path : paths)
        if (file_exists(path)) return path;
    std::string message = "no model file was named and the built-in one was not found; looked for\n";
    for (const std::string& path : paths) message += "  " + path + "\n";
    message +=
        "Name a GGUF file with -m FILE or in VESTA_MODEL, or make one from a checkpoint in safetensors form:\n"
        "  vesta convert --from CHECKPOINT_FOLDER --out models/pocket.gguf";
    return Error{Code::not_found, message};
}

}  // namespace vesta::app
