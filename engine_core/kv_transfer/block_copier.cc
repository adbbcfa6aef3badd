#include "engine_core/kv_transfer/block_copier.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "kernels/host_memory.h"

namespace tandem {

int64_t BlockCopier::BytesPerBlock(const KvCache& cache) {
  return cache.num_bytes() / cache.spec().num_blocks;
}

StatusOr<std::unique_ptr<BlockCopier>> BlockCopier::Create(const KvCache* cache,
                                                           int32_t num_host_blocks) {
  const int64_t bytes_per_block = BytesPerBlock(*cache);
  std::vector<Part> parts = PartsOf(*cache);
  int64_t num_bytes = 0;
  for (const Part& part : parts) num_bytes += part.bytes;
  if (num_bytes != bytes_per_block) {
    return UnimplementedError(
        "KV blocks that have more than keys and values of their layers cannot be copied");
  }
  const int64_t units = bytes_per_block / SizeOf(DType::kI32) * (int64_t{num_host_blocks} - 1);
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateHost(DType::kI32, {&units, 1}));
  return std::unique_ptr<BlockCopier>(
      new BlockCopier(std::move(parts), bytes_per_block, std::move(memory)));
}

// K of a layer is followed by its V of equal size.
std::vector<BlockCopier::Part> BlockCopier::PartsOf(const KvCache& cache) {
  std::vector<Part> parts;
  for (int layer = 0; layer < cache.spec().num_layers; ++layer) {
    const LayerKv kv = cache.layer(layer);
    if (kv.k == nullptr) continue;
    auto* k = static_cast<std::byte*>(kv.k);
    auto* v = static_cast<std::byte*>(kv.v);
    const int64_t bytes = (v - k) / cache.spec().num_blocks;
    parts.push_back({k, bytes});
    parts.push_back({v, bytes});
  }
  return parts;
}

BlockCopier::BlockCopier(std::vector<Part> parts, int64_t bytes_per_block, OwnedTensor memory)
    : parts_(std::move(parts)),
      bytes_per_block_(bytes_per_block),
      memory_(std::move(memory)),
      thread_([this] { Run(); }) {}

BlockCopier::~BlockCopier() {
  jobs_.Close();
  thread_.join();
}

void BlockCopier::Push(BlockCopyJob job) {
  CHECK_EQ(job.cache_blocks.size(), job.host_blocks.size());
  jobs_.Push(std::move(job));
}

const std::vector<BlockCopyJob>& BlockCopier::TakeDone() {
  done_.Drain(&taken_);
  return taken_;
}

void BlockCopier::WaitBriefly() { (void)done_.WaitFor(std::chrono::milliseconds(1)); }

void BlockCopier::Run() {
  SetThreadName("kv-copy");
  std::vector<BlockCopyJob> jobs;
  while (!jobs_.closed()) {
    jobs_.Wait();
    jobs_.Drain(&jobs);
    for (BlockCopyJob& job : jobs) {
      if (jobs_.closed()) return;
      const double begin = SystemClock().Monotonic();
      Copy(job);
      job.seconds = SystemClock().Monotonic() - begin;
      done_.Push(std::move(job));
    }
  }
}

std::span<std::byte> BlockCopier::BytesOf(BlockId host_block) const {
  auto* const memory = static_cast<std::byte*>(memory_.view().data);
  const int64_t begin = (int64_t{Index(host_block)} - 1) * bytes_per_block_;
  return {memory + begin, static_cast<size_t>(bytes_per_block_)};
}

void BlockCopier::Copy(const BlockCopyJob& job) const {
  for (size_t i = 0; i < job.cache_blocks.size(); ++i) {
    std::byte* host = BytesOf(job.host_blocks[i]).data();
    for (const Part& part : parts_) {
      std::byte* in_cache = part.begin + Index(job.cache_blocks[i]) * part.bytes;
      const auto size = static_cast<size_t>(part.bytes);
      job.is_load ? std::memcpy(in_cache, host, size) : std::memcpy(host, in_cache, size);
      host += size;
    }
  }
}

}  // namespace tandem
