#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/kernel_list.h"

namespace tandem {

const KernelTable& Avx512Bf16Kernels() {
  static constexpr KernelTable kTable = ListKernels("avx512_bf16");
  return kTable;
}

}  // namespace tandem
