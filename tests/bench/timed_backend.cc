#include "tests/bench/timed_backend.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <string_view>

namespace tandem {

double ProcessCpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

namespace {

// The kinds of the ops that are not row-wise.
constexpr std::pair<std::string_view, OpKind> kKinds[] = {
    {"Linear", OpKind::kLinear},          {"RmsNormLinear", OpKind::kLinear},
    {"ExpertLinear", OpKind::kLinear},    {"PagedAttention", OpKind::kAttention},
    {"QkNormRopeWriteKv", OpKind::kRope}, {"SoftCap", OpKind::kLogits},
    {"AdaptedLinear", OpKind::kLinear},   {"AdaptedExpertLinear", OpKind::kLinear}};

// Whether an op multiplies with the vocabulary's matrix: alone among the products it stores f32.
template <class... Arguments>
bool MakesLogits(const Arguments&...) {
  return false;
}
bool MakesLogits(const Tensor& out, const Tensor&, const PackedMatrix&, const Tensor&,
                 LinearEpilogue epilogue) {
  return out.dtype == DType::kF32 && epilogue == LinearEpilogue::kStore;
}
bool MakesLogits(const Tensor& out, const Tensor& x, const Tensor&, float,
                 const PackedMatrix& weight, const Tensor& bias, LinearEpilogue epilogue) {
  return MakesLogits(out, x, weight, bias, epilogue);
}

OpKind KindOf(std::string_view name, bool makes_logits) {
  if (makes_logits) return OpKind::kLogits;
  for (const auto& [op, kind] : kKinds) {
    if (op == name) return kind;
  }
  return OpKind::kRowWise;
}

template <class F>
void Timed(std::vector<OpTime>* times, OpKind kind, F run) {
  const double start = ProcessCpuSeconds();
  run();
  times->push_back({kind, ProcessCpuSeconds() - start});
}

class TimedOps final : public Ops {
 public:
  // Borrows both.
  TimedOps(Ops* inside, std::vector<OpTime>* times)
      : Ops(inside->types()), inside_(inside), times_(times) {}

 private:
#define TANDEM_OP(name, parameters, arguments)                                             \
  void Do##name parameters override {                                                      \
    Timed(times_, KindOf(#name, MakesLogits arguments), [&] { inside_->name arguments; }); \
  }
#include "kernels/ops.def"

  Ops* inside_;
  std::vector<OpTime>* times_;
};

}  // namespace

TimedBackend::TimedBackend(std::unique_ptr<Backend> inside)
    : Backend({inside->activation_dtype(), inside->residual_dtype()}),
      inside_(std::move(inside)),
      ops_(std::make_unique<TimedOps>(&inside_->ops(), &times_)) {}

void TimedBackend::ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) {
  Timed(&times_, OpKind::kHostWork, [&] { inside_->ParallelFor(num_items, grain, function); });
}

void TimedBackend::Count(const PackedMatrix& matrix) {
  packed_bytes_ += matrix.num_bytes();
  largest_packed_bytes_ = std::max(largest_packed_bytes_, matrix.num_bytes());
}

StatusOr<std::unique_ptr<PackedMatrix>> TimedBackend::Pack(std::span<const MatrixSource> row_blocks,
                                                           WeightFormat format) {
  auto matrix = inside_->Pack(row_blocks, format);
  if (matrix.ok()) Count(**matrix);
  return matrix;
}

StatusOr<std::unique_ptr<PackedMatrix>> TimedBackend::PackGated(
    std::span<const MatrixSource> row_blocks, WeightFormat format) {
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

}  // namespace tandem
