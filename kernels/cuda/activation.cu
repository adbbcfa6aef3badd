#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;

// One block per kThreads numbers of a row; kGated: the second half of x's row multiplies.
template <class Activation, bool kGated, class Out, class X>
__global__ void ActivateKernel(Out* out, int64_t out_stride, const X* x, int64_t x_stride,
                               int64_t size) {
  WaitForPreviousKernel();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= size) return;
  x += blockIdx.x * x_stride + i;
  float value = Activation::Of(LoadFloat(x));
  if (kGated) value *= LoadFloat(x + size);
  StoreFloat(out + blockIdx.x * out_stride + i, value);
}

template <class Activation, bool kGated>
void Activate(OverlappingStream stream, const Tensor& out, const Tensor& x) {
  const int64_t size = out.shape[1];
  // Rows are dimension x of the grid: y and z are limited to 65535.
  const dim3 grid(static_cast<unsigned>(out.rows()),
                  static_cast<unsigned>((size + kThreads - 1) / kThreads));
  WithTypes(out, x, [&]<class Out, class X>(Out* out_data, const X* x_data) {
    Launch(stream, grid, kThreads, ActivateKernel<Activation, kGated, Out, X>, out_data,
           out.row_stride, x_data, x.row_stride, size);
  });
}

constexpr int kSoftCapThreads = 512;

__global__ void SoftCapKernel(float* x, int64_t stride, int64_t size, float cap) {
  WaitForPreviousKernel();
  const int64_t v = int64_t{blockIdx.x} * kSoftCapThreads + threadIdx.x;
  if (v >= size) return;
  float* value = x + blockIdx.y * stride + v;
  *value = cap * tanhf(*value / cap);
}

}  // namespace

void CudaOps::DoSiluAndMul(const Tensor& out, const Tensor& gate_up) {
  Activate<Silu, true>(queue(), out, gate_up);
}

void CudaOps::DoGeluAndMul(const Tensor& out, const Tensor& gate_up) {
  Activate<TanhGelu, true>(queue(), out, gate_up);
}

void CudaOps::DoGelu(const Tensor& out, const Tensor& x) {
  Activate<TanhGelu, false>(queue(), out, x);
}

void CudaOps::DoSoftCap(const Tensor& x, float cap) {
  const dim3 grid(static_cast<unsigned>((x.shape[1] + kSoftCapThreads - 1) / kSoftCapThreads),
                  static_cast<unsigned>(x.rows()));
  Launch(queue(), grid, kSoftCapThreads, SoftCapKernel, x.Data<float>(), x.row_stride, x.shape[1],
         cap);
}

}  // namespace tandem
