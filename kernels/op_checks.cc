#include "kernels/op_checks.h"

#include <ostream>

#include "kernels/quantization.h"

namespace tandem {

namespace {

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  out << DTypeName(x.dtype) << "[";
  for (int i = 0; i < x.rank; ++i) out << (i ? ", " : "") << x.shape[i];
  return out << "]";
}

bool IsFloat(const Tensor& x, DType activation) {
  return x.dtype == activation || x.dtype == DType::kF32;
}

bool IsMatrix(const Tensor& x, int64_t rows, int64_t columns) {
  return x.rank == 2 && x.shape[0] == rows && x.shape[1] == columns;
}

bool IsVector(const Tensor& x, DType dtype, int64_t size) {
  return x.rank == 1 && x.dtype == dtype && x.shape[0] == size && x.IsContiguous();
}

// All that CheckLinear says but the type of x.
void CheckProduct(OpTypes types, const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                  const Tensor& bias, LinearEpilogue epilogue) {
  CHECK(x.rank == 2 && x.shape[1] == weight.k())
      << x << " times " << weight.n() << " x " << weight.k();
  const bool is_gated =
      epilogue == LinearEpilogue::kSiluAndMul || epilogue == LinearEpilogue::kGeluAndMul;
  CHECK_EQ(is_gated, weight.is_gated());
  const int64_t columns = is_gated ? weight.n() / 2 : weight.n();
  CHECK(IsFloat(out, types.activation) && IsMatrix(out, x.shape[0], columns)) << out << x;
  CHECK(bias.empty() || IsVector(bias, DType::kF32, weight.n())) << bias;
  CHECK(epilogue != LinearEpilogue::kAddResidual || out.dtype == types.residual) << out;
  CHECK(!is_gated || out.dtype == types.activation) << out;
}

}  // namespace

Status CheckPack(std::span<const Tensor> row_blocks, WeightFormat format) {
  CHECK(!row_blocks.empty());
  for (const Tensor& block : row_blocks) {
    CHECK(block.rank == 2 && block.dtype != DType::kI32) << block;
    CHECK_EQ(block.shape[1], row_blocks[0].shape[1]);
  }
  const int64_t k = row_blocks[0].shape[1];
  if (format != WeightFormat::kCompute && k > kMaxQuantizedDepth) {
    return InvalidArgumentError("rows of " + std::to_string(k) + " weights cannot be quantized, " +
                                std::to_string(kMaxQuantizedDepth) + " is the most");
  }
  return OkStatus();
}

Status CheckPackGated(std::span<const Tensor> row_blocks, WeightFormat format) {
  int64_t rows = 0;
  for (const Tensor& block : row_blocks) rows += block.rows();
  CHECK_EQ(rows % 2, 0);
  return CheckPack(row_blocks, format);
}

void CheckEmbedding(OpTypes types, const Tensor& out, const Tensor& ids,
                    const PackedMatrix& table) {
  CHECK(IsVector(ids, DType::kI32, ids.rows())) << ids;
  CHECK(out.dtype == types.residual && IsMatrix(out, ids.rows(), table.k())) << out;
  CHECK(!table.is_gated());
}

void CheckRmsNorm(OpTypes types, const Tensor& out, const Tensor& x, const Tensor& weight) {
  CHECK(IsFloat(out, types.activation) && IsFloat(x, types.activation)) << out << x;
  CHECK(x.rank == 2 && IsMatrix(out, x.shape[0], x.shape[1])) << out << x;
  CHECK(IsVector(weight, DType::kF32, x.shape[1])) << weight << x;
}

void CheckAddRmsNorm(OpTypes types, const Tensor& out, const Tensor& residual, const Tensor& x,
                     const Tensor& weight) {
  CheckRmsNorm(types, out, x, weight);
  CHECK(residual.dtype == types.residual && IsMatrix(residual, x.shape[0], x.shape[1])) << residual;
}

void CheckLinear(OpTypes types, const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                 const Tensor& bias, LinearEpilogue epilogue) {
  CHECK(x.dtype == types.activation) << x;
  CheckProduct(types, out, x, weight, bias, epilogue);
}

void CheckRmsNormLinear(OpTypes types, const Tensor& out, const Tensor& x,
                        const Tensor& norm_weight, const PackedMatrix& weight, const Tensor& bias,
                        LinearEpilogue epilogue) {
  CHECK(IsFloat(x, types.activation)) << x;
  CHECK(IsVector(norm_weight, DType::kF32, weight.k())) << norm_weight;
  CheckProduct(types, out, x, weight, bias, epilogue);
}

void CheckSiluAndMul(OpTypes types, const Tensor& out, const Tensor& gate_up) {
  CHECK(out.rank == 2 && out.dtype == types.activation) << out;
  CHECK(IsFloat(gate_up, types.activation) && IsMatrix(gate_up, out.shape[0], 2 * out.shape[1]))
      << out << gate_up;
}

void CheckLayerNorm(OpTypes types, const Tensor& out, const Tensor& x, const Tensor& weight,
                    const Tensor& bias) {
  CheckRmsNorm(types, out, x, weight);
  CHECK(IsVector(bias, DType::kF32, x.shape[1])) << bias << x;
}

void CheckAdd(OpTypes types, const Tensor& residual, const Tensor& x) {
  CHECK(x.rank == 2 && IsFloat(x, types.activation)) << x;
  CHECK(residual.dtype == types.residual && IsMatrix(residual, x.shape[0], x.shape[1])) << residual;
}

void CheckConvert(OpTypes types, const Tensor& out, const Tensor& x) {
  CHECK(IsFloat(out, types.activation) && IsFloat(x, types.activation)) << out << x;
  CHECK(x.rank == 2 && IsMatrix(out, x.shape[0], x.shape[1])) << out << x;
}

void CheckGelu(OpTypes types, const Tensor& out, const Tensor& x) {
  CHECK(out.rank == 2 && out.dtype == types.activation) << out;
  CHECK(IsFloat(x, types.activation) && IsMatrix(x, out.shape[0], out.shape[1])) << out << x;
}

void CheckSoftCap(const Tensor& x, float cap) {
  CHECK(x.rank == 2 && x.dtype == DType::kF32) << x;
  CHECK(cap > 0) << cap;
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
  for (int64_t r = 0; r < num_requests; ++r) {
    const int32_t num_queries = batch.query_start[r + 1] - batch.query_start[r];
    CHECK(num_queries >= 0 && num_queries <= batch.context_len[r])
        << "request " << r << ": " << num_queries << " of " << batch.context_len[r];
  }
}

void CheckQkNormRopeWriteKv(OpTypes types, const Tensor& out, const Tensor& qkv, const QkRope& rope,
                            const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t kv_size = int64_t{kv.num_kv_heads} * kv.head_dim;
  CHECK(out.rank == 2 && out.dtype == types.activation) << out;
  CHECK(out.shape[0] == plan.num_tokens() && out.shape[1] % kv.head_dim == 0) << out;
  CHECK(IsFloat(qkv, types.activation) &&
        IsMatrix(qkv, plan.num_tokens(), out.shape[1] + 2 * kv_size))
      << qkv << out;
  CHECK(rope.rotary_dim % 2 == 0 && rope.rotary_dim <= kv.head_dim) << rope.rotary_dim;
  for (const Tensor* table : {&rope.cos, &rope.sin}) {
    CHECK(rope.rotary_dim == 0 || (table->rank == 2 && table->dtype == DType::kF32 &&
                                   table->shape[1] == rope.rotary_dim / 2 && table->IsContiguous()))
        << *table;
  }
  for (const Tensor* norm : {&rope.q_norm, &rope.k_norm}) {
    CHECK(norm->empty() || IsVector(*norm, DType::kF32, kv.head_dim)) << *norm;
  }
}

void CheckPositionsAndSlots(const QkRope& rope, const LayerKv& kv, const AttentionPlan& plan) {
  const auto* positions = plan.batch().positions.Data<int32_t>();
  const auto* slots = plan.batch().slot_mapping.Data<int32_t>();
  const int64_t num_slots = kv.num_blocks * kv.block_size;
  for (int64_t t = 0; t < plan.num_tokens(); ++t) {
    CHECK(positions[t] >= 0 && (rope.rotary_dim == 0 || positions[t] < rope.cos.rows()))
        << "position " << positions[t] << " of " << rope.cos.rows();
    CHECK(slots[t] >= -1 && slots[t] < num_slots) << "slot " << slots[t] << " of " << num_slots;
  }
}

void CheckPagedAttention(OpTypes types, const Tensor& out, const Tensor& q, const LayerKv& kv,
                         const AttentionPlan& plan) {
  CHECK(out.rank == 2 && out.dtype == types.activation && q.dtype == types.activation) << out << q;
  CHECK(IsMatrix(q, plan.num_tokens(), out.shape[1]) && out.shape[0] == plan.num_tokens())
      << out << q;
  CHECK_EQ(out.shape[1] % (int64_t{kv.num_kv_heads} * kv.head_dim), 0);
}

void CheckGatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) {
  CHECK(IsVector(rows, DType::kI32, rows.rows())) << rows;
  CHECK(x.rank == 2 && x.dtype == out.dtype && IsMatrix(out, rows.rows(), x.shape[1])) << out << x;
}

void CheckRouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits) {
  CHECK(logits.rank == 2 && logits.dtype == DType::kF32) << logits;
  CHECK(expert_ids.rank == 2 && expert_ids.dtype == DType::kI32) << expert_ids;
  CHECK(expert_ids.shape[0] == logits.shape[0] && expert_ids.shape[1] >= 1 &&
        expert_ids.shape[1] <= logits.shape[1])
      << expert_ids << " of " << logits;
  CHECK(weights.dtype == DType::kF32 && IsMatrix(weights, logits.shape[0], expert_ids.shape[1]))
      << weights << expert_ids;
}

PackedExperts::PackedExperts(std::vector<std::unique_ptr<PackedMatrix>> experts)
    : experts_(std::move(experts)) {
  CHECK(!experts_.empty());
  for (const auto& matrix : experts_) {
    CHECK_EQ(matrix->n(), expert(0).n());
    CHECK_EQ(matrix->k(), expert(0).k());
    CHECK_EQ(matrix->is_gated(), expert(0).is_gated());
  }
}

void CheckGroupByExpert(const ExpertPairs& pairs, const Tensor& expert_ids, const Tensor& weights) {
  CHECK(expert_ids.rank == 2 && expert_ids.dtype == DType::kI32) << expert_ids;
  const int64_t tokens = expert_ids.shape[0], top_k = expert_ids.shape[1];
  CHECK(weights.dtype == DType::kF32 && IsMatrix(weights, tokens, top_k)) << weights << expert_ids;
  CHECK(pairs.of_token.dtype == DType::kI32 && IsMatrix(pairs.of_token, tokens, top_k))
      << pairs.of_token << expert_ids;
  CHECK(pairs.weights.dtype == DType::kF32 && IsMatrix(pairs.weights, tokens, top_k))
      << pairs.weights << expert_ids;
  CHECK(IsVector(pairs.tokens, DType::kI32, tokens * top_k)) << pairs.tokens << expert_ids;
  CHECK_GE(pairs.chosen.rows(), 1);
  CHECK(IsVector(pairs.chosen, DType::kI32, pairs.chosen.rows())) << pairs.chosen;
  CHECK(IsVector(pairs.begin, DType::kI32, pairs.chosen.rows() + 1)) << pairs.begin << pairs.chosen;
}

void CheckExpertLinear(OpTypes types, const Tensor& out, const Tensor& x,
                       const PackedExperts& experts, const ExpertPairs& pairs,
                       LinearEpilogue epilogue) {
  CHECK(epilogue != LinearEpilogue::kAddResidual);
  CHECK(out.dtype == types.activation) << out;
  CHECK(IsVector(pairs.begin, DType::kI32, experts.size() + 1)) << pairs.begin << experts.size();
  CHECK(IsVector(pairs.chosen, DType::kI32, experts.size())) << pairs.chosen << experts.size();
  CHECK_EQ(pairs.tokens.rows(), x.rows());
  CheckLinear(types, out, x, experts.expert(0), {}, epilogue);
}

void CheckAddWeightedRows(OpTypes types, const Tensor& residual, const Tensor& x,
                          const Tensor& rows, const Tensor& weights) {
  CHECK(x.rank == 2 && IsFloat(x, types.activation)) << x;
  CHECK(residual.rank == 2 && residual.dtype == types.residual && residual.shape[1] == x.shape[1])
      << residual << x;
  CHECK(rows.rank == 2 && rows.dtype == DType::kI32 && rows.shape[0] == residual.shape[0])
      << rows << residual;
  CHECK(weights.dtype == DType::kF32 && IsMatrix(weights, rows.shape[0], rows.shape[1]))
      << weights << rows;
}

void CheckArgmax(const Tensor& ids, const Tensor& logits) {
  CHECK(logits.rank == 2 && logits.dtype == DType::kF32 && logits.shape[1] > 0) << logits;
  CHECK(IsVector(ids, DType::kI32, logits.rows())) << ids;
}

void CheckLogSumExp(const Tensor& out, const Tensor& logits) {
  CHECK(logits.rank == 2 && logits.dtype == DType::kF32 && logits.shape[1] > 0) << logits;
  CHECK(IsVector(out, DType::kF32, logits.rows())) << out;
}

}  // namespace tandem
