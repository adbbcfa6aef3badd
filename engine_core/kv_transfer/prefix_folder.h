#pragma once

// A folder of prompts' KV that engines share: of each prompt's begin a folder by its PrefixKey, in
// it a file per layer (token_file.h) by vLLM's name for the layer. Whole prompts only.
// A folder appears with all its files or not at all: it is written under another name, `.part-` and
// random digits, forced to the disk and renamed. The writer holds a lock on it: what a killed
// writer has left has none, and is removed.
// Thread: any, several at once; waits for the disk. The cache must outlive it. What files claim is
// checked before it is used; numbers that are themselves wrong go unnoticed.
// REQUIRES for Store: nothing writes to the blocks; for Load: nothing reads them, also not after a
// failure, which leaves them with anything.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/kv_transfer/token_file.h"
#include "kernels/kv_rows.h"

namespace tandem {

class PrefixFolder {
 public:
  // Makes the folder if it is not there, with those above it. Failure: the system's, with the path.
  static StatusOr<std::unique_ptr<PrefixFolder>> Open(const std::string& path, KvRows rows);

  // Whether it seems to have that one: its folder and the file of its last layer are there.
  bool Has(const std::string& key) const;
  // blocks: of the whole prefix. What is there already stays, unless it is to be replaced.
  Status Store(const std::string& key, std::span<const BlockId> blocks, bool replaces) const;
  // Fills the blocks from first_block on with the end of the prefix.
  Status Load(const std::string& key, std::span<const BlockId> blocks, size_t first_block) const;

  const std::string& path() const { return path_; }
  int block_size() const { return rows_.block_size(); }

 private:
  PrefixFolder(std::string path, KvRows rows) : path_(std::move(path)), rows_(std::move(rows)) {}
  TokenFileShape ShapeOf(size_t layer, size_t num_blocks) const;
  std::string FileName(size_t layer) const;
  Status WriteLayers(const std::string& folder, std::span<const BlockId> blocks) const;
  Status Publish(const std::string& part, const std::string& key, bool replaces) const;
  void RemoveAbandoned() const;

  std::string path_;
  KvRows rows_;
};

}  // namespace tandem
