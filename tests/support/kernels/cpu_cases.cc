#include "tests/support/kernels/kernel_cases.h"

#include <cstdio>

namespace tandem {

std::vector<BackendCase> BackendCases() {
  std::vector<BackendCase> cases;
  for (DType dtype : {DType::kBf16, DType::kF32}) {
    for (auto [isa, name] :
         {std::pair{CpuIsa::kScalar, "scalar "}, std::pair{CpuIsa::kAvx2, "avx2 "},
          std::pair{CpuIsa::kAvx512Bf16, "avx512_bf16 "}, std::pair{CpuIsa::kAmx, "amx "}}) {
      if (!CpuHasIsa(isa)) {
        if (dtype == DType::kBf16) std::fprintf(stderr, "this CPU lacks %s: not tested\n", name);
        continue;
      }
      const auto make = [dtype, chosen = isa](int num_threads) {
        return MakeCpuBackend({.dtype = dtype, .num_threads = num_threads, .isa = chosen}).value();
      };
      cases.push_back({.name = name + std::string(DTypeName(dtype)),
                       .dtype = dtype,
                       .make = make,
                       .is_scalar = isa == CpuIsa::kScalar});
    }
  }
  return cases;
}

}  // namespace tandem
