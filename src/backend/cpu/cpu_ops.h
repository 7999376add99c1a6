// The cpu backend: the reference with its costly operations replaced by kernels for this processor.
#pragma once

#include "backend/reference/reference_ops.h"

namespace vesta::backend {

class CpuOps : public ReferenceOps {
 public:
    explicit CpuOps(int n_thread) : ReferenceOps(n_thread) {}
    const char* name() const override { return "cpu"; }
    quant::RowFormat row_format(quant::RowFormat wanted) const override { return wanted; }
};

}  // namespace vesta::backend
