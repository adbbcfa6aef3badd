#include "kernels/cuda/flashinfer/flashinfer.h"

#include "kernels/backend.h"

namespace tandem {

bool HasFlashInfer() { return false; }

StatusOr<int64_t> FlashInferDecodeBlocks(int, int, int) {
  return UnimplementedError("this build has no FlashInfer");
}

Status LaunchFlashInfer(cudaStream_t, const FlashInferCall&) {
  return UnimplementedError("this build has no FlashInfer");
}

}  // namespace tandem
