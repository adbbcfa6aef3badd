#include "kernels/cuda/device_memory.h"

#include <string>

#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

Tensor ViewOf(void* memory, DType dtype, std::span<const int64_t> shape) {
  Tensor view;
  CHECK_LE(shape.size(), view.shape.size());
  view.data = memory;
  view.dtype = dtype;
  for (int64_t dim : shape) {
    CHECK_GE(dim, 0);
    view.shape[view.rank++] = dim;
  }
  view.row_stride = view.RowSize();
  return view;
}

std::string MiB(size_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

}  // namespace

StatusOr<OwnedTensor> AllocateDevice(DType dtype, std::span<const int64_t> shape,
                                     cudaStream_t stream) {
  Tensor view = ViewOf(nullptr, dtype, shape);
  const auto bytes = static_cast<size_t>(view.NumBytes());
  const cudaError_t error = cudaMalloc(&view.data, bytes == 0 ? 1 : bytes);
  if (error != cudaSuccess) {
    cudaGetLastError();  // reported here; cleared so that no later call reports it
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return CudaStatus(error, "allocating " + MiB(bytes) + " of GPU memory, of which " + MiB(free) +
                                 " of " + MiB(total) +
                                 " are free; lower --max-num-batched-tokens, --max-num-seqs, "
                                 "--max-model-len or --gpu-memory-utilization, or end what else "
                                 "uses the GPU");
  }
  CHECK_CUDA(cudaMemsetAsync(view.data, 0, bytes, stream));
  return OwnedTensor(OwnedTensor::Memory(view.data, [](void* memory) { cudaFree(memory); }), view);
}

StatusOr<OwnedTensor> AllocatePinned(DType dtype, std::span<const int64_t> shape) {
  Tensor view = ViewOf(nullptr, dtype, shape);
  const auto bytes = static_cast<size_t>(view.NumBytes());
  RETURN_IF_ERROR(
      CudaStatus(cudaHostAlloc(&view.data, bytes == 0 ? 1 : bytes, cudaHostAllocDefault),
                 "pinning " + std::to_string(bytes) + " bytes of host memory"));
  return OwnedTensor(OwnedTensor::Memory(view.data, [](void* memory) { cudaFreeHost(memory); }),
                     view);
}

void CopyRows(const Tensor& out, const Tensor& x, cudaStream_t stream) {
  CHECK(out.dtype == x.dtype && out.rows() == x.rows() && out.RowSize() == x.RowSize())
      << out.rows() << "x" << out.RowSize() << " from " << x.rows() << "x" << x.RowSize();
  if (x.NumElements() == 0) return;
  const auto size = static_cast<size_t>(SizeOf(x.dtype));
  const auto row_bytes = static_cast<size_t>(x.RowSize()) * size;
  const auto rows = static_cast<size_t>(x.rows());
  if (out.IsContiguous() && x.IsContiguous()) {
    CHECK_CUDA(cudaMemcpyAsync(out.data, x.data, row_bytes * rows, cudaMemcpyDefault, stream));
    return;
  }
  CHECK_CUDA(cudaMemcpy2DAsync(out.data, static_cast<size_t>(out.row_stride) * size, x.data,
                               static_cast<size_t>(x.row_stride) * size, row_bytes, rows,
                               cudaMemcpyDefault, stream));
}

}  // namespace tandem
