#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/kernel_list.h"

namespace tandem {

const KernelTable& Avx2Kernels() {
  static constexpr KernelTable kTable = ListKernels();
  return kTable;
}

}  // namespace tandem
