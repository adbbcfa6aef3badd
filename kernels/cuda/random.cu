// Random matrices, drawn on the device: number i of a matrix (row by row, without the rows'
// padding) is word i % 4 of Philox at (seed, i / 4, number of the matrix).

#include <algorithm>
#include <cmath>

#include "common/random.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace tandem {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 8;
constexpr int64_t kWords = 4;

template <class T>
__global__ void RandomKernel(T* out, int64_t stride, int64_t columns, int64_t count, uint64_t seed,
                             uint64_t matrix, float width) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group * kWords < count;
       group += step) {
    const std::array<uint32_t, 4> words = Philox4x32(seed, static_cast<uint64_t>(group), matrix);
#pragma unroll
    for (int64_t w = 0; w < kWords; ++w) {
      const int64_t i = group * kWords + w;
      if (i >= count) return;
      StoreFloat(out + i / columns * stride + i % columns,
                 RandomMatrices::NumberOf(words[static_cast<size_t>(w)], width));
    }
  }
}

}  // namespace

void CudaBackend::FillRandom(const Tensor& matrix, int64_t columns) {
  const int64_t count = matrix.rows() * columns;
  const int64_t most = kBlocksPerMultiprocessor * device_.num_multiprocessors();
  const int64_t wanted = (count + kThreads * kWords - 1) / (kThreads * kWords);
  const auto grid = static_cast<unsigned>(std::min(wanted, most));
  const uint64_t number = num_random_matrices_++;
  const auto launch = [&](auto* out) {
    Launch(device_.stream(), grid, kThreads, RandomKernel<std::remove_pointer_t<decltype(out)>>,
           out, matrix.row_stride, columns, count, random_->seed, number, random_->width());
  };
  if (dtype_ == DType::kBf16) {
    launch(static_cast<Bf16*>(matrix.data));
  } else {
    launch(static_cast<float*>(matrix.data));
  }
}

}  // namespace tandem
