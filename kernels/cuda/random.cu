// Random matrices, and random codes, drawn on the device: number i of a matrix (row by row, without
// the rows' padding) is word i % 4 of Philox at (seed, i / 4, number of the matrix).

#include <algorithm>
#include <cmath>

#include "common/random.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/quantization.h"

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

__global__ void RandomBitsKernel(uint32_t* out, int64_t count, uint64_t seed, uint64_t matrix) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group * kWords < count;
       group += step) {
    const std::array<uint32_t, 4> words = Philox4x32(seed, static_cast<uint64_t>(group), matrix);
#pragma unroll
    for (int64_t w = 0; w < kWords; ++w) {
      if (group * kWords + w < count) out[group * kWords + w] = words[static_cast<size_t>(w)];
    }
  }
}

__global__ void FillKernel(float* out, int64_t count, float value) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    out[i] = value;
  }
}

}  // namespace

StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::MakeRandomCodes(int64_t n, int64_t k,
                                                                     WeightFormat format,
                                                                     bool is_gated) {
  constexpr float kDeviationOf4Bits = 4.61f, kDeviationOf8Bits = 73.9f;  // of uniform codes
  const int64_t group = GroupSize(format) == 0 ? (k + 63) / 64 * 64 : GroupSize(format);
  const bool is_int8 = format == WeightFormat::kInt8;
  std::vector<CodedPart> parts(1);
  CodedPart& part = parts[0];
  part.layout = {.kind = is_int8 ? CodedKind::kBytes : CodedKind::kNibbles,
                 .scales = GroupScales::kFloat,
                 .zero = is_int8 ? 128 : 8,
                 .block_size = static_cast<int32_t>(group),
                 .group_size = static_cast<int32_t>(group),
                 .num_rows = n,
                 .num_columns = k};
  const CodedLayout& layout = part.layout;
  const int64_t num_bytes = layout.num_bytes();
  ASSIGN_OR_RETURN(part.memory, AllocateDevice(DType::kI8, {&num_bytes, 1}, device_.stream()));
  auto* const memory = static_cast<std::byte*>(part.memory.view().data);
  const auto grid = static_cast<unsigned>(kBlocksPerMultiprocessor * device_.num_multiprocessors());
  const int64_t code_bytes = layout.num_tiles() * layout.code_bytes();
  Launch(device_.stream(), grid, kThreads, RandomBitsKernel, reinterpret_cast<uint32_t*>(memory),
         code_bytes / int64_t{sizeof(uint32_t)}, random_->seed, num_random_matrices_++);
  Launch(device_.stream(), grid, kThreads, FillKernel,
         reinterpret_cast<float*>(memory + code_bytes),
         (num_bytes - code_bytes) / int64_t{sizeof(float)},
         random_->deviation / (is_int8 ? kDeviationOf8Bits : kDeviationOf4Bits));
  return std::unique_ptr<PackedMatrix>(
      std::make_unique<CudaMatrix>(n, k, is_gated, std::move(parts)));
}

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
