#include "kernels/cuda/flashinfer/decode.cuh"
#include "kernels/cuda/flashinfer/kernels.h"

namespace tandem {

template <>
cudaError_t FlashInferKernels<64>::Decode(cudaStream_t stream, const FlashInferCall& call) {
  return FlashInferDecode<64, false>(stream, call);
}

template <>
cudaError_t FlashInferKernels<64>::CappedDecode(cudaStream_t stream, const FlashInferCall& call) {
  return FlashInferDecode<64, true>(stream, call);
}

template <>
cudaError_t FlashInferKernels<64>::DecodeBlocks(int num_heads, int num_kv_heads, int64_t* blocks) {
  return FlashInferDecodeBlocksOf<64>(num_heads, num_kv_heads, blocks);
}

}  // namespace tandem
