#pragma once

// kernels/cuda compiled for the host over the emulation of CUDA in this folder. See
// MakeCudaBackend in kernels/backend.h.

#include <memory>
#include <optional>

#include "common/status.h"
#include "kernels/backend.h"

namespace tandem {

StatusOr<std::unique_ptr<Backend>> MakeEmulatedCudaBackend(const CudaBackendOptions& options);

// Kernels that have run so far: a call during which none has run has waited for none. The emulated
// device's clock counts them, a millisecond each.
int64_t NumEmulatedKernels();

// After so many more allocations, of device or pinned memory, none succeeds any more; nullopt: all
// do.
void EndEmulatedMemoryAfter(std::optional<int64_t> num_allocations);

// The emulated device has plain loops in FlashInfer's place.
bool HasEmulatedFlashInfer();

}  // namespace tandem
