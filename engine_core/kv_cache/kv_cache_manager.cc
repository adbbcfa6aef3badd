#include "engine_core/kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

int32_t CeilDiv(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

int32_t MaxHeldBlocks(const KvCacheConfig& config) {
  const int32_t num_all = CeilDiv(config.max_model_len, config.block_size);
  if (config.sliding_window == 0) return num_all;
  // The window of the step's first token and the step's tokens; the window may begin mid-block.
  const int64_t num_tokens =
      int64_t{config.sliding_window} - 1 + config.max_num_batched_tokens + config.num_draft_tokens;
  if (num_tokens >= config.max_model_len) return num_all;
  return std::min(num_all, CeilDiv(static_cast<int32_t>(num_tokens), config.block_size) + 1);
}

KvCacheManager::KvCacheManager(const KvCacheConfig& config)
    : config_(config),
      // Without a prefix cache there is no content to evict.
      residency_(config.residency_sample > 0 && config.enable_prefix_caching
                     ? std::optional<BlockResidency>(std::in_place, config.num_blocks,
                                                     config.residency_sample)
                     : std::nullopt),
      pool_(config.num_blocks, config.enable_events ? &events_ : nullptr,
            residency_ ? &*residency_ : nullptr),
      hasher_(config.block_size, config.hash_algorithm, config.hash_seed, config.hashes_next_token),
      watermark_blocks_(static_cast<int32_t>(config.watermark * config.num_blocks)),
      max_held_blocks_(MaxHeldBlocks(config)),
      max_blocks_per_seq_(NumBlocksFor(config.max_model_len)),
      // Not initialised, so that pages are touched only when used.
      tables_(new BlockId[static_cast<size_t>(config.max_num_seqs) *
                          static_cast<size_t>(max_blocks_per_seq_)]),
      rows_(static_cast<size_t>(config.max_num_seqs)) {
  found_.reserve(static_cast<size_t>(max_blocks_per_seq_));
  CHECK(!config.drops_last_found_block || config.sliding_window == 0)
      << "a found window would lack its last block";
}

void KvCacheManager::SetNow(double now) {
  if (residency_) residency_->SetNow(now);
}

void KvCacheManager::ExtendHashes(std::span<const TokenId> token_ids, const ExtraKeys& extra_keys,
                                  std::vector<BlockHash>* hashes) {
  if (config_.enable_prefix_caching) hasher_.Extend(token_ids, extra_keys, hashes);
}

std::span<const BlockId> KvCacheManager::FindCachedPrefix(std::span<const BlockHash> hashes,
                                                          int32_t max_tokens) {
  const size_t max_blocks = static_cast<size_t>(max_tokens / config_.block_size);
  hashes = hashes.first(std::min(hashes.size(), max_blocks));
  config_.sliding_window > 0 ? FindWindow(hashes) : FindFromStart(hashes);
  if (config_.drops_last_found_block && !found_.empty()) found_.pop_back();
  return found_;
}

void KvCacheManager::FindFromStart(std::span<const BlockHash> hashes) {
  found_.clear();
  for (const BlockHash& hash : hashes) {
    const std::optional<BlockId> block = pool_.Find(hash);
    if (!block) break;
    found_.push_back(*block);
  }
}

// Searches from the end for the first run that fills a window or reaches the start.
void KvCacheManager::FindWindow(std::span<const BlockHash> hashes) {
  const auto window_blocks =
      static_cast<size_t>(std::max(1, CeilDiv(config_.sliding_window - 1, config_.block_size)));
  found_.assign(hashes.size(), kNullBlock);
  size_t end = hashes.size();
  for (size_t i = end; i > 0 && end - i < window_blocks; --i) {
    if (const std::optional<BlockId> block = pool_.Find(hashes[i - 1])) {
      found_[i - 1] = *block;
    } else {
      end = i - 1;
    }
  }
  found_.resize(end);
}

bool KvCacheManager::TryAdmit(RequestSlot slot, const SequenceView& sequence,
                              const Admission& admission) {
  const Row& row = RowOf(slot);
  CHECK_EQ(row.num_blocks, 0) << "slot " << Index(slot) << " is in use";
  const auto first_seen =
      std::find_if(admission.cached_prefix.begin(), admission.cached_prefix.end(),
                   [](BlockId block) { return block != kNullBlock; });
  const std::span<const BlockId> seen(first_seen, admission.cached_prefix.end());
  const auto num_cached = static_cast<int32_t>(admission.cached_prefix.size());
  const auto num_seen = static_cast<int32_t>(seen.size());
  // Cached blocks that are not held leave the free list too.
  const auto num_free_cached = static_cast<int32_t>(std::count_if(
      seen.begin(), seen.end(), [this](BlockId block) { return pool_.is_free(block); }));
  const int32_t num_new =
      NumBlocksFor(admission.num_tokens + admission.num_lookahead_tokens) - num_cached;
  const int32_t num_to_fit =
      std::min(NumBlocksFor(admission.num_tokens_to_fit) - num_cached, max_held_blocks_ - num_seen);
  const int32_t num_needed = std::max({num_new, num_to_fit, 0}) + num_free_cached;
  if (!HasRoom(num_needed, admission)) return false;

  for (BlockId block : seen) pool_.Hold(block);
  std::copy(admission.cached_prefix.begin(), admission.cached_prefix.end(), Table(slot));
  RowOf(slot) = {
      .num_blocks = num_cached, .num_null = num_cached - num_seen, .num_registered = num_cached};
  Append(slot, num_new);
  RegisterFullBlocks(slot, sequence, admission.num_tokens);
  return true;
}

bool KvCacheManager::TryAdmit(RequestSlot slot, const SequenceView& sequence,
                              const Admission& admission, HeldBlocks* held) {
  const auto num_held = static_cast<int32_t>(held->table.size());
  const int32_t num_new =
      NumMissingBlocks(num_held, admission.num_tokens + admission.num_lookahead_tokens);
  const int32_t num_to_fit = NumMissingBlocks(num_held, admission.num_tokens_to_fit);
  if (!HasRoom(std::max(num_new, num_to_fit), admission)) return false;
  Attach(slot, std::move(*held));
  Append(slot, num_new);
  RegisterFullBlocks(slot, sequence, admission.num_tokens);
  return true;
}

bool KvCacheManager::HasRoom(int32_t num_blocks, const Admission& admission) const {
  const int32_t num_kept =
      admission.num_reserved_blocks + (admission.keep_watermark ? watermark_blocks_ : 0);
  return num_blocks + num_kept <= pool_.num_free();
}

bool KvCacheManager::TryGrow(RequestSlot slot, const SequenceView& sequence, int32_t num_tokens,
                             int32_t num_lookahead_tokens) {
  if (config_.sliding_window > 0) {
    // Tokens accepted together may leave the window together; their blocks are registered first.
    const int32_t num_held_tokens = RowOf(slot).num_blocks * config_.block_size;
    RegisterFullBlocks(slot, sequence, std::min(sequence.num_computed_tokens, num_held_tokens));
    FreeBefore(slot, sequence.num_computed_tokens);
  }
  const int32_t num_new = NumBlocksFor(num_tokens + num_lookahead_tokens) - RowOf(slot).num_blocks;
  if (num_new > pool_.num_free()) return false;
  Append(slot, num_new);
  RegisterFullBlocks(slot, sequence, num_tokens);
  return true;
}

void KvCacheManager::ForgetBeyond(RequestSlot slot, const SequenceView& sequence,
                                  int32_t num_tokens) {
  Row& row = RowOf(slot);
  const int32_t num_kept = num_tokens / config_.block_size;
  for (int32_t i = num_kept; i < row.num_registered; ++i) {
    if (i < row.num_null) {
      pool_.Forget(sequence.block_hashes[static_cast<size_t>(i)]);
    } else {
      pool_.Unregister(Table(slot)[i]);
    }
  }
  row.num_registered = std::min(row.num_registered, num_kept);
}

void KvCacheManager::Forget(std::span<const BlockHash> hashes) {
  for (const BlockHash& hash : hashes) pool_.Forget(hash);
}

void KvCacheManager::Free(RequestSlot slot) {
  pool_.Free(BlockTable(slot));
  RowOf(slot) = {};
}

HeldBlocks KvCacheManager::Detach(RequestSlot slot) {
  const std::span<const BlockId> table = BlockTable(slot);
  const Row row = std::exchange(RowOf(slot), {});
  HeldBlocks held;
  held.table.assign(table.begin(), table.end());
  held.num_null = row.num_null;
  held.num_registered = row.num_registered;
  return held;
}

void KvCacheManager::Attach(RequestSlot slot, HeldBlocks blocks) {
  CHECK_EQ(RowOf(slot).num_blocks, 0) << "slot " << Index(slot) << " is in use";
  std::copy(blocks.table.begin(), blocks.table.end(), Table(slot));
  RowOf(slot) = {.num_blocks = static_cast<int32_t>(blocks.table.size()),
                 .num_null = blocks.num_null,
                 .num_registered = blocks.num_registered};
}

bool KvCacheManager::TryReset() {
  if (pool_.num_free() != pool_.num_blocks() - 1) return false;
  pool_.Clear();
  return true;
}

std::span<const BlockId> KvCacheManager::BlockTable(RequestSlot slot) const {
  return {Table(slot), static_cast<size_t>(RowOf(slot).num_blocks)};
}

int32_t KvCacheManager::NumRegisteredTokens(RequestSlot slot) const {
  return RowOf(slot).num_registered * config_.block_size;
}

std::vector<KvCacheEvent> KvCacheManager::TakeEvents() { return std::exchange(events_, {}); }

std::vector<BlockEviction> KvCacheManager::TakeEvictions() {
  return residency_ ? residency_->TakeEvictions() : std::vector<BlockEviction>();
}

int32_t KvCacheManager::NumBlocksFor(int32_t num_tokens) const {
  const int32_t capped = std::min(num_tokens, config_.max_model_len);
  return CeilDiv(capped, config_.block_size);
}

BlockId* KvCacheManager::Table(RequestSlot slot) const {
  return tables_.get() +
         static_cast<size_t>(Index(slot)) * static_cast<size_t>(max_blocks_per_seq_);
}

void KvCacheManager::Append(RequestSlot slot, int32_t num_new_blocks) {
  if (num_new_blocks <= 0) return;
  Row& row = RowOf(slot);
  pool_.Allocate({Table(slot) + row.num_blocks, static_cast<size_t>(num_new_blocks)});
  row.num_blocks += num_new_blocks;
}

void KvCacheManager::FreeBefore(RequestSlot slot, int32_t num_computed_tokens) {
  Row& row = RowOf(slot);
  const int32_t num_hidden_tokens = num_computed_tokens - config_.sliding_window + 1;
  const int32_t end = std::min(num_hidden_tokens / config_.block_size, row.num_blocks);
  if (end <= row.num_null) return;
  const std::span<BlockId> hidden(Table(slot) + row.num_null,
                                  static_cast<size_t>(end - row.num_null));
  pool_.Free(hidden);
  std::fill(hidden.begin(), hidden.end(), kNullBlock);
  row.num_null = end;
}

void KvCacheManager::RegisterFullBlocks(RequestSlot slot, const SequenceView& sequence,
                                        int32_t num_tokens) {
  if (!config_.enable_prefix_caching) return;
  Row& row = RowOf(slot);
  const int32_t num_full =
      std::min(num_tokens / config_.block_size, static_cast<int32_t>(sequence.block_hashes.size()));
  // A block may have left the window before its last token was known.
  const int32_t begin = std::max(row.num_registered, row.num_null);
  if (num_full <= begin) return;
  for (int32_t i = begin; i < num_full; ++i) {
    pool_.Register(Table(slot)[i], sequence.block_hashes[static_cast<size_t>(i)]);
  }
  if (config_.enable_events) EmitStored(sequence, begin, num_full);
  row.num_registered = num_full;
}

void KvCacheManager::EmitStored(const SequenceView& sequence, int32_t begin_block,
                                int32_t end_block) {
  const auto begin = static_cast<size_t>(begin_block);
  const auto count = static_cast<size_t>(end_block) - begin;
  const auto block_size = static_cast<size_t>(config_.block_size);
  const auto hashes = sequence.block_hashes.subspan(begin, count);
  const auto tokens = sequence.token_ids.subspan(begin * block_size, count * block_size);
  BlockStored stored;
  stored.block_hashes.assign(hashes.begin(), hashes.end());
  stored.token_ids.assign(tokens.begin(), tokens.end());
  if (begin > 0) stored.parent = sequence.block_hashes[begin - 1];
  if (sequence.extra_keys != nullptr) stored.extra_keys = *sequence.extra_keys;
  if (config_.hashes_next_token) {
    for (size_t i = begin + 1; i <= begin + count; ++i) {
      stored.next_token_ids.push_back(sequence.token_ids[i * block_size]);
    }
  }
  stored.first_block = begin_block;
  events_.emplace_back(std::move(stored));
}

}  // namespace tandem
