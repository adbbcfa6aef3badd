#pragma once

// kernels/cuda compiled for the host over the emulation of CUDA in this folder. See
// MakeCudaBackend in kernels/backend.h.

#include <memory>

#include "common/status.h"
#include "kernels/backend.h"

namespace tandem {

StatusOr<std::unique_ptr<Backend>> MakeEmulatedCudaBackend(const CudaBackendOptions& options);

}  // namespace tandem
