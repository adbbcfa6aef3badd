#include "kernels/cuda/flashinfer/decode.cuh"
#include "kernels/cuda/flashinfer/kernels.h"

namespace tandem {

template <>
cudaError_t FlashInferKernels<256>::Decode(cudaStream_t stream, const FlashInferCall& call) {
  return FlashInferDecode<256, false>(stream, call);
}

template <>
cudaError_t FlashInferKernels<256>::CappedDecode(cudaStream_t stream, const FlashInferCall& call) {
  return FlashInferDecode<256, true>(stream, call);
}

template <>
cudaError_t FlashInferKernels<256>::DecodeBlocks(int num_heads, int num_kv_heads, int64_t* blocks) {
  return FlashInferDecodeBlocksOf<256>(num_heads, num_kv_heads, blocks);
}

}  // namespace tandem
