#include "kernels/cpu/vec_scalar.h"

#include "kernels/cpu/kernel_list.h"

namespace tandem {

const KernelTable& ScalarKernels() {
  static constexpr KernelTable kTable = ListKernels();
  return kTable;
}

}  // namespace tandem
