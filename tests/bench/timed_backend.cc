#include "tests/bench/timed_backend.h"

#include <algorithm>
#include <cstring>
#include <ctime>

namespace tandem {

double ProcessCpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <class F>
void TimedBackend::Timed(OpKind kind, F run) {
  const double start = ProcessCpuSeconds();
  run();
  times_.push_back({kind, ProcessCpuSeconds() - start});
}

StatusOr<OwnedTensor> TimedBackend::Allocate(DType dtype, std::initializer_list<int64_t> shape) {
  return inside_->Allocate(dtype, shape);
}

StatusOr<OwnedTensor> TimedBackend::Upload(const Tensor& host, DType dtype) {
  return inside_->Upload(host, dtype);
}

void TimedBackend::CopyIn(const Tensor& out, const Tensor& host) { inside_->CopyIn(out, host); }

void TimedBackend::CopyOut(const Tensor& host, const Tensor& x) { inside_->CopyOut(host, x); }

void TimedBackend::Count(const PackedMatrix& matrix) {
  packed_bytes_ += matrix.num_bytes();
  largest_packed_bytes_ = std::max(largest_packed_bytes_, matrix.num_bytes());
}

StatusOr<std::unique_ptr<PackedMatrix>> TimedBackend::Pack(std::span<const Tensor> row_blocks,
                                                           WeightFormat format) {
  auto matrix = inside_->Pack(row_blocks, format);
  if (matrix.ok()) Count(**matrix);
  return matrix;
}

StatusOr<std::unique_ptr<PackedMatrix>> TimedBackend::PackGated(std::span<const Tensor> row_blocks,
                                                                WeightFormat format) {
  auto matrix = inside_->PackGated(row_blocks, format);
  if (matrix.ok()) Count(**matrix);
  return matrix;
}

StatusOr<std::unique_ptr<PackedExperts>> TimedBackend::PackExperts(
    std::vector<std::unique_ptr<PackedMatrix>> experts) {
  return inside_->PackExperts(std::move(experts));
}

int64_t TimedBackend::KvBytesPerBlock(const KvCacheSpec& spec) const {
  return inside_->KvBytesPerBlock(spec);
}

StatusOr<std::unique_ptr<KvCache>> TimedBackend::AllocateKvCache(const KvCacheSpec& spec) {
  auto cache = inside_->AllocateKvCache(spec);
  if (cache.ok()) {
    std::memset((*cache)->layer(0).k, 0x3c, static_cast<size_t>((*cache)->num_bytes()));
  }
  return cache;
}

StatusOr<std::unique_ptr<AttentionPlan>> TimedBackend::MakeAttentionPlan(
    const AttentionShape& shape, int64_t max_tokens, int64_t max_requests) {
  return inside_->MakeAttentionPlan(shape, max_tokens, max_requests);
}

void TimedBackend::PlanAttention(const AttentionBatch& batch, AttentionPlan* plan) {
  Timed(OpKind::kAttention, [&] { inside_->PlanAttention(batch, plan); });
}

void TimedBackend::Embedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table,
                             float scale) {
  Timed(OpKind::kRowWise, [&] { inside_->Embedding(out, ids, table, scale); });
}

void TimedBackend::RmsNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                           float epsilon) {
  Timed(OpKind::kRowWise, [&] { inside_->RmsNorm(out, x, weight, epsilon); });
}

void TimedBackend::AddRmsNorm(const Tensor& out, const Tensor& residual, const Tensor& x,
                              const Tensor& weight, float epsilon) {
  Timed(OpKind::kRowWise, [&] { inside_->AddRmsNorm(out, residual, x, weight, epsilon); });
}

void TimedBackend::LayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                             const Tensor& bias, float epsilon) {
  Timed(OpKind::kRowWise, [&] { inside_->LayerNorm(out, x, weight, bias, epsilon); });
}

void TimedBackend::Add(const Tensor& residual, const Tensor& x) {
  Timed(OpKind::kRowWise, [&] { inside_->Add(residual, x); });
}

void TimedBackend::Convert(const Tensor& out, const Tensor& x) {
  Timed(OpKind::kRowWise, [&] { inside_->Convert(out, x); });
}

namespace {

// The vocabulary's matrix is told from the others by its f32 output.
OpKind KindOfLinear(const Tensor& out, LinearEpilogue epilogue) {
  return out.dtype == DType::kF32 && epilogue == LinearEpilogue::kStore ? OpKind::kLogits
                                                                        : OpKind::kLinear;
}

}  // namespace

void TimedBackend::Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                          const Tensor& bias, LinearEpilogue epilogue) {
  Timed(KindOfLinear(out, epilogue), [&] { inside_->Linear(out, x, weight, bias, epilogue); });
}

void TimedBackend::RmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight,
                                 float epsilon, const PackedMatrix& weight, const Tensor& bias,
                                 LinearEpilogue epilogue) {
  Timed(KindOfLinear(out, epilogue),
        [&] { inside_->RmsNormLinear(out, x, norm_weight, epsilon, weight, bias, epilogue); });
}

void TimedBackend::SiluAndMul(const Tensor& out, const Tensor& gate_up) {
  Timed(OpKind::kRowWise, [&] { inside_->SiluAndMul(out, gate_up); });
}

void TimedBackend::GeluAndMul(const Tensor& out, const Tensor& gate_up) {
  Timed(OpKind::kRowWise, [&] { inside_->GeluAndMul(out, gate_up); });
}

void TimedBackend::Gelu(const Tensor& out, const Tensor& x) {
  Timed(OpKind::kRowWise, [&] { inside_->Gelu(out, x); });
}

void TimedBackend::QkNormRopeWriteKv(const Tensor& out, const Tensor& qkv, const QkRope& rope,
                                     const LayerKv& kv, const AttentionPlan& plan) {
  Timed(OpKind::kRope, [&] { inside_->QkNormRopeWriteKv(out, qkv, rope, kv, plan); });
}

void TimedBackend::PagedAttention(const Tensor& out, const Tensor& q, const LayerKv& kv,
                                  const AttentionOptions& options, const AttentionPlan& plan) {
  Timed(OpKind::kAttention, [&] { inside_->PagedAttention(out, q, kv, options, plan); });
}

void TimedBackend::GatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) {
  Timed(OpKind::kRowWise, [&] { inside_->GatherRows(out, x, rows); });
}

void TimedBackend::RouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits,
                             bool renormalize) {
  Timed(OpKind::kRowWise, [&] { inside_->RouteTopK(expert_ids, weights, logits, renormalize); });
}

void TimedBackend::GroupByExpert(const ExpertPairs& pairs, const Tensor& expert_ids,
                                 const Tensor& weights) {
  Timed(OpKind::kRowWise, [&] { inside_->GroupByExpert(pairs, expert_ids, weights); });
}

void TimedBackend::ExpertLinear(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                                const ExpertPairs& pairs, LinearEpilogue epilogue) {
  Timed(OpKind::kLinear, [&] { inside_->ExpertLinear(out, x, experts, pairs, epilogue); });
}

void TimedBackend::AddWeightedRows(const Tensor& residual, const Tensor& x, const Tensor& rows,
                                   const Tensor& weights) {
  Timed(OpKind::kRowWise, [&] { inside_->AddWeightedRows(residual, x, rows, weights); });
}

void TimedBackend::SoftCap(const Tensor& x, float cap) {
  Timed(OpKind::kLogits, [&] { inside_->SoftCap(x, cap); });
}

void TimedBackend::Argmax(const Tensor& ids, const Tensor& logits) {
  Timed(OpKind::kHostWork, [&] { inside_->Argmax(ids, logits); });
}

void TimedBackend::LogSumExp(const Tensor& out, const Tensor& logits) {
  Timed(OpKind::kHostWork, [&] { inside_->LogSumExp(out, logits); });
}

void TimedBackend::ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) {
  Timed(OpKind::kHostWork, [&] { inside_->ParallelFor(num_items, grain, function); });
}

}  // namespace tandem
