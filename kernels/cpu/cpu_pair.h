#pragma once

// An adapter's pair as the CPU kernels read it: A by ranks that lie together (kRanksTogether), B by
// strips of the
// columns of its matrix (AdapterStrip). B of several blocks has numbers only where both the strip
// and the block are.

#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "kernels/adapter_pair.h"
#include "kernels/cpu/cpu_matrix.h"
#include "kernels/host_memory.h"

namespace tandem {

class CpuPair final : public PackedPair {
 public:
  // The memory is the arena's.
  static StatusOr<std::unique_ptr<PackedPair>> Pack(std::span<const PairSource> blocks,
                                                    const MatrixForm& matrix, DType dtype,
                                                    HostArena* arena);
  // A of an embedding is stored by ids: [V, r].
  static StatusOr<std::unique_ptr<PackedPair>> PackEmbedding(const PairSource& pair, DType dtype,
                                                             HostArena* arena);

  int64_t num_bytes() const override { return a_.view().NumBytes() + b_.view().NumBytes(); }
  int64_t rank() const { return rank_; }  // of all blocks together
  const Tensor& a() const { return a_.view(); }
  const AdapterStrip* strips() const { return strips_.data(); }

 private:
  CpuPair(int64_t n, int64_t k, int64_t rank) : PackedPair(n, k), rank_(rank) {}
  void PackA(std::span<const PairSource> blocks);
  Status PackB(std::span<const PairSource> blocks, int64_t num_panels, bool is_gated, DType dtype,
               HostArena* arena);

  int64_t rank_;
  OwnedTensor a_;  // [rank, PaddedColumns(k)] numbers; of an embedding [V, r]
  OwnedTensor b_;
  std::vector<AdapterStrip> strips_;
};

}  // namespace tandem
