#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/kernel_list.h"

namespace tandem {

const KernelTable kAvx512Bf16Kernels = ListKernels("avx512_bf16");

}  // namespace tandem
