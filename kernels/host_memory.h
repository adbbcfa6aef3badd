#pragma once

// Host memory for tensors: zeroed, 64-byte aligned, on huge pages when it is large (a decode step
// walks all weights, and 4 KiB pages would cost a TLB miss every 64 lines).
// Thread: any. Units: elements. Failure: ResourceExhausted, the system has too little memory.

#include <atomic>
#include <memory>
#include <span>

#include "common/status.h"
#include "kernels/tensor.h"

namespace tandem {

StatusOr<OwnedTensor> AllocateHost(DType dtype, std::span<const int64_t> shape);

// The same for many tensors that are too small for huge pages of their own: they lie one after
// another in chunks on huge pages. A chunk is given back when the last tensor in it goes, which may
// be after the arena. Thread: any; one waits for the other, which is a system call at most.
class HostArena {
 public:
  StatusOr<OwnedTensor> Allocate(DType dtype, std::span<const int64_t> shape);

 private:
  StatusOr<std::shared_ptr<const OwnedTensor>> Take(int64_t bytes, int64_t* begin);

  std::atomic_flag is_taken_;  // the thread that has set it may use the others
  std::shared_ptr<const OwnedTensor> chunk_;
  int64_t num_used_ = 0;
};

}  // namespace tandem
