#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/kernel_list.h"

namespace tandem {

const KernelTable kScalarKernels = ListKernels("scalar");

}  // namespace tandem
