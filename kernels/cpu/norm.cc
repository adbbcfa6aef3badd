// Norms, activations and sums: one row at a time.

#include "kernels/cpu/cpu_ops.h"

namespace tandem {

namespace {

void* RowOf(const Tensor& x, int64_t row) { return x.Rows(row, 1).data; }

bool IsF32(const Tensor& x) { return x.dtype == DType::kF32; }

}  // namespace

void CpuOps::DoRmsNorm(const Tensor& out, const Tensor& x, const Tensor& weight, float epsilon) {
  ForEach(x.rows(), x.shape[1] / 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().rms_norm(RowOf(x, t), IsF32(x), weight.Data<float>(), epsilon, x.shape[1],
                         RowOf(out, t), IsF32(out));
    }
  });
}

void CpuOps::DoSiluAndMul(const Tensor& out, const Tensor& gate_up) {
  const int64_t size = out.shape[1];
  ForEach(out.rows(), size / 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().silu_and_mul(RowOf(gate_up.Columns(0, size), t),
                             RowOf(gate_up.Columns(size, size), t), IsF32(gate_up), size,
                             RowOf(out, t));
    }
  });
}

void CpuOps::DoLayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                         const Tensor& bias, float epsilon) {
  ForEach(x.rows(), x.shape[1] / 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().layer_norm(RowOf(x, t), IsF32(x), weight.Data<float>(), bias.Data<float>(), epsilon,
                           x.shape[1], RowOf(out, t), IsF32(out));
    }
  });
}

void CpuOps::DoAdd(const Tensor& residual, const Tensor& x) {
  ForEach(x.rows(), x.shape[1] / 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().add(residual.Row<float>(t), RowOf(x, t), IsF32(x), x.shape[1]);
    }
  });
}

void CpuOps::DoConvert(const Tensor& out, const Tensor& x) {
  ForEach(x.rows(), x.shape[1], [&](int64_t begin, int64_t end, int) {
    ConvertTensor(out.Rows(begin, end - begin), x.Rows(begin, end - begin));
  });
}

void CpuOps::DoGeluAndMul(const Tensor& out, const Tensor& gate_up) {
  const int64_t size = out.shape[1];
  ForEach(out.rows(), size / 3, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().gelu_and_mul(RowOf(gate_up.Columns(0, size), t),
                             RowOf(gate_up.Columns(size, size), t), IsF32(gate_up), size,
                             RowOf(out, t));
    }
  });
}

void CpuOps::DoErfGeluAndMul(const Tensor& out, const Tensor& gate_up) {
  const int64_t size = out.shape[1];
  ForEach(out.rows(), size / 3, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().erf_gelu_and_mul(RowOf(gate_up.Columns(0, size), t),
                                 RowOf(gate_up.Columns(size, size), t), IsF32(gate_up), size,
                                 RowOf(out, t));
    }
  });
}

void CpuOps::DoClampedSiluAndMul(const Tensor& out, const Tensor& gate_up, float limit) {
  const int64_t size = out.shape[1];
  ForEach(out.rows(), size / 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().clamped_silu_and_mul(RowOf(gate_up.Columns(0, size), t),
                                     RowOf(gate_up.Columns(size, size), t), IsF32(gate_up), limit,
                                     size, RowOf(out, t));
    }
  });
}

void CpuOps::DoActivate(const Tensor& out, const Tensor& x, Nonlinearity f) {
  static_assert(static_cast<int>(Nonlinearity::kSquaredRelu) ==
                static_cast<int>(ElementKind::kSquaredRelu));
  const auto kind = static_cast<ElementKind>(f);
  ForEach(out.rows(), out.shape[1] / 3, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().activate(RowOf(x, t), IsF32(x), kind, out.shape[1], RowOf(out, t));
    }
  });
}

void CpuOps::DoScale(const Tensor& x, float factor) {
  ForEach(x.rows(), x.shape[1] / 16, [&](int64_t begin, int64_t end, int) {
    const auto scale = IsF32(x) ? table_.f32.scale : kernels().scale;
    for (int64_t r = begin; r < end; ++r) scale(RowOf(x, r), factor, x.shape[1]);
  });
}

void CpuOps::DoSoftCap(const Tensor& x, float cap) {
  ForEach(x.rows(), x.shape[1] / 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) table_.soft_cap(x.Row<float>(r), cap, x.shape[1]);
  });
}

}  // namespace tandem
