#pragma once

// A tensor that ops write and the host reads: one memory where the device's is the host's, else
// two, and Fetch copies.
// Thread: engine loop. Owns: both memories; borrows the device, which outlives it.
// Failure: memory, in Create.

#include <initializer_list>

#include "common/status.h"
#include "kernels/device.h"

namespace tandem {

class SharedTensor {
 public:
  SharedTensor() = default;
  static StatusOr<SharedTensor> Create(Device* device, DType dtype,
                                       std::initializer_list<int64_t> shape);

  const Tensor& host() const { return copy_.view().empty() ? tensor_.view() : copy_.view(); }
  const Tensor& device() const { return tensor_.view(); }  // for ops

  // Copies `rows` rows from row `first` on to the host; the ops before it are done then.
  void Fetch(int64_t rows, int64_t first = 0) const;

 private:
  Device* device_ = nullptr;
  OwnedTensor tensor_;
  OwnedTensor copy_;  // empty: tensor_ is in the host's memory
};

}  // namespace tandem
