#include "kernels/cuda/flashinfer/kernels.h"
#include "kernels/cuda/flashinfer/prefill.cuh"

namespace tandem {

template <>
cudaError_t FlashInferKernels<128>::CappedPrefill(cudaStream_t stream, const FlashInferCall& call) {
  return FlashInferPrefill<128, true>(stream, call);
}

}  // namespace tandem
