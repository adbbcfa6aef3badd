#include "kernels/host_device.h"

#include "kernels/host_memory.h"

namespace tandem {

StatusOr<OwnedTensor> HostDevice::Allocate(DType dtype, std::initializer_list<int64_t> shape) {
  return AllocateHost(dtype, {shape.begin(), shape.size()});
}

StatusOr<OwnedTensor> HostDevice::Upload(const Tensor& host, DType dtype) {
  ASSIGN_OR_RETURN(OwnedTensor result,
                   AllocateHost(dtype, {host.shape.data(), static_cast<size_t>(host.rank)}));
  ConvertTensor(result, host);
  return result;
}

StatusOr<std::unique_ptr<CapturedOps>> HostDevice::EndCapture() {
  return UnimplementedError("the host captures no ops");
}

}  // namespace tandem
