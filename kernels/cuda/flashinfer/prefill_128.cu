#include "kernels/cuda/flashinfer/kernels.h"
#include "kernels/cuda/flashinfer/prefill.cuh"

namespace tandem {

template <>
cudaError_t FlashInferKernels<128>::Prefill(cudaStream_t stream, const FlashInferCall& call) {
  return FlashInferPrefill<128, false>(stream, call);
}

}  // namespace tandem
