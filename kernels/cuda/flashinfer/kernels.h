#pragma once

// FlashInfer's kernels per head size, one source file each because compiling them takes long.
// Failure: CUDA's error; FlashInfer itself may throw.

#include "kernels/cuda/flashinfer/flashinfer.h"

namespace tandem {

template <int kHeadDim>
struct FlashInferKernels {
  static cudaError_t Decode(cudaStream_t stream, const FlashInferCall& call);
  static cudaError_t Prefill(cudaStream_t stream, const FlashInferCall& call);
  // With a soft cap.
  static cudaError_t CappedDecode(cudaStream_t stream, const FlashInferCall& call);
  static cudaError_t CappedPrefill(cudaStream_t stream, const FlashInferCall& call);
  static cudaError_t DecodeBlocks(int num_heads, int num_kv_heads, int64_t* blocks);
};

}  // namespace tandem
