#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace tandem {

void ReferenceOps::DoRmsNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                             float epsilon) {
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

void ReferenceOps::DoLayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                               const Tensor& bias, float epsilon) {
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

void ReferenceOps::DoAdd(const Tensor& residual, const Tensor& x) {
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t h = 0; h < x.shape[1]; ++h) residual.Row<float>(t)[h] += x.Row<float>(t)[h];
  }
}

void ReferenceOps::DoConvert(const Tensor& out, const Tensor& x) { ConvertTensor(out, x); }

}  // namespace tandem
