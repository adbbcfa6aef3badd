#pragma once

// A folder of KV blocks, each in a file of its own by its hash, named as vLLM's fs tier names them:
//   BASE/config.json                                 what the blocks are of
//   BASE_rN/<3 digits>/<2 digits>_g0/<64 digits>.bin  the digits of the hash
// where BASE ends with digits of the SHA-256 of config.json's facts: what other facts hold for has
// another folder. A file has the bytes of the block as the backend lays them out, then 8 of ours:
// a mark and the CRC-32C of the bytes and the hash. It appears by a rename. Nothing is forced to
// the disk: what a lost host leaves half written has a wrong checksum.
// A process has the folder of some N, from 0 on, to itself as long as this lives (flock): two
// engines with one BASE have two folders.
// Thread: any, several at once, for different blocks; waits for the disk.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "engine_core/kv_cache/block_hash.h"

namespace tandem {

// facts: compact JSON with sorted keys. model: a name, in which '/' becomes '_'.
std::string BlockFolderBase(const std::string& root, std::string_view model,
                            std::string_view facts);

class BlockFolder {
 public:
  // Makes it if it is not there, with those above it. Failure: the system's, with the path.
  static StatusOr<std::unique_ptr<BlockFolder>> Open(const std::string& base,
                                                     const std::string& facts, int64_t block_bytes);

  // The blocks it has, least recently used first. What is no whole file of a block is removed.
  std::vector<BlockHash> Scan() const;
  // REQUIRES: block_bytes of them, which nobody writes to.
  Status Write(const BlockHash& hash, std::span<const std::byte> block) const;
  // NOT_FOUND, or DATA_LOSS: it is not what was written, and is removed. Leaves *block with
  // anything then. The file counts as used.
  Status Read(const BlockHash& hash, std::span<std::byte> block) const;
  void Remove(const BlockHash& hash) const;

  const std::string& path() const { return path_; }
  std::string FileOf(const BlockHash& hash) const;
  int64_t bytes_per_file() const;  // that it takes on a disk

 private:
  BlockFolder(std::string path, UniqueFd lock, int64_t block_bytes)
      : path_(std::move(path)), lock_(std::move(lock)), block_bytes_(block_bytes) {}
  Status ReadChecked(const std::string& path, const BlockHash& hash,
                     std::span<std::byte> block) const;

  const std::string path_;
  const UniqueFd lock_;
  const int64_t block_bytes_;
};

}  // namespace tandem
