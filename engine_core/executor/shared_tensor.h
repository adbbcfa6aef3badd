#pragma once

// A tensor that the host and the ops of a backend both work on: one memory where the backend's is
// the host's, else two, copied at the points that Send and Fetch name.
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

  // The host's first `rows` rows, and of those the first `columns` columns when given, to the
  // device.
  void Send(int64_t rows, int64_t columns = -1) const;
  // The other way round, `rows` rows from row `first` on; the ops before it are done then.
  void Fetch(int64_t rows, int64_t first = 0) const;

 private:
  Backend* backend_ = nullptr;
  OwnedTensor device_;
  OwnedTensor host_;  // empty: device() is the host's
};

}  // namespace tandem
