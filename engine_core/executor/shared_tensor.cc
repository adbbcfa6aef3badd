#include "engine_core/executor/shared_tensor.h"

#include "kernels/host_memory.h"

namespace tandem {

StatusOr<SharedTensor> SharedTensor::Create(Device* device, DType dtype,
                                            std::initializer_list<int64_t> shape) {
  SharedTensor tensor;
  tensor.device_ = device;
  ASSIGN_OR_RETURN(tensor.tensor_, device->Allocate(dtype, shape));
  if (device->memory_is_host()) return tensor;
  ASSIGN_OR_RETURN(tensor.copy_, AllocateHost(dtype, {shape.begin(), shape.size()}));
  return tensor;
}

void SharedTensor::Fetch(int64_t rows, int64_t first) const {
  if (copy_.view().empty() || rows == 0) return;
  device_->CopyOut(copy_.view().Rows(first, rows), tensor_.view().Rows(first, rows));
}

}  // namespace tandem
