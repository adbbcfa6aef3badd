#pragma once

// Where the bytes of a KV block lie in host memory: in each rank's cache K and V of each layer, one
// part each, or a layer's latents. The bytes of a block are its parts, one after another.
// Thread: any; a value with views of the cache, which must outlive it. Failure: UNIMPLEMENTED for a
// cache whose blocks have states.
// REQUIRES: nobody writes to a block that is read, and nobody reads one that is written.

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "kernels/kv_caches.h"

namespace tandem {

class BlockParts {
 public:
  static StatusOr<BlockParts> Of(const KvCaches& caches);

  size_t num_parts() const { return parts_.size(); }
  int64_t block_bytes() const { return block_bytes_; }
  int64_t num_blocks() const { return num_blocks_; }
  // All parts of all blocks lie in it, part by part. REQUIRES: of one cache.
  std::byte* memory() const { return parts_.front().begin; }
  int64_t memory_bytes() const { return block_bytes_ * num_blocks_; }
  // Copies a block of another cache of the same layout, with num_blocks blocks, whose memory this
  // is. REQUIRES: as memory().
  void CopyFrom(const std::byte* memory, int64_t num_blocks, int64_t from, BlockId to) const;
  // Copies a block's bytes out of the cache, and into it. bytes: block_bytes.
  void Read(BlockId block, std::span<std::byte> bytes) const;
  void Write(std::span<const std::byte> bytes, BlockId block) const;
  // Appends the block's parts.
  void AppendTo(std::vector<iovec>* out, BlockId block) const;
  uint32_t Checksum(BlockId block) const;  // Crc32c of its bytes

 private:
  Status Add(const KvCache& cache);

  // Block b is at begin + b * bytes.
  struct Part {
    std::byte* begin;
    int64_t bytes;
  };

  std::vector<Part> parts_;
  int64_t block_bytes_ = 0;
  int64_t num_blocks_ = 0;
};

// Of iovecs, drops the first `bytes` bytes, from *begin on; *begin becomes the first that has any.
void DropBytes(size_t bytes, std::vector<iovec>* parts, size_t* begin);

}  // namespace tandem
