// What ops.def demands of each op's arguments.

#include "kernels/ops.h"

#include <algorithm>

#include "kernels/op_checks.h"

namespace tandem {

namespace {

bool IsFloat(const Tensor& x, OpTypes types) {
  return x.dtype == types.activation || x.dtype == DType::kF32;
}

void CheckRmsNorm(OpTypes types, const Tensor& out, const Tensor& x, const Tensor& weight) {
  CHECK(IsFloat(out, types) && IsFloat(x, types)) << out << x;
  CHECK(x.rank == 2 && IsMatrix(out, x.shape[0], x.shape[1])) << out << x;
  CHECK(IsVector(weight, DType::kF32, x.shape[1])) << weight << x;
}

void CheckGate(OpTypes types, const Tensor& out, const Tensor& gate_up) {
  CHECK(out.rank == 2 && out.dtype == types.activation) << out;
  CHECK(IsFloat(gate_up, types) && IsMatrix(gate_up, out.shape[0], 2 * out.shape[1]))
      << out << gate_up;
}

// All that Linear demands but the type of x.
void CheckProduct(OpTypes types, const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                  const Tensor& bias, LinearEpilogue epilogue) {
  CHECK(x.rank == 2 && x.shape[1] == weight.k())
      << x << " times " << weight.n() << " x " << weight.k();
  const bool is_gated =
      epilogue == LinearEpilogue::kSiluAndMul || epilogue == LinearEpilogue::kGeluAndMul;
  CHECK_EQ(is_gated, weight.is_gated());
  const int64_t columns = is_gated ? weight.n() / 2 : weight.n();
  CHECK(IsFloat(out, types) && IsMatrix(out, x.shape[0], columns)) << out << x;
  CHECK(bias.empty() || IsVector(bias, DType::kF32, weight.n())) << bias;
  CHECK(epilogue != LinearEpilogue::kAddResidual || out.dtype == types.residual) << out;
  CHECK(!is_gated || out.dtype == types.activation) << out;
}

void CheckExperts(OpTypes types, const Tensor& out, const Tensor& x, const PackedExperts& experts,
                  const ExpertPairs& pairs, LinearEpilogue epilogue, const Tensor& bias) {
  CHECK(epilogue != LinearEpilogue::kAddResidual);
  CHECK(bias.empty() || (bias.dtype == DType::kF32 && bias.IsContiguous() &&
                         IsMatrix(bias, experts.size(), experts.expert(0).n())))
      << bias;
  CHECK(out.dtype == types.activation) << out;
  CHECK(IsVector(pairs.begin, DType::kI32, experts.size() + 1)) << pairs.begin << experts.size();
  CHECK(IsVector(pairs.chosen, DType::kI32, experts.size())) << pairs.chosen << experts.size();
  CHECK_EQ(pairs.tokens.rows(), x.rows());
  CHECK(x.dtype == types.activation) << x;
  CheckProduct(types, out, x, experts.expert(0), {}, epilogue);
}

// Of an op with num_rows rows; the pairs are those of a matrix [n, k].
void CheckAdapters(const AdapterRows& adapters, int64_t num_rows, int64_t n, int64_t k) {
  CHECK(IsVector(adapters.slots, DType::kI32, adapters.slots.rows())) << adapters.slots;
  const Tensor& rows = adapters.rows.empty() ? adapters.slots : adapters.rows;
  CHECK(IsVector(rows, DType::kI32, num_rows)) << rows << num_rows;
  for (const PackedPair* pair : adapters.pairs) {
    CHECK(pair == nullptr || (pair->n() == n && pair->k() == k))
        << pair->n() << " x " << pair->k() << " for " << n << " x " << k;
  }
}

}  // namespace

void Ops::Embedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table, float scale) {
  CHECK(IsVector(ids, DType::kI32, ids.rows())) << ids;
  CHECK(out.dtype == types().residual && IsMatrix(out, ids.rows(), table.k())) << out;
  CHECK(!table.is_gated());
  DoEmbedding(out, ids, table, scale);
}

void Ops::RmsNorm(const Tensor& out, const Tensor& x, const Tensor& weight, float epsilon) {
  CheckRmsNorm(types(), out, x, weight);
  DoRmsNorm(out, x, weight, epsilon);
}

void Ops::LayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias,
                    float epsilon) {
  CheckRmsNorm(types(), out, x, weight);
  CHECK(IsVector(bias, DType::kF32, x.shape[1])) << bias << x;
  DoLayerNorm(out, x, weight, bias, epsilon);
}

void Ops::Add(const Tensor& residual, const Tensor& x) {
  CHECK(x.rank == 2 && IsFloat(x, types())) << x;
  CHECK(residual.dtype == types().residual && IsMatrix(residual, x.shape[0], x.shape[1]))
      << residual;
  DoAdd(residual, x);
}

void Ops::Convert(const Tensor& out, const Tensor& x) {
  CHECK(IsFloat(out, types()) && IsFloat(x, types())) << out << x;
  CHECK(x.rank == 2 && IsMatrix(out, x.shape[0], x.shape[1])) << out << x;
  DoConvert(out, x);
}

void Ops::Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight, const Tensor& bias,
                 LinearEpilogue epilogue) {
  CHECK(x.dtype == types().activation) << x;
  CheckProduct(types(), out, x, weight, bias, epilogue);
  DoLinear(out, x, weight, bias, epilogue);
}

void Ops::RmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight,
                        float epsilon, const PackedMatrix& weight, const Tensor& bias,
                        LinearEpilogue epilogue) {
  CHECK(IsFloat(x, types())) << x;
  CHECK(IsVector(norm_weight, DType::kF32, weight.k())) << norm_weight;
  CheckProduct(types(), out, x, weight, bias, epilogue);
  DoRmsNormLinear(out, x, norm_weight, epsilon, weight, bias, epilogue);
}

void Ops::SiluAndMul(const Tensor& out, const Tensor& gate_up) {
  CheckGate(types(), out, gate_up);
  DoSiluAndMul(out, gate_up);
}

void Ops::GeluAndMul(const Tensor& out, const Tensor& gate_up) {
  CheckGate(types(), out, gate_up);
  DoGeluAndMul(out, gate_up);
}

void Ops::ErfGeluAndMul(const Tensor& out, const Tensor& gate_up) {
  CheckGate(types(), out, gate_up);
  DoErfGeluAndMul(out, gate_up);
}

void Ops::ClampedSiluAndMul(const Tensor& out, const Tensor& gate_up, float limit) {
  CheckGate(types(), out, gate_up);
  CHECK(limit > 0) << limit;
  DoClampedSiluAndMul(out, gate_up, limit);
}

void Ops::Activate(const Tensor& out, const Tensor& x, Nonlinearity f) {
  CHECK(out.rank == 2 && out.dtype == types().activation) << out;
  CHECK(IsFloat(x, types()) && IsMatrix(x, out.shape[0], out.shape[1])) << out << x;
  DoActivate(out, x, f);
}

void Ops::QkNormRopeWriteKv(const Tensor& out, const Tensor& qkv, const QkRope& rope,
                            const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t kv_size = rope.is_of_q_alone ? 0 : int64_t{kv.num_kv_heads} * kv.head_dim;
  CHECK(out.rank == 2 && out.dtype == types().activation) << out;
  CHECK(out.shape[0] == plan.num_tokens() && out.shape[1] % kv.head_dim == 0) << out;
  CHECK(IsFloat(qkv, types()) && IsMatrix(qkv, plan.num_tokens(), out.shape[1] + 2 * kv_size))
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
  CHECK(rope.q_scale.empty() || IsVector(rope.q_scale, DType::kF32, rope.q_scale.rows()))
      << rope.q_scale;
  CHECK(rope.rows.empty() ||
        (IsVector(rope.rows, DType::kI32, plan.num_tokens()) && rope.q_scale.empty()))
      << rope.rows << rope.q_scale;
  DoQkNormRopeWriteKv(out, qkv, rope, kv, plan);
}

void Ops::LatentRopeWriteKv(const Tensor& out, const Tensor& q, const Tensor& latent,
                            const LatentRope& rope, const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t num_tokens = plan.num_tokens();
  const int64_t index_dim = rope.index_key.empty() ? 0 : rope.index_key.shape[1];
  const int64_t dim = kv.head_dim - index_dim;
  CHECK(kv.is_latent && kv.num_kv_heads == 1);
  CHECK(index_dim == 0 || (rope.index_key.dtype == types().activation &&
                           IsMatrix(rope.index_key, num_tokens, index_dim)))
      << rope.index_key;
  CHECK(out.rank == 2 && out.dtype == types().activation && out.shape[0] == num_tokens) << out;
  CHECK(dim > 0 && out.shape[1] % dim == 0) << out << dim;
  const int64_t num_heads = out.shape[1] / dim;
  CHECK(q.rank == 2 && q.dtype == types().activation && q.shape[0] == num_tokens) << q;
  CHECK(q.shape[1] % num_heads == 0 && q.shape[1] / num_heads >= rope.pe_dim) << q << rope.pe_dim;
  CHECK(latent.dtype == types().activation && IsMatrix(latent, num_tokens, dim)) << latent;
  CHECK(rope.pe_dim % 2 == 0 && rope.pe_dim <= dim) << rope.pe_dim;
  CHECK(IsVector(rope.norm, DType::kF32, dim - rope.pe_dim)) << rope.norm;
  for (const Tensor* table : {&rope.cos, &rope.sin}) {
    CHECK(table->empty() || (table->rank == 2 && table->dtype == DType::kF32 &&
                             table->shape[1] == rope.pe_dim / 2 && table->IsContiguous()))
        << *table;
  }
  DoLatentRopeWriteKv(out, q, latent, rope, kv, plan);
}

void Ops::PagedAttention(const Tensor& out, const Tensor& q, const LayerKv& kv,
                         const AttentionOptions& options, const AttentionPlan& plan) {
  CHECK(out.rank == 2 && out.dtype == types().activation && q.dtype == types().activation)
      << out << q;
  CHECK(IsMatrix(q, plan.num_tokens(), out.shape[1]) && out.shape[0] == plan.num_tokens())
      << out << q;
  CHECK_EQ(out.shape[1] % (int64_t{kv.num_kv_heads} * kv.head_dim), 0);
  CHECK(options.chunk == 0 || options.sliding_window == 0) << options.chunk;
  for (const Tensor* of_heads : {&options.sinks, &options.slopes}) {
    CHECK(of_heads->empty() || IsVector(*of_heads, DType::kF32, out.shape[1] / kv.head_dim))
        << *of_heads;
  }
  CHECK(options.last_seen.empty() || IsVector(options.last_seen, DType::kI32, plan.num_tokens()))
      << options.last_seen;
  DoPagedAttention(out, q, kv, options, plan);
}

void Ops::SelectKeys(const Tensor& selected, const Tensor& q, const Tensor& weights,
                     const IndexOptions& options, const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t num_tokens = plan.num_tokens();
  CHECK(kv.is_latent && kv.format == KvFormat::kCompute);
  CHECK(options.dim % 2 == 0 && (kv.head_dim - options.dim) % 2 == 0) << options.dim;
  CHECK(options.dim > 0 && options.dim < kv.head_dim) << options.dim << kv.head_dim;
  CHECK(selected.dtype == DType::kI32 && IsMatrix(selected, num_tokens, selected.shape[1]) &&
        selected.shape[1] > 0)
      << selected;
  CHECK(q.dtype == types().activation && IsMatrix(q, num_tokens, options.num_heads * options.dim))
      << q;
  CHECK(weights.dtype == types().activation && IsMatrix(weights, num_tokens, options.num_heads))
      << weights;
  DoSelectKeys(selected, q, weights, options, kv, plan);
}

void Ops::AttendSelected(const Tensor& out, const Tensor& q, const Tensor& selected,
                         const SelectedOptions& options, const LayerKv& kv,
                         const AttentionPlan& plan) {
  const int64_t num_tokens = plan.num_tokens();
  CHECK(kv.is_latent && kv.format == KvFormat::kCompute);
  CHECK(out.dtype == types().activation && IsMatrix(out, num_tokens, out.shape[1])) << out;
  CHECK(options.num_heads > 0 && out.shape[1] % options.num_heads == 0) << out;
  const int64_t dim = out.shape[1] / options.num_heads;
  CHECK(dim % 2 == 0 && dim <= kv.head_dim) << dim;
  CHECK(q.dtype == types().activation && IsMatrix(q, num_tokens, out.shape[1])) << q;
  CHECK(selected.dtype == DType::kI32 && IsMatrix(selected, num_tokens, selected.shape[1]))
      << selected;
  DoAttendSelected(out, q, selected, options, kv, plan);
}

void Ops::Convolve(const Tensor& out, const Tensor& x, const ConvOptions& options,
                   const StatePart& state, const AttentionPlan& plan) {
  const int64_t channels = options.weight.shape[1], kept = options.weight.rows() - 1;
  CHECK(IsMatrix(out, plan.num_tokens(), channels) && out.dtype == types().activation) << out;
  CHECK(IsMatrix(x, plan.num_tokens(), channels) && x.dtype == types().activation) << x;
  CHECK(options.weight.dtype == DType::kF32 && kept >= 0 && kept < 8) << options.weight;
  CHECK(options.bias.empty() || IsVector(options.bias, DType::kF32, channels)) << options.bias;
  CHECK_LE(state.offset + kept * channels, state.kv.state_size);
  DoConvolve(out, x, options, state, plan);
}

void Ops::DeltaRule(const Tensor& out, const Tensor& qkv, const Tensor& gates,
                    const DeltaOptions& options, const StatePart& state,
                    const AttentionPlan& plan) {
  const int64_t tokens = plan.num_tokens(), heads = options.num_value_heads;
  const int64_t values = heads * options.value_dim;
  const int64_t keys = options.num_key_heads * options.key_dim;
  CHECK_EQ(heads % options.num_key_heads, 0);
  CHECK(IsMatrix(out, tokens, values) && out.dtype == types().activation) << out;
  CHECK(IsMatrix(qkv, tokens, 2 * keys + values) && IsFloat(qkv, types())) << qkv;
  const int64_t decays = options.dt_bias.rows();
  CHECK(IsMatrix(gates, tokens, heads + decays) && IsFloat(gates, types())) << gates;
  CHECK(decays == heads || decays == heads * options.key_dim) << options.dt_bias;
  CHECK(IsVector(options.dt_bias, DType::kF32, decays)) << options.dt_bias;
  CHECK(IsVector(options.a_log, DType::kF32, heads)) << options.a_log;
  CHECK_LE(state.offset + values * options.key_dim, state.kv.state_size);
  DoDeltaRule(out, qkv, gates, options, state, plan);
}

void Ops::StateScan(const Tensor& out, const Tensor& xbc, const Tensor& dt,
                    const ScanOptions& options, const StatePart& state, const AttentionPlan& plan) {
  const int64_t tokens = plan.num_tokens(), inner = options.num_heads * options.head_dim;
  const int64_t columns = inner + 2 * options.num_groups * options.state_dim;
  CHECK(IsMatrix(out, tokens, inner) && out.dtype == types().activation) << out;
  CHECK(IsMatrix(xbc, tokens, columns) && IsFloat(xbc, types())) << xbc;
  CHECK(IsMatrix(dt, tokens, options.num_heads) && IsFloat(dt, types())) << dt;
  for (const Tensor* vector : {&options.a_log, &options.dt_bias, &options.d}) {
    CHECK(IsVector(*vector, DType::kF32, options.num_heads)) << *vector;
  }
  CHECK_LE(state.offset + inner * options.state_dim, state.kv.state_size);
  DoStateScan(out, xbc, dt, options, state, plan);
}

void Ops::SelectiveScan(const Tensor& out, const Tensor& x, const Tensor& dt, const Tensor& bc,
                        const SelectiveOptions& options, const StatePart& state,
                        const AttentionPlan& plan) {
  const int64_t tokens = plan.num_tokens(), channels = x.shape[1], states = options.a.rows();
  CHECK(IsMatrix(x, tokens, channels) && IsFloat(x, types())) << x;
  CHECK(IsMatrix(out, tokens, channels) && out.dtype == types().activation) << out;
  CHECK(IsMatrix(dt, tokens, channels) && IsFloat(dt, types())) << dt;
  CHECK(IsMatrix(bc, tokens, 2 * states) && IsFloat(bc, types())) << bc;
  CHECK(IsMatrix(options.a, states, channels) && options.a.dtype == DType::kF32) << options.a;
  for (const Tensor* vector : {&options.dt_bias, &options.d}) {
    CHECK(IsVector(*vector, DType::kF32, channels)) << *vector;
  }
  CHECK_LE(state.offset + states * channels, state.kv.state_size);
  DoSelectiveScan(out, x, dt, bc, options, state, plan);
}

void Ops::GatedNorm(const Tensor& out, const Tensor& x, const Tensor& gate,
                    const GatedNormOptions& options) {
  const int64_t size = x.shape[1], num_weights = options.weight.rows();
  CHECK(x.rank == 2 && IsFloat(x, types()) && IsFloat(out, types())) << x << out;
  CHECK(IsMatrix(out, x.rows(), size) && IsMatrix(gate, x.rows(), size)) << out << gate;
  CHECK(options.group_size > 0 && size % options.group_size == 0) << options.group_size;
  CHECK(num_weights == options.group_size || num_weights == size) << options.weight;
  CHECK(IsVector(options.weight, DType::kF32, num_weights)) << options.weight;
  DoGatedNorm(out, x, gate, options);
}

void Ops::GateBySigmoid(const Tensor& x, const Tensor& gate) {
  CHECK(x.rank == 2 && IsFloat(x, types()) && IsFloat(gate, types())) << x << gate;
  CHECK(IsMatrix(gate, x.rows(), x.shape[1]) || IsMatrix(gate, x.rows(), 1)) << x << gate;
  DoGateBySigmoid(x, gate);
}

void Ops::MultiplyBy(const Tensor& x, const Tensor& y) {
  CHECK(x.rank == 2 && IsFloat(x, types()) && IsFloat(y, types())) << x << y;
  CHECK(IsMatrix(y, x.rows(), x.shape[1])) << x << y;
  DoMultiplyBy(x, y);
}

void Ops::GatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) {
  CHECK(IsVector(rows, DType::kI32, rows.rows())) << rows;
  CHECK(x.rank == 2 && x.dtype == out.dtype && IsMatrix(out, rows.rows(), x.shape[1])) << out << x;
  DoGatherRows(out, x, rows);
}

void Ops::ArgMax(const Tensor& ids, const Tensor& x) {
  CHECK(x.rank == 2 && x.dtype == DType::kF32 && x.shape[1] > 0) << x;
  CHECK(IsVector(ids, DType::kI32, x.rows())) << ids << x;
  DoArgMax(ids, x);
}

void Ops::FillIds(const Tensor& ids, const Tensor& known) {
  CHECK(IsVector(ids, DType::kI32, ids.rows())) << ids;
  CHECK(IsVector(known, DType::kI32, known.rows())) << known;
  DoFillIds(ids, known);
}

void Ops::GatherColumns(const Tensor& out, const Tensor& x, const Tensor& columns, float missing) {
  CHECK(x.rank == 2 && x.dtype == DType::kF32) << x;
  CHECK(out.dtype == DType::kF32 && IsMatrix(out, x.rows(), columns.rows())) << out << x;
  CHECK(IsVector(columns, DType::kI32, columns.rows())) << columns;
  DoGatherColumns(out, x, columns, missing);
}

void Ops::GatherAngles(const Tensor& out, const Tensor& table, const Tensor& positions,
                       const Tensor& axes) {
  CHECK(positions.rank == 2 && positions.dtype == DType::kI32) << positions;
  CHECK(IsVector(axes, DType::kI32, axes.rows())) << axes;
  CHECK(table.dtype == DType::kF32 && IsMatrix(table, table.rows(), axes.rows())) << table << axes;
  CHECK(out.dtype == DType::kF32 && IsMatrix(out, positions.shape[1], axes.rows())) << out;
  DoGatherAngles(out, table, positions, axes);
}

void Ops::RouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits,
                    const RouteOptions& options) {
  CHECK(logits.rank == 2 && logits.dtype == DType::kF32) << logits;
  CHECK(expert_ids.rank == 2 && expert_ids.dtype == DType::kI32) << expert_ids;
  CHECK(expert_ids.shape[0] == logits.shape[0] && expert_ids.shape[1] >= 1 &&
        expert_ids.shape[1] <= logits.shape[1])
      << expert_ids << " of " << logits;
  CHECK(weights.dtype == DType::kF32 && IsMatrix(weights, logits.shape[0], expert_ids.shape[1]))
      << weights << expert_ids;
  CHECK(options.bias.empty() || IsVector(options.bias, DType::kF32, logits.shape[1]))
      << options.bias << logits;
  CHECK(options.expert_scale.empty() ||
        IsVector(options.expert_scale, DType::kF32, logits.shape[1]))
      << options.expert_scale << logits;
  CHECK(options.num_groups >= 1 && logits.shape[1] % options.num_groups == 0) << options.num_groups;
  const int64_t group_size = logits.shape[1] / options.num_groups;
  CHECK(options.top_groups >= 1 && options.top_groups <= options.num_groups) << options.top_groups;
  CHECK(options.group_best >= 1 && options.group_best <= std::min<int64_t>(2, group_size))
      << options.group_best;
  CHECK_LE(expert_ids.shape[1], group_size * options.top_groups);
  CHECK(options.score != RouterScore::kSparseMixer || expert_ids.shape[1] == 2) << expert_ids;
  DoRouteTopK(expert_ids, weights, logits, options);
}

void Ops::GroupByExpert(const ExpertPairs& pairs, const Tensor& expert_ids, const Tensor& weights) {
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
  DoGroupByExpert(pairs, expert_ids, weights);
}

void Ops::ExpertLinear(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                       const ExpertPairs& pairs, LinearEpilogue epilogue, const Tensor& bias) {
  CheckExperts(types(), out, x, experts, pairs, epilogue, bias);
  DoExpertLinear(out, x, experts, pairs, epilogue, bias);
}

void Ops::AddWeightedRows(const Tensor& residual, const Tensor& x, const Tensor& rows,
                          const Tensor& weights) {
  CHECK(x.rank == 2 && IsFloat(x, types())) << x;
  CHECK(residual.rank == 2 && residual.dtype == types().residual && residual.shape[1] == x.shape[1])
      << residual << x;
  CHECK(rows.rank == 2 && rows.dtype == DType::kI32 && rows.shape[0] == residual.shape[0])
      << rows << residual;
  CHECK(weights.dtype == DType::kF32 && IsMatrix(weights, rows.shape[0], rows.shape[1]))
      << weights << rows;
  DoAddWeightedRows(residual, x, rows, weights);
}

void Ops::AdaptedLinear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                        const Tensor& bias, LinearEpilogue epilogue, const AdapterRows& adapters) {
  CHECK(x.dtype == types().activation) << x;
  CheckProduct(types(), out, x, weight, bias, epilogue);
  CheckAdapters(adapters, x.rows(), weight.n(), weight.k());
  DoAdaptedLinear(out, x, weight, bias, epilogue, adapters);
}

void Ops::AdaptedExpertLinear(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                              const ExpertPairs& pairs, LinearEpilogue epilogue,
                              const AdapterRows& adapters) {
  CheckExperts(types(), out, x, experts, pairs, epilogue, {});
  const PackedMatrix& first = experts.expert(0);
  CheckAdapters(adapters, x.rows(), first.n(), first.k());
  CHECK_EQ(adapters.pairs.size() % static_cast<size_t>(experts.size()), size_t{0});
  CHECK(adapters.table == nullptr || adapters.site_stride > 0 || experts.size() == 1);
  DoAdaptedExpertLinear(out, x, experts, pairs, epilogue, adapters);
}

void Ops::AddAdaptedEmbedding(const Tensor& out, const Tensor& ids, const AdapterRows& adapters,
                              float scale) {
  CHECK(IsVector(ids, DType::kI32, ids.rows())) << ids;
  CHECK(out.rank == 2 && out.dtype == types().residual && out.rows() == ids.rows()) << out << ids;
  for (const PackedPair* pair : adapters.pairs) {
    if (pair != nullptr) CheckAdapters(adapters, ids.rows(), out.shape[1], pair->k());
  }
  DoAddAdaptedEmbedding(out, ids, adapters, scale);
}

void Ops::ScaleRows(const Tensor& x, const Tensor& weights, const Tensor& rows) {
  CHECK(x.rank == 2 && x.dtype == types().activation) << x;
  CHECK(IsVector(rows, DType::kI32, x.rows())) << rows << x;
  CHECK(weights.dtype == DType::kF32 && IsMatrix(weights, weights.shape[0], 1)) << weights;
  DoScaleRows(x, weights, rows);
}

void Ops::Scale(const Tensor& x, float factor) {
  CHECK(x.rank == 2 && IsFloat(x, types())) << x;
  DoScale(x, factor);
}

void Ops::SoftCap(const Tensor& x, float cap) {
  CHECK(x.rank == 2 && x.dtype == DType::kF32) << x;
  CHECK(cap > 0) << cap;
  DoSoftCap(x, cap);
}

}  // namespace tandem
