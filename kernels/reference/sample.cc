#include <algorithm>
#include <cmath>

#include "kernels/op_checks.h"
#include "kernels/reference/reference_backend.h"

namespace tandem {

void ReferenceBackend::Argmax(const Tensor& ids, const Tensor& logits) {
  CheckArgmax(ids, logits);
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const float* row = logits.Row<float>(r);
    ids.Data<int32_t>()[r] =
        static_cast<int32_t>(std::max_element(row, row + logits.shape[1]) - row);
  }
}

void ReferenceBackend::SoftCap(const Tensor& x, float cap) {
  CheckSoftCap(x, cap);
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t v = 0; v < x.shape[1]; ++v) {
      x.Row<float>(r)[v] = cap * std::tanh(x.Row<float>(r)[v] / cap);
    }
  }
}

void ReferenceBackend::LogSumExp(const Tensor& out, const Tensor& logits) {
  CheckLogSumExp(out, logits);
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const float* row = logits.Row<float>(r);
    const float max = *std::max_element(row, row + logits.shape[1]);
    double sum = 0;
    for (int64_t v = 0; v < logits.shape[1]; ++v) sum += std::exp(row[v] - max);
    out.Data<float>()[r] = max + static_cast<float>(std::log(sum));
  }
}

}  // namespace tandem
