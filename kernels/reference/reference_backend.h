#pragma once

// The backend of the reference ops: packs any format, any block size, on the caller's thread.

#include "kernels/backend.h"
#include "kernels/host_device.h"
#include "kernels/reference/reference_ops.h"

namespace tandem {

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend() : Backend({DType::kF32, DType::kF32}) {}

  Device& device() override { return device_; }
  const Device& device() const override { return device_; }
  Ops& ops() override { return ops_; }

  std::string description() const override { return "reference float32"; }
  int num_threads() const override { return 1; }
  void ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) override;
  StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const MatrixSource> row_blocks,
                                               WeightFormat format) override;
  StatusOr<std::unique_ptr<PackedMatrix>> PackGated(std::span<const MatrixSource> row_blocks,
                                                    WeightFormat format) override;
  StatusOr<std::unique_ptr<PackedPair>> PackPair(std::span<const PairSource> blocks,
                                                 const MatrixForm& matrix) const override;
  StatusOr<std::unique_ptr<PackedPair>> PackEmbeddingPair(const PairSource& pair) const override;
  int64_t KvBytesPerBlock(const KvCacheSpec& spec) const override;
  StatusOr<std::unique_ptr<KvCache>> AllocateKvCache(const KvCacheSpec& spec) override;
  StatusOr<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape,
                                                             int64_t max_tokens,
                                                             int64_t max_requests) override;

 private:
  HostDevice device_;
  ReferenceOps ops_;
};

}  // namespace tandem
