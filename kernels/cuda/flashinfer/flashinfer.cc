#include "kernels/cuda/flashinfer/flashinfer.h"

#include <exception>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/flashinfer/kernels.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

// FlashInfer throws for shapes that it does not support.
template <class F>
Status Guarded(const char* what, F f) {
  try {
    return CudaStatus(f(), what);
  } catch (const std::exception& error) {
    return InternalError(std::string(what) + ": " + error.what());
  }
}

template <class F>
cudaError_t WithHeadDim(int head_dim, F f) {
  if (head_dim == 64) return f(FlashInferKernels<64>());
  if (head_dim == 128) return f(FlashInferKernels<128>());
  if (head_dim == 256) return f(FlashInferKernels<256>());
  return cudaErrorInvalidValue;
}

}  // namespace

bool HasFlashInfer() { return true; }

StatusOr<int64_t> FlashInferDecodeBlocks(int num_heads, int num_kv_heads, int head_dim) {
  int64_t blocks = 0;
  RETURN_IF_ERROR(Guarded("counting the FlashInfer blocks that the device runs at once", [&] {
    return WithHeadDim(head_dim, [&](auto kernels) {
      return decltype(kernels)::DecodeBlocks(num_heads, num_kv_heads, &blocks);
    });
  }));
  return blocks;
}

Status LaunchFlashInfer(cudaStream_t stream, const FlashInferCall& call) {
  return Guarded("FlashInfer's attention", [&] {
    return WithHeadDim(call.head_dim, [&](auto kernels) {
      using Kernels = decltype(kernels);
      const bool is_decode = call.tile_rows == 0;
      if (call.soft_cap > 0) {
        return is_decode ? Kernels::CappedDecode(stream, call)
                         : Kernels::CappedPrefill(stream, call);
      }
      return is_decode ? Kernels::Decode(stream, call) : Kernels::Prefill(stream, call);
    });
  });
}

}  // namespace tandem
