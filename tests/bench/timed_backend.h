#pragma once

// A Backend that runs every op of another one and records how long it took.
// Thread, failure: as the backend inside, which it owns. Times are CPU seconds of the whole
// process, so other load on the machine does not count; reading the clock costs 0.3 us per op.

#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace tandem {

enum class OpKind { kLinear, kAttention, kRope, kRowWise, kLogits, kHostWork };
inline constexpr int kNumOpKinds = 6;

double ProcessCpuSeconds();

struct OpTime {
  OpKind kind;
  double seconds;
};

class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(std::unique_ptr<Backend> inside);

  // Of all ops since ResetTimes, in their order.
  const std::vector<OpTime>& times() const { return times_; }
  void ResetTimes() { times_.clear(); }
  // Of all matrices packed so far, the embedding's included.
  int64_t packed_bytes() const { return packed_bytes_; }
  int64_t largest_packed_bytes() const { return largest_packed_bytes_; }

  Device& device() override { return inside_->device(); }
  const Device& device() const override { return std::as_const(*inside_).device(); }
  Ops& ops() override { return *ops_; }
  std::string description() const override { return inside_->description(); }
  int num_threads() const override { return inside_->num_threads(); }
  void ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) override;
  StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const MatrixSource> row_blocks,
                                               WeightFormat format) override;
  StatusOr<std::unique_ptr<PackedMatrix>> PackGated(std::span<const MatrixSource> row_blocks,
                                                    WeightFormat format) override;
  StatusOr<std::unique_ptr<PackedExperts>> PackExperts(
      std::vector<std::unique_ptr<PackedMatrix>> experts) override;
  StatusOr<std::unique_ptr<PackedPair>> PackPair(std::span<const PairSource> blocks,
                                                 const MatrixForm& matrix) const override {
    return inside_->PackPair(blocks, matrix);
  }
  StatusOr<std::unique_ptr<PackedPair>> PackEmbeddingPair(const PairSource& pair) const override {
    return inside_->PackEmbeddingPair(pair);
  }
  int64_t KvBytesPerBlock(const KvCacheSpec& spec) const override;
  // Filled with small numbers: unwritten pages would all be the same page of zeros.
  StatusOr<std::unique_ptr<KvCache>> AllocateKvCache(const KvCacheSpec& spec) override;
  StatusOr<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape,
                                                             int64_t max_tokens,
                                                             int64_t max_requests) override;

 private:
  void Count(const PackedMatrix& matrix);

  std::unique_ptr<Backend> inside_;
  std::vector<OpTime> times_;
  std::unique_ptr<Ops> ops_;
  int64_t packed_bytes_ = 0;
  int64_t largest_packed_bytes_ = 0;
};

}  // namespace tandem
