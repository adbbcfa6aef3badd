#pragma once

// Device and pinned host memory as OwnedTensor, and copies between them and ordinary memory.
// Thread: engine loop. Ownership: the tensor's; it goes away before the process' last stream.
// Failure: ResourceExhausted with the bytes wanted, free and in total.

#include <cuda_runtime.h>

#include <span>

#include "common/status.h"
#include "kernels/tensor.h"

namespace tandem {

// Zeroed by work in `stream`.
StatusOr<OwnedTensor> AllocateDevice(DType dtype, std::span<const int64_t> shape,
                                     cudaStream_t stream);
// Not zeroed; copies to and from it run beside the host.
StatusOr<OwnedTensor> AllocatePinned(DType dtype, std::span<const int64_t> shape);

// Rows of equal shape and type, either of them strided; put into `stream`.
void CopyRows(const Tensor& out, const Tensor& x, cudaStream_t stream);

}  // namespace tandem
