#pragma once

// Puts a kernel into a stream, and handles CUDA's errors: while the backend is built they are a
// Status; an op's error means that the device or the process is broken, and ends the process with
// the message.
// Thread: engine loop.

#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "common/check.h"
#include "common/status.h"

namespace tandem {

// "cudaMalloc of 12345 bytes: out of memory"
inline Status CudaStatus(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return OkStatus();
  const std::string message = what + ": " + cudaGetErrorString(error);
  return error == cudaErrorMemoryAllocation ? ResourceExhaustedError(message)
                                            : UnavailableError(message);
}

#define CHECK_CUDA(expression)                                                                 \
  do {                                                                                         \
    const cudaError_t cuda_error = (expression);                                               \
    CHECK(cuda_error == cudaSuccess) << #expression << ": " << cudaGetErrorString(cuda_error); \
  } while (false)

// A stream whose kernels may begin while the previous one ends (programmatic dependent launch), if
// the device can do that: each of them calls WaitForPreviousKernel. Work put into `stream` itself
// waits for all earlier work, as always.
struct OverlappingStream {
  cudaStream_t stream = nullptr;
  bool overlaps = false;
};

// An empty grid launches nothing.
template <class... Params, class... Args>
void Launch(OverlappingStream queue, dim3 grid, unsigned threads, void (*kernel)(Params...),
            Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = queue.stream;
  config.attrs = &early;
  config.numAttrs = queue.overlaps ? 1 : 0;
  CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...));
}

template <class... Params, class... Args>
void Launch(cudaStream_t stream, dim3 grid, unsigned threads, void (*kernel)(Params...),
            Args&&... args) {
  Launch(OverlappingStream{stream, false}, grid, threads, kernel, std::forward<Args>(args)...);
}

}  // namespace tandem
