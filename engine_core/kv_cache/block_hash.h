#pragma once

// The identity of a full KV block: a hash over its tokens, chained to the block before it, so that
// equal hashes mean equal prefixes. vLLM's sha256_cbor: SHA-256 of the canonical CBOR of
// (parent hash, token ids, extra keys); other hosts' caches and routers compute the same numbers.
// Thread: engine loop. Hash values are plain; BlockHasher keeps a scratch buffer.
// REQUIRES: token ids are not negative.

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"

namespace tandem {

struct BlockHash {
  std::array<uint8_t, 32> bytes{};

  // The number that KV events carry: the last 8 bytes, big-endian.
  uint64_t ToEventInteger() const;
  // Enough of the digest to place it in a table.
  uint64_t Bits() const {
    uint64_t bits;
    std::memcpy(&bits, bytes.data(), sizeof(bits));
    return bits;
  }
  std::string ToHex() const;
  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

class BlockHasher {
 public:
  static constexpr std::string_view kDefaultSeed = "vllm-none-hash";

  explicit BlockHasher(int32_t block_size, std::string_view seed = kDefaultSeed);

  // Appends the hashes of those full blocks of token_ids that *hashes lacks. The salt (empty: none)
  // is part of the first block and, through the chain, of all others.
  void Extend(std::span<const TokenId> token_ids, std::string_view cache_salt,
              std::vector<BlockHash>* hashes);

  const BlockHash& none_hash() const { return none_hash_; }  // the parent of a first block

 private:
  int32_t block_size_;
  BlockHash none_hash_;
  std::vector<uint8_t> item_;  // CBOR of the block being hashed
};

}  // namespace tandem
