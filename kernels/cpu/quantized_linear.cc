// The integer formats: packing, and their parts of Linear and Embedding.

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/quantized_panel.h"
#include "kernels/host_memory.h"
#include "kernels/quantization.h"

namespace tandem {

namespace {

// A row and its integers while one column of a panel is made of it.
struct Column {
  std::vector<float> row;
  std::vector<int8_t> integers;
  std::vector<uint8_t> codes;
  std::vector<Int4Group> groups;
};

float PackInt8Column(const StackedRows& rows, int64_t n, const QuantizedPanelShape& shape,
                     Column* column, uint32_t* units) {
  const auto k = static_cast<int64_t>(column->row.size());
  column->integers.resize(static_cast<size_t>(shape.k_units) * 4);
  const float scale = ReadInt8(rows, n, column->row, column->integers.data());
  std::fill(column->integers.begin() + k, column->integers.end(), int8_t{0});
  for (int64_t u = 0; u < shape.k_units; ++u) {
    uint32_t unit = 0;
    std::memcpy(&unit, column->integers.data() + u * 4, sizeof(unit));
    units[u * kPanelColumns] = unit ^ 0x80808080;  // + kInt8Zero
  }
  return scale;
}

float PackInt4Column(const StackedRows& rows, int64_t n, const QuantizedPanelShape& shape,
                     Column* column, uint8_t* panel) {
  rows.Read(n, 0, rows.columns(), DType::kF32, column->row.data());
  const int64_t steps = shape.k_units / 2;
  column->codes.assign(static_cast<size_t>(steps) * kCodeSteps, 0);
  column->groups.resize(static_cast<size_t>((steps + shape.group_steps - 1) / shape.group_steps));
  const float scale = QuantizeInt4(column->row, shape.group_steps * kCodeSteps,
                                   column->codes.data(), column->groups.data());
  const int64_t lane = n % kPanelColumns;
  for (size_t group = 0; group < column->groups.size(); ++group) {
    panel[shape.GroupBytes(static_cast<int64_t>(group)) + lane] = column->groups[group].bits;
  }
  for (int64_t step = 0; step < steps; ++step) {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, column->codes.data() + step * kCodeSteps, sizeof(low));
    std::memcpy(&high, column->codes.data() + step * kCodeSteps + 4, sizeof(high));
    const uint32_t unit = low | high << 4;
    std::memcpy(panel + shape.CodeBytes(step) + lane * 4, &unit, sizeof(unit));
  }
  return scale;
}

}  // namespace

StatusOr<std::unique_ptr<PackedMatrix>> PackQuantized(std::span<const MatrixSource> row_blocks,
                                                      WeightFormat format, bool is_gated,
                                                      ComputePool* pool) {
  const StackedRows rows(row_blocks);
  const int64_t n = rows.rows(), k = rows.columns();
  const QuantizedPanelShape shape(k, format);
  const int64_t num_panels = (n + kPanelColumns - 1) / kPanelColumns;
  const int64_t num_units = num_panels * shape.panel_units;
  ASSIGN_OR_RETURN(OwnedTensor units, AllocateHost(DType::kI32, {&num_units, 1}));
  ASSIGN_OR_RETURN(OwnedTensor scales, AllocateHost(DType::kF32, {&n, 1}));
  auto* memory = static_cast<uint32_t*>(units.view().data);
  pool->Run(num_panels, 1, [&](int64_t begin, int64_t end, int) {
    Column column;
    column.row.resize(static_cast<size_t>(k));
    for (int64_t p = begin; p < end; ++p) {
      uint32_t* const panel = memory + p * shape.panel_units;
      const int64_t first = p * kPanelColumns, last = std::min(n, first + kPanelColumns);
      for (int64_t row = first; row < last; ++row) {
        scales.view().Data<float>()[row] =
            format == WeightFormat::kInt8
                ? PackInt8Column(rows, row, shape, &column, panel + row - first)
                : PackInt4Column(rows, row, shape, &column, reinterpret_cast<uint8_t*>(panel));
      }
      rows.GiveBack(first, last);
    }
  });
  return std::unique_ptr<PackedMatrix>(std::make_unique<CpuMatrix>(
      n, k, is_gated, shape.k_units, std::move(units), format, std::move(scales)));
}

void CpuOps::QuantizeActivations(const Tensor& x, const RowForm& form, const CpuMatrix& weight,
                                 LinearTask* task) {
  const int64_t m = x.rows();
  task->packed = m > form.direct_rows;
  const int64_t row_units = form.RowUnits(task->k_units);
  task->a_stride = row_units;
  task->column_scale = weight.scales();
  task->group_steps = GroupSize(weight.format()) / kCodeSteps;
  // The units, then each row's scale and sum.
  const int64_t tile_rows = task->packed ? task->tile_rows : 1;
  const int64_t tile_units = (task->packed ? form.tile_rows : 1) * row_units;
  const int64_t num_tiles = (m + tile_rows - 1) / tile_rows;
  uint32_t* units = PackedRows(num_tiles * tile_units + 2 * m);
  auto* scales = reinterpret_cast<float*>(units + num_tiles * tile_units);
  auto* sums = reinterpret_cast<int32_t*>(scales + m);
  ForEach(num_tiles, tile_rows * row_units / 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = tile * tile_rows;
      kernels().quantize_rows(x.Rows(row, 1).data, x.row_stride, std::min(tile_rows, m - row),
                              x.shape[1], row_units, task->packed ? tile_rows : 0,
                              units + tile * tile_units, scales + row, sums + row);
    }
  });
  task->a = units;
  task->row_scale = scales;
  task->row_sum = sums;
}

void CpuOps::QuantizedEmbedding(const Tensor& out, const Tensor& ids, const CpuMatrix& table,
                                float scale) {
  const QuantizedPanelShape shape(table.k(), table.format());
  ForEach(ids.rows(), table.k(), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t id = ids.Data<int32_t>()[t];
      CHECK(id >= 0 && id < table.n()) << id << " of " << table.n();
      const int64_t lane = id % kPanelColumns;
      const auto* panel =
          reinterpret_cast<const uint8_t*>(table.units() + id / kPanelColumns * shape.panel_units);
      float* row = out.Row<float>(t);
      for (int64_t h = 0; h < table.k(); ++h) {
        int integer = 0;
        if (table.format() == WeightFormat::kInt8) {
          integer = panel[(h / 4 * kPanelColumns + lane) * 4 + h % 4] - kInt8Zero;
        } else {
          const int64_t step = h / kCodeSteps;
          const Int4Group group = {panel[shape.GroupBytes(step / shape.group_steps) + lane]};
          const uint8_t byte = panel[shape.CodeBytes(step) + lane * 4 + h % 4];
          const int code = h % kCodeSteps < 4 ? byte & 15 : byte >> 4;
          integer = (code - group.zero()) * group.factor();
        }
        row[h] = static_cast<float>(integer) * table.scales()[id] * scale;
      }
    }
  });
}

}  // namespace tandem
