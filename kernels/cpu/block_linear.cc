// The parts of Linear and Embedding for matrices in the blocks of their sources.

#include <algorithm>
#include <vector>

#include "kernels/cpu/block_panel.h"
#include "kernels/cpu/cpu_ops.h"

namespace tandem {
namespace {

// Most rows that share one pass over a panel: with a run of groups they fill most of L2.
constexpr int64_t kRowsPerPass = 256;

}  // namespace

void CpuOps::QuantizeBlocks(const Tensor& x, uint32_t* room, BlockTask* task) {
  const int64_t m = x.rows(), groups = task->num_groups;
  uint32_t* const units = room;
  auto* const scales = reinterpret_cast<float*>(units + m * groups * kUnitsOfGroup);
  auto* const sums = reinterpret_cast<int32_t*>(scales + m * groups);
  ForEach(m, groups * 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      kernels().quantize_blocks(x.Rows(row, 1).data, groups, units + row * groups * kUnitsOfGroup,
                                scales + row * groups, sums + row * groups * 2);
    }
  });
  task->a = units;
  task->scales = scales;
  task->sums = sums;
}

void CpuOps::RunBlockLinear(const Tensor& x, const CpuMatrix& matrix, const LinearTask& output) {
  const int64_t m = x.rows(), n = matrix.n();
  BlockTask task;
  task.output = output;
  task.panels = matrix.blocks()->panels.data();
  task.num_groups = matrix.k() / kGroupWeights;
  const int64_t activations = m * task.num_groups * (kUnitsOfGroup + 3);  // scale and two sums
  const bool is_adapted = output.terms != nullptr;
  uint32_t* const room = PackedRows(activations + (is_adapted ? m * n : 0));
  QuantizeBlocks(x, room, &task);
  if (!is_adapted) return MultiplyBlocks(matrix, task);
  const Tensor sums(room + activations, DType::kF32, {m, n});
  task.output.terms = nullptr;
  task.output.out = sums.data;
  task.output.out_stride = n;
  task.output.out_kind = OutKind::kF32;
  MultiplyBlocks(matrix, task);
  StoreAdaptedBlocks(output, sums);
}

// Adapters have strips of 16 columns of the matrix, where panels of blocks may begin anywhere:
// their terms are added to sums in memory.
void CpuOps::StoreAdaptedBlocks(const LinearTask& output, const Tensor& sums) {
  const int64_t n = sums.shape[1];
  ForEach(sums.rows(), n, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float* const from = sums.Row<float>(row);
      const AdapterTerm& term = output.terms[row];
      if (term.strips != nullptr) kernels().add_adapter_term(from, term, 1, n);
      if (output.out_kind == OutKind::kF32Add) {
        kernels().add(static_cast<float*>(output.out) + row * output.out_stride, from, true, n);
        continue;
      }
      const DType dtype = output.out_kind == OutKind::kBf16 ? DType::kBf16 : DType::kF32;
      auto* const to =
          static_cast<std::byte*>(output.out) + row * output.out_stride * SizeOf(dtype);
      ConvertTensor(Tensor(to, dtype, {1, n}), sums.Rows(row, 1));
    }
  });
}

void CpuOps::MultiplyBlocks(const CpuMatrix& matrix, const BlockTask& task) {
  const int64_t m = task.output.m;
  const auto num_panels = static_cast<int64_t>(matrix.blocks()->panels.size());
  const int64_t passes = (m + kRowsPerPass - 1) / kRowsPerPass;
  const int64_t pass_rows = (m + passes - 1) / passes;
  // Up to 2 KiB of a panel per group at about 40 bytes/ns, or 2,048 multiplications per row.
  const int64_t panel_ns = task.num_groups * (30 + 6 * pass_rows);
  ForEach(passes * num_panels, panel_ns, [&](int64_t begin, int64_t end, int thread) {
    float* const room = Scratch(thread, BlockRoom(pass_rows));
    for (int64_t item = begin; item < end;) {
      const int64_t row = item / num_panels * pass_rows, panel = item % num_panels;
      const int64_t panel_end = std::min(num_panels, panel + end - item);
      table_.linear_blocks(task, row, std::min(m, row + pass_rows), panel, panel_end, room);
      item += panel_end - panel;
    }
  });
}

void CpuOps::BlockEmbedding(const Tensor& out, const Tensor& ids, const CpuMatrix& table,
                            float scale) {
  const std::vector<BlockPanel>& panels = table.blocks()->panels;
  ForEach(ids.rows(), table.k(), [&](int64_t begin, int64_t end, int) {
    BlockCodes parts;
    float weights[kMaxBlockSize];
    for (int64_t t = begin; t < end; ++t) {
      const int64_t id = ids.Data<int32_t>()[t];
      CHECK(id >= 0 && id < table.n()) << id << " of " << table.n();
      const auto next =
          std::upper_bound(panels.begin(), panels.end(), id,
                           [](int64_t row, const BlockPanel& panel) { return row < panel.column; });
      const BlockPanel& panel = *std::prev(next);
      const int64_t size = panel.shape->format.size;
      float* to = out.Row<float>(t);
      for (int64_t block = 0; block < table.k() / size; ++block) {
        panel.shape->Read(panel.bytes, block, id - panel.column, &parts);
        ReadWeights(panel.shape->format, parts, weights);
        for (int64_t i = 0; i < size; ++i) *to++ = weights[i] * scale;
      }
    }
  });
}

}  // namespace tandem
