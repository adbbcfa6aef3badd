#include "engine_core/kv_remote/block_parts.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/crc32c.h"

namespace tandem {

StatusOr<BlockParts> BlockParts::Of(const KvCaches& caches) {
  BlockParts all;
  all.num_blocks_ = caches.front().cache->spec().num_blocks;
  for (const KvCachePart& part : caches) {
    CHECK_EQ(part.cache->spec().num_blocks, all.num_blocks_);
    RETURN_IF_ERROR(all.Add(*part.cache));
  }
  return all;
}

// Layers lie one after another, of each its keys in all blocks and then as many values.
Status BlockParts::Add(const KvCache& cache) {
  const KvCacheSpec& spec = cache.spec();
  if (spec.num_with_state(spec.num_layers) > 0) {
    return UnimplementedError("KV blocks with states cannot be passed on");
  }
  std::byte* end = MemoryOf(cache) + cache.num_bytes();
  const auto first = parts_.size();
  const auto add = [&](void* begin) {
    const int64_t bytes = (end - static_cast<std::byte*>(begin)) / num_blocks_;
    parts_.push_back({static_cast<std::byte*>(begin), bytes});
    block_bytes_ += bytes;
    end = static_cast<std::byte*>(begin);
  };
  for (int layer = spec.num_layers - 1; layer >= 0; --layer) {
    if (!spec.memory_of(layer).has_kv) continue;  // it reads another one's
    if (!spec.is_latent) add(cache.layer(layer).v);
    add(cache.layer(layer).k);
  }
  std::reverse(parts_.begin() + static_cast<std::ptrdiff_t>(first), parts_.end());
  return OkStatus();
}

void BlockParts::CopyFrom(const std::byte* memory, int64_t num_blocks, int64_t from,
                          BlockId to) const {
  for (const Part& part : parts_) {
    std::memcpy(part.begin + Index(to) * part.bytes, memory + from * part.bytes,
                static_cast<size_t>(part.bytes));
    memory += num_blocks * part.bytes;
  }
}

void BlockParts::Read(BlockId block, std::span<std::byte> bytes) const {
  std::byte* next = bytes.data();
  for (const Part& part : parts_) {
    std::memcpy(next, part.begin + Index(block) * part.bytes, static_cast<size_t>(part.bytes));
    next += part.bytes;
  }
}

void BlockParts::Write(std::span<const std::byte> bytes, BlockId block) const {
  const std::byte* next = bytes.data();
  for (const Part& part : parts_) {
    std::memcpy(part.begin + Index(block) * part.bytes, next, static_cast<size_t>(part.bytes));
    next += part.bytes;
  }
}

void BlockParts::AppendTo(std::vector<iovec>* out, BlockId block) const {
  for (const Part& part : parts_) {
    out->push_back({part.begin + Index(block) * part.bytes, static_cast<size_t>(part.bytes)});
  }
}

uint32_t BlockParts::Checksum(BlockId block) const {
  uint32_t checksum = 0;
  for (const Part& part : parts_) {
    const std::byte* begin = part.begin + Index(block) * part.bytes;
    checksum = Crc32c({begin, static_cast<size_t>(part.bytes)}, checksum);
  }
  return checksum;
}

void DropBytes(size_t bytes, std::vector<iovec>* parts, size_t* begin) {
  for (; *begin < parts->size(); ++*begin) {
    iovec& part = (*parts)[*begin];
    const size_t dropped = std::min(bytes, part.iov_len);
    part.iov_base = static_cast<std::byte*>(part.iov_base) + dropped;
    part.iov_len -= dropped;
    bytes -= dropped;
    if (part.iov_len > 0) return;
  }
}

}  // namespace tandem
