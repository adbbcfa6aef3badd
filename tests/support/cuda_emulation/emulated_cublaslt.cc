// cuBLASLt's products by plain loops, in the stream. Devices have none unless a test asks for it:
// then all products run on our own kernels.

#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries/cublaslt.h"
#include "kernels/float8.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"

namespace tandem {
namespace {

bool is_there = false;
int64_t num_products = 0;

float NumberAt(const void* numbers, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kBf16:
      return ToFloat(static_cast<const Bf16*>(numbers)[i]);
    case DType::kI8:
      return Float8ToFloat(static_cast<const uint8_t*>(numbers)[i]);
    default:
      return static_cast<const float*>(numbers)[i];
  }
}

void Multiply(const GemmTask& task) {
  for (int64_t row = 0; row < task.m; ++row) {
    for (int64_t n = 0; n < task.n; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < task.k; ++k) {
        sum += NumberAt(task.x, task.in, row * task.x_stride + k) *
               NumberAt(task.weight, task.in, n * task.weight_stride + k);
      }
      if (task.in == DType::kI8) sum *= task.x_scales[row] * task.weight_scales[n];
      const int64_t at = row * task.out_stride + n;
      if (task.accumulate) sum += NumberAt(task.out, task.out_dtype, at);
      if (task.out_dtype == DType::kBf16) {
        static_cast<Bf16*>(task.out)[at] = ToBf16(sum);
      } else {
        static_cast<float*>(task.out)[at] = sum;
      }
    }
  }
}

class LoopCublasLt final : public CublasLt {
 public:
  explicit LoopCublasLt(cudaStream_t stream) : stream_(stream) {}
  bool TryGemm(const GemmTask& task) override {
    ++num_products;
    cuda_emulation::Enqueue(stream_, [task] { Multiply(task); });
    return true;
  }
  // Of some sizes, so that tests meet both.
  bool IsBetter(const GemmTask& task, const OwnProduct&) override { return task.m % 2 == 0; }

 private:
  cudaStream_t stream_;
};

}  // namespace

void SetEmulatedCublasLt(bool is_installed) { is_there = is_installed; }
int64_t NumEmulatedGemms() { return num_products; }

std::unique_ptr<CublasLt> CublasLt::Open(void* stream) {
  if (!is_there) return nullptr;
  return std::make_unique<LoopCublasLt>(static_cast<cudaStream_t>(stream));
}

}  // namespace tandem
