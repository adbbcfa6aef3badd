#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;

// A thread's numbers: 16 bytes of bf16, so that enough loads are in flight to use the memory's
// speed.
constexpr int kWidth = 8;

// One block per kThreads * kWidth numbers of a row; kGated: the second half of x's row multiplies.
template <class Activation, bool kGated, class Out, class X>
__global__ void ActivateKernel(Out* out, int64_t out_stride, const X* x, int64_t x_stride,
                               int64_t size) {
  WaitForPreviousKernel();
  using Piece = Numbers<kWidth>;
  const int64_t i = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kWidth;
  if (i >= size) return;
  x += blockIdx.x * x_stride + i;
  out += blockIdx.x * out_stride + i;
  const bool is_wide = size - i >= kWidth && Piece::IsAligned(x) && Piece::IsAligned(x + size) &&
                       Piece::IsAligned(out);
  Piece result, factors;
  if (is_wide) {
    result.Load(x);
    if (kGated) factors.Load(x + size);
  } else {
    result.LoadSome(x, size - i);
    if (kGated) factors.LoadSome(x + size, size - i);
  }
#pragma unroll
  for (int n = 0; n < kWidth; ++n) {
    result.values[n] = Activation::Of(result.values[n]);
    if (kGated) result.values[n] *= factors.values[n];
  }
  is_wide ? result.Store(out) : result.StoreSome(out, size - i);
}

template <class Activation, bool kGated>
void ActivateRows(OverlappingStream stream, const Tensor& out, const Tensor& x) {
  const int64_t size = out.shape[1];
  // Rows are dimension x of the grid: y and z are limited to 65535.
  constexpr int64_t kPerBlock = kThreads * kWidth;
  const dim3 grid(static_cast<unsigned>(out.rows()),
                  static_cast<unsigned>((size + kPerBlock - 1) / kPerBlock));
  WithTypes(out, x, [&]<class Out, class X>(Out* out_data, const X* x_data) {
    Launch(stream, grid, kThreads, ActivateKernel<Activation, kGated, Out, X>, out_data,
           out.row_stride, x_data, x.row_stride, size);
  });
}

struct ErfGelu {
  __device__ static float Of(float x) { return 0.5f * x * (1 + erff(x * 0.70710678f)); }
};
struct Relu {
  __device__ static float Of(float x) { return fmaxf(x, 0.0f); }
};
struct SquaredRelu {
  __device__ static float Of(float x) { return Relu::Of(x) * Relu::Of(x); }
};

template <class Out, class X>
__global__ void ClampedSiluAndMulKernel(Out* out, int64_t out_stride, const X* gate_up,
                                        int64_t stride, int64_t size, float limit) {
  WaitForPreviousKernel();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= size) return;
  gate_up += blockIdx.x * stride + i;
  const float gate = fminf(LoadFloat(gate_up), limit);
  const float up = fmaxf(-limit, fminf(LoadFloat(gate_up + size), limit));
  StoreFloat(out + blockIdx.x * out_stride + i, gate / (1 + expf(-1.702f * gate)) * (up + 1));
}

constexpr int kSoftCapThreads = 512;

template <class X>
__global__ void ScaleKernel(X* x, int64_t stride, int64_t size, float factor) {
  WaitForPreviousKernel();
  const int64_t v = int64_t{blockIdx.y} * kSoftCapThreads + threadIdx.x;
  if (v >= size) return;
  X* at = x + blockIdx.x * stride + v;
  StoreFloat(at, LoadFloat(at) * factor);
}

__global__ void SoftCapKernel(float* x, int64_t stride, int64_t size, float cap) {
  WaitForPreviousKernel();
  const int64_t v = int64_t{blockIdx.x} * kSoftCapThreads + threadIdx.x;
  if (v >= size) return;
  float* value = x + blockIdx.y * stride + v;
  *value = cap * tanhf(*value / cap);
}

}  // namespace

void CudaOps::DoSiluAndMul(const Tensor& out, const Tensor& gate_up) {
  ActivateRows<Silu, true>(queue(), out, gate_up);
}

void CudaOps::DoGeluAndMul(const Tensor& out, const Tensor& gate_up) {
  ActivateRows<TanhGelu, true>(queue(), out, gate_up);
}

void CudaOps::DoErfGeluAndMul(const Tensor& out, const Tensor& gate_up) {
  ActivateRows<ErfGelu, true>(queue(), out, gate_up);
}

void CudaOps::DoClampedSiluAndMul(const Tensor& out, const Tensor& gate_up, float limit) {
  const int64_t size = out.shape[1];
  const dim3 grid(static_cast<unsigned>(out.rows()),
                  static_cast<unsigned>((size + kThreads - 1) / kThreads));
  WithTypes(out, gate_up, [&]<class Out, class X>(Out* out_data, const X* x_data) {
    Launch(queue(), grid, kThreads, ClampedSiluAndMulKernel<Out, X>, out_data, out.row_stride,
           x_data, gate_up.row_stride, size, limit);
  });
}

void CudaOps::DoActivate(const Tensor& out, const Tensor& x, Nonlinearity f) {
  switch (f) {
    case Nonlinearity::kSilu:
      return ActivateRows<Silu, false>(queue(), out, x);
    case Nonlinearity::kTanhGelu:
      return ActivateRows<TanhGelu, false>(queue(), out, x);
    case Nonlinearity::kErfGelu:
      return ActivateRows<ErfGelu, false>(queue(), out, x);
    case Nonlinearity::kRelu:
      return ActivateRows<Relu, false>(queue(), out, x);
    case Nonlinearity::kSquaredRelu:
      return ActivateRows<SquaredRelu, false>(queue(), out, x);
  }
}

void CudaOps::DoScale(const Tensor& x, float factor) {
  const dim3 grid(static_cast<unsigned>(x.rows()),
                  static_cast<unsigned>((x.shape[1] + kSoftCapThreads - 1) / kSoftCapThreads));
  WithType(x, [&]<class X>(X* x_data) {
    Launch(queue(), grid, kSoftCapThreads, ScaleKernel<X>, x_data, x.row_stride, x.shape[1],
           factor);
  });
}

void CudaOps::DoSoftCap(const Tensor& x, float cap) {
  const dim3 grid(static_cast<unsigned>((x.shape[1] + kSoftCapThreads - 1) / kSoftCapThreads),
                  static_cast<unsigned>(x.rows()));
  Launch(queue(), grid, kSoftCapThreads, SoftCapKernel, x.Data<float>(), x.row_stride, x.shape[1],
         cap);
}

}  // namespace tandem
