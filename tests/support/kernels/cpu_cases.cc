#include "tests/support/kernels/kernel_cases.h"

namespace tandem {

std::vector<BackendCase> BackendCases() {
  std::vector<BackendCase> cases;
  for (const CpuCase& cpu_case : CpuCases()) {
    cases.push_back({cpu_case.name, cpu_case.dtype,
                     [cpu_case](int num_threads) { return cpu_case.Make(num_threads); }});
  }
  return cases;
}

}  // namespace tandem
