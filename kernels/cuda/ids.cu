// Ops on token ids that stay on the device: the likeliest of a row, and inputs that are such ids.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int kBestThreads = 512;  // of a row

struct Candidate {
  float value = -INFINITY;
  int id = 0;

  // Equal numbers: the lower id.
  __device__ void Meet(float other, int other_id) {
    if (other > value || (other == value && other_id < id)) {
      value = other;
      id = other_id;
    }
  }
};

__device__ Candidate BestOfWarp(Candidate own) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    const float value = __shfl_xor_sync(kAllLanes, own.value, mask);
    const int id = __shfl_xor_sync(kAllLanes, own.id, mask);
    own.Meet(value, id);
  }
  return own;
}

// One block per row.
__global__ void __launch_bounds__(kBestThreads)
    ArgMaxKernel(int32_t* ids, const float* x, int64_t stride, int64_t size) {
  constexpr int kWarps = kBestThreads / kWarpSize;
  __shared__ float values[kWarps];  // of each warp the best
  __shared__ int best_ids[kWarps];
  WaitForPreviousKernel();
  x += blockIdx.x * stride;
  Candidate own;
  for (int64_t v = threadIdx.x; v < size; v += kBestThreads) {
    if (x[v] > own.value) own = {x[v], static_cast<int>(v)};
  }
  own = BestOfWarp(own);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (lane == 0) {
    values[warp] = own.value;
    best_ids[warp] = own.id;
  }
  __syncthreads();
  if (warp != 0) return;
  own = Candidate();
  if (lane < kWarps) own = {values[lane], best_ids[lane]};
  own = BestOfWarp(own);
  if (lane == 0) ids[blockIdx.x] = own.id;
}

__global__ void FillIdsKernel(int32_t* ids, int64_t num_ids, const int32_t* known) {
  WaitForPreviousKernel();
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t < num_ids && ids[t] < 0) ids[t] = known[~ids[t]];
}

// One block per kThreads columns of a row.
__global__ void GatherColumnsKernel(float* out, int64_t out_stride, const float* x,
                                    int64_t x_stride, const int32_t* columns, int64_t size,
                                    float missing) {
  WaitForPreviousKernel();
  const int64_t v = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (v >= size) return;
  const int32_t column = columns[v];
  out[blockIdx.x * out_stride + v] = column < 0 ? missing : x[blockIdx.x * x_stride + column];
}

// One block per kThreads numbers of a row.
__global__ void GatherAnglesKernel(float* out, int64_t out_stride, const float* table,
                                   int64_t table_stride, const int32_t* positions,
                                   int64_t positions_stride, const int32_t* axes, int64_t size) {
  WaitForPreviousKernel();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= size) return;
  const int64_t position = positions[axes[i] * positions_stride + blockIdx.x];
  out[blockIdx.x * out_stride + i] = table[position * table_stride + i];
}

unsigned Blocks(int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

}  // namespace

void CudaOps::DoArgMax(const Tensor& ids, const Tensor& x) {
  Launch(queue(), static_cast<unsigned>(x.rows()), kBestThreads, ArgMaxKernel, ids.Data<int32_t>(),
         x.Data<float>(), x.row_stride, x.shape[1]);
}

void CudaOps::DoFillIds(const Tensor& ids, const Tensor& known) {
  Launch(queue(), Blocks(ids.rows()), kThreads, FillIdsKernel, ids.Data<int32_t>(), ids.rows(),
         known.Data<int32_t>());
}

void CudaOps::DoGatherColumns(const Tensor& out, const Tensor& x, const Tensor& columns,
                              float missing) {
  const dim3 grid(static_cast<unsigned>(x.rows()), Blocks(columns.rows()));
  Launch(queue(), grid, kThreads, GatherColumnsKernel, out.Data<float>(), out.row_stride,
         x.Data<float>(), x.row_stride, columns.Data<int32_t>(), columns.rows(), missing);
}

void CudaOps::DoGatherAngles(const Tensor& out, const Tensor& table, const Tensor& positions,
                             const Tensor& axes) {
  const dim3 grid(static_cast<unsigned>(out.rows()), Blocks(axes.rows()));
  Launch(queue(), grid, kThreads, GatherAnglesKernel, out.Data<float>(), out.row_stride,
         table.Data<float>(), table.row_stride, positions.Data<int32_t>(), positions.row_stride,
         axes.Data<int32_t>(), axes.rows());
}

}  // namespace tandem
