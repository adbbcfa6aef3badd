// GatedNorm, GateBySigmoid and MultiplyBy: products with gates, row by row.

#include "kernels/cuda/any_rows.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int kGroupThreads = 128;

__device__ inline float Sigmoid(float x) { return 1 / (1 + expf(-x)); }

struct GatedNormArgs {
  AnyRows out, x, gate;
  const float* weight;
  int64_t num_weights;
  int64_t group_size;
  float epsilon;
  bool gates_first;
  bool has_sigmoid;
};

// One block per group of a row.
__global__ void GatedNormKernel(GatedNormArgs args) {
  WaitForPreviousKernel();
  const int64_t row = blockIdx.x, begin = int64_t{blockIdx.y} * args.group_size;
  const float* weight = args.weight + begin % args.num_weights;
  const auto factor = [&](int64_t i) {
    const float gate = args.gate.Load(row, begin + i);
    return args.has_sigmoid ? Sigmoid(gate) : Silu::Of(gate);
  };
  float squares = 0;
  for (int64_t i = threadIdx.x; i < args.group_size; i += kGroupThreads) {
    float value = args.x.Load(row, begin + i);
    if (args.gates_first) value *= factor(i);
    squares += value * value;
  }
  const float mean = BlockSum<kGroupThreads>(squares) / static_cast<float>(args.group_size);
  const float scale = rsqrtf(mean + args.epsilon);
  for (int64_t i = threadIdx.x; i < args.group_size; i += kGroupThreads) {
    const float value = args.x.Load(row, begin + i) * factor(i);
    args.out.Store(row, begin + i, value * scale * weight[i]);
  }
}

// One block per kThreads numbers of a row.
template <class Factor>
__global__ void MultiplyKernel(AnyRows x, AnyRows y, int64_t size, int64_t num_factors) {
  WaitForPreviousKernel();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= size) return;
  const float factor = Factor::Of(y.Load(blockIdx.x, num_factors == 1 ? 0 : i));
  x.Store(blockIdx.x, i, x.Load(blockIdx.x, i) * factor);
}

struct Itself {
  __device__ static float Of(float x) { return x; }
};
struct SigmoidOf {
  __device__ static float Of(float x) { return Sigmoid(x); }
};

template <class Factor>
void MultiplyRows(OverlappingStream stream, const Tensor& x, const Tensor& y) {
  const int64_t size = x.shape[1];
  const dim3 grid(static_cast<unsigned>(x.rows()),
                  static_cast<unsigned>((size + kThreads - 1) / kThreads));
  Launch(stream, grid, kThreads, MultiplyKernel<Factor>, RowsOf(x), RowsOf(y), size, y.shape[1]);
}

}  // namespace

void CudaOps::DoGatedNorm(const Tensor& out, const Tensor& x, const Tensor& gate,
                          const GatedNormOptions& options) {
  const GatedNormArgs args = {.out = RowsOf(out),
                              .x = RowsOf(x),
                              .gate = RowsOf(gate),
                              .weight = options.weight.Data<float>(),
                              .num_weights = options.weight.rows(),
                              .group_size = options.group_size,
                              .epsilon = options.epsilon,
                              .gates_first = options.gates_first,
                              .has_sigmoid = options.has_sigmoid};
  const dim3 grid(static_cast<unsigned>(x.rows()),
                  static_cast<unsigned>(x.shape[1] / options.group_size));
  Launch(queue(), grid, kGroupThreads, GatedNormKernel, args);
}

void CudaOps::DoGateBySigmoid(const Tensor& x, const Tensor& gate) {
  MultiplyRows<SigmoidOf>(queue(), x, gate);
}

void CudaOps::DoMultiplyBy(const Tensor& x, const Tensor& y) {
  MultiplyRows<Itself>(queue(), x, y);
}

}  // namespace tandem
