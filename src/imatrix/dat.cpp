#include "imatrix/dat.h"

namespace vesta::imatrix {}
