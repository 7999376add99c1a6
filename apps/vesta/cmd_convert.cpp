#include "commands.h"
namespace vesta::app {
int cmd_convert(int, char**) { return kExitUnsupported; }
}  // namespace vesta::app
