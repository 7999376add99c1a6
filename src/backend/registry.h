// Which backends this build has, by name. The only room that knows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/ops.h"

namespace vesta::backend {

struct Description {
    const char* name;
    const char* summary;
};
std::vector<Description> list();

// name: "auto", or one of list(). n_thread 0: every core this process may use.
Result<std::unique_ptr<ops::Ops>> create(const std::string& name, int n_thread);

}  // namespace vesta::backend
