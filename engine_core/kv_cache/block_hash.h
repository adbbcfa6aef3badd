#pragma once

// The identity of a full KV block: a hash over its tokens and extra keys, chained to the previous
// block, so that equal hashes mean equal prefixes. As vLLM's sha256_cbor and xxhash_cbor: a digest
// of the canonical CBOR of (parent hash, token ids, extra keys); caches and routers on other hosts
// compute the same numbers. With lookahead the extra keys are (extra keys, the token after the
// block): a drafter that reads one token ahead computes other content for another next token.
// SHA-256 where strangers share a cache, XXH3-128 where no client would
// construct prompts that collide. Thread: engine loop. Hash values are plain; BlockHasher keeps a
// scratch buffer. REQUIRES: token ids are not negative.

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/extra_keys.h"

namespace tandem {

enum class HashAlgorithm { kSha256Cbor, kXxhashCbor };

// Length of an algorithm's digest in bytes.
constexpr size_t DigestBytes(HashAlgorithm algorithm) {
  return algorithm == HashAlgorithm::kSha256Cbor ? 32 : 16;
}

struct BlockHash {
  std::array<uint8_t, 32> bytes{};  // a shorter digest is at the end, after zeros

  // The number that KV events carry: the last 8 bytes, big-endian.
  uint64_t ToEventInteger() const;
  // Enough of the digest to index a hash table.
  uint64_t Bits() const {
    uint64_t bits;
    std::memcpy(&bits, bytes.data() + bytes.size() - sizeof(bits), sizeof(bits));
    return bits;
  }
  std::string ToHex() const;
  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

class BlockHasher {
 public:
  static constexpr std::string_view kDefaultSeed = "vllm-none-hash";

  explicit BlockHasher(int32_t block_size, HashAlgorithm algorithm = HashAlgorithm::kSha256Cbor,
                       std::string_view seed = kDefaultSeed, bool has_lookahead = false);

  // Appends the hashes of the full blocks of token_ids that *hashes lacks; with lookahead, of those
  // whose next token is there.
  void Extend(std::span<const TokenId> token_ids, const ExtraKeys& extra_keys,
              std::vector<BlockHash>* hashes);

  const BlockHash& none_hash() const { return none_hash_; }  // the parent of a first block

 private:
  BlockHash HashItem() const;
  void PutExtraKeys(const ExtraKeys& keys, int32_t block_idx);

  int32_t block_size_;
  HashAlgorithm algorithm_;
  bool has_lookahead_;
  BlockHash none_hash_;
  std::vector<uint8_t> item_;  // CBOR of the block being hashed
};

}  // namespace tandem
