// Matrix products. Few rows (decode) are bound by reading the weights once: SkinnyKernel. Many rows
// go to cuBLASLt, or where that is missing to TileKernel.

#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kSkinnyRows = 16;
constexpr int kSkinnyWarps = 4;

struct LinearArgs {
  int64_t x_stride, weight_stride, out_stride;
  int64_t m, n, k;
  const float* bias;  // or null
  bool accumulate;    // add to what out holds
};

template <class Out>
__device__ inline void StoreSum(Out* out, const LinearArgs& args, int64_t row, int64_t column,
                                float sum) {
  if (args.bias != nullptr) sum += args.bias[column];
  out += row * args.out_stride + column;
  if (args.accumulate) sum += LoadFloat(out);
  StoreFloat(out, sum);
}

// One warp per output column for kM rows: lanes read 16 bytes of the weight's row at a time, which
// every row of x shares. kWide: rows of x are as aligned as the weight's.
template <int kM, bool kWide, class Out, class T>
__global__ void SkinnyKernel(Out* out, const T* x, const T* weight, LinearArgs args) {
  constexpr int kWidth = Wide<T>::kSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t column =
      int64_t{blockIdx.x} * kSkinnyWarps + static_cast<int>(threadIdx.x) / kWarpSize;
  if (column >= args.n) return;
  const T* w = weight + column * args.weight_stride;
  float sums[kM];
#pragma unroll
  for (int row = 0; row < kM; ++row) sums[row] = 0;
  for (int64_t k = lane * kWidth; k < args.k; k += kWarpSize * kWidth) {
    const Wide<T> numbers = LoadWide(w + k);  // rows of the weight are padded
#pragma unroll
    for (int row = 0; row < kM; ++row) {
      if (row >= args.m) break;
      const T* from = x + row * args.x_stride + k;
      if constexpr (kWide) {
        const Wide<T> factors = LoadWide(from);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sums[row] += factors.values[i] * numbers.values[i];
      } else {
        for (int i = 0; i < kWidth && k + i < args.k; ++i) {
          sums[row] += LoadFloat(from + i) * numbers.values[i];
        }
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kM; ++row) {
    const float sum = WarpSum(sums[row]);
    if (lane == 0 && row < args.m) StoreSum(out, args, row, column, sum);
  }
}

constexpr int kTile = 64;  // rows and columns of a block
constexpr int kTileDepth = 16;
constexpr int kPerThread = 4;  // rows and columns of a thread
constexpr int kTileThreads = kTile / kPerThread * kTile / kPerThread;

template <class Out, class T>
__global__ void TileKernel(Out* out, const T* x, const T* weight, LinearArgs args) {
  __shared__ float rows[kTileDepth][kTile];
  __shared__ float columns[kTileDepth][kTile];
  const int64_t first_row = int64_t{blockIdx.y} * kTile, first_column = int64_t{blockIdx.x} * kTile;
  const int thread_row = static_cast<int>(threadIdx.x) / (kTile / kPerThread) * kPerThread;
  const int thread_column = static_cast<int>(threadIdx.x) % (kTile / kPerThread) * kPerThread;
  float sums[kPerThread][kPerThread] = {};
  for (int64_t k = 0; k < args.k; k += kTileDepth) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTileDepth; i += kTileThreads) {
      const int at = i / kTileDepth, depth = i % kTileDepth;
      const bool has_k = k + depth < args.k;
      const int64_t row = first_row + at, column = first_column + at;
      rows[depth][at] = has_k && row < args.m ? LoadFloat(x + row * args.x_stride + k + depth) : 0;
      columns[depth][at] = has_k && column < args.n
                               ? LoadFloat(weight + column * args.weight_stride + k + depth)
                               : 0;
    }
    __syncthreads();
    for (int depth = 0; depth < kTileDepth; ++depth) {
#pragma unroll
      for (int r = 0; r < kPerThread; ++r) {
#pragma unroll
        for (int c = 0; c < kPerThread; ++c) {
          sums[r][c] += rows[depth][thread_row + r] * columns[depth][thread_column + c];
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kPerThread; ++r) {
#pragma unroll
    for (int c = 0; c < kPerThread; ++c) {
      const int64_t row = first_row + thread_row + r, column = first_column + thread_column + c;
      if (row < args.m && column < args.n) StoreSum(out, args, row, column, sums[r][c]);
    }
  }
}

constexpr int kBiasThreads = 256;

template <class Out>
__global__ void AddBiasKernel(Out* out, int64_t stride, const float* bias, int64_t n) {
  const int64_t column = int64_t{blockIdx.x} * kBiasThreads + threadIdx.x;
  if (column >= n) return;
  out += blockIdx.y * stride + column;
  StoreFloat(out, LoadFloat(out) + bias[column]);
}

unsigned Blocks(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

template <int kM, class Out, class T>
void LaunchSkinny(cudaStream_t stream, Out* out, const T* x, const T* weight,
                  const LinearArgs& args) {
  constexpr int64_t kWidth = Wide<T>::kSize;
  const bool is_wide = args.k % kWidth == 0 && args.x_stride % kWidth == 0 &&
                       reinterpret_cast<uintptr_t>(x) % 16 == 0;
  Launch(stream, Blocks(args.n, kSkinnyWarps), kSkinnyWarps * kWarpSize,
         is_wide ? SkinnyKernel<kM, true, Out, T> : SkinnyKernel<kM, false, Out, T>, out, x, weight,
         args);
}

}  // namespace

void CudaBackend::Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                         const Tensor& bias, LinearEpilogue epilogue) {
  CheckLinear(types(), out, x, weight, bias, epilogue);
  if (x.rows() == 0) return;
  const auto& matrix = static_cast<const CudaMatrix&>(weight);
  if (epilogue == LinearEpilogue::kStore || epilogue == LinearEpilogue::kAddResidual) {
    return Multiply(out, x, matrix, bias, epilogue == LinearEpilogue::kAddResidual);
  }
  const Tensor gate_up = Scratch(&ungated_, x.rows(), matrix.n());
  Multiply(gate_up, x, matrix, bias, /*accumulate=*/false);
  if (epilogue == LinearEpilogue::kSiluAndMul) return SiluAndMul(out, gate_up);
  GeluAndMul(out, gate_up);
}

void CudaBackend::RmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight,
                                float epsilon, const PackedMatrix& weight, const Tensor& bias,
                                LinearEpilogue epilogue) {
  CheckRmsNormLinear(types(), out, x, norm_weight, weight, bias, epilogue);
  if (x.rows() == 0) return;
  const Tensor normed = Scratch(&normed_, x.rows(), weight.k());
  RmsNorm(normed, x, norm_weight, epsilon);
  Linear(out, normed, weight, bias, epilogue);
}

void CudaBackend::Multiply(const Tensor& y, const Tensor& x, const CudaMatrix& matrix,
                           const Tensor& bias, bool accumulate) {
  const LinearArgs args = {.x_stride = x.row_stride,
                           .weight_stride = matrix.stride(),
                           .out_stride = y.row_stride,
                           .m = x.rows(),
                           .n = matrix.n(),
                           .k = matrix.k(),
                           .bias = bias.empty() ? nullptr : bias.Data<float>(),
                           .accumulate = accumulate};
  WithTypes(y, x, [&]<class Out, class T>(Out* out_data, const T* x_data) {
    const auto* w = static_cast<const T*>(matrix.data());
    if (args.m == 1) return LaunchSkinny<1>(stream_, out_data, x_data, w, args);
    if (args.m <= 4) return LaunchSkinny<4>(stream_, out_data, x_data, w, args);
    if (args.m <= kSkinnyRows) return LaunchSkinny<kSkinnyRows>(stream_, out_data, x_data, w, args);
    if (cublaslt_ == nullptr) {
      const dim3 grid(Blocks(args.n, kTile), Blocks(args.m, kTile));
      Launch(stream_, grid, kTileThreads, TileKernel<Out, T>, out_data, x_data, w, args);
      return;
    }
    cublaslt_->Gemm({.x = x_data,
                     .x_stride = args.x_stride,
                     .weight = w,
                     .weight_stride = args.weight_stride,
                     .out = out_data,
                     .out_stride = args.out_stride,
                     .m = args.m,
                     .n = args.n,
                     .k = args.k,
                     .in = x.dtype,
                     .out_dtype = y.dtype,
                     .accumulate = args.accumulate});
    if (args.bias != nullptr) {
      const dim3 grid(Blocks(args.n, kBiasThreads), static_cast<unsigned>(args.m));
      Launch(stream_, grid, kBiasThreads, AddBiasKernel<Out>, out_data, args.out_stride, args.bias,
             args.n);
    }
  });
}

}  // namespace tandem
