#pragma once

// kernels/cuda compiled for the host over the emulation of CUDA in this folder. See
// MakeCudaBackend in kernels/backend.h.

#include <functional>
#include <memory>
#include <optional>

#include "common/status.h"
#include "kernels/backend.h"

namespace tandem {

StatusOr<std::unique_ptr<Backend>> MakeEmulatedCudaBackend(const CudaBackendOptions& options);

// Kernels run so far; a call that does not raise the number has waited for no kernel. The emulated
// device's clock counts them, a millisecond each.
int64_t NumEmulatedKernels();

inline constexpr int kNumEmulatedDevices = 4;

// For FakeNccl::enqueue: ranks are threads, and their exchanges wait for each other in the streams.
void EnqueueEmulatedExchange(void* stream, std::function<void()> work);

// After num_allocations more of device or pinned memory, all fail; nullopt: none does.
void EndEmulatedMemoryAfter(std::optional<int64_t> num_allocations);

// Whether backends that are made from now on have cuBLASLt (by default not), and how many products
// it was given.
void SetEmulatedCublasLt(bool is_installed);
int64_t NumEmulatedGemms();

// True: the emulated device runs plain loops in place of FlashInfer's kernels.
bool HasEmulatedFlashInfer();

}  // namespace tandem
