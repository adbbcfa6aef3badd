// Matrix products. Few rows (decode) are bound by reading the weights once: up to 4 rows
// SkinnyKernel, with the norm before and the gate behind it, up to 16 the tensor cores with the
// gate behind them. Many rows go to cuBLASLt, or where that is missing or cannot, to TileKernel.

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.cuh"

namespace tandem {
namespace {

// Beyond so many, multiplying number by number takes longer than reading the weights.
constexpr int kPlainRows = 4;
// Beyond so many, cuBLASLt is faster than that all the same.
constexpr int kPlainRowsBesideCublas = 8;
constexpr int kNormedBytes = 32 << 10;   // rows of x that a block keeps normalised
constexpr int64_t kMinLoadsPerLane = 2;  // of 16 bytes of a weight's row

// What a lane has on its way: kUnroll pieces of 16 bytes of each of its warp's weight rows.
template <int kUnroll, int kColumns, class T>
struct WeightPieces {
  uint4 raw[kUnroll][kColumns];

  __device__ void Load(const T* const (&rows)[kColumns], int64_t k, int64_t step, int64_t end) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        raw[u][c] = k + u * step < end ? LoadRaw(rows[c] + k + u * step) : uint4{0, 0, 0, 0};
      }
    }
  }
};

// One warp, or `split` of them, per output column and kM rows: lanes read the weight's row 16 bytes
// at a time, several on their way at once, and every row of x shares them. kGated: a warp has the
// gate's row and that of what it multiplies. kNormed: each block normalises x for itself while its
// first weights are coming. kWide: rows of x are as aligned as the weight's.
template <int kM, bool kGated, bool kNormed, bool kWide, class Out, class X, class T>
__global__ void __launch_bounds__(kSkinnyThreads)
    SkinnyKernel(Out* out, const X* x, const T* weight, SkinnyArgs args) {
  constexpr int kWidth = Wide<T>::kSize;
  constexpr int kColumns = kGated ? 2 : 1;
  constexpr int kUnroll = kM * kColumns > 4 ? 2 : 4;
  __shared__ uint4 normed_memory[kNormed ? kNormedBytes / sizeof(uint4) : 1];
  __shared__ float partial[kSkinnyWarps][kM * kColumns];
  const LinearArgs& linear = args.linear;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int part = warp % args.split;
  const int64_t num_columns = kGated ? linear.n / 2 : linear.n;
  const int64_t column = int64_t{blockIdx.x} * (kSkinnyWarps / args.split) + warp / args.split;
  const bool has_column = column < num_columns;
  const T* rows[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    rows[c] = weight + (has_column ? column + c * num_columns : 0) * linear.weight_stride;
  }
  const int64_t step = int64_t{args.split} * kWarpSize * kWidth;
  const int64_t end = has_column ? linear.k : 0;
  int64_t k = (int64_t{part} * kWarpSize + lane) * kWidth;
  WeightPieces<kUnroll, kColumns, T> pieces;
  pieces.Load(rows, k, step, end);  // rows of the weight are padded with zeros
  WaitForKernelAhead();

  [[maybe_unused]] const int64_t normed_stride = (linear.k + kWidth - 1) / kWidth * kWidth;
  [[maybe_unused]] T* normed = reinterpret_cast<T*>(normed_memory);
  if constexpr (kNormed) {
    for (int row = 0; row < kM; ++row) {
      if (row >= linear.m) break;
      const X* from = x + row * linear.x_stride;
      T* to = normed + row * normed_stride;
      // In the order of RmsNormKernel, so that both have the same bits.
      float squares = 0;
      for (int64_t h = threadIdx.x; h < linear.k; h += kSkinnyThreads) {
        const float value = LoadFloat(from + h);
        squares += value * value;
      }
      const float scale =
          rsqrtf(BlockSum<kSkinnyThreads>(squares) / static_cast<float>(linear.k) + args.epsilon);
      for (int64_t h = threadIdx.x; h < normed_stride; h += kSkinnyThreads) {
        StoreFloat(to + h, h < linear.k ? LoadFloat(from + h) * scale * args.norm_weight[h] : 0);
      }
    }
    __syncthreads();
  }

  float sums[kM][kColumns];
#pragma unroll
  for (int row = 0; row < kM; ++row) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[row][c] = 0;
  }
  while (k < end) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t at = k + u * step;
      if (at >= end) break;
      Wide<T> numbers[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) numbers[c] = Widen<T>(pieces.raw[u][c]);
#pragma unroll
      for (int row = 0; row < kM; ++row) {
        if (row >= linear.m) break;
        Wide<T> factors;
        if constexpr (kNormed) {
          factors = Widen<T>(LoadRaw(normed + row * normed_stride + at));
        } else if constexpr (kWide) {
          factors = Widen<T>(LoadRaw(x + row * linear.x_stride + at));
        } else {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            factors.values[i] = at + i < end ? LoadFloat(x + row * linear.x_stride + at + i) : 0;
          }
        }
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) {
            sums[row][c] += factors.values[i] * numbers[c].values[i];
          }
        }
      }
    }
    k += kUnroll * step;
    if (k < end) pieces.Load(rows, k, step, end);
  }
#pragma unroll
  for (int row = 0; row < kM; ++row) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const float sum = WarpSum(sums[row][c]);
      if (lane == 0) partial[warp][row * kColumns + c] = sum;
    }
  }
  __syncthreads();
  if (part != 0 || !has_column || lane >= kM || lane >= linear.m) return;
  float totals[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    totals[c] = 0;
    for (int p = 0; p < args.split; ++p) totals[c] += partial[warp + p][lane * kColumns + c];
  }
  StoreSums(out, args, lane, column, totals);
}

constexpr int kTile = 64;  // rows and columns of a block
constexpr int kTileDepth = 16;
constexpr int kPerThread = 4;  // rows and columns of a thread
constexpr int kTileThreads = kTile / kPerThread * kTile / kPerThread;

template <class Out, class T>
__global__ void TileKernel(Out* out, const T* x, const T* weight, LinearArgs args) {
  WaitForKernelAhead();
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
  WaitForKernelAhead();
  const int64_t column = int64_t{blockIdx.y} * kBiasThreads + threadIdx.x;
  if (column >= n) return;
  out += blockIdx.x * stride + column;
  StoreFloat(out, LoadFloat(out) + bias[column]);
}

unsigned Blocks(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

constexpr int64_t kRowAlign = 16;  // bytes, of a weight's rows

template <int kM, bool kGated, class Out, class X, class T>
void LaunchRows(OverlappingStream stream, Out* out, const X* x, const T* weight,
                const SkinnyArgs& args) {
  constexpr int64_t kWidth = Wide<T>::kSize;
  const LinearArgs& linear = args.linear;
  const int64_t columns = kGated ? linear.n / 2 : linear.n;
  const unsigned blocks = Blocks(columns, kSkinnyWarps / args.split);
  const auto launch = [&](auto* kernel) {
    Launch(stream, blocks, kSkinnyThreads, kernel, out, x, weight, args);
  };
  if constexpr (kM <= kPlainRows) {
    if (args.norm_weight != nullptr) {
      return launch(SkinnyKernel<kM, kGated, true, true, Out, X, T>);
    }
  }
  CHECK(args.norm_weight == nullptr);
  if constexpr (std::is_same_v<X, T>) {
    const bool is_wide = linear.k % kWidth == 0 && linear.x_stride % kWidth == 0 &&
                         reinterpret_cast<uintptr_t>(x) % 16 == 0;
    if (is_wide) return launch(SkinnyKernel<kM, kGated, false, true, Out, X, T>);
    launch(SkinnyKernel<kM, kGated, false, false, Out, X, T>);
  }
}

template <bool kGated, class Out, class X, class T>
void LaunchSkinny(OverlappingStream stream, Out* out, const X* x, const T* weight,
                  const SkinnyArgs& args) {
  if (args.linear.m == 1) return LaunchRows<1, kGated>(stream, out, x, weight, args);
  if (args.linear.m <= 4) return LaunchRows<4, kGated>(stream, out, x, weight, args);
  LaunchRows<kSkinnyRows, kGated>(stream, out, x, weight, args);
}

bool IsGate(LinearEpilogue epilogue) {
  return epilogue == LinearEpilogue::kSiluAndMul || epilogue == LinearEpilogue::kGeluAndMul;
}

}  // namespace

bool CudaBackend::IsSkinny(int64_t num_rows) const {
  const bool has_tensor_cores = dtype_ == DType::kBf16;
  return num_rows <=
         (cublaslt_ == nullptr || has_tensor_cores ? kSkinnyRows : kPlainRowsBesideCublas);
}

void CudaBackend::Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                         const Tensor& bias, LinearEpilogue epilogue) {
  CheckLinear(types(), out, x, weight, bias, epilogue);
  if (x.rows() == 0) return;
  const auto& matrix = static_cast<const CudaMatrix&>(weight);
  if (IsSkinny(x.rows())) return MultiplySkinny(out, x, matrix, bias, epilogue, {}, 0);
  if (!IsGate(epilogue)) {
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
  const int64_t width = kRowAlign / SizeOf(dtype_);
  const int64_t normed_bytes = x.rows() * (weight.k() + width - 1) / width * kRowAlign;
  if (IsSkinny(x.rows()) && x.rows() <= kPlainRows && normed_bytes <= kNormedBytes) {
    return MultiplySkinny(out, x, static_cast<const CudaMatrix&>(weight), bias, epilogue,
                          norm_weight, epsilon);
  }
  const Tensor normed = Scratch(&normed_, x.rows(), weight.k());
  RmsNorm(normed, x, norm_weight, epsilon);
  Linear(out, normed, weight, bias, epilogue);
}

void CudaBackend::MultiplySkinny(const Tensor& out, const Tensor& x, const CudaMatrix& matrix,
                                 const Tensor& bias, LinearEpilogue epilogue,
                                 const Tensor& norm_weight, float epsilon) {
  const bool is_gated = IsGate(epilogue);
  const int64_t columns = is_gated ? matrix.n() / 2 : matrix.n();
  const SkinnyArgs args = {
      .linear = {.x_stride = x.row_stride,
                 .weight_stride = matrix.stride(),
                 .out_stride = out.row_stride,
                 .m = x.rows(),
                 .n = matrix.n(),
                 .k = matrix.k(),
                 .bias = bias.empty() ? nullptr : bias.Data<float>(),
                 .accumulate = epilogue == LinearEpilogue::kAddResidual},
      .split = ChooseSplit(columns, matrix.k(),
                           kMinLoadsPerLane * kWarpSize * kRowAlign / SizeOf(dtype_),
                           num_multiprocessors_),
      .is_gelu = epilogue == LinearEpilogue::kGeluAndMul,
      .norm_weight = norm_weight.empty() ? nullptr : norm_weight.Data<float>(),
      .epsilon = epsilon};
  WithTypes(out, x, [&]<class Out, class X>(Out* out_data, const X* x_data) {
    const auto launch = [&]<class T>(const T* w) {
      if constexpr (std::is_same_v<X, Bf16>) {
        const bool is_plain = x.rows() <= kPlainRows;
        if (!is_plain &&
            LaunchTensorCores(queue(), out_data, x_data, w, is_gated, args, num_multiprocessors_)) {
          return;
        }
      }
      if (is_gated) return LaunchSkinny<true>(queue(), out_data, x_data, w, args);
      LaunchSkinny<false>(queue(), out_data, x_data, w, args);
    };
    if (dtype_ == DType::kBf16) return launch(static_cast<const Bf16*>(matrix.data()));
    if constexpr (std::is_same_v<X, float>) launch(static_cast<const float*>(matrix.data()));
  });
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
    const GemmTask task = {.x = x_data,
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
                           .accumulate = args.accumulate};
    if (cublaslt_ == nullptr || !cublaslt_->TryGemm(task)) {
      const dim3 grid(Blocks(args.n, kTile), Blocks(args.m, kTile));
      Launch(queue(), grid, kTileThreads, TileKernel<Out, T>, out_data, x_data, w, args);
      return;
    }
    if (args.bias != nullptr) {
      const dim3 grid(static_cast<unsigned>(args.m), Blocks(args.n, kBiasThreads));
      Launch(queue(), grid, kBiasThreads, AddBiasKernel<Out>, out_data, args.out_stride, args.bias,
             args.n);
    }
  });
}

}  // namespace tandem
