#include "engine_core/kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

int32_t CeilDiv(int32_t a, int32_t b) { return (a + b - 1) / b; }

// The most places of a local group that one request holds at a time.
int32_t MaxLocalPlaces(const KvCacheConfig& config) {
  const int32_t num_all = CeilDiv(config.max_model_len, config.block_size);
  if (config.groups.num_local == 0) return 0;
  // The window of the step's first token and the step's tokens; the window may begin mid-block.
  const int64_t num_tokens =
      int64_t{config.groups.reach()} + config.max_num_batched_tokens + config.num_draft_tokens;
  if (num_tokens >= config.max_model_len) return num_all;
  return std::min(num_all, CeilDiv(static_cast<int32_t>(num_tokens), config.block_size) + 1);
}

}  // namespace

int32_t MaxHeldBlocks(const KvCacheConfig& config) {
  const int32_t num_places = CeilDiv(config.max_model_len, config.block_size);
  const int64_t num_blocks = int64_t{config.groups.num_full} * num_places +
                             int64_t{config.groups.num_local} * MaxLocalPlaces(config);
  return static_cast<int32_t>(std::min<int64_t>(num_blocks, std::numeric_limits<int32_t>::max()));
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
      num_groups_(config.groups.count()),
      watermark_blocks_(static_cast<int32_t>(config.watermark * config.num_blocks)),
      max_local_places_(MaxLocalPlaces(config)),
      max_places_(NumPlacesFor(config.max_model_len)),
      // Not initialised, so that pages are touched only when used.
      tables_(new BlockId[static_cast<size_t>(config.max_num_seqs) *
                          static_cast<size_t>(max_places_) * static_cast<size_t>(num_groups_)]),
      rows_(static_cast<size_t>(config.max_num_seqs)) {
  const auto num_blocks = static_cast<size_t>(max_places_) * static_cast<size_t>(num_groups_);
  found_.reserve(num_blocks);
  if (config.groups.num_local > 0) hidden_.reserve(num_blocks);
  CHECK(num_groups_ > 0 && num_groups_ <= kMostGroups) << num_groups_ << " groups of layers";
  CHECK(!config.drops_last_found_block || config.groups.num_local == 0)
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
  FindFromStart(hashes);
  if (config_.groups.num_local > 0) FindWindow(hashes);
  if (config_.drops_last_found_block && !found_.empty()) {
    found_.resize(found_.size() - static_cast<size_t>(num_groups_));
  }
  return found_;
}

// What the full groups have; with local groups alone all places.
void KvCacheManager::FindFromStart(std::span<const BlockHash> hashes) {
  const int32_t num_full = config_.groups.num_full;
  found_.clear();
  for (const BlockHash& hash : hashes) {
    const size_t num_before = found_.size();
    for (int32_t group = 0; group < num_full; ++group) {
      const std::optional<BlockId> block = pool_.Find(hash, group);
      if (!block) return found_.resize(num_before);
      found_.push_back(*block);
    }
    for (int32_t group = num_full; group < num_groups_; ++group) found_.push_back(kNullBlock);
  }
}

// Searches from the end for the first run of local blocks that fills a window or reaches the start.
void KvCacheManager::FindWindow(std::span<const BlockHash> hashes) {
  size_t end = found_.size() / static_cast<size_t>(num_groups_);
  size_t first = FirstPlaceSeen(end);
  for (size_t i = end; i > first; --i) {
    if (FindLocalBlocks(hashes[i - 1], i - 1)) continue;
    end = i - 1;
    first = FirstPlaceSeen(end);
  }
  found_.resize(end * static_cast<size_t>(num_groups_));
}

bool KvCacheManager::FindLocalBlocks(const BlockHash& hash, size_t place) {
  for (int32_t group = config_.groups.num_full; group < num_groups_; ++group) {
    const std::optional<BlockId> block = pool_.Find(hash, group);
    if (!block) return false;
    found_[place * static_cast<size_t>(num_groups_) + static_cast<size_t>(group)] = *block;
  }
  return true;
}

size_t KvCacheManager::FirstPlaceSeen(size_t num_places) const {
  if (num_places == 0) return 0;
  const int32_t position = static_cast<int32_t>(num_places) * config_.block_size;
  const auto first = static_cast<size_t>(config_.groups.FirstSeen(position) / config_.block_size);
  // A chunk may begin at the end; a window has a token before it.
  return config_.groups.chunk > 0 ? first : std::min(first, num_places - 1);
}

// Leading places without local blocks.
int32_t KvCacheManager::NumBeforeWindow(std::span<const BlockId> table) const {
  if (config_.groups.num_local == 0) return 0;
  const auto num_groups = static_cast<size_t>(num_groups_);
  auto i = static_cast<size_t>(config_.groups.num_full);
  while (i < table.size() && table[i] == kNullBlock) i += num_groups;
  return static_cast<int32_t>(i / num_groups);
}

bool KvCacheManager::TryAdmit(RequestSlot slot, const SequenceView& sequence,
                              const Admission& admission) {
  CHECK_EQ(RowOf(slot).num_places, 0) << "slot " << Index(slot) << " is in use";
  const std::span<const BlockId> cached = admission.cached_prefix;
  const int32_t num_cached = static_cast<int32_t>(cached.size()) / num_groups_;
  const int32_t num_null = NumBeforeWindow(cached);
  // Cached blocks that are not held leave the free list too.
  const auto num_free_cached =
      static_cast<int32_t>(std::count_if(cached.begin(), cached.end(), [this](BlockId block) {
        return block != kNullBlock && pool_.is_free(block);
      }));
  const int32_t num_new =
      NumPlacesFor(admission.num_tokens + admission.num_lookahead_tokens) - num_cached;
  const int32_t num_left_to_fit = NumPlacesFor(admission.num_tokens_to_fit) - num_cached;
  const int32_t num_local_to_fit =
      std::min(num_left_to_fit, max_local_places_ - (num_cached - num_null));
  const int32_t num_to_fit =
      config_.groups.num_full * num_left_to_fit + config_.groups.num_local * num_local_to_fit;
  const int32_t num_needed = std::max({num_new * num_groups_, num_to_fit, 0}) + num_free_cached;
  if (!HasRoom(num_needed, admission)) return false;

  for (const BlockId block : cached) {
    if (block != kNullBlock) pool_.Hold(block);
  }
  std::copy(cached.begin(), cached.end(), Table(slot));
  RowOf(slot) = {.num_places = num_cached, .num_null = num_null, .num_registered = num_cached};
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
  Append(slot, num_new / num_groups_);
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
  if (config_.groups.num_local > 0) {
    // Tokens accepted together may leave the window together; their blocks are registered first.
    const int32_t num_held_tokens = RowOf(slot).num_places * config_.block_size;
    RegisterFullBlocks(slot, sequence, std::min(sequence.num_computed_tokens, num_held_tokens));
    FreeBefore(slot, sequence.num_computed_tokens);
  }
  const int32_t num_new = NumPlacesFor(num_tokens + num_lookahead_tokens) - RowOf(slot).num_places;
  if (num_new * num_groups_ > pool_.num_free()) return false;
  Append(slot, num_new);
  RegisterFullBlocks(slot, sequence, num_tokens);
  return true;
}

void KvCacheManager::ForgetBeyond(RequestSlot slot, const SequenceView& sequence,
                                  int32_t num_tokens) {
  Row& row = RowOf(slot);
  const int32_t num_kept = num_tokens / config_.block_size;
  for (int32_t i = num_kept; i < row.num_registered; ++i) {
    for (int32_t group = 0; group < num_groups_; ++group) {
      const BlockId block = Table(slot)[i * num_groups_ + group];
      if (block == kNullBlock) {
        pool_.Forget(sequence.block_hashes[static_cast<size_t>(i)], group);
      } else {
        pool_.Unregister(block);
      }
    }
  }
  row.num_registered = std::min(row.num_registered, num_kept);
}

void KvCacheManager::Forget(std::span<const BlockHash> hashes) {
  for (const BlockHash& hash : hashes) {
    for (int32_t group = 0; group < num_groups_; ++group) pool_.Forget(hash, group);
  }
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
  CHECK_EQ(RowOf(slot).num_places, 0) << "slot " << Index(slot) << " is in use";
  std::copy(blocks.table.begin(), blocks.table.end(), Table(slot));
  RowOf(slot) = {.num_places = static_cast<int32_t>(blocks.table.size()) / num_groups_,
                 .num_null = blocks.num_null,
                 .num_registered = blocks.num_registered};
}

bool KvCacheManager::TryReset() {
  if (pool_.num_free() != pool_.num_blocks() - 1) return false;
  pool_.Clear();
  return true;
}

std::span<const BlockId> KvCacheManager::BlockTable(RequestSlot slot) const {
  return {Table(slot),
          static_cast<size_t>(RowOf(slot).num_places) * static_cast<size_t>(num_groups_)};
}

int32_t KvCacheManager::NumRegisteredTokens(RequestSlot slot) const {
  return RowOf(slot).num_registered * config_.block_size;
}

std::vector<KvCacheEvent> KvCacheManager::TakeEvents() { return std::exchange(events_, {}); }

std::vector<BlockEviction> KvCacheManager::TakeEvictions() {
  return residency_ ? residency_->TakeEvictions() : std::vector<BlockEviction>();
}

int32_t KvCacheManager::MaxHeldBlocksFor(int32_t num_tokens) const {
  const int32_t num_places = NumPlacesFor(num_tokens);
  return config_.groups.num_full * num_places +
         config_.groups.num_local * std::min(num_places, max_local_places_);
}

int32_t KvCacheManager::NumPlacesFor(int32_t num_tokens) const {
  const int32_t capped = std::min(num_tokens, config_.max_model_len);
  return CeilDiv(capped, config_.block_size);
}

BlockId* KvCacheManager::Table(RequestSlot slot) const {
  return tables_.get() + static_cast<size_t>(Index(slot)) * static_cast<size_t>(max_places_) *
                             static_cast<size_t>(num_groups_);
}

void KvCacheManager::Append(RequestSlot slot, int32_t num_new_places) {
  if (num_new_places <= 0) return;
  Row& row = RowOf(slot);
  pool_.Allocate({Table(slot) + row.num_places * num_groups_,
                  static_cast<size_t>(num_new_places) * static_cast<size_t>(num_groups_)});
  row.num_places += num_new_places;
}

void KvCacheManager::FreeBefore(RequestSlot slot, int32_t num_computed_tokens) {
  Row& row = RowOf(slot);
  const int32_t num_hidden = config_.groups.FirstSeen(num_computed_tokens) / config_.block_size;
  const int32_t end = std::min(num_hidden, row.num_places);
  if (end <= row.num_null) return;
  hidden_.clear();
  for (int32_t i = row.num_null; i < end; ++i) {
    BlockId* const place = Table(slot) + i * num_groups_;
    for (int32_t group = config_.groups.num_full; group < num_groups_; ++group) {
      hidden_.push_back(std::exchange(place[group], kNullBlock));
    }
  }
  pool_.Free(hidden_);
  row.num_null = end;
}

void KvCacheManager::RegisterFullBlocks(RequestSlot slot, const SequenceView& sequence,
                                        int32_t num_tokens) {
  if (!config_.enable_prefix_caching) return;
  Row& row = RowOf(slot);
  const int32_t num_full =
      std::min(num_tokens / config_.block_size, static_cast<int32_t>(sequence.block_hashes.size()));
  if (num_full <= row.num_registered) return;
  // A local block may have left the window before its last token was known.
  const int32_t begin = row.num_registered, begin_local = std::max(begin, row.num_null);
  for (int32_t i = begin; i < num_full; ++i) {
    RegisterPlace(Table(slot) + i * num_groups_, sequence.block_hashes[static_cast<size_t>(i)]);
  }
  row.num_registered = num_full;
  if (!config_.enable_events) return;
  for (int32_t group = 0; group < num_groups_; ++group) {
    EmitStored(sequence, group, config_.groups.IsLocal(group) ? begin_local : begin, num_full);
  }
}

void KvCacheManager::RegisterPlace(const BlockId* place, const BlockHash& hash) {
  for (int32_t group = 0; group < num_groups_; ++group) {
    if (place[group] != kNullBlock) pool_.Register(place[group], hash, group);
  }
}

void KvCacheManager::EmitStored(const SequenceView& sequence, int32_t group, int32_t begin_block,
                                int32_t end_block) {
  if (end_block <= begin_block) return;
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
  stored.group = group;
  events_.emplace_back(std::move(stored));
}

}  // namespace tandem
