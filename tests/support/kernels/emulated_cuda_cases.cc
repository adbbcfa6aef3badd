#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/kernels/kernel_cases.h"

namespace tandem {

std::vector<BackendCase> BackendCases() {
  std::vector<BackendCase> cases;
  for (DType dtype : {DType::kBf16, DType::kF32}) {
    const auto make = [dtype](int num_threads) {
      return MakeEmulatedCudaBackend({.dtype = dtype,
                                      .num_threads = num_threads,
                                      .attention = AttentionBackend::kTandem})
          .value();
    };
    cases.push_back({.name = "emulated cuda " + std::string(DTypeName(dtype)),
                     .dtype = dtype,
                     .make = make,
                     .has_int8 = false});
  }
  return cases;
}

}  // namespace tandem
