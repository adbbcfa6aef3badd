// Ops that find rows: embedding, gathering, and the routing of tokens to experts.

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxExperts = 1024;

template <class T>
__global__ void EmbeddingKernel(float* out, int64_t out_stride, const int32_t* ids, const T* table,
                                int64_t table_stride, int64_t table_rows, int64_t hidden,
                                float scale) {
  WaitForKernelAhead();
  const int64_t id = ids[blockIdx.x];
  for (int64_t h = threadIdx.x; h < hidden; h += kThreads) {
    // An id outside the table is a mistake of the caller's that must not read foreign memory.
    const float value = id >= 0 && id < table_rows ? LoadFloat(table + id * table_stride + h) : 0;
    out[blockIdx.x * out_stride + h] = value * scale;
  }
}

template <class T>
__global__ void GatherRowsKernel(T* out, int64_t out_stride, const T* x, int64_t x_stride,
                                 const int32_t* rows, int64_t size) {
  WaitForKernelAhead();
  const int64_t row = rows[blockIdx.x];
  for (int64_t i = threadIdx.x; i < size; i += kThreads) {
    out[blockIdx.x * out_stride + i] = x[row * x_stride + i];
  }
}

// Each block adds to the residual rows r with r % gridDim.y == blockIdx.y, in the order of `rows`.
template <class X>
__global__ void ScatterAddKernel(float* residual, int64_t residual_stride, const X* x,
                                 int64_t x_stride, const int32_t* rows, const float* weights,
                                 int64_t num_rows, int64_t hidden) {
  WaitForKernelAhead();
  const int64_t h = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (h >= hidden) return;
  for (int64_t i = 0; i < num_rows; ++i) {
    const int32_t row = rows[i];
    if (static_cast<unsigned>(row) % gridDim.y != blockIdx.y) continue;
    residual[row * residual_stride + h] += weights[i] * LoadFloat(x + i * x_stride + h);
  }
}

// One warp per token.
__global__ void RouteTopKKernel(int32_t* expert_ids, int64_t ids_stride, float* weights,
                                int64_t weights_stride, const float* logits, int64_t logits_stride,
                                int num_experts, int top_k, bool renormalize) {
  WaitForKernelAhead();
  __shared__ float probabilities[kMaxExperts];  // a taken one is negative
  const int lane = static_cast<int>(threadIdx.x);
  logits += blockIdx.x * logits_stride;
  expert_ids += blockIdx.x * ids_stride;
  weights += blockIdx.x * weights_stride;
  float max = -INFINITY;
  for (int e = lane; e < num_experts; e += kWarpSize) max = fmaxf(max, logits[e]);
  max = WarpMax(max);
  float sum = 0;
  for (int e = lane; e < num_experts; e += kWarpSize) {
    sum += probabilities[e] = expf(logits[e] - max);
  }
  sum = WarpSum(sum);
  float kept = 0;
  for (int k = 0; k < top_k; ++k) {
    __syncwarp();
    int best = -1;
    for (int e = lane; e < num_experts; e += kWarpSize) {
      if (probabilities[e] < 0) continue;
      if (best < 0 || probabilities[e] > probabilities[best]) best = e;
    }
    for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
      const int other = __shfl_xor_sync(kAllLanes, best, mask);
      if (other < 0) continue;
      const bool is_better = best < 0 || probabilities[other] > probabilities[best] ||
                             (!(probabilities[other] < probabilities[best]) && other < best);
      if (is_better) best = other;
    }
    best = __shfl_sync(kAllLanes, best, 0);
    const float probability = probabilities[best] / sum;
    kept += probability;
    __syncwarp();
    if (lane == 0) {
      probabilities[best] = -1;
      expert_ids[k] = best;
      weights[k] = probability;
    }
  }
  if (!renormalize) return;
  __syncwarp();
  for (int k = lane; k < top_k; k += kWarpSize) weights[k] /= kept;
}

}  // namespace

void CudaBackend::Embedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table,
                            float scale) {
  CheckEmbedding(types(), out, ids, table);
  const auto& matrix = static_cast<const CudaMatrix&>(table);
  const auto launch = [&]<class T>(const T* data) {
    Launch(queue(), static_cast<unsigned>(ids.rows()), kThreads, EmbeddingKernel<T>,
           out.Data<float>(), out.row_stride, ids.Data<int32_t>(), data, matrix.stride(),
           matrix.n(), matrix.k(), scale);
  };
  if (dtype_ == DType::kBf16) return launch(static_cast<const Bf16*>(matrix.data()));
  launch(static_cast<const float*>(matrix.data()));
}

void CudaBackend::GatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) {
  CheckGatherRows(out, x, rows);
  const auto launch = [&]<class T>(T* data) {
    Launch(queue(), static_cast<unsigned>(rows.rows()), kThreads, GatherRowsKernel<T>, data,
           out.row_stride, static_cast<const T*>(x.data), x.row_stride, rows.Data<int32_t>(),
           x.RowSize());
  };
  if (SizeOf(x.dtype) == 2) return launch(static_cast<uint16_t*>(out.data));
  launch(static_cast<uint32_t*>(out.data));
}

void CudaBackend::ScatterAdd(const Tensor& residual, const Tensor& x, const Tensor& rows,
                             const Tensor& weights) {
  CheckScatterAdd(types(), residual, x, rows, weights);
  constexpr int64_t kMaxParts = 64;
  const int64_t parts = std::min(residual.rows(), kMaxParts);
  const dim3 grid(static_cast<unsigned>((x.shape[1] + kThreads - 1) / kThreads),
                  static_cast<unsigned>(parts));
  WithType(x, [&]<class X>(X* x_data) {
    Launch(queue(), grid, kThreads, ScatterAddKernel<X>, residual.Data<float>(),
           residual.row_stride, x_data, x.row_stride, rows.Data<int32_t>(), weights.Data<float>(),
           x.rows(), x.shape[1]);
  });
}

void CudaBackend::RouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits,
                            bool renormalize) {
  CheckRouteTopK(expert_ids, weights, logits);
  CHECK_LE(logits.shape[1], kMaxExperts);
  Launch(queue(), static_cast<unsigned>(logits.rows()), kWarpSize, RouteTopKKernel,
         expert_ids.Data<int32_t>(), expert_ids.row_stride, weights.Data<float>(),
         weights.row_stride, logits.Data<float>(), logits.row_stride,
         static_cast<int>(logits.shape[1]), static_cast<int>(expert_ids.shape[1]), renormalize);
}

}  // namespace tandem
