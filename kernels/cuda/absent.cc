// Stands in for the cuda backend in builds without a CUDA compiler.

#include "kernels/backend.h"
#include "kernels/cuda_facts.h"

namespace tandem {

int NumCudaDevices() { return 0; }

std::optional<CudaFacts> ReadCudaFacts() { return std::nullopt; }

bool HasFlashInfer() { return false; }

StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions&) {
  return UnavailableError("this build has no CUDA (configure with -DTANDEM_CUDA=ON)");
}

}  // namespace tandem
