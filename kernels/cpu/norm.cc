// Norms, activations and sums: one row at a time.

#include "kernels/cpu/cpu_backend.h"

namespace tandem {

namespace {

void* RowOf(const Tensor& x, int64_t row) { return x.Rows(row, 1).data; }

bool IsF32(const Tensor& x) { return x.dtype == DType::kF32; }

}  // namespace

void CpuBackend::RmsNorm(const Tensor& out, const Tensor& x, const Tensor& weight, float epsilon) {
  CheckRmsNorm(types(), out, x, weight);
  ForEach(x.rows(), x.shape[1] / 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().rms_norm(RowOf(x, t), IsF32(x), weight.Data<float>(), epsilon, x.shape[1],
                         RowOf(out, t), IsF32(out));
    }
  });
}

void CpuBackend::AddRmsNorm(const Tensor& out, const Tensor& residual, const Tensor& x,
                            const Tensor& weight, float epsilon) {
  CheckAddRmsNorm(types(), out, residual, x, weight);
  const int64_t size = x.shape[1];
  ForEach(x.rows(), size / 6, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().add(residual.Row<float>(t), RowOf(x, t), IsF32(x), size);
      kernels().rms_norm(residual.Row<float>(t), true, weight.Data<float>(), epsilon, size,
                         RowOf(out, t), IsF32(out));
    }
  });
}

void CpuBackend::SiluAndMul(const Tensor& out, const Tensor& gate_up) {
  CheckSiluAndMul(types(), out, gate_up);
  const int64_t size = out.shape[1];
  ForEach(out.rows(), size / 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().silu_and_mul(RowOf(gate_up.Columns(0, size), t),
                             RowOf(gate_up.Columns(size, size), t), IsF32(gate_up), size,
                             RowOf(out, t));
    }
  });
}

void CpuBackend::LayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                           const Tensor& bias, float epsilon) {
  CheckLayerNorm(types(), out, x, weight, bias);
  ForEach(x.rows(), x.shape[1] / 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().layer_norm(RowOf(x, t), IsF32(x), weight.Data<float>(), bias.Data<float>(), epsilon,
                           x.shape[1], RowOf(out, t), IsF32(out));
    }
  });
}

void CpuBackend::Add(const Tensor& residual, const Tensor& x) {
  CheckAdd(types(), residual, x);
  ForEach(x.rows(), x.shape[1] / 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().add(residual.Row<float>(t), RowOf(x, t), IsF32(x), x.shape[1]);
    }
  });
}

void CpuBackend::Convert(const Tensor& out, const Tensor& x) {
  CheckConvert(types(), out, x);
  ForEach(x.rows(), x.shape[1], [&](int64_t begin, int64_t end, int) {
    ConvertTensor(out.Rows(begin, end - begin), x.Rows(begin, end - begin));
  });
}

void CpuBackend::GeluAndMul(const Tensor& out, const Tensor& gate_up) {
  CheckSiluAndMul(types(), out, gate_up);
  const int64_t size = out.shape[1];
  ForEach(out.rows(), size / 3, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().gelu_and_mul(RowOf(gate_up.Columns(0, size), t),
                             RowOf(gate_up.Columns(size, size), t), IsF32(gate_up), size,
                             RowOf(out, t));
    }
  });
}

void CpuBackend::Gelu(const Tensor& out, const Tensor& x) {
  CheckGelu(types(), out, x);
  ForEach(out.rows(), out.shape[1] / 3, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      kernels().gelu_and_mul(RowOf(x, t), nullptr, IsF32(x), out.shape[1], RowOf(out, t));
    }
  });
}

}  // namespace tandem
