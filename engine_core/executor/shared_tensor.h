#pragma once

// A tensor that ops write and the host reads: one memory where the backend's is the host's, else
// two, and Fetch copies.
// Thread: engine loop. Owns: both memories; borrows the backend, which outlives it.
// Failure: memory, in Create.

#include <initializer_list>

#include "common/status.h"
#include "kernels/backend.h"

namespace tandem {

class SharedTensor {
 public:
  SharedTensor() = default;
  static StatusOr<SharedTensor> Create(Backend* backend, DType dtype,
                                       std::initializer_list<int64_t> shape);

  const Tensor& host() const { return host_.view().empty() ? device_.view() : host_.view(); }
  const Tensor& device() const { return device_.view(); }  // for ops

  // Copies `rows` rows from row `first` on to the host; the ops before it are done then.
  void Fetch(int64_t rows, int64_t first = 0) const;

 private:
  Backend* backend_ = nullptr;
  OwnedTensor device_;
  OwnedTensor host_;  // empty: device() is the host's
};

}  // namespace tandem
