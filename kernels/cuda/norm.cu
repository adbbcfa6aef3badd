// Norms, and element-wise ops over rows of hidden states.

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm_row.cuh"

namespace tandem {
namespace {

constexpr int kThreads = 256;

// One block per row.
template <class Out, class X>
__global__ void RmsNormKernel(Out* out, int64_t out_stride, const X* x, int64_t x_stride,
                              const float* weight, float epsilon, int64_t hidden) {
  const RowNorm<kThreads> norm(weight, hidden);
  WaitForPreviousKernel();
  norm.Apply(out + blockIdx.x * out_stride, x + blockIdx.x * x_stride, epsilon);
}

template <class Out, class X>
__global__ void LayerNormKernel(Out* out, int64_t out_stride, const X* x, int64_t x_stride,
                                const float* weight, const float* bias, float epsilon,
                                int64_t hidden) {
  WaitForPreviousKernel();
  out += blockIdx.x * out_stride;
  x += blockIdx.x * x_stride;
  const auto size = static_cast<float>(hidden);
  float sum = 0;
  for (int64_t h = threadIdx.x; h < hidden; h += kThreads) sum += LoadFloat(x + h);
  const float mean = BlockSum<kThreads>(sum) / size;
  float squares = 0;
  for (int64_t h = threadIdx.x; h < hidden; h += kThreads) {
    const float value = LoadFloat(x + h) - mean;
    squares += value * value;
  }
  const float scale = rsqrtf(BlockSum<kThreads>(squares) / size + epsilon);
  for (int64_t h = threadIdx.x; h < hidden; h += kThreads) {
    StoreFloat(out + h, (LoadFloat(x + h) - mean) * scale * weight[h] + bias[h]);
  }
}

template <class X>
__global__ void AddKernel(float* residual, int64_t residual_stride, const X* x, int64_t x_stride,
                          int64_t hidden) {
  WaitForPreviousKernel();
  for (int64_t h = threadIdx.x; h < hidden; h += kThreads) {
    residual[blockIdx.x * residual_stride + h] += LoadFloat(x + blockIdx.x * x_stride + h);
  }
}

template <class Out, class X>
__global__ void ConvertKernel(Out* out, int64_t out_stride, const X* x, int64_t x_stride,
                              int64_t hidden) {
  WaitForPreviousKernel();
  for (int64_t h = threadIdx.x; h < hidden; h += kThreads) {
    StoreFloat(out + blockIdx.x * out_stride + h, LoadFloat(x + blockIdx.x * x_stride + h));
  }
}

unsigned Rows(const Tensor& x) { return static_cast<unsigned>(x.rows()); }

}  // namespace

void CudaOps::DoRmsNorm(const Tensor& out, const Tensor& x, const Tensor& weight, float epsilon) {
  WithTypes(out, x, [&]<class Out, class X>(Out* out_data, const X* x_data) {
    Launch(queue(), Rows(x), kThreads, RmsNormKernel<Out, X>, out_data, out.row_stride, x_data,
           x.row_stride, weight.Data<float>(), epsilon, x.shape[1]);
  });
}

void CudaOps::DoLayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                          const Tensor& bias, float epsilon) {
  WithTypes(out, x, [&]<class Out, class X>(Out* out_data, const X* x_data) {
    Launch(queue(), Rows(x), kThreads, LayerNormKernel<Out, X>, out_data, out.row_stride, x_data,
           x.row_stride, weight.Data<float>(), bias.Data<float>(), epsilon, x.shape[1]);
  });
}

void CudaOps::DoAdd(const Tensor& residual, const Tensor& x) {
  WithType(x, [&]<class X>(const X* x_data) {
    Launch(queue(), Rows(x), kThreads, AddKernel<X>, residual.Data<float>(), residual.row_stride,
           x_data, x.row_stride, x.shape[1]);
  });
}

void CudaOps::DoConvert(const Tensor& out, const Tensor& x) {
  WithTypes(out, x, [&]<class Out, class X>(Out* out_data, const X* x_data) {
    Launch(queue(), Rows(x), kThreads, ConvertKernel<Out, X>, out_data, out.row_stride, x_data,
           x.row_stride, x.shape[1]);
  });
}

}  // namespace tandem
