// Linear, its packing, and the ops that only move rows.

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host_memory.h"

namespace tandem {

namespace {

// Rows that share one pass over a panel: 252 rows of partial sums are 63 KiB.
constexpr int64_t kRowsPerBlock = 252;
// K that is packed at a time: 64 columns of it stay in L1.
constexpr int64_t kPackBlock = 128;

// Rows [column, column + 64) of the stacked row blocks, as panels want them.
class StackedRows {
 public:
  explicit StackedRows(std::span<const Tensor> blocks) : blocks_(blocks) {}

  // row n, converted to `dtype`, elements [k, k + count), into out.
  void Read(int64_t n, int64_t k, int64_t count, DType dtype, void* out) const {
    for (const Tensor& block : blocks_) {
      if (n >= block.rows()) {
        n -= block.rows();
        continue;
      }
      ConvertTensor(Tensor(out, dtype, {1, count}), block.Rows(n, 1).Columns(k, count));
      return;
    }
  }

  int64_t rows() const {
    int64_t rows = 0;
    for (const Tensor& block : blocks_) rows += block.rows();
    return rows;
  }

 private:
  std::span<const Tensor> blocks_;
};

// Fills one (zeroed) panel: columns [panel * 64, ...) of the matrix.
void PackPanel(const StackedRows& rows, int64_t panel, int64_t n, int64_t k, DType dtype,
               uint32_t* units) {
  const int k_step = dtype == DType::kBf16 ? 2 : 1;
  alignas(64) uint32_t row[kPackBlock];
  const int64_t columns = std::min<int64_t>(kPanelColumns, n - panel * kPanelColumns);
  for (int64_t k0 = 0; k0 < k; k0 += kPackBlock) {
    const int64_t count = std::min(kPackBlock, k - k0);
    const int64_t num_units = (count + k_step - 1) / k_step;
    for (int64_t c = 0; c < columns; ++c) {
      row[num_units - 1] = 0;
      rows.Read(panel * kPanelColumns + c, k0, count, dtype, row);
      uint32_t* to = units + k0 / k_step * kPanelColumns + c;
      for (int64_t u = 0; u < num_units; ++u) to[u * kPanelColumns] = row[u];
    }
  }
}

}  // namespace

StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::Pack(std::span<const Tensor> row_blocks,
                                                         WeightFormat format) {
  RETURN_IF_ERROR(CheckPack(row_blocks, format));
  if (format != WeightFormat::kCompute) return PackQuantized(row_blocks, format);
  const StackedRows rows(row_blocks);
  const int64_t n = rows.rows();
  const int64_t k = row_blocks[0].shape[1];
  const int64_t k_units = (k + kernels().k_step - 1) / kernels().k_step;
  const int64_t num_panels = (n + kPanelColumns - 1) / kPanelColumns;
  const int64_t num_units = num_panels * k_units * kPanelColumns;
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateHost(DType::kI32, {&num_units, 1}));
  auto matrix = std::make_unique<CpuMatrix>(n, k, k_units, std::move(memory));
  pool_.Run(num_panels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t panel = begin; panel < end; ++panel) {
      PackPanel(rows, panel, n, k, dtype_, matrix->units() + panel * k_units * kPanelColumns);
    }
  });
  return std::unique_ptr<PackedMatrix>(std::move(matrix));
}

void CpuBackend::PackActivations(const Tensor& x, LinearTask* task) {
  const int64_t m = x.rows();
  const int64_t k = x.shape[1];
  const int k_step = kernels().k_step;
  task->packed = m > table_.tile_rows || k % k_step != 0 || x.row_stride % k_step != 0;
  if (!task->packed) {
    task->a = static_cast<const uint32_t*>(x.data);
    task->a_stride = x.row_stride / k_step;
    return;
  }
  uint32_t* packed = PackedRows(m * task->k_units);
  const int64_t tiles = (m + table_.tile_rows - 1) / table_.tile_rows;
  ForEach(tiles, task->k_units, [&](int64_t begin, int64_t end, int) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = tile * table_.tile_rows;
      kernels().pack_rows(x.Rows(row, 1).data, x.row_stride,
                          std::min<int64_t>(table_.tile_rows, m - row), k,
                          packed + row * task->k_units);
    }
  });
  task->a = packed;
}

void CpuBackend::Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                        const Tensor& bias, LinearEpilogue epilogue) {
  CheckLinear(types(), out, x, weight, bias, epilogue);
  if (x.rows() == 0) return;
  const auto& matrix = static_cast<const CpuMatrix&>(weight);
  LinearTask task;
  task.weight = matrix.units();
  task.m = x.rows();
  task.n = matrix.n();
  task.k_units = matrix.k_units();
  task.out = out.data;
  task.out_stride = out.row_stride;
  task.out_kind = out.dtype == DType::kBf16                  ? OutKind::kBf16
                  : epilogue == LinearEpilogue::kAddResidual ? OutKind::kF32Add
                                                             : OutKind::kF32;
  task.bias = bias.empty() ? nullptr : bias.Data<float>();
  auto kernel = kernels().linear;
  int64_t scratch_floats = std::min(task.m, kRowsPerBlock) * kPanelColumns;
  if (matrix.format() == WeightFormat::kCompute) {
    PackActivations(x, &task);
  } else {
    QuantizeActivations(x, matrix, &task);
    kernel = matrix.format() == WeightFormat::kInt8 ? table_.linear_int8 : table_.linear_int4;
    if (matrix.format() != WeightFormat::kInt8) scratch_floats += kUnpackedUnits;
  }

  // Row blocks outermost: all panels pass over a block of rows that stays in cache.
  const int64_t rows_per_block = kRowsPerBlock / table_.tile_rows * table_.tile_rows;
  const int64_t row_blocks = (task.m + rows_per_block - 1) / rows_per_block;
  const int64_t panels = matrix.num_panels();
  // 256 bytes of a panel per unit at some 40 bytes/ns, or 128 multiplications per row at 256/ns.
  const int64_t panel_ns = task.k_units * (6 + std::min(task.m, rows_per_block) / 2);
  ForEach(row_blocks * panels, panel_ns, [&](int64_t begin, int64_t end, int thread) {
    float* partial = task.packed ? Scratch(thread, scratch_floats) : nullptr;
    for (int64_t item = begin; item < end;) {
      const int64_t block = item / panels;
      const int64_t panel = item % panels;
      const int64_t panel_end = std::min(panels, panel + end - item);
      kernel(task, block * rows_per_block, std::min(task.m, (block + 1) * rows_per_block), panel,
             panel_end, partial);
      item += panel_end - panel;
    }
  });
}

void CpuBackend::Embedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table,
                           float scale) {
  CheckEmbedding(types(), out, ids, table);
  const auto& matrix = static_cast<const CpuMatrix&>(table);
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

void CpuBackend::GatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) {
  CheckGatherRows(out, x, rows);
  ForEach(rows.rows(), x.shape[1] / 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      ConvertTensor(out.Rows(i, 1), x.Rows(rows.Data<int32_t>()[i], 1));
    }
  });
}

}  // namespace tandem
