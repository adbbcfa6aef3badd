// The ops on token ids. Steps need them on devices; here they are a few numbers, or memory-bound.

#include <cmath>

#include "kernels/cpu/cpu_ops.h"

namespace tandem {

void CpuOps::DoArgMax(const Tensor& ids, const Tensor& x) {
  ForEach(x.rows(), x.shape[1], [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = x.Row<float>(i);
      float best = -INFINITY;
      int32_t id = 0;
      for (int64_t v = 0; v < x.shape[1]; ++v) {
        if (!(row[v] > best)) continue;
        best = row[v];
        id = static_cast<int32_t>(v);
      }
      ids.Data<int32_t>()[i] = id;
    }
  });
}

void CpuOps::DoFillIds(const Tensor& ids, const Tensor& known) {
  for (int64_t t = 0; t < ids.rows(); ++t) {
    int32_t& id = ids.Data<int32_t>()[t];
    if (id >= 0) continue;
    CHECK_LT(~id, known.rows());
    id = known.Data<int32_t>()[~id];
  }
}

void CpuOps::DoGatherColumns(const Tensor& out, const Tensor& x, const Tensor& columns,
                             float missing) {
  const int32_t* column_of = columns.Data<int32_t>();
  ForEach(x.rows(), columns.rows(), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* from = x.Row<float>(i);
      float* to = out.Row<float>(i);
      for (int64_t v = 0; v < columns.rows(); ++v) {
        to[v] = column_of[v] < 0 ? missing : from[column_of[v]];
      }
    }
  });
}

void CpuOps::DoGatherAngles(const Tensor& out, const Tensor& table, const Tensor& positions,
                            const Tensor& axes) {
  const int32_t* axis_of = axes.Data<int32_t>();
  for (int64_t axis = 0; axis < positions.rows(); ++axis) {
    for (int64_t t = 0; t < out.rows(); ++t) {
      const int32_t position = positions.Row<int32_t>(axis)[t];
      CHECK(position >= 0 && position < table.rows()) << position << " of " << table.rows();
    }
  }
  ForEach(out.rows(), axes.rows(), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* to = out.Row<float>(t);
      for (int64_t i = 0; i < axes.rows(); ++i) {
        to[i] = table.Row<float>(positions.Row<int32_t>(axis_of[i])[t])[i];
      }
    }
  });
}

}  // namespace tandem
