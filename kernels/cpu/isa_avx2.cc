#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/kernel_list.h"

namespace tandem {

const KernelTable kAvx2Kernels = ListKernels("avx2");

}  // namespace tandem
