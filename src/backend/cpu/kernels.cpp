#include "backend/cpu/kernels.h"

namespace vesta::backend {

const Kernels& best_kernels() {
    static const Kernels& best = avx2_kernels() != nullptr ? *avx2_kernels() : scalar_kernels();
    return best;
}

bool reads_a16(quant::Type type) { return type == quant::Type::q8_0 || type == quant::Type::mxfp4; }

void matmul(const Kernels& kernels, quant::Type type, const MatmulTask& task) {
    switch (type) {
        case quant::Type::f32:
            return kernels.matmul_f32(task);
        case quant::Type::f16:
            return kernels.matmul_f16(task);
        case quant::Type::bf16:
            return kernels.matmul_bf16(task);
        case quant::Type::q8_0:
            return kernels.matmul_q8_0(task);
        case quant::Type::mxfp4:
            return kernels.matmul_mxfp4(task);
        default:
            return kernels.matmul_decoded(task, quant::format(type));
    }
}

}  // namespace vesta::backend
