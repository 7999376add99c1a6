#include "backend/cpu/kernels.h"

namespace vesta::backend {

std::vector<const Kernels*> usable_kernels() {
    std::vector<const Kernels*> all = {&scalar_kernels()};
    for (const Kernels* k :
         {avx2_kernels(), avx512_kernels(), neon_kernels(), neon_dotprod_kernels(), neon_i8mm_kernels()})
        if (k != nullptr) all.push_back(k);
    return all;
}

const Kernels& best_kernels() {
    static const Kernels& best = *usable_kernels().back();
    return best;
}

MatmulFn a16_kernel(const Kernels& kernels, quant::Type type) {
    switch (type) {
        case quant::Type::q8_0:
            return kernels.a16.q8_0;
        case quant::Type::mxfp4:
            return kernels.a16.mxfp4;
        case quant::Type::q2_k:
            return kernels.a16.q2_k;
        case quant::Type::q3_k:
            return kernels.a16.q3_k;
        case quant::Type::q4_k:
            return kernels.a16.q4_k;
        case quant::Type::q5_k:
            return kernels.a16.q5_k;
        case quant::Type::q6_k:
            return kernels.a16.q6_k;
        case quant::Type::iq2_xxs:
            return kernels.a16.iq2_xxs;
        default:
            return nullptr;
    }
}

bool reads_a16(quant::Type type) { return a16_kernel(scalar_kernels(), type) != nullptr; }

void matmul(const Kernels& kernels, quant::Type type, const MatmulTask& task) {
    switch (type) {
        case quant::Type::f32:
            return kernels.matmul_f32(task);
        case quant::Type::f16:
            return kernels.matmul_f16(task);
        case quant::Type::bf16:
            return kernels.matmul_bf16(task);
        default:
            break;
    }
    if (const MatmulFn product = a16_kernel(kernels, type); product != nullptr) return product(task);
    kernels.matmul_decoded(task, quant::format(type));
}

}  // namespace vesta::backend
