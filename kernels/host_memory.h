#pragma once

// Host memory for tensors: zeroed, 64-byte aligned, on huge pages when it is large (a decode step
// walks all weights, and 4 KiB pages would cost a TLB miss every 64 lines).
// Thread: any. Units: elements. Failure: ResourceExhausted, the system has too little memory.

#include <span>

#include "common/status.h"
#include "kernels/tensor.h"

namespace tandem {

StatusOr<OwnedTensor> AllocateHost(DType dtype, std::span<const int64_t> shape);

}  // namespace tandem
