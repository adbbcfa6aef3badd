// Stands in for the cuda backend in builds without a CUDA compiler.

#include "kernels/backend.h"

namespace tandem {

bool HasCudaDevice() { return false; }

bool HasFlashInfer() { return false; }

StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions&) {
  return UnavailableError("this build has no CUDA (configure with -DTANDEM_CUDA=ON)");
}

}  // namespace tandem
