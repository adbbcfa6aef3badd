// Matrix products. Few rows (decode) are bound by reading the weights once. One row runs in
// SkinnyKernel, with the norm before and the gate after the product; up to 16 rows on the tensor
// cores, with the gate after it, or by cuBLASLt where that has been measured to be faster. More
// rows go to cuBLASLt, or to TileKernel if it is missing or refuses. Beyond one row the norm is a
// kernel of its own: every block would read all rows in float32 again, and plain multiplications of
// 4 rows reach two thirds of the memory's speed. float32, for tests, has no tensor cores: up to 4
// rows are normed by SkinnyKernel.

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/skinny_linear.cuh"

namespace tandem {
namespace {

// Without tensor cores cuBLASLt is faster beyond this many rows.
constexpr int kPlainRowsBesideCublas = 8;

template <int kM, bool kGated, bool kNormed, bool kWide, class Out, class X, class T>
__global__ void __launch_bounds__(kSkinnyThreads)
    SkinnyKernel(Out* out, const X* x, const T* weight, SkinnyArgs args) {
  MultiplySkinnyRows<kM, kGated, kNormed, kWide, /*kWaits=*/true>(out, x, weight, args);
}

constexpr int kTile = 64;  // rows and columns of a block
constexpr int kTileDepth = 16;
constexpr int kPerThread = 4;  // rows and columns of a thread
constexpr int kTileThreads = kTile / kPerThread * kTile / kPerThread;

template <class Out, class T>
__global__ void TileKernel(Out* out, const T* x, const T* weight, LinearArgs args) {
  WaitForPreviousKernel();
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
  WaitForPreviousKernel();
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
                const SkinnyArgs& args, int64_t num_multiprocessors) {
  const LinearArgs& linear = args.linear;
  const int64_t columns = kGated ? linear.n / 2 : linear.n;
  unsigned blocks = Blocks(columns, kSkinnyWarps / args.split);
  const auto launch = [&](auto* kernel) {
    Launch(stream, blocks, kSkinnyThreads, kernel, out, x, weight, args);
  };
  constexpr bool kMayNorm = kM == 1 || (kM <= kPlainRows && std::is_same_v<T, float>);
  if constexpr (kMayNorm) {
    if (args.norm_weight != nullptr) {
      // Rounds of equal size, of blocks that all run at once.
      blocks = Blocks(blocks, Blocks(blocks, kNormedBlocks * num_multiprocessors));
      return launch(SkinnyKernel<kM, kGated, true, true, Out, X, T>);
    }
  }
  CHECK(args.norm_weight == nullptr);
  if constexpr (std::is_same_v<X, T>) {
    if (HasWideRows(x, linear)) return launch(SkinnyKernel<kM, kGated, false, true, Out, X, T>);
    launch(SkinnyKernel<kM, kGated, false, false, Out, X, T>);
  }
}

template <bool kGated, class Out, class X, class T>
void LaunchSkinny(OverlappingStream stream, Out* out, const X* x, const T* weight,
                  const SkinnyArgs& args, int64_t num_multiprocessors) {
  const auto launch = [&]<int kM>() {
    LaunchRows<kM, kGated>(stream, out, x, weight, args, num_multiprocessors);
  };
  if (args.linear.m == 1) return launch.template operator()<1>();
  if (args.linear.m <= kPlainRows) return launch.template operator()<kPlainRows>();
  launch.template operator()<kSkinnyRows>();
}

bool IsGate(LinearEpilogue epilogue) {
  return epilogue == LinearEpilogue::kSiluAndMul || epilogue == LinearEpilogue::kGeluAndMul;
}

GemmTask TaskOf(const Tensor& y, const Tensor& x, const DenseRows& weight, bool accumulate) {
  return {.x = x.data,
          .x_stride = x.row_stride,
          .weight = weight.data,
          .weight_stride = weight.stride,
          .out = y.data,
          .out_stride = y.row_stride,
          .m = x.rows(),
          .n = weight.n,
          .k = weight.k,
          .in = x.dtype,
          .out_dtype = y.dtype,
          .accumulate = accumulate};
}

}  // namespace

bool CudaOps::IsSkinny(int64_t num_rows) const {
  const bool has_tensor_cores = dtype_ == DType::kBf16;
  return num_rows <=
         (cublaslt_ == nullptr || has_tensor_cores ? kSkinnyRows : kPlainRowsBesideCublas);
}

bool CudaOps::IsPlain(int64_t num_rows) const {
  return num_rows <= (dtype_ == DType::kBf16 ? 1 : kPlainRows);
}

bool CudaOps::PrefersCublasLt(const Tensor& out, const Tensor& x, const CudaMatrix& matrix,
                              const Tensor& bias, LinearEpilogue epilogue) {
  if (cublaslt_ == nullptr || dtype_ != DType::kBf16 || IsPlain(x.rows())) return false;
  const bool is_gated = IsGate(epilogue), accumulates = epilogue == LinearEpilogue::kAddResidual;
  Tensor y = out;
  if (is_gated) {
    // A capture can use no more memory than the steps before it.
    if (device_->is_capturing() && ungated_.view().NumElements() < x.rows() * matrix.n()) {
      return false;
    }
    y = Scratch(&ungated_, dtype_, x.rows(), matrix.n());
    if (y.empty()) return false;
  }
  OwnProduct own;
  own.run = [&](void* to) {
    Tensor there = out;
    if (to != nullptr) there.data = to;
    MultiplySkinny(there, x, matrix, bias, epilogue, {}, 0);
  };
  if (is_gated || (!bias.empty() && !accumulates)) {
    own.rest = [&] {
      if (!bias.empty()) AddBias(y, bias);
      if (is_gated) Gate(out, y, epilogue);
    };
  }
  return cublaslt_->IsBetter(TaskOf(y, x, matrix.dense(), accumulates), own);
}

void CudaOps::DoLinear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                       const Tensor& bias, LinearEpilogue epilogue) {
  if (x.rows() == 0) return;
  const auto& matrix = static_cast<const CudaMatrix&>(weight);
  if (matrix.is_coded()) return MultiplyCoded(out, x, matrix, bias, epilogue);
  if (IsSkinny(x.rows()) && !PrefersCublasLt(out, x, matrix, bias, epilogue)) {
    return MultiplySkinny(out, x, matrix, bias, epilogue, {}, 0);
  }
  if (!IsGate(epilogue)) {
    return Multiply(out, x, matrix.dense(), bias, epilogue == LinearEpilogue::kAddResidual);
  }
  const Tensor gate_up = Scratch(&ungated_, dtype_, x.rows(), matrix.n());
  if (gate_up.empty()) return;
  MultiplyUngated(gate_up, x, matrix, bias);
  Gate(out, gate_up, epilogue);
}

void CudaOps::MultiplyUngated(const Tensor& y, const Tensor& x, const CudaMatrix& weight,
                              const Tensor& bias) {
  if (weight.is_coded()) return MultiplyCoded(y, x, weight, bias, LinearEpilogue::kStore);
  if (IsSkinny(x.rows()) && !PrefersCublasLt(y, x, weight, bias, LinearEpilogue::kStore)) {
    return MultiplySkinny(y, x, weight, bias, LinearEpilogue::kStore, {}, 0);
  }
  Multiply(y, x, weight.dense(), bias, /*accumulate=*/false);
}

void CudaOps::Gate(const Tensor& out, const Tensor& gate_up, LinearEpilogue epilogue) {
  if (epilogue == LinearEpilogue::kSiluAndMul) return SiluAndMul(out, gate_up);
  GeluAndMul(out, gate_up);
}

void CudaOps::DoRmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight,
                              float epsilon, const PackedMatrix& weight, const Tensor& bias,
                              LinearEpilogue epilogue) {
  if (x.rows() == 0) return;
  const int64_t width = kRowAlign / SizeOf(dtype_);
  const int64_t normed_bytes = x.rows() * (weight.k() + width - 1) / width * kRowAlign;
  const auto& matrix = static_cast<const CudaMatrix&>(weight);
  if (!matrix.is_coded() && IsPlain(x.rows()) && normed_bytes <= kNormedBytes) {
    return MultiplySkinny(out, x, matrix, bias, epilogue, norm_weight, epsilon);
  }
  const Tensor normed = Scratch(&normed_, dtype_, x.rows(), weight.k());
  if (normed.empty()) return;
  RmsNorm(normed, x, norm_weight, epsilon);
  Linear(out, normed, weight, bias, epilogue);
}

void CudaOps::MultiplySkinny(const Tensor& out, const Tensor& x, const CudaMatrix& matrix,
                             const Tensor& bias, LinearEpilogue epilogue, const Tensor& norm_weight,
                             float epsilon) {
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
      .split = ChooseSkinnySplit(columns, matrix.k(),
                                 dtype_ == DType::kBf16 ? LeastDepth<Bf16>() : LeastDepth<float>(),
                                 device_->num_multiprocessors()),
      .is_gelu = epilogue == LinearEpilogue::kGeluAndMul,
      .norm_weight = norm_weight.empty() ? nullptr : norm_weight.Data<float>(),
      .epsilon = epsilon};
  WithTypes(out, x, [&]<class Out, class X>(Out* out_data, const X* x_data) {
    const auto launch = [&]<class T>(const T* w) {
      if constexpr (std::is_same_v<X, Bf16>) {
        if (!IsPlain(x.rows()) && LaunchTensorCores(queue(), out_data, x_data, w, is_gated, args,
                                                    device_->num_multiprocessors())) {
          return;
        }
      }
      const int64_t num_multiprocessors = device_->num_multiprocessors();
      if (is_gated)
        return LaunchSkinny<true>(queue(), out_data, x_data, w, args, num_multiprocessors);
      LaunchSkinny<false>(queue(), out_data, x_data, w, args, num_multiprocessors);
    };
    if (dtype_ == DType::kBf16) return launch(static_cast<const Bf16*>(matrix.data()));
    if constexpr (std::is_same_v<X, float>) launch(static_cast<const float*>(matrix.data()));
  });
}

void CudaOps::Multiply(const Tensor& y, const Tensor& x, const DenseRows& weight,
                       const Tensor& bias, bool accumulate) {
  const LinearArgs args = {.x_stride = x.row_stride,
                           .weight_stride = weight.stride,
                           .out_stride = y.row_stride,
                           .m = x.rows(),
                           .n = weight.n,
                           .k = weight.k,
                           .bias = bias.empty() ? nullptr : bias.Data<float>(),
                           .accumulate = accumulate};
  WithTypes(y, x, [&]<class Out, class T>(Out* out_data, const T* x_data) {
    const auto* w = static_cast<const T*>(weight.data);
    if (cublaslt_ == nullptr || !cublaslt_->TryGemm(TaskOf(y, x, weight, accumulate))) {
      const dim3 grid(Blocks(args.n, kTile), Blocks(args.m, kTile));
      Launch(queue(), grid, kTileThreads, TileKernel<Out, T>, out_data, x_data, w, args);
      return;
    }
    if (!bias.empty()) AddBias(y, bias);
  });
}

void CudaOps::AddBias(const Tensor& y, const Tensor& bias) {
  WithType(y, [&]<class Out>(Out* out) {
    const dim3 grid(static_cast<unsigned>(y.rows()), Blocks(y.RowSize(), kBiasThreads));
    Launch(queue(), grid, kBiasThreads, AddBiasKernel<Out>, out, y.row_stride,
           static_cast<const float*>(bias.Data<float>()), y.RowSize());
  });
}

}  // namespace tandem
