#include "kernels/cuda/flashinfer_kernels.h"
#include "kernels/cuda/flashinfer_prefill.cuh"

namespace tandem {

template <>
cudaError_t FlashInferKernels<256>::Prefill(cudaStream_t stream, const FlashInferCall& call) {
  return FlashInferPrefill<256, false>(stream, call);
}

}  // namespace tandem
