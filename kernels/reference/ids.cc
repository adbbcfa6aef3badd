#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace tandem {

void ReferenceOps::DoArgMax(const Tensor& ids, const Tensor& x) {
  for (int64_t i = 0; i < x.rows(); ++i) {
    const float* row = x.Row<float>(i);
    float best = -INFINITY;
    int32_t& id = ids.Data<int32_t>()[i] = 0;
    for (int64_t v = 0; v < x.shape[1]; ++v) {
      if (!(row[v] > best)) continue;
      best = row[v];
      id = static_cast<int32_t>(v);
    }
  }
}

void ReferenceOps::DoFillIds(const Tensor& ids, const Tensor& known) {
  for (int64_t t = 0; t < ids.rows(); ++t) {
    int32_t& id = ids.Data<int32_t>()[t];
    if (id >= 0) continue;
    CHECK_LT(~id, known.rows());
    id = known.Data<int32_t>()[~id];
  }
}

void ReferenceOps::DoGatherColumns(const Tensor& out, const Tensor& x, const Tensor& columns,
                                   float missing) {
  for (int64_t i = 0; i < x.rows(); ++i) {
    for (int64_t v = 0; v < columns.rows(); ++v) {
      const int32_t column = columns.Data<int32_t>()[v];
      CHECK_LT(column, x.shape[1]);
      out.Row<float>(i)[v] = column < 0 ? missing : x.Row<float>(i)[column];
    }
  }
}

void ReferenceOps::DoGatherAngles(const Tensor& out, const Tensor& table, const Tensor& positions,
                                  const Tensor& axes) {
  for (int64_t t = 0; t < out.rows(); ++t) {
    for (int64_t i = 0; i < axes.rows(); ++i) {
      const int32_t position = positions.Row<int32_t>(axes.Data<int32_t>()[i])[t];
      CHECK(position >= 0 && position < table.rows()) << position << " of " << table.rows();
      out.Row<float>(t)[i] = table.Row<float>(position)[i];
    }
  }
}

}  // namespace tandem
