#pragma once

// The block tables of running requests, over a BlockPool, and the blocks they share.
// Thread: engine loop. Owns: the pool and one slab of block tables, a row per RequestSlot; a
// request holds blocks only while it has a slot. Lengths are in tokens unless the name says blocks
// or places. A table has a place for each block_size tokens, and at a place the blocks of all
// groups of layers in their order; with one group a place is a block. TryAdmit and TryGrow return
// false when there are not enough blocks: normal; the request gets none then, and the scheduler
// waits or preempts. Full blocks are registered in the prefix cache when their tokens are
// scheduled, before they are computed: a request admitted later in the same step may share them,
// because the executor computes requests in the order of the step. ForgetBeyond takes that back for
// a request whose scheduled tokens will not run. Detach takes a request's blocks out of its slot,
// for a request that holds them without running. Of local groups a request holds the blocks that
// its next token sees and those of the step: TryGrow frees blocks that lie wholly before the
// window, and the table names the null block there. They go to the free list like any freed block,
// the newest first, and can be found until they are allocated again.

#include <algorithm>
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
#include "engine_core/kv_cache/layer_groups.h"

namespace tandem {

struct KvCacheConfig {
  int32_t num_blocks = 0;  // with the null block
  int32_t block_size = 0;
  int32_t max_num_seqs = 0;
  int32_t max_model_len = 0;
  int32_t max_num_batched_tokens = 0;  // of a step; read only with local groups
  // Positions that a request may need after those of a step; read only with local groups.
  int32_t num_draft_tokens = 0;
  LayerGroups groups = {};
  bool enable_prefix_caching = true;
  double watermark = 0;  // share of num_blocks that an admission leaves free for running requests
  bool enable_events = false;
  double residency_sample = 0;  // share of block lives that are sampled; 0: none
  // For a drafter that reads one token ahead. The hash of a block covers the token after it;
  bool hashes_next_token = false;
  // or a cached prefix is found without its last block, which that token may not follow.
  bool drops_last_found_block = false;
  HashAlgorithm hash_algorithm = HashAlgorithm::kSha256Cbor;
  std::string hash_seed{BlockHasher::kDefaultSeed};
};

// The most blocks that one request holds at a time.
int32_t MaxHeldBlocks(const KvCacheConfig& config);

// A request as the cache sees it.
struct SequenceView {
  std::span<const TokenId> token_ids;
  std::span<const BlockHash> block_hashes;  // of its full blocks; none with caching off
  const ExtraKeys* extra_keys = nullptr;    // nullptr: none
  int32_t num_computed_tokens = 0;          // the next token sees the window that ends after them
};

// Blocks that are held without a slot. Movable only: each block is freed once.
struct HeldBlocks {
  std::vector<BlockId> table;  // of whole places
  int32_t num_null = 0;
  int32_t num_registered = 0;

  HeldBlocks() = default;
  HeldBlocks(HeldBlocks&&) = default;
  HeldBlocks& operator=(HeldBlocks&&) = default;
};

struct Admission {
  std::span<const BlockId> cached_prefix;  // from FindCachedPrefix, with nothing changed since
  int32_t num_tokens = 0;                  // to make room for, the cached prefix included
  int32_t num_lookahead_tokens = 0;        // positions after them, to make room for as well
  int32_t num_tokens_to_fit = 0;           // must fit into free blocks, though not allocated yet
  bool keep_watermark = false;
  int32_t num_reserved_blocks = 0;  // free blocks that are for others
};

class KvCacheManager {
 public:
  explicit KvCacheManager(const KvCacheConfig& config);

  // The time of the following calls, monotonic seconds; read only with residency_sample.
  void SetNow(double now);
  // Appends the hashes of full blocks that *hashes lacks; nothing with caching off.
  void ExtendHashes(std::span<const TokenId> token_ids, const ExtraKeys& extra_keys,
                    std::vector<BlockHash>* hashes);
  // The longest cached prefix of whole places, of at most max_tokens. Of local groups only the
  // blocks that the token after it sees must be cached; the others are null. Holds nothing; valid
  // until the next call that is not const.
  std::span<const BlockId> FindCachedPrefix(std::span<const BlockHash> hashes, int32_t max_tokens);
  // Tokens in the places of a table, or of a part of one.
  int32_t NumTokensIn(std::span<const BlockId> table) const {
    return static_cast<int32_t>(table.size()) / num_groups_ * config_.block_size;
  }
  // The most blocks that a request with this many tokens holds at a time.
  int32_t MaxHeldBlocksFor(int32_t num_tokens) const;

  bool TryAdmit(RequestSlot slot, const SequenceView& sequence, const Admission& admission);
  // The same for a sequence that holds blocks already, which move to the slot.
  bool TryAdmit(RequestSlot slot, const SequenceView& sequence, const Admission& admission,
                HeldBlocks* held);
  // Blocks that a table of num_held lacks for num_tokens.
  int32_t NumMissingBlocks(int32_t num_held, int32_t num_tokens) const {
    return std::max(0, NumPlacesFor(num_tokens) * num_groups_ - num_held);
  }
  // Makes room for the first num_tokens of an admitted request and num_lookahead_tokens after them,
  // up to max_model_len.
  bool TryGrow(RequestSlot slot, const SequenceView& sequence, int32_t num_tokens,
               int32_t num_lookahead_tokens = 0);
  // Registers the full blocks of the first num_tokens that have hashes by now.
  void RegisterUpTo(RequestSlot slot, const SequenceView& sequence, int32_t num_tokens) {
    RegisterFullBlocks(slot, sequence, num_tokens);
  }
  // Unregisters every block with one of these hashes, held or not.
  void Forget(std::span<const BlockHash> hashes);
  // Unregisters the blocks of the request that reach beyond its first num_tokens, also those freed
  // before the window.
  void ForgetBeyond(RequestSlot slot, const SequenceView& sequence, int32_t num_tokens);
  void Free(RequestSlot slot);
  // Moves blocks from the slot to the caller, and back to a slot that holds none.
  HeldBlocks Detach(RequestSlot slot);
  void Attach(RequestSlot slot, HeldBlocks blocks);
  void Free(HeldBlocks blocks) { pool_.Free(blocks.table); }
  // Forgets all cached content. False, without effect, while any block is held.
  bool TryReset();

  std::span<const BlockId> BlockTable(RequestSlot slot) const;
  // Tokens in registered blocks of this request.
  int32_t NumRegisteredTokens(RequestSlot slot) const;
  // All but the content of the blocks, for a checkpoint; events and residency are left out.
  void Save(ByteWriter* out) const;
  // Into a new manager of the same configuration. DATA_LOSS: not what Save has written.
  Status Load(ByteReader* in);
  // Since the last call.
  std::vector<KvCacheEvent> TakeEvents();
  std::vector<BlockEviction> TakeEvictions();

  const KvCacheConfig& config() const { return config_; }
  const BlockPool& pool() const { return pool_; }

 private:
  struct Row {
    int32_t num_places = 0;
    int32_t num_null = 0;        // leading places before the window
    int32_t num_registered = 0;  // leading places that have been registered
  };

  int32_t NumPlacesFor(int32_t num_tokens) const;
  bool HasRoom(int32_t num_blocks, const Admission& admission) const;
  BlockId* Table(RequestSlot slot) const;
  Row& RowOf(RequestSlot slot) { return rows_[static_cast<size_t>(Index(slot))]; }
  const Row& RowOf(RequestSlot slot) const { return rows_[static_cast<size_t>(Index(slot))]; }
  void FindFromStart(std::span<const BlockHash> hashes);
  void FindWindow(std::span<const BlockHash> hashes);
  bool FindLocalBlocks(const BlockHash& hash, size_t place);
  // The first place that the token at the end of `num_places` sees.
  size_t FirstPlaceSeen(size_t num_places) const;
  int32_t NumBeforeWindow(std::span<const BlockId> table) const;
  void Append(RequestSlot slot, int32_t num_new_places);
  void FreeBefore(RequestSlot slot, int32_t num_computed_tokens);
  void RegisterFullBlocks(RequestSlot slot, const SequenceView& sequence, int32_t num_tokens);
  void RegisterPlace(const BlockId* place, const BlockHash& hash);
  void EmitStored(const SequenceView& sequence, int32_t group, int32_t begin_block,
                  int32_t end_block);

  KvCacheConfig config_;
  std::vector<KvCacheEvent> events_;
  std::optional<BlockResidency> residency_;
  BlockPool pool_;
  BlockHasher hasher_;
  int32_t num_groups_;
  int32_t watermark_blocks_;
  int32_t max_local_places_;           // that one request holds in a local group
  int32_t max_places_;                 // of a table
  std::unique_ptr<BlockId[]> tables_;  // [max_num_seqs, max_places, num_groups]
  std::vector<Row> rows_;
  std::vector<BlockId> found_;   // FindCachedPrefix's result
  std::vector<BlockId> hidden_;  // blocks that leave a window
};

}  // namespace tandem
