#include "engine_core/kv_cache/block_residency.h"

#include <algorithm>
#include <utility>

#include "common/random.h"

namespace tandem {

BlockResidency::BlockResidency(int32_t num_blocks, double sample)
    : sample_(sample), lives_(static_cast<size_t>(num_blocks)) {}

bool BlockResidency::IsSampled(BlockId block) {
  const uint64_t bits = MixBits(MixBits(num_allocations_++) + static_cast<uint64_t>(Index(block)));
  // The upper 53 bits are a number in [0, 1) without rounding.
  return static_cast<double>(bits >> 11) * 0x1p-53 < sample_;
}

void BlockResidency::Allocated(BlockId block) {
  Life& life = lives_[static_cast<size_t>(Index(block))];
  if (life.sampled) End(life);
  life.sampled = IsSampled(block);
  life.num_hits = 0;
  life.begin = now_;
}

void BlockResidency::Hit(BlockId block) {
  Life& life = lives_[static_cast<size_t>(Index(block))];
  if (life.sampled) life.hits[static_cast<size_t>(life.num_hits++ % kMaxHits)] = now_;
}

void BlockResidency::End(const Life& life) {
  const auto hit = [&life](int i) { return life.hits[static_cast<size_t>(i % kMaxHits)]; };
  BlockEviction eviction;
  eviction.lifetime_s = now_ - life.begin;
  eviction.idle_s = now_ - (life.num_hits > 0 ? hit(life.num_hits - 1) : life.begin);
  for (int i = std::max(1, life.num_hits - kMaxHits + 1); i < life.num_hits; ++i) {
    eviction.reuse_gaps_s.push_back(hit(i) - hit(i - 1));
  }
  evictions_.push_back(std::move(eviction));
}

void BlockResidency::Clear() {
  for (Life& life : lives_) life.sampled = false;
}

std::vector<BlockEviction> BlockResidency::TakeEvictions() { return std::exchange(evictions_, {}); }

}  // namespace tandem
