#include "kernels/op_checks.h"

#include "kernels/quantization.h"

namespace tandem {

bool IsMatrix(const Tensor& x, int64_t rows, int64_t columns) {
  return x.rank == 2 && x.shape[0] == rows && x.shape[1] == columns;
}

bool IsVector(const Tensor& x, DType dtype, int64_t size) {
  return x.rank == 1 && x.dtype == dtype && x.shape[0] == size && x.IsContiguous();
}

Status CheckPack(std::span<const MatrixSource> row_blocks, WeightFormat format) {
  CHECK(!row_blocks.empty());
  const int64_t k = row_blocks[0].columns();
  for (const MatrixSource& block : row_blocks) {
    CHECK(block.values.rank == 2 && block.values.dtype != DType::kI32) << block.values;
    CHECK_EQ(block.columns(), k);
    CHECK(block.column_groups.empty() || IsVector(block.column_groups, DType::kI32, k));
    for (const Tensor* numbers : {&block.scales, &block.zeros}) {
      CHECK(numbers->empty() ||
            (numbers->dtype == DType::kF32 && IsMatrix(*numbers, block.rows(), block.num_groups())))
          << *numbers << block.values;
    }
  }
  const bool sums_whole_rows = format != WeightFormat::kCompute && format != WeightFormat::kStored;
  if (sums_whole_rows && k > kMaxQuantizedDepth) {
    return InvalidArgumentError("rows of " + std::to_string(k) + " weights cannot be quantized, " +
                                std::to_string(kMaxQuantizedDepth) + " is the most");
  }
  return OkStatus();
}

Status CheckPackGated(std::span<const MatrixSource> row_blocks, WeightFormat format) {
  CHECK_EQ(StackedRows(row_blocks).rows() % 2, 0);
  return CheckPack(row_blocks, format);
}

void CheckPair(std::span<const PairSource> blocks, int64_t n, int64_t k) {
  for (const PairSource& block : blocks) {
    CHECK(block.a.rank == 2 && block.b.rank == 2) << block.a << block.b;
    CHECK_EQ(block.a.shape[1], k);
    CHECK_EQ(block.a.shape[0], block.b.shape[1]);
    CHECK(block.begin >= 0 && block.begin + block.b.rows() <= n) << block.begin << block.b << n;
  }
}

void CheckBatch(const AttentionBatch& batch, int64_t max_tokens, int64_t max_requests) {
  const auto num_requests = static_cast<int64_t>(batch.context_len.size());
  const int64_t num_tokens = batch.positions.rows();
  CHECK_LE(num_tokens, max_tokens);
  CHECK_LE(num_requests, max_requests);
  CHECK(IsVector(batch.positions, DType::kI32, num_tokens)) << batch.positions;
  CHECK(IsVector(batch.slot_mapping, DType::kI32, num_tokens)) << batch.slot_mapping;
  CHECK(batch.block_table.rank == 2 && batch.block_table.dtype == DType::kI32) << batch.block_table;
  CHECK_EQ(batch.block_table.rows(), num_requests);
  CHECK_EQ(batch.query_start.size(), batch.context_len.size() + 1);
  CHECK_EQ(batch.query_start[0], 0);
  CHECK_EQ(batch.query_start.back(), num_tokens);
  CHECK(batch.num_drafts.empty() || batch.num_drafts.size() == batch.context_len.size());
  for (int64_t r = 0; r < num_requests; ++r) {
    const int32_t num_queries = batch.query_start[r + 1] - batch.query_start[r];
    CHECK(num_queries >= 0 && num_queries <= batch.context_len[r])
        << "request " << r << ": " << num_queries << " of " << batch.context_len[r];
    if (batch.num_drafts.empty()) continue;
    const int32_t num_drafts = batch.num_drafts[static_cast<size_t>(r)];
    CHECK(num_drafts == 0 || (num_drafts > 0 && num_drafts < num_queries))
        << "request " << r << ": " << num_drafts << " drafts of " << num_queries;
  }
}

void CheckPositionsAndSlots(const Tensor& cos, const LayerKv& kv, const AttentionPlan& plan,
                            const Tensor& rows) {
  const auto* positions = (rows.empty() ? plan.batch().positions : rows).Data<int32_t>();
  const auto* slots = plan.batch().slot_mapping.Data<int32_t>();
  const int64_t num_slots = kv.num_blocks * kv.block_size;
  for (int64_t t = 0; t < plan.num_tokens(); ++t) {
    CHECK(positions[t] >= 0 && (cos.empty() || positions[t] < cos.rows()))
        << "position " << positions[t] << " of " << cos.rows();
    CHECK(slots[t] >= -1 && slots[t] < num_slots) << "slot " << slots[t] << " of " << num_slots;
  }
}

}  // namespace tandem
