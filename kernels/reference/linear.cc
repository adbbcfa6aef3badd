#include <cstring>

#include "kernels/op_checks.h"
#include "kernels/reference/reference_backend.h"

namespace tandem {

namespace {

int64_t SumOfRows(std::span<const Tensor> row_blocks) {
  int64_t rows = 0;
  for (const Tensor& block : row_blocks) rows += block.rows();
  return rows;
}

}  // namespace

ReferenceMatrix::ReferenceMatrix(std::span<const Tensor> row_blocks)
    : PackedMatrix(SumOfRows(row_blocks), row_blocks[0].shape[1]), values_(n() * k()) {
  float* next = values_.data();
  for (const Tensor& block : row_blocks) {
    ConvertTensor(Tensor(next, DType::kF32, {block.rows(), k()}), block);
    next += block.rows() * k();
  }
}

void ReferenceBackend::Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                              const Tensor& bias, LinearEpilogue epilogue) {
  CheckLinear({DType::kF32, DType::kF32}, out, x, weight, bias, epilogue);
  const auto& w = static_cast<const ReferenceMatrix&>(weight);
  for (int64_t t = 0; t < x.rows(); ++t) {
    const float* x_row = x.Row<float>(t);
    float* out_row = out.Row<float>(t);
    for (int64_t n = 0; n < w.n(); ++n) {
      const float* w_row = w.Row(n);
      float sum = 0;
      for (int64_t k = 0; k < w.k(); ++k) sum += x_row[k] * w_row[k];
      if (!bias.empty()) sum += bias.Data<float>()[n];
      out_row[n] = epilogue == LinearEpilogue::kAddResidual ? out_row[n] + sum : sum;
    }
  }
}

void ReferenceBackend::Embedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table,
                                 float scale) {
  CheckEmbedding({DType::kF32, DType::kF32}, out, ids, table);
  const auto& w = static_cast<const ReferenceMatrix&>(table);
  for (int64_t t = 0; t < ids.rows(); ++t) {
    const int32_t id = ids.Data<int32_t>()[t];
    CHECK(id >= 0 && id < table.n()) << id << " of " << table.n();
    for (int64_t h = 0; h < w.k(); ++h) out.Row<float>(t)[h] = w.Row(id)[h] * scale;
  }
}

void ReferenceBackend::GatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) {
  CheckGatherRows(out, x, rows);
  for (int64_t i = 0; i < rows.rows(); ++i) {
    ConvertTensor(out.Rows(i, 1), x.Rows(rows.Data<int32_t>()[i], 1));
  }
}

}  // namespace tandem
