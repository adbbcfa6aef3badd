#include <cmath>

#include "kernels/op_checks.h"
#include "kernels/reference/reference_backend.h"

namespace tandem {

void ReferenceBackend::RmsNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                               float epsilon) {
  CheckRmsNorm({DType::kF32, DType::kF32}, out, x, weight);
  const int64_t hidden = x.shape[1];
  const float* w = weight.Data<float>();
  for (int64_t t = 0; t < x.rows(); ++t) {
    const float* x_row = x.Row<float>(t);
    float sum = 0;
    for (int64_t h = 0; h < hidden; ++h) sum += x_row[h] * x_row[h];
    const float scale = 1 / std::sqrt(sum / static_cast<float>(hidden) + epsilon);
    for (int64_t h = 0; h < hidden; ++h) out.Row<float>(t)[h] = x_row[h] * scale * w[h];
  }
}

void ReferenceBackend::AddRmsNorm(const Tensor& out, const Tensor& residual, const Tensor& x,
                                  const Tensor& weight, float epsilon) {
  CheckAddRmsNorm({DType::kF32, DType::kF32}, out, residual, x, weight);
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t h = 0; h < x.shape[1]; ++h) residual.Row<float>(t)[h] += x.Row<float>(t)[h];
  }
  RmsNorm(out, residual, weight, epsilon);
}

void ReferenceBackend::LayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                                 const Tensor& bias, float epsilon) {
  CheckLayerNorm({DType::kF32, DType::kF32}, out, x, weight, bias);
  const int64_t hidden = x.shape[1];
  const float size = static_cast<float>(hidden);
  for (int64_t t = 0; t < x.rows(); ++t) {
    const float* x_row = x.Row<float>(t);
    float sum = 0, squares = 0;
    for (int64_t h = 0; h < hidden; ++h) sum += x_row[h];
    const float mean = sum / size;
    for (int64_t h = 0; h < hidden; ++h) squares += (x_row[h] - mean) * (x_row[h] - mean);
    const float scale = 1 / std::sqrt(squares / size + epsilon);
    for (int64_t h = 0; h < hidden; ++h) {
      out.Row<float>(t)[h] =
          (x_row[h] - mean) * scale * weight.Data<float>()[h] + bias.Data<float>()[h];
    }
  }
}

void ReferenceBackend::Add(const Tensor& residual, const Tensor& x) {
  CheckAdd({DType::kF32, DType::kF32}, residual, x);
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t h = 0; h < x.shape[1]; ++h) residual.Row<float>(t)[h] += x.Row<float>(t)[h];
  }
}

void ReferenceBackend::Convert(const Tensor& out, const Tensor& x) {
  CheckConvert({DType::kF32, DType::kF32}, out, x);
  ConvertTensor(out, x);
}

}  // namespace tandem
