#pragma once

// Changes of the prefix cache, in order, for programs that track its content (routers). Values;
// made only when the configuration enables them.

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/block_hash.h"

namespace tandem {

// Where a block is.
enum class KvMedium { kCache, kHostMemory, kFiles };

// Consecutive blocks of one request and one group of layers that became findable.
struct BlockStored {
  std::vector<BlockHash> block_hashes;
  std::optional<BlockHash> parent;      // nullopt: the first of them starts the sequence
  std::vector<TokenId> token_ids;       // of all the blocks
  ExtraKeys extra_keys;                 // of the sequence
  std::vector<TokenId> next_token_ids;  // after each block, where its hash covers that token
  int32_t first_block = 0;              // place of the first of them in the sequence
  int32_t group = 0;
  KvMedium medium = KvMedium::kCache;  // outside of it there may be hashes alone
};

// A block lost its content. Another block of the group may still hold the same hash.
struct BlockRemoved {
  BlockHash block_hash;
  KvMedium medium = KvMedium::kCache;
  int32_t group = 0;
};

struct AllBlocksCleared {};

using KvCacheEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

}  // namespace tandem
