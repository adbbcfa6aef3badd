// Block tables of groups of layers compared with the definition of windows and chunks: which blocks
// a request holds, which prefix is a hit.

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "engine_core/kv_cache/kv_cache_manager.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Running {
  std::vector<TokenId> tokens;
  std::vector<BlockHash> hashes;
  int32_t num_computed = 0;
  int32_t num_seen_from = 0;  // num_computed when blocks were last freed
  SequenceView view() const { return {tokens, hashes, {}, num_computed}; }
};

class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {
    config_.block_size = 1 << Below(3);
    config_.max_model_len = 1 + Below(60);
    config_.max_num_seqs = 5;
    config_.max_num_batched_tokens = 1 + Below(20);
    config_.groups = LayerGroups::OfWindow(Below(4) == 0 ? 2 : 2 + Below(30));  // 2: of states
    if (Below(3) > 0) {
      config_.groups.num_full = Below(3);
      config_.groups.num_local = 1 + Below(3);
    }
    if (Below(4) == 0) config_.groups.chunk = std::exchange(config_.groups.window, 0);
    config_.enable_prefix_caching = Below(5) > 0;
    config_.num_blocks = 1 + MaxHeldBlocks(config_) + Below(2 * MaxHeldBlocks(config_));
    cache_.emplace(config_);
  }

  void Act() {
    const RequestSlot slot{Below(config_.max_num_seqs)};
    const auto running = running_.find(slot);
    if (running == running_.end()) return Admit(slot);
    const auto num_tokens = static_cast<int32_t>(running->second.tokens.size());
    if (Below(6) == 0 || running->second.num_computed == num_tokens) {
      cache_->Free(slot);
      running_.erase(running);
      return;
    }
    Grow(slot, &running->second);
  }

  void Check() const {
    std::map<BlockId, int32_t> holders;
    for (const auto& [slot, request] : running_) {
      const auto table = cache_->BlockTable(slot);
      const int32_t num_groups = config_.groups.count();
      REQUIRE(static_cast<int32_t>(table.size()) == CeilDiv(request.num_computed) * num_groups);
      int32_t num_held = 0;
      for (int32_t i = 0; i < static_cast<int32_t>(table.size()); ++i) {
        const BlockId block = table[static_cast<size_t>(i)];
        REQUIRE((block == kNullBlock) ==
                !Sees(request.num_seen_from, i / num_groups, i % num_groups));
        if (block == kNullBlock) continue;
        ++holders[block];
        ++num_held;
      }
      REQUIRE(num_held <= MaxHeldBlocks(config_));
    }
    for (const auto& [block, count] : holders) REQUIRE(cache_->pool().num_holders(block) == count);
    REQUIRE(static_cast<int32_t>(holders.size()) + cache_->pool().num_free() ==
            config_.num_blocks - 1);
  }

 private:
  int32_t Below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(n)); }
  int32_t CeilDiv(int32_t tokens) const {
    return (tokens + config_.block_size - 1) / config_.block_size;
  }
  // Whether the token at `position` or a later one sees a token of the block in layers of a group.
  bool Sees(int32_t position, int32_t block, int32_t group) const {
    const int32_t last = (block + 1) * config_.block_size - 1;
    if (group < config_.groups.num_full) return true;
    if (config_.groups.chunk == 0) return last >= position - config_.groups.window + 1;
    return last / config_.groups.chunk >= position / config_.groups.chunk;
  }
  std::optional<BlockId> Find(const std::vector<BlockHash>& hashes, int32_t block,
                              int32_t group) const {
    return cache_->pool().Find(hashes[static_cast<size_t>(block)], group);
  }
  bool IsHit(const std::vector<BlockHash>& hashes, int32_t num_blocks) const {
    for (int32_t group = 0; group < config_.groups.count(); ++group) {
      const bool needs_last = config_.groups.chunk == 0;
      if (needs_last && !Find(hashes, num_blocks - 1, group)) return false;
      for (int32_t i = 0; i < num_blocks; ++i) {
        if (!Sees(num_blocks * config_.block_size, i, group)) continue;
        if (!Find(hashes, i, group)) return false;
      }
    }
    return true;
  }
  // Tries every length, the longest first.
  int32_t LongestHit(const std::vector<BlockHash>& hashes, int32_t max_tokens) const {
    const auto num_hashes = static_cast<int32_t>(hashes.size());
    int32_t n = std::min(num_hashes, max_tokens / config_.block_size);
    while (n > 0 && !IsHit(hashes, n)) --n;
    return n;
  }

  void Admit(RequestSlot slot) {
    Running request;
    // Few documents, so that prefixes are shared.
    const TokenId document = Below(3);
    for (int32_t i = 1 + Below(config_.max_model_len); i > 0; --i)
      request.tokens.push_back(document);
    cache_->ExtendHashes(request.tokens, {}, &request.hashes);
    const auto num_tokens = static_cast<int32_t>(request.tokens.size());
    Admission admission;
    admission.cached_prefix = cache_->FindCachedPrefix(request.hashes, num_tokens - 1);
    const int32_t num_groups = config_.groups.count();
    const auto num_found = static_cast<int32_t>(admission.cached_prefix.size());
    const int32_t num_hit = num_found / num_groups;
    REQUIRE(num_hit == LongestHit(request.hashes, num_tokens - 1));
    request.num_seen_from = num_hit * config_.block_size;
    for (int32_t i = 0; i < num_found; ++i) {
      const BlockId block = admission.cached_prefix[static_cast<size_t>(i)];
      const bool is_seen = Sees(request.num_seen_from, i / num_groups, i % num_groups);
      REQUIRE((block != kNullBlock) == is_seen);
      if (is_seen) REQUIRE(block == Find(request.hashes, i / num_groups, i % num_groups));
    }
    const int32_t num_new =
        1 + Below(std::min(config_.max_num_batched_tokens, num_tokens - request.num_seen_from));
    admission.num_tokens = request.num_seen_from + num_new;
    admission.num_tokens_to_fit = num_tokens;
    if (!cache_->TryAdmit(slot, request.view(), admission)) {
      REQUIRE_FALSE(running_.empty());  // alone, every request has room
      return;
    }
    request.num_computed = admission.num_tokens;
    running_.emplace(slot, std::move(request));
  }

  void Grow(RequestSlot slot, Running* request) {
    const int32_t left = static_cast<int32_t>(request->tokens.size()) - request->num_computed;
    const int32_t num_new = 1 + Below(std::min(config_.max_num_batched_tokens, left));
    const bool grown = cache_->TryGrow(slot, request->view(), request->num_computed + num_new);
    request->num_seen_from = request->num_computed;
    if (grown) {
      request->num_computed += num_new;
    } else {
      REQUIRE(running_.size() > 1);
    }
  }

  std::mt19937 random_;
  KvCacheConfig config_;
  std::optional<KvCacheManager> cache_;
  std::map<RequestSlot, Running> running_;
};

TEST_CASE(
    "B14: random admissions, steps and ends hold what their windows see, and hit what is there") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    World world(seed);
    for (int step = 0; step < 200; ++step) {
      world.Act();
      world.Check();
    }
  }
}

}  // namespace
}  // namespace tandem
