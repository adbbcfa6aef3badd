#pragma once

// cuBLASLt, opened at run time: a host without it still runs, on our own matrix product.
// Thread: engine loop. Owns: the library, its handle, its workspace and, per shape, the algorithm
// that was fastest at the shape's first product. That product takes some milliseconds and waits; a
// shape first met in a capture uses the library's own choice. Likewise which of its products take
// longer than ours.
// Failure: Open returns null if the library or a device is missing; a product that fails ends the
// process.

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/tensor.h"

namespace tandem {

// out[m, n] = x[m, k] W[n, k]^T (+ out). Of kI8, e4m3: each row of x and of W times its scale.
struct GemmTask {
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* weight = nullptr;
  int64_t weight_stride = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::kBf16;  // of x and weight
  DType out_dtype = DType::kBf16;
  bool accumulate = false;               // add to `out`
  const float* x_scales = nullptr;       // [m], of kI8
  const float* weight_scales = nullptr;  // [n]
};

// A kernel of ours that takes a product's place.
struct OwnProduct {
  std::function<void(void* out)> run;  // null: to where its result belongs
  std::function<void()> rest;          // what it does besides: bias, gate; null: nothing
};

class CublasLt {
 public:
  // `stream`: a cudaStream_t.
  static std::unique_ptr<CublasLt> Open(void* stream);
  virtual ~CublasLt() = default;
  // False: the library does not support such matrices, and nothing was done.
  [[nodiscard]] virtual bool TryGemm(const GemmTask& task) = 0;
  // Whether TryGemm, and then `rest`, takes less time than ours: measured once per shape, outside
  // of captures. Leaves the results undefined, or as they were if the task accumulates.
  virtual bool IsBetter(const GemmTask& task, const OwnProduct& own) = 0;
};

}  // namespace tandem
