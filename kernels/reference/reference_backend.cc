#include "kernels/reference/reference_backend.h"

#include <algorithm>

#include "kernels/host_memory.h"
#include "kernels/op_checks.h"

namespace tandem {

StatusOr<std::unique_ptr<PackedMatrix>> ReferenceBackend::Pack(
    std::span<const MatrixSource> row_blocks, WeightFormat format) {
  RETURN_IF_ERROR(CheckPack(row_blocks, format));
  return std::unique_ptr<PackedMatrix>(
      std::make_unique<ReferenceMatrix>(row_blocks, format, false));
}

StatusOr<std::unique_ptr<PackedMatrix>> ReferenceBackend::PackGated(
    std::span<const MatrixSource> row_blocks, WeightFormat format) {
  RETURN_IF_ERROR(CheckPackGated(row_blocks, format));
  return std::unique_ptr<PackedMatrix>(std::make_unique<ReferenceMatrix>(row_blocks, format, true));
}

StatusOr<std::unique_ptr<PackedPair>> ReferenceBackend::PackPair(std::span<const PairSource> blocks,
                                                                 const MatrixForm& matrix) const {
  CheckPair(blocks, matrix.n, matrix.k);
  return std::unique_ptr<PackedPair>(std::make_unique<ReferencePair>(blocks, matrix.n, matrix.k));
}

StatusOr<std::unique_ptr<PackedPair>> ReferenceBackend::PackEmbeddingPair(
    const PairSource& pair) const {
  CheckPair({&pair, 1}, pair.b.rows(), pair.a.shape[1]);
  return std::unique_ptr<PackedPair>(std::make_unique<ReferencePair>(
      std::span<const PairSource>(&pair, 1), pair.b.rows(), pair.a.shape[1]));
}

namespace {

KeyBytes KeyBytesOf(const KvCacheSpec& spec) {
  return [block_size = spec.block_size](int num_kv_heads, int head_dim) {
    return int64_t{num_kv_heads} * block_size * head_dim * SizeOf(DType::kF32);
  };
}

}  // namespace

int64_t ReferenceBackend::KvBytesPerBlock(const KvCacheSpec& spec) const {
  return spec.bytes_per_block(KeyBytesOf(spec));
}

StatusOr<std::unique_ptr<KvCache>> ReferenceBackend::AllocateKvCache(const KvCacheSpec& spec) {
  const KeyBytes key_bytes = KeyBytesOf(spec);
  RETURN_IF_ERROR(CheckNumBlocks(spec, key_bytes));
  const int64_t elements = spec.bytes_per_block(key_bytes) / SizeOf(DType::kF32) * spec.num_blocks;
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateHost(DType::kF32, {&elements, 1}));
  return std::make_unique<KvCache>(spec, std::move(memory), key_bytes);
}

StatusOr<std::unique_ptr<AttentionPlan>> ReferenceBackend::MakeAttentionPlan(const AttentionShape&,
                                                                             int64_t max_tokens,
                                                                             int64_t max_requests) {
  return std::unique_ptr<AttentionPlan>(std::make_unique<ReferencePlan>(max_tokens, max_requests));
}

void ReferenceBackend::ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) {
  CHECK_GT(grain, 0);
  for (int64_t begin = 0; begin < num_items; begin += grain) {
    function(begin, std::min(begin + grain, num_items));
  }
}

std::unique_ptr<Backend> MakeReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace tandem
