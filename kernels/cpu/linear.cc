// Linear, its packing, and the ops that only move rows.

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/host_memory.h"

namespace tandem {

namespace {

// Most rows that share one pass over a panel: with 1024 units of K they fill most of L2.
constexpr int64_t kRowsPerBlock = 204;
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

// The row of the stacked blocks that column c of a panel holds; < 0: none, a column of zeros.
int64_t RowOfColumn(int64_t panel, int64_t c, int64_t n, bool is_gated) {
  if (!is_gated) {
    const int64_t row = panel * kPanelColumns + c;
    return row < n ? row : -1;
  }
  constexpr int64_t kHalf = kPanelColumns / 2;
  const int64_t row = panel * kHalf + c % kHalf;
  return row >= n / 2 ? -1 : c < kHalf ? row : n / 2 + row;
}

// Fills one (zeroed) panel.
void PackPanel(const StackedRows& rows, int64_t panel, int64_t k, bool is_gated, DType dtype,
               uint32_t* units) {
  const int k_step = dtype == DType::kBf16 ? 2 : 1;
  alignas(64) uint32_t row[kPackBlock];
  for (int64_t k0 = 0; k0 < k; k0 += kPackBlock) {
    const int64_t count = std::min(kPackBlock, k - k0);
    const int64_t num_units = (count + k_step - 1) / k_step;
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      const int64_t n = RowOfColumn(panel, c, rows.rows(), is_gated);
      if (n < 0) continue;
      row[num_units - 1] = 0;
      rows.Read(n, k0, count, dtype, row);
      uint32_t* to = units + k0 / k_step * kPanelColumns + c;
      for (int64_t u = 0; u < num_units; ++u) to[u * kPanelColumns] = row[u];
    }
  }
}

const void* RowOf(const Tensor& x, int64_t row) { return x.Rows(row, 1).data; }

}  // namespace

StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::Pack(std::span<const Tensor> row_blocks,
                                                         WeightFormat format) {
  RETURN_IF_ERROR(CheckPack(row_blocks, format));
  return format == WeightFormat::kCompute ? PackPanels(row_blocks, false)
                                          : PackQuantized(row_blocks, format, false);
}

StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::PackGated(std::span<const Tensor> row_blocks,
                                                              WeightFormat format) {
  RETURN_IF_ERROR(CheckPackGated(row_blocks, format));
  return format == WeightFormat::kCompute ? PackPanels(row_blocks, true)
                                          : PackQuantized(row_blocks, format, true);
}

StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::PackPanels(std::span<const Tensor> row_blocks,
                                                               bool is_gated) {
  const StackedRows rows(row_blocks);
  const int64_t n = rows.rows();
  const int64_t k = row_blocks[0].shape[1];
  const int64_t k_units = (k + kernels().k_step - 1) / kernels().k_step;
  const int64_t num_panels = CpuMatrix::NumPanels(n, is_gated);
  const int64_t num_units = num_panels * k_units * kPanelColumns;
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateHost(DType::kI32, {&num_units, 1}));
  auto matrix = std::make_unique<CpuMatrix>(n, k, is_gated, k_units, std::move(memory));
  pool_.Run(num_panels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t panel = begin; panel < end; ++panel) {
      PackPanel(rows, panel, k, is_gated, dtype_,
                matrix->units() + panel * k_units * kPanelColumns);
    }
  });
  return std::unique_ptr<PackedMatrix>(std::move(matrix));
}

void CpuBackend::PackActivations(const LinearInput& input, LinearTask* task) {
  const Tensor& x = input.x;
  const int64_t m = x.rows(), k = x.shape[1];
  const int k_step = kernels().k_step;
  const bool has_norm = !input.norm_weight.empty(), is_f32 = x.dtype == DType::kF32;
  auto norm = [&](int64_t row, void* to) {
    kernels().rms_norm(RowOf(x, row), is_f32, input.norm_weight.Data<float>(), input.epsilon, k, to,
                       dtype_ == DType::kF32);
  };
  task->packed =
      m > table_.max_tile_rows || k % k_step != 0 || (!has_norm && x.row_stride % k_step != 0);
  if (!task->packed && !has_norm) {
    task->a = static_cast<const uint32_t*>(x.data);
    task->a_stride = x.row_stride / k_step;
    return;
  }
  const int64_t tile_rows = task->tile_rows;
  const int64_t num_tiles = (m + tile_rows - 1) / tile_rows;
  const int64_t tile_units = table_.max_tile_rows * task->k_units;
  uint32_t* to = PackedRows(num_tiles * tile_units);
  task->a = to;
  task->a_stride = task->k_units;
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
                                  to + tile * tile_units);
            }
          });
}

void CpuBackend::Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                        const Tensor& bias, LinearEpilogue epilogue) {
  CheckLinear(types(), out, x, weight, bias, epilogue);
  const auto& matrix = static_cast<const CpuMatrix&>(weight);
  if (matrix.is_quantized() && matrix.is_gated()) {
    const Tensor gate_up = Room(&gate_up_, x.rows(), matrix.n());
    RunLinear(gate_up, {x, {}, 0}, matrix, bias, LinearEpilogue::kStore);
    return epilogue == LinearEpilogue::kSiluAndMul ? SiluAndMul(out, gate_up)
                                                   : GeluAndMul(out, gate_up);
  }
  RunLinear(out, {x, {}, 0}, matrix, bias, epilogue);
}

void CpuBackend::RmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight,
                               float epsilon, const PackedMatrix& weight, const Tensor& bias,
                               LinearEpilogue epilogue) {
  CheckRmsNormLinear(types(), out, x, norm_weight, weight, bias, epilogue);
  const auto& matrix = static_cast<const CpuMatrix&>(weight);
  if (matrix.is_quantized()) {
    const Tensor normed = Room(&normed_, x.rows(), matrix.k());
    RmsNorm(normed, x, norm_weight, epsilon);
    return Linear(out, normed, weight, bias, epilogue);
  }
  RunLinear(out, {x, norm_weight, epsilon}, matrix, bias, epilogue);
}

void CpuBackend::RunLinear(const Tensor& out, const LinearInput& input, const CpuMatrix& matrix,
                           const Tensor& bias, LinearEpilogue epilogue) {
  LinearTask task;
  task.m = input.x.rows();
  if (task.m == 0) return;
  task.weight = matrix.units();
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
  // Tiles of one height as far as that goes: the work per weight of a low one is short.
  const int64_t num_tiles = (task.m + table_.max_tile_rows - 1) / table_.max_tile_rows;
  task.tile_rows = (task.m + num_tiles - 1) / num_tiles;
  auto kernel = kernels().linear;
  int64_t room = 0;  // floats that the kernel wants besides its sums
  if (!matrix.is_quantized()) {
    PackActivations(input, &task);
  } else {
    QuantizeActivations(input.x, matrix, &task);
    const bool is_int8 = matrix.format() == WeightFormat::kInt8;
    kernel = is_int8 ? table_.linear_int8 : table_.linear_int4;
    room = is_int8 ? 0 : kUnpackedUnits;
  }

  // Row blocks outermost: all panels pass over a block of rows that stays in cache. Blocks of equal
  // size: a low one would walk all weights for a few rows.
  const int64_t row_blocks = (task.m + kRowsPerBlock - 1) / kRowsPerBlock;
  const int64_t block_rows = (num_tiles + row_blocks - 1) / row_blocks * task.tile_rows;
  const int64_t panels = matrix.num_panels();
  // 256 bytes of a panel per unit at some 40 bytes/ns, or 128 multiplications per row at 256/ns.
  const int64_t panel_ns = task.k_units * (6 + std::min(task.m, block_rows) / 2);
  ForEach(row_blocks * panels, panel_ns, [&](int64_t begin, int64_t end, int thread) {
    float* partial = Scratch(thread, block_rows * kPanelColumns * kPanelsAtOnce + room);
    for (int64_t item = begin; item < end;) {
      const int64_t row = item / panels * block_rows;
      const int64_t panel = item % panels;
      const int64_t panel_end = std::min(panels, panel + end - item);
      if (row < task.m) {  // rounding up to tiles may leave a last block without rows
        kernel(task, row, std::min(task.m, row + block_rows), panel, panel_end, partial);
      }
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
