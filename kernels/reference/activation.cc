#include <algorithm>
#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace tandem {
namespace {

float GeluOf(float x) {
  constexpr float kRoot = 0.7978845608f;  // sqrt(2 / pi)
  return 0.5f * x * (1 + std::tanh(kRoot * (x + 0.044715f * x * x * x)));
}

float Evaluate(Nonlinearity f, float x) {
  switch (f) {
    case Nonlinearity::kSilu:
      return x / (1 + std::exp(-x));
    case Nonlinearity::kTanhGelu:
      return GeluOf(x);
    case Nonlinearity::kErfGelu:
      return 0.5f * x * (1 + std::erf(x * 0.70710678f));
    case Nonlinearity::kRelu:
      return std::max(x, 0.0f);
    case Nonlinearity::kSquaredRelu:
      return std::max(x, 0.0f) * std::max(x, 0.0f);
  }
  return x;
}

}  // namespace

void ReferenceOps::DoSiluAndMul(const Tensor& out, const Tensor& gate_up) {
  const int64_t size = out.shape[1];
  for (int64_t t = 0; t < out.rows(); ++t) {
    const float* gate = gate_up.Row<float>(t);
    const float* up = gate + size;
    for (int64_t i = 0; i < size; ++i)
      out.Row<float>(t)[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  }
}

void ReferenceOps::DoGeluAndMul(const Tensor& out, const Tensor& gate_up) {
  const int64_t size = out.shape[1];
  for (int64_t t = 0; t < out.rows(); ++t) {
    const float* gate = gate_up.Row<float>(t);
    for (int64_t i = 0; i < size; ++i) out.Row<float>(t)[i] = GeluOf(gate[i]) * gate[size + i];
  }
}

void ReferenceOps::DoErfGeluAndMul(const Tensor& out, const Tensor& gate_up) {
  const int64_t size = out.shape[1];
  for (int64_t t = 0; t < out.rows(); ++t) {
    const float* gate = gate_up.Row<float>(t);
    for (int64_t i = 0; i < size; ++i) {
      out.Row<float>(t)[i] = Evaluate(Nonlinearity::kErfGelu, gate[i]) * gate[size + i];
    }
  }
}

void ReferenceOps::DoClampedSiluAndMul(const Tensor& out, const Tensor& gate_up, float limit) {
  const int64_t size = out.shape[1];
  for (int64_t t = 0; t < out.rows(); ++t) {
    for (int64_t i = 0; i < size; ++i) {
      const float gate = std::min(gate_up.Row<float>(t)[i], limit);
      const float up = std::clamp(gate_up.Row<float>(t)[size + i], -limit, limit);
      out.Row<float>(t)[i] = gate / (1 + std::exp(-1.702f * gate)) * (up + 1);
    }
  }
}

void ReferenceOps::DoActivate(const Tensor& out, const Tensor& x, Nonlinearity f) {
  for (int64_t t = 0; t < out.rows(); ++t) {
    for (int64_t i = 0; i < out.shape[1]; ++i) {
      out.Row<float>(t)[i] = Evaluate(f, x.Row<float>(t)[i]);
    }
  }
}

void ReferenceOps::DoScale(const Tensor& x, float factor) {
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t v = 0; v < x.shape[1]; ++v) x.Row<float>(r)[v] *= factor;
  }
}

void ReferenceOps::DoSoftCap(const Tensor& x, float cap) {
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t v = 0; v < x.shape[1]; ++v) {
      x.Row<float>(r)[v] = cap * std::tanh(x.Row<float>(r)[v] / cap);
    }
  }
}

}  // namespace tandem
