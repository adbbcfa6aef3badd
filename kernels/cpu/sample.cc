// Reductions over rows of logits.

#include "kernels/cpu/cpu_backend.h"

namespace tandem {

void CpuBackend::Argmax(const Tensor& ids, const Tensor& logits) {
  CheckArgmax(ids, logits);
  const int64_t size = logits.shape[1];
  ForEach(logits.rows(), size / 10, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      ids.Data<int32_t>()[r] = static_cast<int32_t>(table_.argmax(logits.Row<float>(r), size));
    }
  });
}

void CpuBackend::SoftCap(const Tensor& x, float cap) {
  CheckSoftCap(x, cap);
  ForEach(x.rows(), x.shape[1] / 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) table_.soft_cap(x.Row<float>(r), cap, x.shape[1]);
  });
}

void CpuBackend::LogSumExp(const Tensor& out, const Tensor& logits) {
  CheckLogSumExp(out, logits);
  const int64_t size = logits.shape[1];
  ForEach(logits.rows(), size / 5, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      out.Data<float>()[r] = table_.log_sum_exp(logits.Row<float>(r), size);
    }
  });
}

}  // namespace tandem
