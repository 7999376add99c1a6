#include "commands.h"
namespace vesta::app {
int cmd_run(int, char**) { return kExitUnsupported; }
}  // namespace vesta::app
