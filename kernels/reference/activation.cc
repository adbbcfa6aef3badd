#include <cmath>

#include "kernels/op_checks.h"
#include "kernels/reference/reference_backend.h"

namespace tandem {
namespace {

float GeluOf(float x) {
  constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
  return 0.5f * x * (1 + std::tanh(kRoot * (x + 0.044715f * x * x * x)));
}

}  // namespace

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

void ReferenceBackend::GeluAndMul(const Tensor& out, const Tensor& gate_up) {
  CheckSiluAndMul({DType::kF32, DType::kF32}, out, gate_up);
  const int64_t size = out.shape[1];
  for (int64_t t = 0; t < out.rows(); ++t) {
    const float* gate = gate_up.Row<float>(t);
    for (int64_t i = 0; i < size; ++i) out.Row<float>(t)[i] = GeluOf(gate[i]) * gate[size + i];
  }
}

void ReferenceBackend::Gelu(const Tensor& out, const Tensor& x) {
  CheckGelu({DType::kF32, DType::kF32}, out, x);
  for (int64_t t = 0; t < out.rows(); ++t) {
    for (int64_t i = 0; i < out.shape[1]; ++i) out.Row<float>(t)[i] = GeluOf(x.Row<float>(t)[i]);
  }
}

}  // namespace tandem
