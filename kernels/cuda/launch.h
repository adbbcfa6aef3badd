#pragma once

// Puts a kernel into a stream, and what becomes of CUDA's errors: before the backend is built they
// are a Status; an op's error means that the device or the process is broken, and ends the process
// with the message.
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

// No threads, no launch.
template <class... Params, class... Args>
void Launch(cudaStream_t stream, dim3 grid, unsigned threads, void (*kernel)(Params...),
            Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = stream;
  CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, Params(std::forward<Args>(args))...));
}

}  // namespace tandem
