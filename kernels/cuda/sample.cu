// Single steps over rows of logits; drawing a token is sample_token.cu.

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sampling/select.cuh"

namespace tandem {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;

// One block per row.
__global__ void ArgmaxKernel(int32_t* ids, const float* logits, int64_t stride, int64_t size) {
  __shared__ float values[kWarps];
  __shared__ int32_t idxs[kWarps];
  logits += blockIdx.x * stride;
  Best best = {0, -1};
  for (int64_t v = threadIdx.x; v < size; v += kThreads) {
    best = Better(best, {logits[v], static_cast<int32_t>(v)});
  }
  best = WarpBest(best);
  if (threadIdx.x % kWarpSize == 0) {
    values[threadIdx.x / kWarpSize] = best.value;
    idxs[threadIdx.x / kWarpSize] = best.idx;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kWarps; ++warp) best = Better(best, {values[warp], idxs[warp]});
  ids[blockIdx.x] = best.idx;
}

__global__ void LogSumExpKernel(float* out, const float* logits, int64_t stride, int64_t size) {
  __shared__ float maxima[kWarps];
  logits += blockIdx.x * stride;
  float max = -INFINITY;
  for (int64_t v = threadIdx.x; v < size; v += kThreads) max = fmaxf(max, logits[v]);
  max = WarpMax(max);
  if (threadIdx.x % kWarpSize == 0) maxima[threadIdx.x / kWarpSize] = max;
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) max = fmaxf(max, maxima[warp]);
  float sum = 0;
  for (int64_t v = threadIdx.x; v < size; v += kThreads) sum += expf(logits[v] - max);
  sum = BlockSum<kThreads>(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = max + logf(sum);
}

__global__ void SoftCapKernel(float* x, int64_t stride, int64_t size, float cap) {
  WaitForKernelAhead();
  const int64_t v = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (v >= size) return;
  float* value = x + blockIdx.y * stride + v;
  *value = cap * tanhf(*value / cap);
}

}  // namespace

void CudaBackend::Argmax(const Tensor& ids, const Tensor& logits) {
  CheckArgmax(ids, logits);
  Launch(stream_, static_cast<unsigned>(logits.rows()), kThreads, ArgmaxKernel, ids.Data<int32_t>(),
         logits.Data<float>(), logits.row_stride, logits.shape[1]);
}

void CudaBackend::LogSumExp(const Tensor& out, const Tensor& logits) {
  CheckLogSumExp(out, logits);
  Launch(stream_, static_cast<unsigned>(logits.rows()), kThreads, LogSumExpKernel,
         out.Data<float>(), logits.Data<float>(), logits.row_stride, logits.shape[1]);
}

void CudaBackend::SoftCap(const Tensor& x, float cap) {
  CheckSoftCap(x, cap);
  const dim3 grid(static_cast<unsigned>((x.shape[1] + kThreads - 1) / kThreads),
                  static_cast<unsigned>(x.rows()));
  Launch(queue(), grid, kThreads, SoftCapKernel, x.Data<float>(), x.row_stride, x.shape[1], cap);
}

}  // namespace tandem
