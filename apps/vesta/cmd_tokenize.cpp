#include "commands.h"
namespace vesta::app {
int cmd_tokenize(int, char**) { return kExitUnsupported; }
}  // namespace vesta::app
