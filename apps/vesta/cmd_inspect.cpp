#include "commands.h"
namespace vesta::app {
int cmd_inspect(int, char**) { return kExitUnsupported; }
}  // namespace vesta::app
