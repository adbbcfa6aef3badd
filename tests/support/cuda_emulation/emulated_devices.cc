// Linked into an engine core: its CUDA devices are emulated ones, and NCCL is process_nccl.cc.

#include <cstdlib>

#include "kernels/backend.h"
#include "kernels/cuda/libraries/shared_library.h"
#include "kernels/cuda_facts.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/fake_nccl.h"

namespace tandem {

int NumCudaDevices() { return kNumEmulatedDevices; }

std::optional<CudaFacts> ReadCudaFacts() {
  return CudaFacts{.name = "emulated", .memory_bytes = int64_t{8} << 30, .major = 9, .minor = 0};
}

bool HasFlashInfer() { return false; }

StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options) {
  const char* library = std::getenv("TANDEM_PROCESS_NCCL");
  if (library == nullptr) return FailedPreconditionError("TANDEM_PROCESS_NCCL names no library");
  ASSIGN_OR_RETURN(const SharedLibrary opened, SharedLibrary::Open(library));
  FakeNccl* nccl = nullptr;
  RETURN_IF_ERROR(opened.Find("fake_nccl", &nccl));
  nccl->enqueue = EnqueueEmulatedExchange;
  CudaBackendOptions emulated = options;
  emulated.nccl_library = library;
  return MakeEmulatedCudaBackend(emulated);
}

}  // namespace tandem
