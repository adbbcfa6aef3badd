// The low-level SHA256_* calls use the SHA instructions where the CPU has them and cost 0.15 us per
// block; the EVP layer that OpenSSL 3 prefers adds 0.2 us.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "engine_core/kv_cache/block_hash.h"

#include <openssl/sha.h>

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/strings.h"

namespace tandem {
namespace {

// The first three bits of a CBOR item.
enum CborMajor : uint8_t { kUnsigned = 0 << 5, kBytes = 2 << 5, kText = 3 << 5, kArray = 4 << 5 };
constexpr uint8_t kCborNull = 0xf6;

// A head in the shortest form, which is what canonical CBOR asks for.
void PutHead(CborMajor major, uint64_t value, std::vector<uint8_t>* out) {
  if (value < 24) {
    out->push_back(static_cast<uint8_t>(major | value));
    return;
  }
  const int log_bytes = value <= 0xff ? 0 : value <= 0xffff ? 1 : value <= 0xffffffff ? 2 : 3;
  out->push_back(static_cast<uint8_t>(major | (24 + log_bytes)));
  for (int shift = (8 << log_bytes) - 8; shift >= 0; shift -= 8) {
    out->push_back(static_cast<uint8_t>(value >> shift));
  }
}

void PutText(std::string_view text, std::vector<uint8_t>* out) {
  PutHead(kText, text.size(), out);
  out->insert(out->end(), text.begin(), text.end());
}

BlockHash Sha256(std::span<const uint8_t> data) {
  BlockHash hash;
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, data.data(), data.size());
  SHA256_Final(hash.bytes.data(), &context);
  return hash;
}

BlockHash Xxh3(std::span<const uint8_t> data) {
  XXH128_canonical_t digest;  // big-endian
  XXH128_canonicalFromHash(&digest, XXH3_128bits(data.data(), data.size()));
  BlockHash hash;
  std::copy(std::begin(digest.digest), std::end(digest.digest),
            hash.bytes.end() - sizeof(digest.digest));
  return hash;
}

}  // namespace

uint64_t BlockHash::ToEventInteger() const {
  uint64_t value = 0;
  for (size_t i = bytes.size() - 8; i < bytes.size(); ++i) value = value << 8 | bytes[i];
  return value;
}

std::string BlockHash::ToHex() const {
  return HexEncode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

BlockHasher::BlockHasher(int32_t block_size, HashAlgorithm algorithm, std::string_view seed)
    : block_size_(block_size), algorithm_(algorithm) {
  PutText(seed, &item_);
  none_hash_ = HashItem();
  item_.reserve(static_cast<size_t>(block_size) * 5 + 64);
}

BlockHash BlockHasher::HashItem() const {
  return algorithm_ == HashAlgorithm::kSha256Cbor ? Sha256(item_) : Xxh3(item_);
}

void BlockHasher::Extend(std::span<const TokenId> token_ids, std::string_view cache_salt,
                         std::vector<BlockHash>* hashes) {
  const auto block_size = static_cast<size_t>(block_size_);
  const auto digest_bytes = DigestBytes(algorithm_);
  for (size_t block = hashes->size(); (block + 1) * block_size <= token_ids.size(); ++block) {
    const BlockHash& parent = block == 0 ? none_hash_ : (*hashes)[block - 1];
    item_.clear();
    PutHead(kArray, 3, &item_);
    PutHead(kBytes, digest_bytes, &item_);
    item_.insert(item_.end(), parent.bytes.end() - static_cast<ptrdiff_t>(digest_bytes),
                 parent.bytes.end());
    PutHead(kArray, block_size, &item_);
    for (TokenId token : token_ids.subspan(block * block_size, block_size)) {
      PutHead(kUnsigned, static_cast<uint32_t>(token), &item_);
    }
    if (block == 0 && !cache_salt.empty()) {
      PutHead(kArray, 1, &item_);
      PutHead(kArray, 2, &item_);
      PutText("cache_salt", &item_);
      PutText(cache_salt, &item_);
    } else {
      item_.push_back(kCborNull);
    }
    hashes->push_back(HashItem());
  }
}

}  // namespace tandem
