#pragma once

// The Backend on one NVIDIA GPU: packs weights on their way to the device, and makes what its ops
// work with.
// Thread: engine loop. Owns: pinned staging memory, and host threads for rows that are sampled on
// the host.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/compute_pool.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_exchange.h"
#include "kernels/cuda/cuda_ops.h"

namespace tandem {

class CudaBackend final : public Backend {
 public:
  // UNAVAILABLE: no driver, no such device.
  static StatusOr<std::unique_ptr<Backend>> Create(const CudaBackendOptions& options);

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
  StatusOr<std::unique_ptr<PackedExperts>> PackExperts(
      std::vector<std::unique_ptr<PackedMatrix>> experts) override;
  StatusOr<std::unique_ptr<PackedPair>> PackPair(std::span<const PairSource> blocks,
                                                 const MatrixForm& matrix) const override;
  StatusOr<std::unique_ptr<PackedPair>> PackEmbeddingPair(const PairSource& pair) const override;
  StatusOr<std::unique_ptr<PairTable>> MakePairTable(std::span<const PairShape> sites,
                                                     int64_t num_places, int64_t max_rank) override;
  int64_t KvBytesPerBlock(const KvCacheSpec& spec) const override;
  StatusOr<std::unique_ptr<KvCache>> AllocateKvCache(const KvCacheSpec& spec) override;
  StatusOr<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape,
                                                             int64_t max_tokens,
                                                             int64_t max_requests) override;
  StatusOr<std::unique_ptr<DeviceSampler>> MakeSampler(const DeviceSamplerLimits& limits) override;
  StatusOr<std::string> MakeMeetingPlace() override;
  Status JoinRanks(int rank, int size, const std::string& place) override;
  RankExchange* exchange() override { return exchange_.get(); }

 private:
  static constexpr int64_t kStagingHalfBytes = int64_t{16} << 20;

  explicit CudaBackend(const CudaBackendOptions& options);
  Status Init(int device);
  StatusOr<std::unique_ptr<PackedMatrix>> PackRows(std::span<const MatrixSource> row_blocks,
                                                   WeightFormat format, bool is_gated);
  // Null: the rows are no codes that kernels here take.
  StatusOr<std::unique_ptr<PackedMatrix>> PackCoded(std::span<const MatrixSource> row_blocks,
                                                    bool is_gated);
  // Quantizes the rows in one of the integer formats first.
  StatusOr<std::unique_ptr<PackedMatrix>> PackQuantized(std::span<const MatrixSource> row_blocks,
                                                        WeightFormat format, bool is_gated);
  // Allocates the part's memory and fills it from the rows of its sources.
  Status FillCodes(std::span<const MatrixSource> sources, CodedPart* part);
  // The half of the staging memory that may be filled, once it may.
  std::byte* NextStagingHalf();
  // The next random matrix, in the first columns of this one.
  void FillRandom(const Tensor& matrix, int64_t columns);
  // Random codes of one of the integer formats, with equal scales.
  StatusOr<std::unique_ptr<PackedMatrix>> MakeRandomCodes(int64_t n, int64_t k, WeightFormat format,
                                                          bool is_gated);
  bool UsesFlashInfer(const AttentionShape& shape) const;
  FlashInferShape FlashInferShapeOf(const AttentionShape& shape) const;

  DType dtype_;
  CudaDevice device_;
  CudaOps ops_;
  ComputePool pool_;
  std::string nccl_library_;
  bool uses_peers_;
  std::unique_ptr<CudaExchange> exchange_;  // null: there is one rank
  AttentionBackend attention_;
  std::optional<RandomMatrices> random_;
  uint64_t num_random_matrices_ = 0;
  OwnedTensor staging_;  // pinned, two halves, for weights on their way to the device
  std::array<int64_t, 2> staging_sent_ = {};  // mark: the half may be filled again
  size_t staging_half_ = 0;
};

}  // namespace tandem
