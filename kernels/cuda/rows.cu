// Ops that look rows up: Embedding and GatherRows.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void EmbeddingKernel(float* out, int64_t out_stride, const int32_t* ids, const T* table,
                                int64_t table_stride, int64_t table_rows, int64_t hidden,
                                float scale) {
  WaitForPreviousKernel();
  const int64_t id = ids[blockIdx.x];
  for (int64_t h = threadIdx.x; h < hidden; h += kThreads) {
    // An id outside the table is the caller's mistake, but must not read outside it.
    const float value = id >= 0 && id < table_rows ? LoadFloat(table + id * table_stride + h) : 0;
    out[blockIdx.x * out_stride + h] = value * scale;
  }
}

template <class T>
__global__ void GatherRowsKernel(T* out, int64_t out_stride, const T* x, int64_t x_stride,
                                 const int32_t* rows, int64_t size) {
  WaitForPreviousKernel();
  const int64_t row = rows[blockIdx.x];
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    out[blockIdx.x * out_stride + i] = x[row * x_stride + i];
  }
}

}  // namespace

void CudaOps::DoEmbedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table,
                          float scale) {
  const auto& matrix = static_cast<const CudaMatrix&>(table);
  if (matrix.is_coded()) return EmbedCoded(out, ids, matrix, scale);
  const auto launch = [&]<class T>(const T* data) {
    Launch(queue(), static_cast<unsigned>(ids.rows()), kThreads, EmbeddingKernel<T>,
           out.Data<float>(), out.row_stride, ids.Data<int32_t>(), data, matrix.stride(),
           matrix.n(), matrix.k(), scale);
  };
  if (dtype_ == DType::kBf16) return launch(static_cast<const Bf16*>(matrix.data()));
  launch(static_cast<const float*>(matrix.data()));
}

void CudaOps::DoGatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) {
  const auto launch = [&]<class T>(T* data) {
    Launch(queue(), static_cast<unsigned>(rows.rows()), kThreads, GatherRowsKernel<T>, data,
           out.row_stride, static_cast<const T*>(x.data), x.row_stride, rows.Data<int32_t>(),
           x.RowSize());
  };
  if (SizeOf(x.dtype) == 2) return launch(static_cast<uint16_t*>(out.data));
  launch(static_cast<uint32_t*>(out.data));
}

}  // namespace tandem
