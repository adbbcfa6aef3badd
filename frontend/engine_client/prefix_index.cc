#include "frontend/engine_client/prefix_index.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/random.h"

namespace tandem {
namespace {

constexpr int64_t kMaxBlocks = 1 << 20;  // of an engine that are kept

uint64_t Mix(uint64_t hash, std::string_view text) {
  hash = MixBits(hash ^ text.size());
  for (const char each : text) hash = MixBits(hash ^ static_cast<uint8_t>(each));
  return hash;
}

}  // namespace

std::vector<uint64_t> PrefixHashes(const wire::EngineCoreRequest& request, int64_t block_size) {
  std::vector<uint64_t> hashes;
  if (block_size <= 0) return hashes;
  uint64_t hash = Mix(Mix(0, request.lora_request.packed), request.cache_salt.value_or(""));
  const std::vector<TokenId>& tokens = request.prompt_token_ids;
  const size_t size = static_cast<size_t>(block_size), num_blocks = tokens.size() / size;
  hashes.reserve(num_blocks);
  for (size_t i = 0; i < num_blocks * size; ++i) {
    hash = MixBits(hash ^ static_cast<uint32_t>(tokens[i]));
    if ((i + 1) % size == 0) hashes.push_back(hash);
  }
  return hashes;
}

void PrefixIndex::Reset(int engine_index, int64_t num_blocks) {
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  engine = {};
  engine.half = static_cast<size_t>(std::clamp<int64_t>(num_blocks, 0, kMaxBlocks) / 2);
}

void PrefixIndex::Add(int engine_index, std::span<const uint64_t> hashes) {
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  for (const uint64_t hash : hashes) {
    if (engine.young.size() >= engine.half) {
      engine.old = std::exchange(engine.young, {});
    }
    if (engine.half > 0) engine.young.insert(hash);
  }
}

std::vector<int64_t> PrefixIndex::NumCached(std::span<const uint64_t> hashes) const {
  std::vector<int64_t> num_cached;
  for (const Engine& engine : engines_) {
    const auto first_missing = std::find_if(hashes.begin(), hashes.end(), [&](uint64_t hash) {
      return !engine.young.contains(hash) && !engine.old.contains(hash);
    });
    num_cached.push_back(first_missing - hashes.begin());
  }
  return num_cached;
}

}  // namespace tandem
