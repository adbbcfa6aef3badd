#pragma once

// How long blocks live in the cache and how they are used, for a sample of them: vLLM's block
// residency metrics. A block's life lasts from one allocation to the next, and is reported then. A
// hash of (block, number of the allocation) decides whether a life is sampled, so a repeated run
// samples the same ones.
// Thread: engine loop. Pure: time comes from SetNow, in monotonic seconds.

#include <array>
#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace tandem {

struct BlockEviction {
  double lifetime_s = 0;             // from allocation
  double idle_s = 0;                 // since the last cache hit, or since allocation
  std::vector<double> reuse_gaps_s;  // between its last hits, of at most kMaxHits
};

class BlockResidency {
 public:
  static constexpr int kMaxHits = 4;

  // sample: share of lives that are sampled, 0 to 1.
  BlockResidency(int32_t num_blocks, double sample);

  void SetNow(double now) { now_ = now; }
  // The block gets new content: its life ends and another begins.
  void Allocated(BlockId block);
  // A request found the block in the cache.
  void Hit(BlockId block);
  // All content is lost; these lives are not reported.
  void Clear();
  // Lives that ended since the last call.
  std::vector<BlockEviction> TakeEvictions();

 private:
  struct Life {
    bool sampled = false;
    int num_hits = 0;
    double begin = 0;
    std::array<double, kMaxHits> hits{};  // a ring: hit i is at i % kMaxHits
  };

  bool IsSampled(BlockId block);
  void End(const Life& life);

  const double sample_;
  double now_ = 0;
  uint64_t num_allocations_ = 0;
  std::vector<Life> lives_;
  std::vector<BlockEviction> evictions_;
};

}  // namespace tandem
