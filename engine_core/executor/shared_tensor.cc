#include "engine_core/executor/shared_tensor.h"

#include "kernels/host_memory.h"

namespace tandem {

StatusOr<SharedTensor> SharedTensor::Create(Backend* backend, DType dtype,
                                            std::initializer_list<int64_t> shape) {
  SharedTensor tensor;
  tensor.backend_ = backend;
  ASSIGN_OR_RETURN(tensor.device_, backend->device().Allocate(dtype, shape));
  if (backend->device().memory_is_host()) return tensor;
  ASSIGN_OR_RETURN(tensor.host_, AllocateHost(dtype, {shape.begin(), shape.size()}));
  return tensor;
}

void SharedTensor::Fetch(int64_t rows, int64_t first) const {
  if (host_.view().empty() || rows == 0) return;
  backend_->device().CopyOut(host_.view().Rows(first, rows), device_.view().Rows(first, rows));
}

}  // namespace tandem
