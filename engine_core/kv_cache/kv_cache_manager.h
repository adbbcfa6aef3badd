#pragma once

// Which blocks each running request holds, and which it may share: block tables over a BlockPool.
// Thread: engine loop. Owns: the pool and one slab of block tables, a row per RequestSlot; a
// request holds blocks only while it has a slot. Lengths are in tokens unless the name says blocks.
// TryAdmit and TryGrow return false when the blocks are not there: normal; the request has got
// nothing then, and the scheduler waits or preempts. Full blocks are registered in the prefix cache
// when their tokens are scheduled, before they are computed: a request admitted later in the same
// step may share them, because the executor computes requests in the order of the step.
// ForgetBeyond takes that back for a request whose scheduled tokens will not run. Detach takes a
// request's blocks out of its slot, for whoever holds them without running. With a sliding
// window a request holds the blocks its next token sees and those of the step: each TryGrow gives
// back what lies wholly left of the window, and the table names the null block there. They go to
// the free list like any freed block, the newest first, and stay findable until they are taken.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/block_hash.h"
#include "engine_core/kv_cache/block_pool.h"
#include "engine_core/kv_cache/block_residency.h"
#include "engine_core/kv_cache/extra_keys.h"
#include "engine_core/kv_cache/kv_cache_event.h"

namespace tandem {

struct KvCacheConfig {
  int32_t num_blocks = 0;  // with the null block
  int32_t block_size = 0;
  int32_t max_num_seqs = 0;
  int32_t max_model_len = 0;
  int32_t max_num_batched_tokens = 0;  // of a step; only sliding_window reads it
  // Positions that a request may need behind those of a step; only sliding_window reads it.
  int32_t num_draft_tokens = 0;
  int32_t sliding_window = 0;  // every layer sees so many keys, the token's own included; 0: all
  bool enable_prefix_caching = true;
  double watermark = 0;  // share of num_blocks that an admission leaves free for running requests
  bool enable_events = false;
  double residency_sample = 0;  // share of block lives that are watched; 0: none
  HashAlgorithm hash_algorithm = HashAlgorithm::kSha256Cbor;
  std::string hash_seed{BlockHasher::kDefaultSeed};
};

// Most blocks that one request holds at a time.
int32_t MaxHeldBlocks(const KvCacheConfig& config);

// A request as the cache sees it.
struct SequenceView {
  std::span<const TokenId> token_ids;
  std::span<const BlockHash> block_hashes;  // of its full blocks; none with caching off
  const ExtraKeys* extra_keys = nullptr;    // nullptr: none
  int32_t num_computed_tokens = 0;          // the next token sees the window that ends after them
};

// What was in a slot and now is held without one. Movable only: each block is given back once.
struct HeldBlocks {
  std::vector<BlockId> table;
  int32_t num_null = 0;
  int32_t num_registered = 0;

  HeldBlocks() = default;
  HeldBlocks(HeldBlocks&&) = default;
  HeldBlocks& operator=(HeldBlocks&&) = default;
};

struct Admission {
  std::span<const BlockId> cached_prefix;  // from FindCachedPrefix, with nothing changed since
  int32_t num_tokens = 0;                  // get room now, the cached prefix included
  int32_t num_lookahead_tokens = 0;        // and room for so many behind them
  int32_t num_tokens_to_fit = 0;           // must have room even if they get it later
  bool keep_watermark = false;
};

class KvCacheManager {
 public:
  explicit KvCacheManager(const KvCacheConfig& config);

  // The time of what is called from here on, monotonic seconds; only residency_sample reads it.
  void SetNow(double now);
  // Appends the hashes of full blocks that *hashes lacks; nothing with caching off.
  void ExtendHashes(std::span<const TokenId> token_ids, const ExtraKeys& extra_keys,
                    std::vector<BlockHash>* hashes);
  // The longest run of whole blocks from the start, of at most max_tokens, that is cached: every
  // block of it, or with a sliding window those that the token behind it sees, the others being
  // null. Holds nothing; valid until the next call that is not const.
  std::span<const BlockId> FindCachedPrefix(std::span<const BlockHash> hashes, int32_t max_tokens);

  bool TryAdmit(RequestSlot slot, const SequenceView& sequence, const Admission& admission);
  // Room for the first num_tokens of an admitted request and num_lookahead_tokens behind them, up
  // to max_model_len.
  bool TryGrow(RequestSlot slot, const SequenceView& sequence, int32_t num_tokens,
               int32_t num_lookahead_tokens = 0);
  // Makes the full blocks of the first num_tokens findable, as far as they have hashes by now.
  void RegisterUpTo(RequestSlot slot, const SequenceView& sequence, int32_t num_tokens) {
    RegisterFullBlocks(slot, sequence, num_tokens);
  }
  // Makes every block with one of these hashes unfindable, whoever holds it.
  void Forget(std::span<const BlockHash> hashes);
  // Makes those blocks of the request unfindable that reach beyond its first num_tokens, given back
  // or not.
  void ForgetBeyond(RequestSlot slot, const SequenceView& sequence, int32_t num_tokens);
  void Free(RequestSlot slot);
  // From the slot into the caller's hands, and back into a slot that holds nothing.
  HeldBlocks Detach(RequestSlot slot);
  void Attach(RequestSlot slot, HeldBlocks blocks);
  void Free(HeldBlocks blocks) { pool_.Free(blocks.table); }
  // Forgets all cached content; refused (false, no change) while any block is held.
  bool TryReset();

  std::span<const BlockId> BlockTable(RequestSlot slot) const;
  // Tokens of the blocks of this request that are registered.
  int32_t NumRegisteredTokens(RequestSlot slot) const;
  // Since the last call.
  std::vector<KvCacheEvent> TakeEvents();
  std::vector<BlockEviction> TakeEvictions();

  const KvCacheConfig& config() const { return config_; }
  const BlockPool& pool() const { return pool_; }

 private:
  struct Row {
    int32_t num_blocks = 0;
    int32_t num_null = 0;        // the first so many are left of the window
    int32_t num_registered = 0;  // the first so many have been put into the prefix cache
  };

  int32_t NumBlocksFor(int32_t num_tokens) const;
  BlockId* Table(RequestSlot slot) const;
  Row& RowOf(RequestSlot slot) { return rows_[static_cast<size_t>(Index(slot))]; }
  const Row& RowOf(RequestSlot slot) const { return rows_[static_cast<size_t>(Index(slot))]; }
  void FindFromStart(std::span<const BlockHash> hashes);
  void FindWindow(std::span<const BlockHash> hashes);
  void Append(RequestSlot slot, int32_t num_new_blocks);
  void GiveBackBefore(RequestSlot slot, int32_t num_computed_tokens);
  void RegisterFullBlocks(RequestSlot slot, const SequenceView& sequence, int32_t num_tokens);
  void EmitStored(const SequenceView& sequence, int32_t begin_block, int32_t end_block);

  KvCacheConfig config_;
  std::vector<KvCacheEvent> events_;
  std::optional<BlockResidency> residency_;
  BlockPool pool_;
  BlockHasher hasher_;
  int32_t watermark_blocks_;
  int32_t max_held_blocks_;
  int32_t max_blocks_per_seq_;         // of a table, null blocks included
  std::unique_ptr<BlockId[]> tables_;  // [max_num_seqs, max_blocks_per_seq]
  std::vector<Row> rows_;
  std::vector<BlockId> found_;  // FindCachedPrefix's result
};

}  // namespace tandem
