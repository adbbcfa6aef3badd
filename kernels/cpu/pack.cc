// Packing of matrices in the compute type.

#include <algorithm>

#include "kernels/cpu/cpu_matrix.h"
#include "kernels/host_memory.h"

namespace tandem {

namespace {

constexpr int KStep(DType dtype) { return dtype == DType::kBf16 ? 2 : 1; }

// K that is packed at a time: 64 columns of it stay in L1.
constexpr int64_t kPackBlock = 128;

// Fills one (zeroed) panel.
void PackPanel(const StackedRows& rows, int64_t panel, int64_t k, bool is_gated, DType dtype,
               uint32_t* units) {
  const int k_step = KStep(dtype);
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

}  // namespace

int64_t RowOfColumn(int64_t panel, int64_t c, int64_t n, bool is_gated) {
  if (!is_gated) {
    const int64_t row = panel * kPanelColumns + c;
    return row < n ? row : -1;
  }
  constexpr int64_t kHalf = kPanelColumns / 2;
  const int64_t row = panel * kHalf + c % kHalf;
  return row >= n / 2 ? -1 : c < kHalf ? row : n / 2 + row;
}

StatusOr<std::unique_ptr<PackedMatrix>> PackPanels(std::span<const MatrixSource> row_blocks,
                                                   DType dtype, bool is_gated, ComputePool* pool) {
  const int k_step = KStep(dtype);
  const StackedRows rows(row_blocks);
  const int64_t n = rows.rows(), k = rows.columns();
  const int64_t k_units = (k + k_step - 1) / k_step;
  const int64_t num_panels = CpuMatrix::NumPanels(n, is_gated);
  const int64_t num_units = num_panels * k_units * kPanelColumns;
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateHost(DType::kI32, {&num_units, 1}));
  auto matrix = std::make_unique<CpuMatrix>(n, k, is_gated, k_units, std::move(memory));
  pool->Run(num_panels, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t panel = begin; panel < end; ++panel) {
      PackPanel(rows, panel, k, is_gated, dtype, matrix->units() + panel * k_units * kPanelColumns);
      const int64_t count = is_gated ? kPanelColumns / 2 : kPanelColumns;
      rows.GiveBack(panel * count, std::min((panel + 1) * count, is_gated ? n / 2 : n));
      if (is_gated) rows.GiveBack(n / 2 + panel * count, std::min(n / 2 + (panel + 1) * count, n));
    }
  });
  return std::unique_ptr<PackedMatrix>(std::move(matrix));
}

}  // namespace tandem
