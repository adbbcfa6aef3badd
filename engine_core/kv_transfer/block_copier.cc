#include "engine_core/kv_transfer/block_copier.h"

#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "kernels/host_memory.h"

namespace tandem {
int64_t BlockCopier::BytesPerBlock(const KvCaches& caches) {
  int64_t sum = 0;
  for (const KvCachePart& part : caches) {
    sum += part.cache->num_bytes() / part.cache->spec().num_blocks;
  }
  return sum;
}

StatusOr<std::unique_ptr<BlockCopier>> BlockCopier::Create(const KvCaches& caches,
                                                           int32_t num_host_blocks) {
  const int64_t bytes_per_block = BytesPerBlock(caches);
  ASSIGN_OR_RETURN(BlockParts parts, BlockParts::Of(caches));
  const int64_t units = bytes_per_block / SizeOf(DType::kI32) * (int64_t{num_host_blocks} - 1);
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateHost(DType::kI32, {&units, 1}));
  return std::unique_ptr<BlockCopier>(
      new BlockCopier(std::move(parts), bytes_per_block, std::move(memory)));
}

BlockCopier::BlockCopier(BlockParts parts, int64_t bytes_per_block, OwnedTensor memory)
    : parts_(std::move(parts)),
      bytes_per_block_(bytes_per_block),
      memory_(std::move(memory)),
      thread_("kv-copy", [this](BlockCopyJob job) { Run(std::move(job)); }) {}

void BlockCopier::Push(BlockCopyJob job) {
  CHECK_EQ(job.cache_blocks.size(), job.host_blocks.size());
  thread_.Push(std::move(job));
}

const std::vector<BlockCopyJob>& BlockCopier::TakeDone() {
  done_.Drain(&taken_);
  return taken_;
}

void BlockCopier::WaitBriefly() { (void)done_.WaitFor(std::chrono::milliseconds(1)); }

void BlockCopier::Run(BlockCopyJob job) {
  const double begin = SystemClock().Monotonic();
  Copy(job);
  job.seconds = SystemClock().Monotonic() - begin;
  done_.Push(std::move(job));
}

std::span<std::byte> BlockCopier::BytesOf(BlockId host_block) const {
  auto* const memory = static_cast<std::byte*>(memory_.view().data);
  const int64_t begin = (int64_t{Index(host_block)} - 1) * bytes_per_block_;
  return {memory + begin, static_cast<size_t>(bytes_per_block_)};
}

void BlockCopier::Copy(const BlockCopyJob& job) const {
  for (size_t i = 0; i < job.cache_blocks.size(); ++i) {
    const std::span<std::byte> host = BytesOf(job.host_blocks[i]);
    job.is_load ? parts_.Write(host, job.cache_blocks[i]) : parts_.Read(job.cache_blocks[i], host);
  }
}

}  // namespace tandem
