#include "kernels/cuda/cuda_ops.h"

#include "kernels/cuda/device_memory.h"

namespace tandem {

CudaOps::CudaOps(DType dtype, CudaDevice* device)
    : Ops({dtype, DType::kF32}), dtype_(dtype), device_(device) {}

Status CudaOps::Open() {
  const int64_t num_begins = kMaxCudaExperts + 1;
  ASSIGN_OR_RETURN(expert_begin_, AllocatePinned(DType::kI32, {&num_begins, 1}));
  cublaslt_ = CublasLt::Open(device_->stream());
  return OkStatus();
}

// The engine refuses models whose tokens choose their keys on this device.
void CudaOps::DoSelectKeys(const Tensor&, const Tensor&, const Tensor&, const IndexOptions&,
                           const LayerKv&, const AttentionPlan&) {
  CHECK(false) << "chosen keys are not built for CUDA";
}
void CudaOps::DoAttendSelected(const Tensor&, const Tensor&, const Tensor&, const SelectedOptions&,
                               const LayerKv&, const AttentionPlan&) {
  CHECK(false) << "chosen keys are not built for CUDA";
}

Tensor CudaOps::Scratch(OwnedTensor* memory, DType dtype, int64_t rows, int64_t columns) {
  const int64_t size = rows * columns;
  if (memory->view().NumElements() < size) {
    CHECK(!device_->is_capturing())
        << "scratch of " << size << " numbers was not allocated before the capture";
    if (device_->has_captured()) outgrown_.push_back(std::move(*memory));
    *memory = {};
    StatusOr<OwnedTensor> grown = AllocateDevice(dtype, {&size, 1}, device_->stream());
    if (!grown.ok()) {
      device_->Fail(grown.status());
      return {};
    }
    *memory = *std::move(grown);
  }
  return Tensor(memory->view().data, dtype, {rows, columns});
}

}  // namespace tandem
