#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/kernel_list.h"

namespace tandem {

const KernelTable& Avx512Bf16Kernels() {
  static constexpr KernelTable kTable = ListKernels();
  return kTable;
}

}  // namespace tandem
