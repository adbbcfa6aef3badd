#pragma once

// The backend for CPUs: the ops of the best instruction set, and the pool of threads they run on.

#include <string>

#include "kernels/backend.h"
#include "kernels/compute_pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/host_device.h"
#include "kernels/host_memory.h"

namespace tandem {

class CpuBackend final : public Backend {
 public:
  CpuBackend(DType dtype, const char* isa_name, const KernelTable& table, int num_threads);

  Device& device() override { return device_; }
  const Device& device() const override { return device_; }
  Ops& ops() override { return ops_; }
  std::string description() const override;
  int num_threads() const override { return pool_.num_threads(); }
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
  StatusOr<std::unique_ptr<PackedMatrix>> PackAs(std::span<const MatrixSource> row_blocks,
                                                 WeightFormat format, bool is_gated);

  DType dtype_;
  const char* isa_name_;
  const KernelTable& table_;
  HostDevice device_;
  ComputePool pool_;
  mutable HostArena adapter_memory_;  // of pairs, which are packed on any thread
  CpuOps ops_;
};

}  // namespace tandem
