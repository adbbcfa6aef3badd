#pragma once

// Device and pinned host memory as OwnedTensor, and copies between them and ordinary memory.
// Thread: engine loop. Ownership: the tensor's; it must go away before the process' last stream
// does. ResourceExhausted says how much was wanted, free and there in all.

#include <cuda_runtime.h>

#include <span>

#include "common/status.h"
#include "kernels/tensor.h"

namespace tandem {

// Zeroed by work put into `stream`.
StatusOr<OwnedTensor> AllocateDevice(DType dtype, std::span<const int64_t> shape,
                                     cudaStream_t stream);
// Not zeroed; copies from it run beside the host's work.
StatusOr<OwnedTensor> AllocatePinned(DType dtype, std::span<const int64_t> shape);

// Rows of equal shape and type, either of them strided; put into `stream`.
void CopyRows(const Tensor& out, const Tensor& x, cudaStream_t stream);

}  // namespace tandem
