// Packing of matrices that stay in the blocks of their sources.

#include <algorithm>

#include "kernels/cpu/cpu_matrix.h"
#include "kernels/host_memory.h"
#include "kernels/stored_blocks.h"

namespace tandem {
namespace {

int64_t NumPanels(int64_t num_rows) { return (num_rows + kPanelColumns - 1) / kPanelColumns; }

// Fills the (zeroed) panel of rows [first, first + count) of a source.
void PackPanel(const MatrixSource& source, const BlockPanelShape& shape, int64_t first,
               int64_t count, uint8_t* panel) {
  BlockCodes parts;
  const int64_t num_blocks = source.columns() / shape.format.size;
  for (int64_t lane = 0; lane < count; ++lane) {
    for (int64_t block = 0; block < num_blocks; ++block) {
      ReadStoredBlock(source, shape.format, first + lane, block, &parts);
      shape.Write(parts, block, lane, panel);
    }
  }
}

}  // namespace

StatusOr<std::unique_ptr<PackedMatrix>> PackBlocks(std::span<const MatrixSource> row_blocks,
                                                   bool is_gated, ComputePool* pool) {
  const int64_t k = row_blocks[0].columns();
  BlockPanels packed;
  int64_t num_bytes = 0;
  for (const MatrixSource& source : row_blocks) {
    packed.shapes.emplace_back(*FindStoredFormat(source));
    num_bytes += NumPanels(source.rows()) * packed.shapes.back().PanelBytes(k);
  }
  ASSIGN_OR_RETURN(packed.memory, AllocateHost(DType::kI8, {&num_bytes, 1}));

  struct Work {
    const MatrixSource* source;
    int64_t first;  // row of the source
    uint8_t* bytes;
  };
  std::vector<Work> work;
  auto* bytes = static_cast<uint8_t*>(packed.memory.view().data);
  int64_t column = 0;
  for (size_t i = 0; i < row_blocks.size(); ++i) {
    const MatrixSource& source = row_blocks[i];
    for (int64_t first = 0; first < source.rows(); first += kPanelColumns) {
      const int64_t count = std::min<int64_t>(kPanelColumns, source.rows() - first);
      packed.panels.push_back({&packed.shapes[i], bytes, column, count});
      work.push_back({&source, first, bytes});
      column += count;
      bytes += packed.shapes[i].PanelBytes(k);
    }
  }
  pool->Run(static_cast<int64_t>(work.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const Work& panel = work[static_cast<size_t>(p)];
      const BlockPanel& place = packed.panels[static_cast<size_t>(p)];
      PackPanel(*panel.source, *place.shape, panel.first, place.num_columns, panel.bytes);
      panel.source->GiveBack(panel.first, place.num_columns);
    }
  });
  return std::unique_ptr<PackedMatrix>(
      std::make_unique<CpuMatrix>(column, k, is_gated, std::move(packed)));
}

}  // namespace tandem
