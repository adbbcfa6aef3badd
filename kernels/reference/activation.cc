#include <cmath>

#include "kernels/op_checks.h"
#include "kernels/reference/reference_backend.h"

namespace tandem {

void ReferenceBackend::SiluAndMul(const Tensor& out, const Tensor& gate_up) {
  CheckSiluAndMul({DType::kF32, DType::kF32}, out, gate_up);
  const int64_t size = out.shape[1];
  for (int64_t t = 0; t < out.rows(); ++t) {
    const float* gate = gate_up.Row<float>(t);
    const float* up = gate + size;
    for (int64_t i = 0; i < size; ++i)
      out.Row<float>(t)[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  }
}

}  // namespace tandem
