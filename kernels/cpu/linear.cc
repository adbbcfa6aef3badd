// Linear, and the ops that only move rows.

#include <algorithm>
#include <bit>

#include "kernels/cpu/cpu_ops.h"

namespace tandem {

namespace {

const void* RowOf(const Tensor& x, int64_t row) { return x.Rows(row, 1).data; }

}  // namespace

void CpuOps::PackActivations(const LinearInput& input, LinearTask* task) {
  const Tensor& x = input.x;
  const int64_t m = x.rows(), k = x.shape[1];
  const int k_step = kernels().k_step;
  const RowForm& form = kernels().rows;
  const int64_t row_units = form.RowUnits(task->k_units);
  const bool has_norm = !input.norm_weight.empty(), is_f32 = x.dtype == DType::kF32;
  auto norm = [&](int64_t row, void* to) {
    kernels().rms_norm(RowOf(x, row), is_f32, input.norm_weight.Data<float>(), input.epsilon, k, to,
                       dtype_ == DType::kF32);
  };
  task->packed = m > form.direct_rows || k % (k_step * form.unit_multiple) != 0 ||
                 (!has_norm && x.row_stride % k_step != 0);
  if (!task->packed && !has_norm) {
    task->a = static_cast<const uint32_t*>(x.data);
    task->a_stride = x.row_stride / k_step;
    return;
  }
  const int64_t tile_rows = task->tile_rows;
  const int64_t num_tiles = (m + tile_rows - 1) / tile_rows;
  const int64_t tile_units = form.tile_rows * row_units;
  uint32_t* to = PackedRows(num_tiles * tile_units);
  task->a = to;
  task->a_stride = row_units;
  if (!task->packed) {
    for (int64_t row = 0; row < m; ++row) norm(row, to + row * task->k_units);
    return;
  }
  const int64_t row_bytes = task->k_units * static_cast<int64_t>(sizeof(uint32_t));
  ForEach(num_tiles, task->k_units * (has_norm ? 2 : 1) / 4,
          [&](int64_t begin, int64_t end, int thread) {
            auto* normed = reinterpret_cast<std::byte*>(
                has_norm ? Scratch(thread, tile_rows * task->k_units) : nullptr);
            for (int64_t tile = begin; tile < end; ++tile) {
              const int64_t row = tile * tile_rows, rows = std::min(tile_rows, m - row);
              for (int64_t r = 0; has_norm && r < rows; ++r) norm(row + r, normed + r * row_bytes);
              kernels().pack_rows(has_norm ? normed : RowOf(x, row),
                                  has_norm ? task->k_units * k_step : x.row_stride, rows, k,
                                  tile_rows, to + tile * tile_units);
            }
          });
}

void CpuOps::DoLinear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                      const Tensor& bias, LinearEpilogue epilogue) {
  RunAnyLinear(out, x, weight, bias, epilogue, nullptr);
}

void CpuOps::RunAnyLinear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                          const Tensor& bias, LinearEpilogue epilogue, const AdapterTerm* terms) {
  const auto& matrix = static_cast<const CpuMatrix&>(weight);
  if (matrix.is_quantized() && matrix.is_gated()) {
    const Tensor gate_up = Room(&gate_up_, x.rows(), matrix.n());
    RunLinear(gate_up, {x, {}, 0}, matrix, bias, LinearEpilogue::kStore, terms);
    return epilogue == LinearEpilogue::kSiluAndMul ? SiluAndMul(out, gate_up)
                                                   : GeluAndMul(out, gate_up);
  }
  RunLinear(out, {x, {}, 0}, matrix, bias, epilogue, terms);
}

void CpuOps::DoRmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight,
                             float epsilon, const PackedMatrix& weight, const Tensor& bias,
                             LinearEpilogue epilogue) {
  const auto& matrix = static_cast<const CpuMatrix&>(weight);
  if (matrix.is_quantized()) {
    const Tensor normed = Room(&normed_, x.rows(), matrix.k());
    RmsNorm(normed, x, norm_weight, epsilon);
    return Linear(out, normed, weight, bias, epilogue);
  }
  RunLinear(out, {x, norm_weight, epsilon}, matrix, bias, epilogue);
}

void CpuOps::RunLinear(const Tensor& out, const LinearInput& input, const CpuMatrix& matrix,
                       const Tensor& bias, LinearEpilogue epilogue, const AdapterTerm* terms) {
  LinearTask task;
  task.m = input.x.rows();
  if (task.m == 0) return;
  const CodedPanels* const coded = matrix.coded();
  task.weight = coded != nullptr ? nullptr : matrix.units();
  task.n = out.shape[1];
  task.k_units = matrix.k_units();
  task.out = out.data;
  task.out_stride = out.row_stride;
  task.out_kind = out.dtype == DType::kBf16                  ? OutKind::kBf16
                  : epilogue == LinearEpilogue::kAddResidual ? OutKind::kF32Add
                                                             : OutKind::kF32;
  task.gate = epilogue == LinearEpilogue::kSiluAndMul   ? GateKind::kSilu
              : epilogue == LinearEpilogue::kGeluAndMul ? GateKind::kGelu
                                                        : GateKind::kNone;
  task.bias = bias.empty() ? nullptr : bias.Data<float>();
  task.terms = terms;
  task.terms_are_f32 = dtype_ == DType::kF32;
  if (matrix.blocks() != nullptr) return RunBlockLinear(input.x, matrix, task);
  const RowForm& form = matrix.format() == WeightFormat::kCompute ? kernels().rows
                        : matrix.format() == WeightFormat::kInt8  ? table_.int8_rows
                                                                  : table_.int4_rows;
  task.tile_rows = form.HeightOf(task.m);
  const int64_t num_tiles = (task.m + task.tile_rows - 1) / task.tile_rows;
  auto kernel = kernels().linear;
  int64_t room = 0;  // floats that the kernel needs besides its sums
  if (!matrix.is_quantized()) {
    PackActivations(input, &task);
    room = coded != nullptr ? task.k_units * kPanelColumns : 0;
  } else {
    QuantizeActivations(input.x, form, matrix, &task);
    const bool is_int8 = matrix.format() == WeightFormat::kInt8;
    kernel = is_int8 ? table_.linear_int8 : table_.linear_int4;
    room = is_int8 ? 0 : kUnpackedUnits;
  }

  // Row blocks outermost: all panels pass over a block of rows that stays in cache. Blocks of equal
  // size: a low one would walk all weights for a few rows.
  const int64_t row_blocks = (task.m + form.pass_rows - 1) / form.pass_rows;
  const int64_t block_rows = (num_tiles + row_blocks - 1) / row_blocks * task.tile_rows;
  const int64_t panels = matrix.num_panels();
  // 256 bytes of a panel per unit at about 40 bytes/ns, or 128 multiplications per row at 256/ns.
  const int64_t panel_ns = task.k_units * (6 + std::min(task.m, block_rows) / 2);
  ForEach(row_blocks * panels, panel_ns, [&](int64_t begin, int64_t end, int thread) {
    const int64_t sums = block_rows * kPanelColumns * kPanelsAtOnce;
    float* partial = Scratch(thread, sums + room);
    const auto multiply = [&](int64_t row, int64_t row_end, int64_t panel, int64_t panel_end) {
      if (coded == nullptr) return kernel(task, row, row_end, panel, panel_end, partial);
      auto* const units = reinterpret_cast<uint32_t*>(partial + sums);
      for (; panel < panel_end; ++panel) {
        kernels().decode_panel(coded->Panel(panel), units);
        LinearTask one = task;
        one.weight = units;
        one.first_panel = panel;
        kernel(one, row, row_end, panel, panel + 1, partial);
      }
    };
    for (int64_t item = begin; item < end;) {
      const int64_t row = item / panels * block_rows;
      const int64_t panel = item % panels;
      const int64_t panel_end = std::min(panels, panel + end - item);
      if (row < task.m) {  // rounding up to tiles may leave a last block without rows
        multiply(row, std::min(task.m, row + block_rows), panel, panel_end);
      }
      item += panel_end - panel;
    }
  });
}

void CpuOps::DoEmbedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table,
                         float scale) {
  const auto& matrix = static_cast<const CpuMatrix&>(table);
  if (matrix.blocks() != nullptr) return BlockEmbedding(out, ids, matrix, scale);
  if (matrix.coded() != nullptr) return CodedEmbedding(out, ids, matrix, scale);
  if (matrix.format() != WeightFormat::kCompute) return QuantizedEmbedding(out, ids, matrix, scale);
  const int64_t hidden = matrix.k();
  ForEach(ids.rows(), hidden, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t id = ids.Data<int32_t>()[t];
      CHECK(id >= 0 && id < matrix.n()) << id << " of " << matrix.n();
      const uint32_t* column = matrix.units() +
                               id / kPanelColumns * matrix.k_units() * kPanelColumns +
                               id % kPanelColumns;
      float* row = out.Row<float>(t);
      for (int64_t h = 0; h < hidden; ++h) {
        if (dtype_ == DType::kBf16) {
          const uint32_t pair = column[h / 2 * kPanelColumns];
          row[h] = std::bit_cast<float>(h % 2 == 0 ? pair << 16 : pair & 0xffff0000) * scale;
        } else {
          row[h] = std::bit_cast<float>(column[h * kPanelColumns]) * scale;
        }
      }
    }
  });
}

void CpuOps::DoGatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) {
  ForEach(rows.rows(), x.shape[1] / 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      ConvertTensor(out.Rows(i, 1), x.Rows(rows.Data<int32_t>()[i], 1));
    }
  });
}

}  // namespace tandem
