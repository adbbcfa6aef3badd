#include "kernels/top_k_softmax.h"

#include "kernels/op_checks.h"
#include "kernels/reference/reference_backend.h"

namespace tandem {

void ReferenceBackend::TopKSoftmax(const Tensor& out, const Tensor& logits, int k,
                                   bool renormalize) {
  CheckTopKSoftmax(out, logits, k);
  for (int64_t t = 0; t < logits.rows(); ++t) {
    TopKSoftmaxRow(logits.Row<float>(t), logits.shape[1], k, renormalize, out.Row<float>(t));
  }
}

void ReferenceBackend::ScatterAdd(const Tensor& residual, const Tensor& x, const Tensor& rows,
                                  const Tensor& scales) {
  CheckScatterAdd({DType::kF32, DType::kF32}, residual, x, rows, scales);
  for (int64_t i = 0; i < x.rows(); ++i) {
    float* out = residual.Row<float>(rows.Data<int32_t>()[i]);
    const float scale = scales.Data<float>()[i];
    for (int64_t h = 0; h < x.shape[1]; ++h) out[h] += scale * x.Row<float>(i)[h];
  }
}

}  // namespace tandem
